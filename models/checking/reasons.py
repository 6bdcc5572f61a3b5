"""Reasons: gangs that wait, are stopped or stay incomplete say why; gangs that are admitted do not.

What a message says cannot be judged, but for one thing: a gang that is stopped names one it gives way to.
Called by ``gangs``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from models.checking.changes import Arrivals, Change
from models.checking.form import printable, shown
from models.checking.statement import StatedGang
from models.checking.violation import Violation

INCOMPLETE = "Incomplete"
PREEMPTED = "Preempted"
UNSUPPORTED = "Unsupported"


def check(change: Change, stated: StatedGang, arrivals: Arrivals) -> Iterator[Violation]:
    code, message = (None, "") if stated.reason is None else stated.reason
    fault = _fault(change, code)
    if fault is not None:
        yield Violation("reason", change.label, fault)
    if change.kind == "preempt":
        comes = change.outranked_by(arrivals, change.gang.standing)
        if comes and not any(_named(other.gang.name, message) for other in comes):
            yield Violation(
                "reason",
                change.label,
                f"does not name who comes to its nodes, such as {comes[0].label}",
            )


def _fault(change: Change, code: str | None) -> str | None:
    """What is wrong with the code, None if nothing is."""
    wanted = _wanted(change)
    if wanted is not None:
        return None if code == wanted else f"its reason is {wanted}, not {shown(code)}"
    if change.kind == "wait":
        if code is None:
            return "must say why it has no pods"
        return f"waits, so it is not {code}" if code in (INCOMPLETE, PREEMPTED) else None
    if code is None or (change.kind == "keep" and code == UNSUPPORTED):
        return None
    return f"is admitted and needs no reason {shown(code)}"


def _wanted(change: Change) -> str | None:
    """The one code that fits, where there is one."""
    if change.held_back and change.kind in ("wait", "keep"):
        return change.gang.hold
    if change.kind == "preempt":
        return PREEMPTED
    return INCOMPLETE if change.kind == "keep" and change.incomplete else None


def _named(name: str, message: str) -> bool:
    """Whether a name stands in a message, not as a part of another."""
    part = r"[A-Za-z0-9_-]"
    return re.search(f"(?<!{part}){re.escape(printable(name))}(?!{part})", message) is not None
