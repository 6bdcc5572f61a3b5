"""What a check of ``gangplan doctor`` found, and the exit code of all findings together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from planner.errors import (
    GangplanError,
    InputError,
    MissingPathError,
    NotPermittedError,
    UnavailableError,
)

_GRAVEST = (
    UnavailableError.exit_code,
    NotPermittedError.exit_code,
    MissingPathError.exit_code,
    InputError.exit_code,
)


class Level(StrEnum):
    """``fail``: ``apply`` or ``run`` would refuse, or could not work."""

    ok = "ok"
    warn = "warn"
    fail = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """``hint``: what to do. ``code``: the exit code that ``apply`` would have. May hold untrusted text."""

    check: str
    level: Level
    found: str
    hint: str | None = None
    code: int = 0


def passed(check: str, found: str) -> Finding:
    return Finding(check, Level.ok, found)


def warned(check: str, found: str, hint: str) -> Finding:
    return Finding(check, Level.warn, found, hint)


def failed(check: str, error: GangplanError) -> Finding:
    """The first fault of an error, as a finding."""
    fault = error.faults[0]
    return Finding(check, Level.fail, fault.what, fault.hint, error.exit_code)


def exit_code(findings: Iterable[Finding]) -> int:
    """0 if nothing failed; else that of the gravest failure."""
    codes = {one.code or 1 for one in findings if one.level is Level.fail}
    return next((code for code in _GRAVEST if code in codes), 1) if codes else 0
