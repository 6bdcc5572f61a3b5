"""The tier ``stability`` where pods are pooled: how many GPUs may be where an earlier plan had them.

For a gang, the pool of a role and a region: m <= pods planned there, m <= pods planned there x gangs not
whole elsewhere; over all gangs of a pool sum of m <= pieces of the pool in the region. A gang that is one
piece on one node: sum over regions of z <= 1 if it is, z counting the GPUs planned on the best node of it.
Promises: no plan has more GPUs where they were planned than this says. Called by ``pooled``.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.gang import Gang
from models.placement.admissions import PooledClass
from models.placement.demands import Demand, RoleDemand
from models.placement.program import Linear, Program
from models.placement.regions import Pools
from models.placement.variables import PodPool


def elsewhere(gang: Gang, demand: Demand) -> int:
    """GPUs of planned pods that the option has, but for those that stay where they were planned."""
    stays = {(pod.role, pod.index): pod.node for pod in demand.stays}
    return sum(
        gang.roles[pod.role].gpus
        for pod in gang.planned
        if pod.index in gang.roles[pod.role].indices(demand.counts[pod.role])
        and stays.get((pod.role, pod.index)) != pod.node
    )


class Returning:
    """Collects what gangs get back; ``total``: GPUs where they were planned."""

    def __init__(self, program: Program, pools: Pools, node_level: int) -> None:
        self.total = Linear()
        self._program = program
        self._pools = pools
        self._node_level = node_level
        self._region_of = {n: region.number for region in pools.regions for n in region.nodes}
        self._taken: dict[tuple[int, int], tuple[PodPool, Linear]] = {}

    def add(self, own: PooledClass, gang: Gang) -> None:
        """A gang by itself: of a class of several it is not told which is where."""
        (demand,) = own.demands
        for role, pool in zip(demand.gpu_roles, own.pools, strict=bool(own.pools)):
            wanted: dict[int, int] = {}
            for n in _nodes(gang, [role]):
                if n in self._region_of:
                    region = self._region_of[n]
                    wanted[region] = wanted.get(region, 0) + 1
            for region, pods in sorted(wanted.items()):
                here = self._program.integer(0, pods)
                barred = self._barred(own, region)
                row = Linear().add(here).add_all(own.admits, -pods)
                self._program.at_most(row.add_linear(barred, pods))
                self._take(pool, region, here)
                self.total.add(here, role.gpus)
        if own.alone is not None:
            self._alone(own, own.alone, gang, demand)

    def _barred(self, own: PooledClass, region: int) -> Linear:
        """1 if the gang is whole in a domain that the region is not in, or one piece on one node."""
        barred = Linear()
        for shape, places in own.shapes:
            for domain, variable in places.items():
                inside = (
                    domain is None
                    or shape.level is None
                    or self._pools.regions[region].domains[shape.level] == domain
                )
                if shape.level == self._node_level or not inside:
                    barred.add(variable)
        return barred

    def _alone(self, own: PooledClass, pool: PodPool, gang: Gang, demand: Demand) -> None:
        gpus: dict[int, int] = {}
        for role in demand.gpu_roles:
            for n in _nodes(gang, [role]):
                gpus[n] = gpus.get(n, 0) + role.gpus
        best: dict[int, int] = {}
        for n, count in gpus.items():
            if n in self._region_of:
                region = self._region_of[n]
                best[region] = max(best.get(region, 0), count)
        everywhere = Linear()
        for region, count in sorted(best.items()):
            here = self._program.boolean()
            everywhere.add(here)
            self._take(pool, region, here)
            self.total.add(here, count)
        for shape, places in own.shapes:
            if shape.level == self._node_level:
                everywhere.add_all(places.values(), -1)
        self._program.at_most(everywhere)

    def _take(self, pool: PodPool, region: int, variable: int) -> None:
        key = (id(pool), region)
        self._taken.setdefault(key, (pool, Linear()))[1].add(variable)

    def close(self) -> Linear:
        """The total, once every gang is in: no pool gives more than it has."""
        for (_, region), (pool, taken) in self._taken.items():
            self._program.at_most(taken.add_linear(pool.pods([region]), -1))
        return self.total


def _nodes(gang: Gang, roles: Sequence[RoleDemand]) -> list[int]:
    """Nodes planned for the pods of these roles that are to be placed."""
    wanted = {(role.role, index) for role in roles for index in role.indices}
    return [pod.node for pod in gang.planned if (pod.role, pod.index) in wanted]
