"""Waiting gangs of a namespace beyond the policy's limit are held; those within it are not.

Rank: higher priority, then submitted earlier (without a time: last), then name. Gangs that are held
for another reason are not counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from models.verify.changes import Change
from models.verify.outcome import Outcome
from models.verify.rule import Judged
from models.verify.violation import Violation

CODE = "QueueLimit"


def check(outcome: Outcome) -> Iterator[Violation]:
    limit = outcome.facts.policy.queue_limit
    queues: defaultdict[str, list[Change]] = defaultdict(list)
    for change in outcome.changes:
        if change.gang.hold == CODE and change.gang.running:
            yield change.violation("queue-limit", "runs, so no limit of a queue holds it")
        elif not change.gang.running and change.gang.hold in (None, CODE):
            queues[change.gang.namespace].append(change)
    for queue in queues.values():
        for place, change in enumerate(sorted(queue, key=_rank), start=1):
            beyond = limit is not None and place > limit
            if beyond != (change.gang.hold == CODE):
                held = "is not held" if beyond else "is held"
                what = f"{held} as {CODE}, but has place {place} of {len(queue)} in its namespace"
                yield change.violation("queue-limit", what)


def _rank(change: Change) -> tuple[int, float, str]:
    gang = change.gang
    submitted = float("inf") if gang.submitted is None else gang.submitted
    return -gang.priority, submitted, gang.name


RULE = Judged(
    check,
    {
        "queue-limit": "of a namespace's waiting gangs those beyond the policy's limit are held, no others",
    },
)
