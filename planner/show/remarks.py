"""Remarks on a reading, on stderr. A dry run shows the first ones and the command for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.read.instance_builder import LoadedInput
    from planner.show.console import Console

MOST_OF_A_DRY_RUN = 8


def print_reading(console: Console, built: LoadedInput, *, all_with: str | None = None) -> None:
    """Print the source of the levels and the remarks; ``all_with`` as in ``print_remarks``."""
    if built.found is not None:
        console.say(built.found)
        console.event("levels", found=built.found)
    print_remarks(console, built.remarks, all_with=all_with)


def print_remarks(console: Console, remarks: Sequence[str], *, all_with: str | None = None) -> None:
    """Print the remarks: all of them, or the first MOST_OF_A_DRY_RUN.

    ``all_with``: the command that shows them all; None shows them here.
    """
    shown = remarks if all_with is None else remarks[:MOST_OF_A_DRY_RUN]
    for line in shown:
        console.warn(line)
    for line in remarks:
        console.event("warning", warning=line)
    rest = len(remarks) - len(shown)
    if rest:
        console.warn(f"and {rest:,} more; {all_with} shows {'it' if rest == 1 else 'all'}")
