"""How many pods of a gang each domain takes where it is spread evenly (contract 2.19), few domains first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heapreplace
from itertools import islice

import numpy as np

from models.rules.demands import Demand, RoleDemand, groups_of
from planner.search.free_arrays import IntArray, sums
from planner.search.free_space import FreeSpace

MAX_NUMBERS = 8
"""Numbers of domains that are tried."""

Part = tuple[Demand, IntArray]
"""Pods to place, and the nodes for them."""


def parts(
    space: FreeSpace, demand: Demand, nodes: IntArray, model: str | None
) -> Iterator[list[Part]]:
    """Ways to divide the pods of a gang between domains; one with all pods where it need not be even."""
    level, roles = space.instance.gangs[demand.gang].balance, demand.gpu_roles
    if level is None or not roles:
        yield [(demand, nodes)]
        return
    of = space.arrays.tree.domain_of[level]
    spec = space.instance.gangs[demand.gang]
    standing = Counter(
        int(of[pod.node]) for pod in space.pods[demand.gang] if spec.roles[pod.role].gpus
    )
    if not standing and len(np.unique(of[nodes])) == 1:
        yield [(demand, nodes)]
        return
    units = [_units(space, demand, role, level, nodes) for role in roles]
    if any(own is None for own in units):
        return
    others = replace(demand, roles=demand.cpu_only_roles)
    for left in islice(_shares(space, demand, nodes, model, standing), MAX_NUMBERS):
        dealt = [_deal(own or [], left) for own in units]
        if any(left.values()):
            continue
        found = []
        for d in left:
            pairs = zip(roles, dealt, strict=True)
            here = tuple(replace(role, indices=own[d]) for role, own in pairs if own[d])
            if here:
                found.append((replace(demand, roles=here), nodes[of[nodes] == d]))
        yield [*found, (others, nodes)] if others.roles else found


def _shares(
    space: FreeSpace, demand: Demand, nodes: IntArray, model: str | None, standing: Counter[int]
) -> Iterator[dict[int, int]]:
    """Pods to come to each domain, for each number of domains that has room for them."""
    tree, level = space.arrays.tree, space.instance.gangs[demand.gang].balance
    assert level is not None, "see parts"
    of, roles = tree.domain_of[level], demand.gpu_roles
    pods = sum(role.count for role in roles)
    if len(roles) == 1:
        room = space.capacity(demand.gang, roles[0], model).pods[nodes]
    else:  # about as many as there are GPUs for
        room = space.arrays.free[nodes] * pods // max(1, demand.gpus)
    found = sums(of[nodes], room, tree.sizes[level])
    empty = [d for d in np.flatnonzero(found).tolist() if d not in standing]
    empty.sort(key=lambda d: (int(found[d]), d))
    total = pods + standing.total()
    for number in range(max(1, len(standing)), min(total, len(empty) + len(standing)) + 1):
        least, larger = divmod(total, number)
        most = least + bool(larger)
        wide = [d for d in empty if found[d] >= most]
        narrow = [d for d in empty if least <= found[d] < most]
        wanted = number - len(standing)
        chosen = wide[:wanted]
        chosen += narrow[len(narrow) - (wanted - len(chosen)) :] if wanted > len(chosen) else []
        if len(chosen) < wanted:
            continue
        # the larger shares to those that hold one already, then to the roomiest
        order = sorted((*standing, *chosen), key=lambda d: (-standing[d], -int(found[d]), d))
        left = {d: least + (at < larger) - standing[d] for at, d in enumerate(order)}
        if all(0 <= pods_left <= found[d] for d, pods_left in left.items()):
            yield left


def _units(
    space: FreeSpace, demand: Demand, role: RoleDemand, level: int, nodes: IntArray
) -> list[tuple[int, ...]] | None:
    """Pods of the role that come to one domain together; None where slices or domains may not be cut so."""
    spec, tree = space.instance.gangs[demand.gang].roles[role.role], space.arrays.tree
    ruled = [*spec.slice_layers, *([(0, spec.required)] if spec.required is not None else [])]
    wider = [own for _, own in ruled if own < level]
    if role.layers or any(len(np.unique(tree.domain_of[own][nodes])) > 1 for own in wider):
        return None
    if spec.required is not None and spec.required >= level:
        return [role.indices]
    size = max((size for size, own in spec.slice_layers if own >= level), default=1)
    return [tuple(own) for own in groups_of(role.indices, size)]


def _deal(units: Sequence[tuple[int, ...]], left: dict[int, int]) -> dict[int, tuple[int, ...]]:
    """Indices by domain, each unit to a domain that takes most; these are taken off ``left``, also below 0.

    Units of one size are dealt so that a domain has consecutive ones.
    """
    heap = [(-pods, at, d) for at, (d, pods) in enumerate(left.items())]
    heapify(heap)
    turns = []
    for unit in units:
        pods, at, d = heap[0]
        heapreplace(heap, (pods + len(unit), at, d))
        left[d] -= len(unit)
        turns.append((at, d))
    if len({len(unit) for unit in units}) == 1:
        turns.sort()
    found: dict[int, tuple[int, ...]] = dict.fromkeys(left, ())
    for unit, (_, d) in zip(units, turns, strict=True):
        found[d] += unit
    return {d: tuple(sorted(indices)) for d, indices in found.items()}
