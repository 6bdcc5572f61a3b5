"""Pooled pods (the admission program): every gang finds its pods in the domain it is whole in.

For every pool: sum of its pieces == sum over gangs and shapes of pods x gangs of that shape.
For every domain D some gang may be whole in: pieces in D >= pods of all gangs that are whole in D or in
a domain within it. Domains are nested, so that this is enough (Hall's theorem for nested sets).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.instance import Instance
from models.placement.admissions import PooledClass
from models.placement.program import Linear, Program
from models.placement.regions import Pools
from models.placement.variables import PodPool

Domain = tuple[int, int]
"""(level, its index there)."""


def add(
    program: Program,
    instance: Instance,
    pools: Pools,
    pool: PodPool,
    pooled: Sequence[PooledClass],
) -> None:
    total = pool.pods()
    pinned: dict[Domain, Linear] = {}
    for level, domain, variable, pods in _asked(instance, pool, pooled):
        total.add(variable, -pods)
        if domain is not None and level is not None:
            pinned.setdefault((level, domain), Linear()).add(variable, pods)
    program.equal(total)
    _nested(program, instance, pools, pool, pinned)


def _asked(
    instance: Instance, pool: PodPool, pooled: Sequence[PooledClass]
) -> Iterator[tuple[int | None, int | None, int, int]]:
    """(level, domain, variable, pods a unit of it) of everything that takes from the pool."""
    for own in pooled:
        roles = zip(own.demands[0].gpu_roles, own.pools, strict=bool(own.pools))
        apart = sum(role.count for role, used in roles if used is pool)
        for shape, places in own.shapes:
            alone = shape.level == instance.cluster.node_level
            pods = int(own.alone is pool) if alone else apart
            for domain, variable in places.items() if pods else ():
                yield shape.level, domain, variable, pods


def _nested(
    program: Program,
    instance: Instance,
    pools: Pools,
    pool: PodPool,
    pinned: dict[Domain, Linear],
) -> None:
    cluster = instance.cluster
    first = {key: cluster.domains[key[0]][key[1]].nodes[0] for key in pinned}
    levels = sorted({level for level, _ in pinned})
    regions: dict[Domain, list[int]] = {}
    for number in sorted({piece.region for piece in pool.pieces}):
        n = pools.regions[number].nodes[0]
        for level in levels:
            regions.setdefault((level, cluster.domain_of[level][n]), []).append(number)
    within: dict[Domain, list[Domain]] = {}
    for inner in pinned:
        for level in levels:
            if level <= inner[0]:
                around = (level, cluster.domain_of[level][first[inner]])
                within.setdefault(around, []).append(inner)
    for key in pinned:
        row = pool.pods(regions.get(key, ()))
        for inner in within[key]:
            row.add_linear(pinned[inner], -1)
        program.at_least(row)
