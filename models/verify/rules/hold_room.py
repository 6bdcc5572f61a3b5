"""Room is held: while a gang of the policy's ``holdRoom`` or above waits, none of lower priority starts.

Gangs that are held, and those that are not known to be able to start on the empty cluster, hold no room.
"""

from __future__ import annotations

from collections.abc import Iterator

from models.verify.changes import Change
from models.verify.outcome import Outcome
from models.verify.rule import Judged
from models.verify.violation import Violation, printable


def check(outcome: Outcome) -> Iterator[Violation]:
    first = first_waiting(outcome)
    if first is None:
        return
    priority = first.gang.priority
    for change in outcome.changes:
        if change.kind == "place" and change.gang.priority < priority:
            what = f"starts, but room is held for {printable(first.label)} (priority {priority})"
            yield change.violation("hold-room", f"{what}, which waits")


def first_waiting(outcome: Outcome) -> Change | None:
    """The gang of the highest priority that holds room and waits."""
    if outcome.facts.hold_room_from is None:
        return None
    waiting = (change for change in holding(outcome) if change.kind == "wait")
    return max(waiting, key=lambda change: change.gang.priority, default=None)


def holding(outcome: Outcome) -> list[Change]:
    """Gangs that hold room while they wait, in their order."""
    if "hold-room" not in outcome.counting:
        outcome.counting["hold-room"] = set(_positions(outcome))
    return [outcome.changes[i] for i in sorted(outcome.counting["hold-room"])]


def _positions(outcome: Outcome) -> Iterator[int]:
    least = outcome.facts.hold_room_from
    for position, change in enumerate(outcome.changes):
        gang = change.gang
        high = least is not None and gang.stated_priority >= least
        if high and not gang.running and gang.hold is None and change.label not in outcome.unable:
            yield position


RULE = Judged(
    check,
    {
        "hold-room": "no gang starts while one of higher priority waits that holds room",
    },
)
