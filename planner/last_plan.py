"""The last plan of a user, kept for verbs that are given no file: in the folder for the state of programs.

Keeping never fails a plan: where nothing can be written, nothing is kept. The file is of this user alone,
whole or absent. Called by the command line and by ``run``.
"""

from __future__ import annotations

import gzip
import json
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from planner.atomic_files import save_private
from planner.errors import Fault, InputError, MissingPathError
from planner.read.plan_files import MAX_PLAN_BYTES

SWITCH, OFF = "GANGPLAN_STATE", "off"
"""Environment variable, and its value, that keeps no plan."""

_MAX_HEADER = 65_536
_DAMAGES = (
    *(EOFError, zlib.error, gzip.BadGzipFile),
    *(ValueError, TypeError, KeyError, OverflowError, RecursionError),
)
"""What a file that is cut short, changed or another's raises."""

_HINT = "make one: gangplan plan PATH; or name the file of a plan"


@dataclass(frozen=True, slots=True)
class LastPlan:
    """``content``: the plan, as ``plan --out`` writes it. ``made_from``: in words. ``age_s``: since then.

    ``folder``: the working folder then.
    """

    content: bytes
    path: Path
    made_from: str
    folder: str
    age_s: int


def place(environ: Mapping[str, str]) -> Path | None:
    """The file of the last plan: below XDG_STATE_HOME or the home; None where none is to be kept."""
    if environ.get(SWITCH) == OFF:
        return None
    state, home = Path(environ.get("XDG_STATE_HOME", "")), Path(environ.get("HOME", ""))
    if not state.is_absolute():  # the specification has relative ones ignored
        if not home.is_absolute() or not home.is_dir():
            return None
        state = home / ".local" / "state"
    return state / "gangplan" / "last-plan.json.gz"


def keep(environ: Mapping[str, str], text: str, made_from: str) -> bool:
    """Keep the text of a plan in place of the last one; False if it cannot be, or is not to be."""
    try:
        path = place(environ)
        if path is None:
            return False
        header = {"madeFrom": made_from, "folder": str(Path.cwd()), "madeAt": int(time.time())}
        content = f"{json.dumps(header)}\n{text}".encode("utf-8", "backslashreplace")
        save_private(path, gzip.compress(content, 1, mtime=0))
    except (OSError, ValueError):  # a read-only or full disk, a path that cannot be
        return False
    return True


def load(environ: Mapping[str, str]) -> LastPlan:
    """The last plan. Raises MissingPathError without one, InputError for a damaged file."""
    path = place(environ)
    if path is None:
        off = environ.get(SWITCH) == OFF
        why = f"{SWITCH} is {OFF}" if off else "HOME and XDG_STATE_HOME name no folder"
        raise MissingPathError(Fault(f"no last plan is kept: {why}", _HINT))
    try:
        with gzip.open(path) as file:
            header = json.loads(file.readline(_MAX_HEADER))
            content = file.read(MAX_PLAN_BYTES + 1)
        made_from, folder = str(header["madeFrom"]), str(header["folder"])
        age_s = max(0, int(time.time()) - int(header["madeAt"]))
    except FileNotFoundError:
        raise MissingPathError(Fault("no last plan: none was made yet", _HINT)) from None
    except _DAMAGES:
        raise _damaged(path) from None
    except OSError as error:
        why = error.strerror or str(error)
        raise MissingPathError(
            Fault(f"cannot read the last plan: {why}", _HINT, str(path))
        ) from None
    if len(content) > MAX_PLAN_BYTES:
        raise _damaged(path)
    return LastPlan(content, path, made_from, folder, age_s)


def _damaged(path: Path) -> InputError:
    return InputError(
        Fault("the last plan is damaged", "plan again: gangplan plan PATH", str(path))
    )
