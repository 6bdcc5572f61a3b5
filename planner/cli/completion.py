"""Completion of ``kubectl gangplan ...``: kubectl calls ``kubectl_complete-gangplan`` with the words so far.

The last word is the one to complete, possibly empty. One candidate a line goes to stdout, with a tab and
its description, then a colon and a directive of Cobra. Candidates are those of Typer's completion for shells.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout

FILES, ERROR, NO_FILES = 0, 1, 4
"""Cobra's ShellCompDirective: the shell completes file names; it does nothing; only the candidates."""


def main() -> None:
    """Print the candidates for the words of this process, and the directive."""
    words = sys.argv[1:]
    try:
        candidates = _candidates(words)
    except (Exception, KeyboardInterrupt):  # noqa: BLE001  # a message would end up in the command line
        candidates, directive = [], ERROR
    else:
        of_option = bool(words) and words[-1].startswith("-")
        directive = NO_FILES if candidates or of_option else FILES
    sys.stdout.write("".join(f"{line}\n" for line in (*candidates, f":{directive}")))


def _candidates(words: Sequence[str]) -> list[str]:
    """The candidates for the last word, each with a tab and its description, if it has one.

    Sets the environment variables with which Typer's script for fish asks for the same.
    """
    from planner.cli.app import WIDE, app

    os.environ["COLUMNS"] = WIDE
    os.environ["_GANGPLAN_COMPLETE"] = "complete_fish"
    os.environ["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    os.environ["_TYPER_COMPLETE_ARGS"] = shlex.join(("gangplan", *(words or [""])))
    with redirect_stdout(io.StringIO()) as said:
        try:
            app(args=[], prog_name="gangplan", standalone_mode=False)
        except SystemExit as ended:
            if ended.code:
                raise RuntimeError(said.getvalue()) from ended
    return [line for line in said.getvalue().splitlines() if line]


if __name__ == "__main__":
    main()
