"""In a queue of order ``strict`` gangs start one after another: none while an earlier one of it waits.

Earlier: higher priority, then submitted earlier (undated ones last), then namespace and name. Gangs that are
held, and those that are not known to be able to start on the empty cluster, keep nobody waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from models.verify.changes import Change
from models.verify.facts import Gang
from models.verify.outcome import Outcome
from models.verify.rule import Judged
from models.verify.violation import Violation, printable, quoted


def check(outcome: Outcome) -> Iterator[Violation]:
    first = first_waiting(outcome)
    for change in outcome.changes if first else ():
        other = first.get(change.gang.queue or "")
        if change.kind == "place" and other is not None and rank(other.gang) < rank(change.gang):
            what = f"starts before {printable(other.label)}, which waits"
            yield change.violation(
                "queue-order", f"{what}, in the strict queue {quoted(change.gang.queue or '')}"
            )


def first_waiting(outcome: Outcome) -> Mapping[str, Change]:
    """By strict queue the first gang that waits in it and could ever start."""
    found: dict[str, Change] = {}
    for change in in_line(outcome):
        known = found.get(change.gang.queue or "")
        if change.kind == "wait" and (known is None or rank(change.gang) < rank(known.gang)):
            found[change.gang.queue or ""] = change
    return found


def in_line(outcome: Outcome) -> list[Change]:
    """Gangs of strict queues that wait before the plan and keep those behind them waiting."""
    if "queue-order" not in outcome.counting:
        outcome.counting["queue-order"] = set(_positions(outcome))
    return [outcome.changes[i] for i in sorted(outcome.counting["queue-order"])]


def rank(gang: Gang) -> tuple[int, bool, int, tuple[str, str]]:
    """The place of a gang in its queue."""
    return -gang.priority, gang.submitted is None, gang.submitted or 0, gang.key


def _positions(outcome: Outcome) -> Iterator[int]:
    queues = outcome.facts.queues
    strict = {name for name, spec in queues.items() if spec.order == "strict"}
    for position, change in enumerate(outcome.changes):
        gang = change.gang
        named = gang.queue in strict and not gang.running and gang.hold is None
        if named and change.label not in outcome.unable:
            yield position


RULE = Judged(
    check,
    {
        "queue-order": "in a strict queue no gang starts while an earlier one waits that could ever start",
    },
)
