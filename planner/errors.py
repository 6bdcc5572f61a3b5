"""Expected failures: what, where, a hint, and the exit code. Anything else is a bug (exit code 1).

``planner.cli.app`` turns them into text.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One problem. ``line`` and ``column`` count from 1, None if unknown."""

    what: str
    hint: str | None = None
    file: str | None = None
    line: int | None = None
    column: int | None = None

    def lines(self) -> list[str]:
        """The printed form, at most three lines."""
        lines = [f"error: {self.what}"]
        if self.file is not None:
            place = [self.file, *(str(n) for n in (self.line, self.column) if n is not None)]
            lines.append(f"  --> {':'.join(place)}")
        if self.hint is not None:
            lines.append(f"hint: {self.hint}")
        return lines


class GangplanError(Exception):
    """An expected failure with one or more faults (a reader reports at most 20)."""

    exit_code = 1

    def __init__(self, *faults: Fault) -> None:
        super().__init__("; ".join(fault.what for fault in faults))
        self.faults = faults


class UsageError(GangplanError):
    """Unknown verb or option, missing argument."""

    exit_code = 64


class InputError(GangplanError):
    """Bad input; also files but no document, or no cluster."""

    exit_code = 65


class MissingPathError(GangplanError):
    """A path that does not exist or cannot be read."""

    exit_code = 66


class NoPlanError(GangplanError):
    """No usable plan within the budget."""

    exit_code = 4


class RefusedPlanError(GangplanError):
    """The verifier refused the plan; nothing was saved."""

    exit_code = 5


class CannotWriteError(GangplanError):
    """The output cannot be written; nothing half-written is left behind."""

    exit_code = 73


class UnavailableError(GangplanError):
    """No kubectl, or the API server cannot be reached or does not answer as one."""

    exit_code = 69


class NotPermittedError(GangplanError):
    """The user lacks a right; the fault names it."""

    exit_code = 77


class StaleError(GangplanError):
    """The cluster no longer matches the plan; nothing was applied."""

    exit_code = 6


class LockedError(GangplanError):
    """Another run holds the lock; the fault names it."""

    exit_code = 75
