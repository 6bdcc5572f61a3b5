"""What a check found: well, worth a look, or in the way.

Promises: plain data; words may hold names from the cluster, and are made harmless where they are shown.
Made by the other files of this package; shown by ``planner.showing.doctoring``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from planner.errors import (
    GangplanError,
    InputError,
    MissingPathError,
    NotPermittedError,
    StaleError,
    UnavailableError,
)

_GRAVEST = (
    UnavailableError.exit_code,
    NotPermittedError.exit_code,
    MissingPathError.exit_code,
    InputError.exit_code,
    StaleError.exit_code,
)


class Level(StrEnum):
    """How it is. ``fail``: ``apply`` or ``run`` would refuse, or could not work."""

    ok = "ok"
    warn = "warn"
    fail = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """``hint``: what to do. ``code``: the exit code that ``apply`` would have for it."""

    check: str
    level: Level
    found: str
    hint: str | None = None
    code: int = 0


def well(check: str, found: str) -> Finding:
    return Finding(check, Level.ok, found)


def odd(check: str, found: str, hint: str) -> Finding:
    return Finding(check, Level.warn, found, hint)


def failed(check: str, error: GangplanError) -> Finding:
    """The first fault of an error, as a finding."""
    fault = error.faults[0]
    return Finding(check, Level.fail, fault.what, fault.hint, error.exit_code)


def exit_code(findings: Iterable[Finding]) -> int:
    """0 if nothing failed; else that of the gravest failure."""
    codes = {one.code or 1 for one in findings if one.level is Level.fail}
    return next((code for code in _GRAVEST if code in codes), 1) if codes else 0
