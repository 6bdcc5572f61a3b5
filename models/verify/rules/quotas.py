"""Queues: no more than their limit is held, and what they are guaranteed stays reachable.

Limits bind what gangs in a queue hold. What is promised of the cluster, R, counts firm gangs, those without
``preemptible`` that are in a queue or gangplan's to start, and guarantees: of a queue the larger of its
guarantee and what is promised in it. What a queue does not lend counts likewise beside all gangs that are not
another scheduler's, and against the limits of the queues above. The sums beyond the GPUs that there are, and
the GPUs of cells without a place, do not grow. Firm gangs come to no node that a queue pins which they are
not in.
"""

from __future__ import annotations

from collections.abc import Iterator

from models.verify.cells import certainly_more
from models.verify.facts import Gang, Pod
from models.verify.outcome import Outcome
from models.verify.queues import ALL
from models.verify.rule import Judged
from models.verify.violation import Violation, printable, quoted


def check(outcome: Outcome) -> Iterator[Violation]:
    if outcome.facts.queues:
        for firm in (False, True):
            beyond = outcome.queues.beyond_limits(outcome.queue_gpus, firm=firm)
            for name, key, gpus, limit, before in beyond:
                what = f"queue {quoted(name)} holds {_gpus(gpus, key)}, its limit is {limit}"
                if firm:
                    what = f"hold {_gpus(gpus, key)} in queue {quoted(name)}, the limit is {limit}"
                    what = f"gangs that are not preemptible {what}"
                held = f"and they held {before}" if firm else f"and it held {before}"
                yield Violation("quota", None, f"{what}, {held}")
        yield from _guarantees(outcome)
        yield from _lending(outcome)
        yield from _cells(outcome)
        yield from _pins(outcome)


def _guarantees(outcome: Outcome) -> Iterator[Violation]:
    queues = outcome.queues
    if not queues.guaranteed:
        return
    beyond = queues.beyond(_on_odd_nodes(outcome))
    for key, short in queues.shortfall(outcome.queue_gpus, beyond).items():
        if short > queues.shortfall_before[key]:
            what = f"{_gpus(short, key)} that are promised are not there"
            before = queues.shortfall_before[key]
            yield Violation("guarantee", None, f"{what}; before the plan it was {before}")


def _on_odd_nodes(outcome: Outcome) -> Iterator[tuple[Gang, Pod]]:
    for n in outcome.queues.odd_nodes:
        for position, pod, _ in outcome.usage.nodes[n].tenants:
            yield outcome.facts.gangs[position], pod


def _lending(outcome: Outcome) -> Iterator[Violation]:
    queues = outcome.queues
    if not queues.unlent:
        return
    beyond = queues.beyond(_on_odd_nodes(outcome), firm=False)
    after = queues.lent_too_much(outcome.queue_gpus, beyond)
    for key in queues.unlent:
        more, before = after[None, key], queues.lent_before[None, key]
        if more > before:
            what = f"{_gpus(more, key)} too many are held next to what queues do not lend"
            yield Violation("lending", None, f"{what}; before the plan it was {before}")
        for name in sorted(queues.above_unlent(key)):
            gpus, before = after[name, key], queues.lent_before[name, key]
            limit = queues.limit[name].get(key)
            if limit is not None and gpus > max(limit, before):
                what = f"queue {quoted(name)} holds, and keeps for queues below, {_gpus(gpus, key)}"
                what = f"{what}, its limit is {limit}, and it was {before}"
                yield Violation("lending", None, what)


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


def _pins(outcome: Outcome) -> Iterator[Violation]:
    """Pods with GPUs that are placed or moved to a node that another queue pins."""
    queues = outcome.queues
    for n in sorted(queues.cells.pinned):
        came = {
            position
            for position, pod, placed in outcome.usage.nodes[n].tenants
            if placed and outcome.changes[position].gang.roles[pod.role].gpus
        }
        for position in sorted(came):
            change = outcome.changes[position]
            owner = queues.closed(change.gang).get(n)
            if owner is not None:
                node = outcome.facts.nodes[n].name
                what = f"comes to node {node}, which is pinned to queue {quoted(owner)}"
                yield change.violation("pinned", what)


def _gpus(gpus: int, key: str) -> str:
    return f"{gpus} GPUs" if key == ALL else f"{gpus} GPUs of {printable(key)}"


RULE = Judged(
    check,
    {
        "quota": "queues hold no more than their limit, or than before",
        "guarantee": "no more is promised, and held by gangs that may not stop, than before or than there is",
        "lending": "no more is held, next to what queues do not lend, than before or than there is",
        "cells": "cells of queues find no fewer places than before",
        "pinned": "no GPU pod of a gang that may not stop comes to a node that another queue pins",
    },
    on_empty=True,
)
