"""Queues: no more than their limit is held, and what they are guaranteed stays reachable.

Limits bind what gangs in a queue hold. What is promised of the cluster, R, counts firm gangs, those without
``preemptible`` that are in a queue or gangplan's to start, and guarantees: of a queue the larger of its
guarantee and what is promised in it. The sum beyond the GPUs that there are, and the GPUs of cells without a
place, do not grow.
"""

from __future__ import annotations

from collections.abc import Iterator

from models.verify.cells import certainly_more
from models.verify.outcome import Outcome
from models.verify.queues import ALL
from models.verify.violation import Violation, printable, quoted


def check(outcome: Outcome) -> Iterator[Violation]:
    if outcome.facts.queues:
        yield from _limits(outcome)
        yield from _guarantees(outcome)
        yield from _cells(outcome)


def _limits(outcome: Outcome) -> Iterator[Violation]:
    queues = outcome.queues
    held = queues.sums(outcome.queue_gpus)
    for name, limits in queues.limit.items():
        for key, limit in limits.items():
            gpus, before = held[name][key], queues.held_before[name][key]
            if gpus > max(limit, before):
                what = f"holds {_gpus(gpus, key)}, its limit is {limit}, and it held {before}"
                yield Violation("quota", None, f"queue {quoted(name)} {what}")


def _guarantees(outcome: Outcome) -> Iterator[Violation]:
    queues = outcome.queues
    if not queues.guaranteed:
        return
    odd = (
        (outcome.facts.gangs[position], pod)
        for n in queues.odd_nodes
        for position, pod, _ in outcome.usage.nodes[n].tenants
    )
    for key, short in queues.shortfall(outcome.queue_gpus, queues.beyond(odd)).items():
        if short > queues.shortfall_before[key]:
            what = f"{_gpus(short, key)} that are promised are not there"
            before = queues.shortfall_before[key]
            yield Violation("guarantee", None, f"{what}; before the plan it was {before}")


def _cells(outcome: Outcome) -> Iterator[Violation]:
    queues = outcome.queues
    if not queues.cells.grounds:
        return
    after = queues.cells.packings((c.gang, c.pods.values()) for c in outcome.changes)
    for model, packing in after.items():
        more = certainly_more(packing, queues.packings_before[model])
        if more:
            what = f"{_gpus(more, model)} of cells find no place any more"
            yield Violation("cells", None, what)


def _gpus(gpus: int, key: str) -> str:
    return f"{gpus} GPUs" if key == ALL else f"{gpus} GPUs of {printable(key)}"
