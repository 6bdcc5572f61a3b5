"""What a plan states of its queues: what they are promised, may hold, hold and wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from models.documents.base import Document
from models.hardware import slug
from models.verify.cells import Cells
from models.verify.outcome import Outcome
from models.verify.queues import ALL
from models.verify.violation import Violation, printable, quoted

RULE = "queues"


def check(outcome: Outcome) -> Iterator[Violation]:
    stated = outcome.case.status.queues
    if not stated and not outcome.facts.queues:
        return
    if [queue.name for queue in stated] != sorted(outcome.facts.queues):
        yield Violation(RULE, None, "status.queues: must list the queues of the instance, by name")
        return
    for queue, wanted in zip(stated, derived(outcome), strict=True):
        says = _known(queue)
        for field in sorted(says.keys() | wanted.keys()):
            if says.get(field) != wanted.get(field):
                what = f"queue {quoted(queue.name)}: {field} says {says.get(field, 'nothing')}"
                right = wanted.get(field, "not stated")
                yield Violation(RULE, None, f"{printable(what)}, is {printable(str(right))}")


def derived(outcome: Outcome) -> list[dict[str, Any]]:
    """What must be stated of every queue, by name."""
    held, waiting = outcome.queues.sums(outcome.queue_gpus), _waiting(outcome)
    return [
        _wanted(outcome, name, held[name], waiting[name]) for name in sorted(outcome.facts.queues)
    ]


def _known(document: Document) -> dict[str, Any]:
    """The fields that are known and stated."""
    found = {name: getattr(document, name) for name in type(document).model_fields}
    return {
        name: tuple(_known(one) if isinstance(one, Document) else one for one in value)
        if isinstance(value, tuple)
        else value
        for name, value in found.items()
        if value not in (None, ())
    }


def _wanted(outcome: Outcome, name: str, held: Mapping[str, int], waiting: int) -> dict[str, Any]:
    """What must be stated of a queue; what is absent or a default is left out."""
    queues = outcome.queues
    spec = outcome.facts.queues[name]
    guarantee, limit = queues.guarantee[name], queues.limit[name]
    before = queues.held_before[name]
    models = {slug(model) for model in (*spec.guarantee.models, *spec.limit.models)}
    gpus = outcome.facts.in_gpus

    def most(key: str) -> float | None:
        return gpus(limit[key]) if key in limit else None

    found: dict[str, Any] = {
        "name": name,
        "parent": spec.parent,
        "guarantee": gpus(guarantee[ALL]),
        "limit": most(ALL),
        "before": gpus(before[ALL]),
        "after": gpus(held[ALL]),
        "borrowed": gpus(max(0, held[ALL] - guarantee[ALL])),
        "waiting": gpus(waiting),
        "models": tuple(
            _without_none(
                model=model,
                guarantee=gpus(guarantee.get(model, 0)),
                limit=most(model),
                before=gpus(before[model]),
                after=gpus(held[model]),
            )
            for model in sorted(models)
        ),
        "cells": tuple(_cells(queues.cells, name)),
    }
    return _without_none(**{key: value for key, value in found.items() if value != ()})


def _cells(cells: Cells, name: str) -> Iterator[dict[str, Any]]:
    """Equal cells together, in the order in which the document names them."""
    counts: dict[tuple[str | None, int | None, str], int] = {}
    for cell in cells.facts.queues[name].cells:
        if cell.pinned:
            continue
        key = (cell.level, cell.gpus, cells.model_of(cell))
        counts[key] = counts.get(key, 0) + (cell.count or 0)
    for (level, gpus, model), count in counts.items():
        yield _without_none(count=count, level=level, gpus=gpus, model=model or None)
    for cell in cells.facts.queues[name].cells:
        if cell.domain is not None:
            yield {"count": 1, "level": cell.level, "domain": cell.domain}
        elif cell.nodes:
            yield {"count": len(cell.nodes), "nodes": cell.nodes}


def _without_none(**fields: Any) -> dict[str, Any]:  # noqa: ANN401  # values of a JSON object
    return {key: value for key, value in fields.items() if value is not None}


def _waiting(outcome: Outcome) -> Counter[str]:
    """By queue, GPUs at ``min`` of the gangs in it that wait or are stopped."""
    found: Counter[str] = Counter()
    for change in outcome.changes:
        if change.kind in ("wait", "preempt"):
            for name in outcome.queues.above(change.gang.queue):
                found[name] += change.gang.counts_at_min
    return found
