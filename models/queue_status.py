"""What queues are promised, may hold and hold, before and after a plan: ``status.queues``.

A gang is in the queue that it names and in all above that. It holds the GPUs of its pods that stand on nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from models.documents.plan import PlanQueue, PlanQueueCell, PlanQueueModel
from models.gang import Gang
from models.hardware import slug
from models.instance import Instance
from models.queue import Cell, Queue
from models.solution import GangDecision, PodPlacement, placed

Held = Counter[tuple[int, str | None]]
"""GPUs by queue and GPU model; None: of all models."""


def queue_status(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[PlanQueue, ...]:
    """One entry a queue, by name; ``decisions``: one a gang of the instance."""
    if not instance.queues:
        return ()
    paths = queue_paths(instance)
    before, after, waiting = Held(), Held(), Counter[int]()
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        path = paths.get(gang.queue)
        if path is None:
            continue
        _add(before, instance, path, gang, placed(gang, gang.running_pods))
        _add(after, instance, path, gang, decision.pods)
        if decision.decision in ("wait", "preempt"):
            waiting.update(dict.fromkeys(path, sum(role.min * role.gpus for role in gang.roles)))
    return tuple(
        _stated(instance, q, before, after, waiting[q]) for q in range(len(instance.queues))
    )


def queue_paths(instance: Instance) -> dict[str | None, tuple[int, ...]]:
    """By name, the index of each queue and of all above it, itself first."""
    found: dict[str | None, tuple[int, ...]] = {}
    for q, queue in enumerate(instance.queues):
        path, parent = [q], queue.parent
        while parent is not None:
            path.append(parent)
            parent = instance.queues[parent].parent
        found[queue.name] = tuple(path)
    return found


def _add(
    held: Held, instance: Instance, path: Sequence[int], gang: Gang, pods: Iterable[PodPlacement]
) -> None:
    for pod in pods:
        gpus, model = gang.roles[pod.role].gpus, instance.cluster.nodes[pod.node].model
        for q in path if gpus else ():
            held[q, None] += gpus
            if model is not None:
                held[q, slug(model.gpu)] += gpus


def guaranteed(instance: Instance, queue: Queue) -> int:
    """What it is promised in all: stated, or the sum by GPU model, and at least the GPUs of its cells."""
    models = sum(gpus for _, gpus in queue.guarantee.models)
    stated = models if queue.guarantee.gpus is None else queue.guarantee.gpus
    return max(stated, sum(cell.count * cell_gpus(instance, cell) for cell in queue.cells))


def cell_model(instance: Instance, cell: Cell) -> str | None:
    """The GPU model of a cell, by default the one with the most GPUs installed; None without any."""
    if cell.model is not None:
        return cell.model
    installed: Counter[str] = Counter()
    for node in instance.cluster.nodes:
        if node.model is not None:
            installed[slug(node.model.gpu)] += node.gpus
    return min(installed, key=lambda model: (-installed[model], model), default=None)


def cell_gpus(instance: Instance, cell: Cell) -> int:
    """GPUs of one cell: the fewest that a named domain of its level has on selected nodes of its model."""
    if cell.level is None:
        return cell.gpus or 0
    model, level = cell_model(instance, cell), cell.level
    found: Counter[int] = Counter()
    for n, node in enumerate(instance.cluster.nodes):
        if node.model is None or slug(node.model.gpu) != model or not instance.ours(node):
            continue
        named = level == instance.cluster.node_level or None not in node.domains[: level + 1]
        if node.gpus and named:
            found[instance.cluster.domain_of[level][n]] += node.gpus
    return min(found.values(), default=0)


def _stated(instance: Instance, q: int, before: Held, after: Held, waiting: int) -> PlanQueue:
    queue = instance.queues[q]
    guarantee = guaranteed(instance, queue)
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
