"""What gangs of a tiny instance add to ``preference`` by standing beside each other.

Promises: straight from the words of the documentation; takes nothing from the formulation.
Called by the exhaustive planner alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from exhaustive_counts import least_counts
from exhaustive_queues import Part

from models.instance.gang import Gang
from models.instance.instance import Instance

Pods = Sequence[tuple[int, int, int]]
"""(role, index, node)."""


def spots(instance: Instance, g: int, pods: Pods) -> Part:
    """(level, domain) of a gang that runs whole, for every level at which gangs should be near others."""
    gang, of = instance.gangs[g], instance.cluster.domain_of
    levels = {other.near.level for other in instance.gangs if other.near is not None}
    heavy = {r for r, role in enumerate(gang.roles) if role.gpus} or set(range(len(gang.roles)))
    nodes = [n for r, _, n in pods if r in heavy]
    found = {(level, of[level][nodes[0]]) for level in levels if nodes}
    return frozenset(
        (("spot", g, level, d), 1) for level, d in found if all(of[level][n] == d for n in nodes)
    )


def beside(instance: Instance, part: Part) -> int:
    """GPUs of the gangs that share a spot with one that they name."""
    if not part:
        return 0
    found = {key[1:] for key, _ in part if key[0] == "spot"}
    return sum(
        least_counts(gang) or 1
        for g, gang in enumerate(instance.gangs)
        if any((g, *spot) in found for spot in _spots_of_named(instance, gang, found))
    )


def _spots_of_named(
    instance: Instance, gang: Gang, found: Iterable[tuple[object, ...]]
) -> Iterable[tuple[object, ...]]:
    if gang.near is None:
        return
    pairs = product(enumerate(instance.gangs), found)
    for (h, other), (owner, level, domain) in pairs:
        named = other.name in gang.near.gangs and other.namespace == gang.namespace
        if owner == h and level == gang.near.level and named and other is not gang:
            yield level, domain


def all_beside(instance: Instance, running: Mapping[int, Pods]) -> int:
    """The same of a plan; ``running``: pods of the gangs that run whole after it."""
    parts = [spots(instance, g, pods) for g, pods in running.items()]
    return beside(instance, frozenset().union(*parts))
