"""Pieces: what a gang may put on one node, as pods a GPU role and the GPU set that carries them.

Promises: enumerates every vector of pods that node-level rules and free GPUs allow, and for each
the set types the node's packing offers. Called by ``variables``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from models.gang import Gang
from models.instance import Instance
from models.program.demands import Demand, RoleDemand
from models.program.packing import Arc, SetType
from models.program.regions import Region


@dataclass(frozen=True, slots=True)
class Piece:
    """``pods``: pods of each GPU role of the demand, in its order; ``variable`` counts such nodes."""

    region: int
    pods: tuple[int, ...]
    kind: SetType
    variable: int


def vectors(
    instance: Instance, demand: Demand, region: Region, most_gpus: int, *, whole: bool
) -> list[tuple[int, ...]]:
    """Pods of each GPU role one node of the region may carry. ``whole``: only the gang at once."""
    gang = instance.gangs[demand.gang]
    roles = demand.gpu_roles
    n = region.nodes[0]
    if whole:
        pods = tuple(role.count for role in roles)
        fits = all(n in role.nodes for role in demand.roles) and demand.gpus <= most_gpus
        return [pods] if fits else []
    choices = [_counts(instance, gang, role, n, most_gpus) for role in roles]
    found = [
        pods
        for pods in product(*choices)
        if 0 < sum(role.gpus * count for role, count in zip(roles, pods, strict=True)) <= most_gpus
    ]
    if gang.required == instance.cluster.node_level:
        found = [pods for pods in found if pods == tuple(role.count for role in roles)]
    return found


def _counts(
    instance: Instance, gang: Gang, role: RoleDemand, n: int, most_gpus: int
) -> Iterable[int]:
    """How many pods of the role one node may carry under its node-level rules."""
    if n not in role.nodes:
        return (0,)
    most = min(role.count, most_gpus // role.gpus)
    spec = gang.roles[role.role]
    node_level = instance.cluster.node_level
    if spec.required == node_level:
        return (0, role.count) if most == role.count else (0,)
    if spec.slice_level == node_level and spec.slice_size is not None:
        sizes = (len(indices) for indices, _ in role.groups) if role.groups else None
        if sizes is None:
            cut = role.cut(spec.slice_size)
            return [c for c in range(most + 1) if cut.fits(c)]
        sums = {0}
        for size in sizes:
            sums |= {total + size for total in sums}
        return sorted(c for c in sums if c <= most)
    return range(most + 1)


def arcs_of(region: Region, starts: Iterable[int], sizes: Iterable[int]) -> list[Arc]:
    """Every arc reachable from the start states by carving sets of these sizes."""
    wanted = sorted(set(sizes), reverse=True)
    seen = set(starts)
    stack = sorted(seen)
    arcs: list[Arc] = []
    while stack:
        state = stack.pop()
        for size in wanted:
            for arc in region.packing.carve(state, size):
                arcs.append(arc)
                if arc.target not in seen:
                    seen.add(arc.target)
                    stack.append(arc.target)
    return arcs
