"""Which waiting gangs may start: in strict queues, of a namespace, and after evictions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from models.verify.changes import Change
from models.verify.facts import Gang
from models.verify.outcome import Outcome
from models.verify.rule import Judged
from models.verify.violation import Violation, printable, quoted


def _in_order(outcome: Outcome) -> Iterator[Violation]:
    """In a queue of order ``strict`` gangs start one after another: none while an earlier one of it waits.

    Earlier: higher priority, then submitted earlier (undated ones last), then namespace and name. Gangs that
    are held, and those that are not known to be able to start on the empty cluster, keep nobody waiting.
    """
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
        queues = outcome.facts.queues
        strict = {name for name, spec in queues.items() if spec.order == "strict"}
        outcome.counting["queue-order"] = {
            position
            for position, change in enumerate(outcome.changes)
            if change.gang.queue in strict and not change.gang.running
            if change.gang.hold is None and change.label not in outcome.unable
        }
    return [outcome.changes[i] for i in sorted(outcome.counting["queue-order"])]


def rank(gang: Gang) -> tuple[int, bool, int, tuple[str, str]]:
    """The place of a gang in its queue."""
    return -gang.priority, gang.submitted is None, gang.submitted or 0, gang.key


ORDER = Judged(
    _in_order,
    {
        "queue-order": "in a strict queue no gang starts while an earlier one waits that could ever start",
    },
)


LIMITED = "QueueLimit"


def _limited(outcome: Outcome) -> Iterator[Violation]:
    """Waiting gangs of a namespace beyond the policy's limit are held; those within it are not.

    Rank: higher priority, then submitted earlier (without a time: last), then name. Gangs that are held
    for another reason are not counted.
    """
    limit = outcome.facts.policy.queue_limit
    queues: defaultdict[str, list[Change]] = defaultdict(list)
    for change in outcome.changes:
        if change.gang.hold == LIMITED and change.gang.running:
            yield change.violation("queue-limit", "runs, so no limit of a queue holds it")
        elif not change.gang.running and change.gang.hold in (None, LIMITED):
            queues[change.gang.namespace].append(change)
    for queue in queues.values():
        for place, change in enumerate(sorted(queue, key=lambda one: rank(one.gang)), start=1):
            beyond = limit is not None and place > limit
            if beyond != (change.gang.hold == LIMITED):
                held = "is not held" if beyond else "is held"
                what = (
                    f"{held} as {LIMITED}, but has place {place} of {len(queue)} in its namespace"
                )
                yield change.violation("queue-limit", what)


LIMIT = Judged(
    _limited,
    {
        "queue-limit": "of a namespace's waiting gangs those beyond the policy's limit are held, no others",
    },
)


PAUSED = "Backoff"


def _paused(outcome: Outcome) -> Iterator[Violation]:
    """A gang that plans stopped is held as ``Backoff`` until its pause is over, and no other gang is."""
    now = outcome.facts.now
    for change in outcome.changes:
        gang = change.gang
        again = None if gang.running else gang.starts_again
        pauses, held = again is not None and now < again, gang.hold == PAUSED
        if held and not pauses:
            yield change.violation("backoff", f"is held as {PAUSED}, but may start")
        elif pauses and gang.hold in (None, "QueueLimit"):
            yield change.violation("backoff", f"may not start yet, but is not held as {PAUSED}")


BACKOFF = Judged(
    _paused, {"backoff": "of waiting gangs those that plans stopped lately are held, no others"}
)
