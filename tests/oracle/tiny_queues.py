"""Random queues for tiny instances: a tree of at most four, with guarantees, limits and cells.

Promises: deterministic by the draws; nothing unless a feature is asked for; guarantees that mostly fit.
Called by the generators of tiny and of busy instances.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tiny_draws import Draws

from models.documents.policy import Objective
from models.hardware import slug
from models.instance.cluster import Cluster
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.queue import Amount, Cell, Pin, Queue
from models.queues.pins import place_of

NAMES = ("ads", "bio", "cv", "dev")

QUEUED = {
    "queues": ("queues", "preemptible", "priorities", "mixed"),
    "cells": ("cells", "queues", "preemptible", "gaps", "cordons"),
    "pinned cells": ("pins", "cells", "queues", "preemptible", "movable", "launchers"),
    "lending": ("lending", "queues", "preemptible", "priorities", "mixed"),
    "strict queues": ("strict", "queues", "priorities", "submitted", "held"),
    "limits of firm gangs": ("firm_limits", "queues", "preemptible", "mixed", "elastic"),
    "fair shares": ("fair", "queues", "mixed", "resources", "stragglers"),
}
"""What each series of instances with queues has three times as much of."""


def with_queues(draws: Draws, instance: Instance) -> Instance:
    """The instance, perhaps with queues that its gangs name."""
    r = draws.random("queues")
    plain = draws.on("queues", r, 0.3) and draws.asked("queues")
    celled = draws.on("cells", r, 0.3) and draws.asked("cells")
    fair = draws.on("fair", r, 0.3) and draws.asked("fair")
    if not (plain or celled or fair):
        return instance
    names = NAMES[: r.randint(1, 4)]
    queues = tuple(_queue(draws, i, name, instance.cluster) for i, name in enumerate(names))
    if not plain:
        queues = tuple(
            replace(queue, guarantee=Amount(), limit=Amount(), borrowing=True) for queue in queues
        )
    if draws.asked("lending") and draws.on("lending", draws.random("lending"), 0.5):
        queues = tuple(_lending(draws, queue) for queue in queues)
    if draws.asked("firm_limits"):
        r, most = draws.random("firm_limits"), sum(node.gpus for node in instance.cluster.nodes)
        queues = tuple(
            replace(queue, non_preemptible_limit=_amount(r, instance.cluster, most // 2))
            if r.random() < 0.6
            else queue
            for queue in queues
        )
    if draws.asked("strict"):
        r = draws.random("strict")
        queues = tuple(replace(queue, strict=r.random() < 0.6) for queue in queues)
    if draws.asked("pins") and draws.on("pins", draws.random("pins"), 0.8):
        queues = _with_pins(draws, queues, instance.cluster)
    if celled:
        queues = tuple(_with_cells(draws, queue, instance.cluster) for queue in queues)
    gangs = tuple(
        replace(gang, queue=r.choice((*names, *names, *names, None, "nowhere")))
        for gang in instance.gangs
    )
    gangs = tuple(_of_others(draws, gang) for gang in gangs)
    policy = instance.policy
    if fair:
        listed = list(policy.objectives)
        listed.insert(r.randrange(len(listed) + 1), Objective("fair"))
        policy = replace(policy, objectives=tuple(listed))
    return replace(instance, gangs=gangs, queues=queues, policy=policy)


def _of_others(draws: Draws, gang: Gang) -> Gang:
    """Half of the gangs that wait and name no queue are another scheduler's."""
    whole = not gang.missing
    other = draws.random(f"scheduler/{gang.name}").random() < 0.5
    if gang.queue is not None or whole or not other:
        return gang
    pods = tuple(replace(pod, mode=None) for pod in gang.pods)
    return replace(gang, scheduler="default-scheduler", pods=pods)


