"""Gangs that should be beside each other: whom each is near to, and what that counts in a plan.

A gang with ``near`` counts its GPUs if it and one of the gangs that it names both run whole and all their
pods with GPUs (all pods of a gang that has none) are in one domain of the level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from models.instance.gang import Gang
from models.instance.instance import Instance, once
from models.instance.solution import PodPlacement


@once
def companions(instance: Instance) -> Mapping[int, tuple[int, ...]]:
    """Of every gang with ``near`` the gangs that it names, without itself and those that there are not."""
    if all(gang.near is None for gang in instance.gangs):
        return {}
    of = {gang.key: index for index, gang in enumerate(instance.gangs)}
    found = {}
    for index, gang in enumerate(instance.gangs):
        if gang.near is not None:
            named = (of.get((gang.namespace, name)) for name in gang.near.gangs)
            found[index] = tuple(other for other in named if other is not None and other != index)
    return found


@once
def suitors(instance: Instance) -> Mapping[int, tuple[int, ...]]:
    """Of every gang that is named the gangs that should be near it."""
    found: dict[int, list[int]] = {}
    for index, others in companions(instance).items():
        for other in others:
            found.setdefault(other, []).append(index)
    return {other: tuple(own) for other, own in found.items()}


def tied(instance: Instance, gang: Gang) -> bool:
    """Whether it matters beside which gang this one is: it has ``near``, or a gang that has names it."""
    return gang.key in instance.once(_tied)


def _tied(instance: Instance) -> frozenset[tuple[str, str]]:
    return frozenset(instance.gangs[index].key for index in tied_gangs(instance))


def tied_gangs(instance: Instance) -> tuple[int, ...]:
    """These gangs, ascending."""
    gangs = instance.gangs
    own = (i for i in companions(instance) if (near := gangs[i].near) and not near.anywhere)
    return tuple(sorted({*own, *suitors(instance)}))


def counted(gang: Gang, pods: Iterable[PodPlacement]) -> list[PodPlacement]:
    """The pods of a gang that ``near`` is about: those with GPUs; all if it has no role with any."""
    light = not any(role.gpus for role in gang.roles)
    return [pod for pod in pods if light or gang.roles[pod.role].gpus]


def home(instance: Instance, gang: Gang, pods: Iterable[PodPlacement], level: int) -> int | None:
    """The domain of the level that holds all pods of a gang that count; None if there is none."""
    of = instance.cluster.domain_of[level]
    domains = {of[pod.node] for pod in counted(gang, pods)}
    return domains.pop() if len(domains) == 1 else None


def near_gpus(instance: Instance, index: int, whole: Sequence[Sequence[PodPlacement]]) -> int:
    """What a gang with ``near`` adds to ``preference``. ``whole``: pods of every gang that runs whole."""
    gang = instance.gangs[index]
    near = gang.near
    if near is None or (own := home(instance, gang, whole[index], near.level)) is None:
        return 0
    if near.anywhere or own in anchored(instance, index):
        return gang.weight_gpus
    beside = (
        home(instance, instance.gangs[other], whole[other], near.level) == own
        for other in companions(instance)[index]
    )
    return gang.weight_gpus if any(beside) else 0


def anchored(instance: Instance, index: int) -> frozenset[int]:
    """Domains in which a gang stands that this one should be near, and that is not in the instance."""
    near = instance.gangs[index].near
    if near is None or not near.nodes:
        return frozenset()
    of = instance.cluster.domain_of[near.level]
    return frozenset(of[n] for n in near.nodes)


def loosened(instance: Instance) -> Instance:
    """The instance in which gangs count as beside others wherever they are."""
    if not tied_gangs(instance):
        return instance
    gangs = tuple(
        replace(gang, near=replace(gang.near, gangs=(), anywhere=True)) if gang.near else gang
        for gang in instance.gangs
    )
    return replace(instance, gangs=gangs)
