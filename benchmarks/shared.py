"""What a shared cluster promises, switched on for an instance of any shape.

Promises: the same arguments give the same Instance; whatever is not switched on stays as it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from benchmarks.building import EPOCH, GIB, total_gpus
from models.documents.gang import Parallelism
from models.documents.policy import Objective, Reservations
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.policy import Policy
from models.instance.queue import Amount, Cell, Queue

HOUR_S = 3600
WIDE = 64
"""GPUs of a gang that is spread evenly over its racks."""

Change = Callable[[Instance, random.Random], Instance]


def _gangs(instance: Instance, change: Callable[[Gang], Gang]) -> Instance:
    return replace(instance, gangs=tuple(change(gang) for gang in instance.gangs))


def _policy(instance: Instance, **changes: object) -> Instance:
    policy: Policy = replace(instance.policy, **changes)  # type: ignore[arg-type]
    return replace(instance, policy=policy)


def _queues(instance: Instance, rng: random.Random) -> Instance:
    """A queue for each namespace, two under one roof and two under another; a third of the gangs may stop."""
    gpus = sum(node.gpus for node in instance.cluster.nodes)
    names = sorted({gang.namespace for gang in instance.gangs})
    roofs = ("research", "service")
    found = [Queue(roof, limit=Amount(round(0.8 * gpus))) for roof in roofs]
    for i, name in enumerate(names):
        share = rng.choice((0.1, 0.15, 0.2))
        found.append(
            Queue(
                name,
                parent=None,
                guarantee=Amount(round(share * gpus)),
                limit=Amount(round(0.5 * gpus)),
                weight=1 + i % 3,
            )
        )
    order = {queue.name: i for i, queue in enumerate(sorted(found, key=lambda one: one.name))}
    queues = tuple(
        replace(queue, parent=order[roofs[names.index(queue.name) % 2]])
        if queue.name in names
        else queue
        for queue in sorted(found, key=lambda one: one.name)
    )
    may_stop = {gang.key: rng.random() < 1 / 3 for gang in instance.gangs}
    changed = _gangs(
        instance,
        lambda gang: replace(
            gang,
            queue=gang.namespace,
            preemptible=gang.preemptible or (may_stop[gang.key] and not gang.movable),
        ),
    )
    return replace(changed, queues=queues)


def _cells(instance: Instance, _rng: random.Random) -> Instance:
    """Servers and parts of servers for the queues that gangs name, where there are queues."""
    nodes, named = len(instance.cluster.nodes), {gang.queue for gang in instance.gangs}
    cells = (
        Cell(max(1, nodes // 128), level=instance.cluster.node_level),
        Cell(max(1, nodes // 64), gpus=2),
    )
    return replace(
        instance,
        queues=tuple(replace(q, cells=cells) if q.name in named else q for q in instance.queues),
    )


def _reservations(instance: Instance, rng: random.Random) -> Instance:
    """Ends of most gangs are known, and two gangs of each priority hold a reservation."""

    def ends(gang: Gang) -> Gang:
        if rng.random() < 0.2:
            return gang
        hours = rng.choice((2, 6, 24, 72))
        started = EPOCH - rng.randrange(hours * HOUR_S) if gang.running else None
        return replace(gang, started_at=started, expected_duration_s=hours * HOUR_S)

    changed = _gangs(instance, ends)
    return _policy(
        changed, reservations=Reservations(per_priority=2, horizon_s=48 * HOUR_S), now=EPOCH
    )


def _shape(instance: Instance, rng: random.Random) -> Instance:
    """Wide gangs are balanced over racks, some gangs have racks to themselves, and nodes stay free."""
    rack = instance.cluster.node_level - 1

    def shaped(gang: Gang) -> Gang:
        gpus = total_gpus(gang)
        if gang.running or gpus <= 8:  # within a server
            return gang
        if gpus >= WIDE:
            return replace(gang, balance=rack, ordered=True)
        return replace(gang, exclusive=rack) if rng.random() < 0.03 else gang

    level = instance.cluster.levels[0].name
    return _policy(_gangs(instance, shaped), spares=((level, 1),))


def _split(role: Role) -> Role:
    whole = role.gpus == 8 and all(count % 2 == 0 for count in role.allowed_counts())
    return replace(role, parallelism=Parallelism(tensor=8, pipeline=2)) if whole else role


def _parallelism(instance: Instance, rng: random.Random) -> Instance:
    """Half of the waiting gangs of whole servers are split in tensor, pipeline and data groups."""

    def split(gang: Gang) -> Gang:
        if gang.running or rng.random() < 0.5:
            return gang
        return replace(gang, roles=tuple(map(_split, gang.roles)))

    return _gangs(instance, split)


def _per_gpu(instance: Instance, _rng: random.Random) -> Instance:
    return _policy(instance, per_gpu=(("cpu", 12_000), ("memory", 96 * GIB)))


def _fair(instance: Instance, _rng: random.Random) -> Instance:
    """Fair shares after the waiting time."""
    listed = list(instance.policy.objectives)
    at = next((i for i, one in enumerate(listed) if one.name == "disruption"), len(listed))
    return _policy(instance, objectives=(*listed[:at], Objective("fair"), *listed[at:]))


CHANGES: dict[str, Change] = {
    "queues": _queues,
    "cells": _cells,
    "fair": _fair,
    "reservations": _reservations,
    "shape": _shape,
    "parallelism": _parallelism,
    "per-gpu": _per_gpu,
}
"""By name; cells and fair shares need queues, and come after them."""


def shared(instance: Instance, *names: str, seed: int = 0) -> Instance:
    """The instance with these changes, or with all of them."""
    for name in names or CHANGES:
        instance = CHANGES[name](instance, random.Random(f"{name}-{seed}"))
    return instance