def _queue(draws: Draws, i: int, name: str, cluster: Cluster) -> Queue:
    r = draws.random(f"queue/{name}")
    capacity = sum(node.gpus for node in cluster.nodes)
    parent = r.choice((None, *range(i))) if r.random() < 0.6 else None
    guarantee, limit = _amount(r, cluster, capacity // 2), _amount(r, cluster, capacity)
    return Queue(
        name=name,
        parent=parent,
        guarantee=guarantee if r.random() < 0.7 else Amount(),
        limit=limit if r.random() < 0.35 else Amount(),
        borrowing=r.random() < 0.85,
        reclaim=r.random() < 0.85,
        weight=r.choice((1, 1, 2, 3)),
    )


def _lending(draws: Draws, queue: Queue) -> Queue:
    """Half of the queues keep some of their guarantee, in all or of a model."""
    r = draws.random(f"lending/{queue.name}")
    if r.random() < 0.4:
        return queue
    most, models = queue.guarantee.gpus, dict(queue.guarantee.models)
    lent = {name: r.randint(0, gpus) for name, gpus in models.items() if r.random() < 0.7}
    in_all = None if most is None or r.random() < 0.2 else r.randint(0, most // 2)
    return replace(queue, lending_limit=Amount(in_all, tuple(sorted(lent.items()))))


def _amount(r: Random, cluster: Cluster, most: int) -> Amount:
    """Of all models together, of some, or of both."""
    gpus = r.randint(0, most)
    models = {
        name: r.randint(0, most)
        for name in sorted({slug(node.model.gpu) for node in cluster.nodes if node.model})
        if r.random() < 0.6
    }
    kind = r.random()
    if kind < 0.6 or not models:
        return Amount(gpus)
    return Amount(gpus if kind < 0.8 else None, tuple(sorted(models.items())))


def _with_pins(draws: Draws, queues: tuple[Queue, ...], cluster: Cluster) -> tuple[Queue, ...]:
    """Some queues pin a domain or one or two nodes that no queue pins which is not above or below them."""
    found = list(queues)
    taken: dict[str, set[int]] = {}
    for q, queue in enumerate(queues):
        r = draws.random(f"pins/{queue.name}")
        if r.random() < 0.35:
            continue
        pin = _pin(r, cluster)
        names = {cluster.nodes[n].name for n in place_of(cluster, pin)}
        own = _line(queues, q)
        others = {o for name in names for o in taken.get(name, ())}
        if q in others or any(o not in own and q not in _line(queues, o) for o in others):
            continue
        for name in names:
            taken.setdefault(name, set()).add(q)
        found[q] = replace(queue, pins=(pin,))
    return tuple(found)


def _pin(r: Random, cluster: Cluster) -> Pin:
    domains = [
        Pin(level, "/".join(domain.path))
        for level in range(len(cluster.levels))
        for domain in cluster.domains[level]
        if None not in cluster.nodes[domain.nodes[0]].domains[: level + 1]
    ]
    if domains and r.random() < 0.4:
        return r.choice(domains)
    names = [node.name for node in cluster.nodes]
    return Pin(nodes=tuple(sorted(r.sample(names, min(len(names), r.choice((1, 1, 2)))))))


def _line(queues: tuple[Queue, ...], q: int | None) -> list[int]:
    found = []
    while q is not None:
        found.append(q)
        q = queues[q].parent
    return found


def _with_cells(draws: Draws, queue: Queue, cluster: Cluster) -> Queue:
    r = draws.random(f"cells/{queue.name}")
    models = sorted({slug(node.model.gpu) for node in cluster.nodes if node.model})
    cells = []
    for _ in range(r.choice((0, 1, 1, 2))):
        model = r.choice((None, None, *models))
        level = r.choice((*range(len(cluster.levels) + 1), len(cluster.levels)))
        if r.random() < 0.5:
            cells.append(Cell(r.choice((1, 1, 2)), level=level, model=model))
        else:
            cells.append(Cell(r.choice((1, 1, 2)), gpus=r.choice((1, 2, 2, 3)), model=model))
    return replace(queue, cells=tuple(cells))
