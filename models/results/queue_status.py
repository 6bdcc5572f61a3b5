"""What queues are promised, may hold and hold, before and after a plan: ``status.queues``.

Limits are those that are stated: ``models.queues.queue_shares`` has what follows from them for a plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from models.documents.plan import PlanQueue, PlanQueueCell, PlanQueueModel
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.queue import Gpu, Queue
from models.instance.solution import GangDecision, PodPlacement, placed
from models.queues.queue_shares import cell_model, gpus_held, queue_of, stated_shares

Held = Counter[tuple[int, Gpu]]
"""GPUs by queue and GPU model."""


def queue_status(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[PlanQueue, ...]:
    """One entry a queue, by name; ``decisions``: one a gang of the instance."""
    if not instance.queues:
        return ()
    known, before, after, waiting = stated_shares(instance), Held(), Held(), Counter[int]()
    rows = zip(instance.gangs, queue_of(instance), decisions, strict=True)
    for gang, queue, decision in rows:
        path = known.path(queue)
        _add(before, instance, path, gang, placed(gang, gang.running_pods))
        _add(after, instance, path, gang, decision.pods)
        if decision.decision in ("wait", "preempt"):
            waiting.update(dict.fromkeys(path, sum(role.min * role.gpus for role in gang.roles)))
    return tuple(
        _stated(instance, q, before, after, waiting[q]) for q in range(len(instance.queues))
    )


def _add(
    held: Held, instance: Instance, path: Sequence[int], gang: Gang, pods: Iterable[PodPlacement]
) -> None:
    for gpu, gpus in gpus_held(instance, gang, pods).items() if path else ():
        for q in path:
            held[q, gpu] += gpus


def _stated(instance: Instance, q: int, before: Held, after: Held, waiting: int) -> PlanQueue:
    queue = instance.queues[q]
    guarantee = stated_shares(instance).guarantee(q)
    return PlanQueue.model_construct(
        name=queue.name,
        parent=None if queue.parent is None else instance.queues[queue.parent].name,
        guarantee=guarantee,
        limit=_most(queue.limit.gpus, None if queue.borrowing else guarantee),
        before=before[q, None],
        after=after[q, None],
        borrowed=max(0, after[q, None] - guarantee),
        waiting=waiting,
        models=tuple(_models(queue, q, before, after)),
        cells=tuple(_cells(instance, queue)),
    )


def _most(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _models(queue: Queue, q: int, before: Held, after: Held) -> Iterable[PlanQueueModel]:
    """Of each GPU model that its guarantee or its limit names; without borrowing one ends the other."""
    promised, limits = dict(queue.guarantee.models), dict(queue.limit.models)
    for model in sorted(promised.keys() | limits.keys()):
        own = None if queue.borrowing else promised.get(model)
        yield PlanQueueModel.model_construct(
            model=model,
            guarantee=promised.get(model, 0),
            limit=_most(limits.get(model), own),
            before=before[q, model],
            after=after[q, model],
        )


def _cells(instance: Instance, queue: Queue) -> Iterable[PlanQueueCell]:
    """Equal cells together, in the order in which the queue names them first."""
    counts: Counter[tuple[int | None, int | None, str | None]] = Counter()
    for cell in queue.cells:
        counts[cell.level, cell.gpus, cell_model(instance, cell)] += cell.count
    for (level, gpus, model), count in counts.items():
        name = None if level is None else instance.cluster.level_name(level)
        yield PlanQueueCell.model_construct(count=count, level=name, gpus=gpus, model=model)
    for pin in queue.pins:
        name = None if pin.level is None else instance.cluster.level_name(pin.level)
        yield PlanQueueCell.model_construct(
            count=len(pin.nodes) or 1, level=name, domain=pin.domain, nodes=pin.nodes
        )
