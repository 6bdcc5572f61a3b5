"""Errors a user may see: what, where, a hint, and the exit code that goes with them.

Promises: no printing here; every expected failure is one of these classes, anything else is a bug (1).
Raised anywhere in ``planner``; turned into text and an exit code in ``planner.cli.app``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong. ``line`` and ``column`` count from 1; None where there is no place."""

    what: str
    hint: str | None = None
    file: str | None = None
    line: int | None = None
    column: int | None = None

    def lines(self) -> list[str]:
        """The fault as people see it, in at most three lines."""
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
    """A path that is not there or cannot be read."""

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
    """kubectl is not there, or the API server cannot be reached or does not answer usefully."""

    exit_code = 69


class NotPermittedError(GangplanError):
    """The user lacks a right that the work needs; the fault names it."""

    exit_code = 77


class StaleError(GangplanError):
    """The cluster is not, or no longer, what the plan relied on; nothing was applied."""

    exit_code = 6


class PartWayError(GangplanError):
    """Applying stopped part-way, or left something that needs a human; the same command resumes."""

    exit_code = 7


class LockedError(GangplanError):
    """Another run holds the lock; the fault says who."""

    exit_code = 75
