"""The tier ``stability`` where pods are pooled: how many GPUs may be where an earlier plan had them.

For a gang, the pool of a role and a region: m <= pods planned there, m <= pods planned there x gangs not
whole elsewhere; over all gangs of a pool sum of m <= pieces of the pool in the region. A gang that is one
piece on one node: sum over regions of z <= 1 if it is, z counting the GPUs planned on the best node of it.
Promises: no plan has more GPUs where they were planned than this says. Called by ``pooled``.

The most an option may add to a tier, whatever the placement: bounds where pods are pooled.

Promises: exact for the tiers of who runs and what it costs; of the others no plan is better.
Called by ``pooled``.

What a gang with rows of its own adds to the tiers of placement, told by which domains it is whole in.

Promises: preference exactly; no plan has more bandwidth or less span. Called by ``pooled``.

The tiers where pods are pooled: exactly who runs and what that costs, and bounds on the rest.

Promises: for every plan its assignment's value is no worse than the plan's. Called by ``pooled``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from models.gang import Gang
from models.instance import Instance
from models.occupancy import Room
from models.program.aggregated.pools import PooledClass, Shaper
from models.program.base_state import Asked
from models.program.demands import Demand, RoleDemand
from models.program.linear_program import Linear, Program
from models.program.options import Option, standing_gpus
from models.program.regions import Pools
from models.program.rules.topology import Topology
from models.program.tiers import Rests, Stander, defragmented, matched, matched_alone, unusable
from models.program.variables import GangVariables, PodPool, Variables
from models.rates.gang_bandwidth import FULL_SHARE
from models.tier_values import Evaluation, Tier


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


PAIR = 2
"""Fewest GPUs that have a bandwidth between them."""


class Optimism:
    """What each option is worth at best (for a tier to be minimised: at least)."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._stander = Stander(instance)
        self._largest = max((node.gpus for node in instance.cluster.nodes), default=0) or 1

    def of(self, index: int, option: Option, tier: Tier) -> int:
        """What the gang of that index adds when this option comes true."""
        instance, gang = self._instance, self._instance.gangs[index]
        demand, effect = option.demand, option.effect
        if tier.family == "kept":
            return effect.kept
        if tier.family == "disruption":
            # without any option the gang is stopped and all of it is lost
            gone = effect.lost - standing_gpus(instance, index)
            return instance.harm(gang) * gone if gang.running else 0
        if not effect.admitted or (tier.family.startswith("aged") and not instance.aged(gang)):
            return 0
        match tier.family:
            case "admission" | "aged":
                worth = gang.weight_gpus
            case "waiting" | "aged-waiting":
                worth = 0 if gang.running else gang.weight_gpus * instance.age(gang)
            case "growth":
                worth = sum(
                    (count - role.min) * role.gpus
                    for role, count in zip(gang.roles, demand.counts, strict=True)
                )
                worth = worth if gang.elastic else 0
            case "preference" | "bandwidth" | "span":
                worth = self._placement(index, option, tier.family)
            case _:
                worth = 0
        return worth

    def _placement(self, index: int, option: Option, family: str) -> int:
        gang, demand = self._instance.gangs[index], option.demand
        if not demand.roles:
            standing = self._stander.value(index, demand.stays)
            return int(getattr(standing, family))
        gpus = sum(r.gpus * n for r, n in zip(gang.roles, demand.counts, strict=True))
        if family == "preference":
            worth = gang.weight_gpus if gang.preferred is not None else 0
            return worth + sum(r.min * r.gpus or 1 for r in gang.roles if r.preferred is not None)
        if family == "bandwidth":
            counted = gang.pattern != "none" and gpus >= PAIR
            return gang.weight * gang.weight_gpus * FULL_SHARE if counted else 0
        return gang.weight_gpus * max(0, -(-gpus // self._largest) - 1)


def wholeness(
    instance: Instance, shaper: Shaper, gang: GangVariables, topology: Topology, family: str
) -> Linear:
    """The gang's part of ``preference``, ``bandwidth`` or ``span``."""
    if family == "preference":
        return _preference(gang, topology)
    if family == "bandwidth":
        return _bandwidth(instance, shaper, gang, topology)
    total = Linear()
    weight, node_level = gang.gang.weight_gpus, instance.cluster.node_level
    for level in range(node_level):
        factor = weight * 4 ** (node_level - level)
        total.add_linear(topology.count(level), factor).add(gang.admit, -factor)
    return total.add_linear(topology.nodes(), weight).add(gang.admit, -weight)


def _preference(gang: GangVariables, topology: Topology) -> Linear:
    total, spec = Linear(), gang.gang
    if spec.preferred is not None:
        total.add_linear(topology.whole(spec.preferred), spec.weight_gpus)
    for number, role in enumerate(spec.roles):
        if role.preferred is not None:
            total.add_linear(topology.whole(role.preferred, number), role.min * role.gpus or 1)
    return total


def _bandwidth(
    instance: Instance, shaper: Shaper, gang: GangVariables, topology: Topology
) -> Linear:
    """The most at the widest shape, and what each narrower one adds where it is whole there."""
    widest = -1 if gang.gang.required is None else gang.gang.required
    worth = shaper.bandwidth(gang.demand, widest)
    total = gang.admitted(worth)
    for level in range(widest + 1, instance.cluster.node_level + 1):
        narrower = shaper.bandwidth(gang.demand, level)
        if narrower > worth:
            total.add_linear(topology.whole(level, gpus_only=True), narrower - worth)
            worth = narrower
    return total


@dataclass(frozen=True)
class Wholes:
    """What tells how narrow a domain gangs are whole in: shapes, and the rows of gangs by themselves."""

    shaper: Shaper
    topologies: Sequence[Topology]


@dataclass(frozen=True)
class Estimate:
    """``base``: the plan without the gangs decided about. ``wholes``: None where placement is not told.

    ``stable``: whether gangs that an earlier plan placed are told apart.
    """

    program: Program
    instance: Instance
    asks: Asked
    variables: Variables
    pools: Pools
    rooms: Sequence[Room]
    pooled: Sequence[PooledClass]
    base: Evaluation
    wholes: Wholes | None
    stable: bool

    def expression(self, tier: Tier) -> Linear:
        """Tiers of who runs, what it costs and leaves exactly; the others as no plan can be better than."""
        if tier.family in ("defragment", "stranded"):
            left = Rests(self.pools, self.rooms, self.variables.flows)
            build = defragmented if tier.family == "defragment" else unusable
            return build(self.program, self.instance, left)
        if tier.family == "stability":
            return self._stability(tier)
        apart: dict[int, Linear] = {}
        if tier.family in ("preference", "bandwidth", "span") and self.wholes is not None:
            apart = self._placement(self.wholes, tier.family)
        total = Linear(constant=self.base.tier(tier))
        for choice, admits in zip(self.asks.choices, self.variables.admits, strict=True):
            gang = self.instance.gangs[choice.gang]
            if tier.priority in (None, gang.priority):
                for option, admit in zip(choice.options, admits, strict=True):
                    if admit not in apart:
                        total.add(admit, self._optimism.of(choice.gang, option, tier))
        for own in {id(found): found for found in apart.values()}.values():
            total.add_linear(own)
        return total

    def _stability(self, tier: Tier) -> Linear:
        """GPUs planned before that are elsewhere; all may be back where it is not told what is where."""
        total = Linear(constant=self.base.tier(tier))
        back = Returning(self.program, self.pools, self.instance.cluster.node_level)
        if not self.stable:
            return total
        for choice, admits in zip(self.asks.choices, self.variables.admits, strict=True):
            gang = self.instance.gangs[choice.gang]
            for option, admit in zip(choice.options, admits, strict=True):
                total.add(admit, elsewhere(gang, option.demand))
        for own in self.pooled:
            gang = self.instance.gangs[own.demands[0].gang]
            if gang.planned:
                back.add(own, gang)
        for one in self.variables.gangs:
            total.add_linear(matched(self.program, self.pools, one), -1)
        for group in self.variables.groups:
            total.add_linear(matched_alone(self.pools, group), -1)
        return total.add_linear(back.close(), -1)

    def _placement(self, wholes: Wholes, family: str) -> dict[int, Linear]:
        """What options whose shape is told apart add to a tier, under their admit variables."""
        found: dict[int, Linear] = {}
        for own in self.pooled:
            if not own.demands[0].stays:
                worth = Linear()
                for shape, places in own.shapes:
                    worth.add_all(places.values(), int(getattr(shape, family)))
                found.update(dict.fromkeys(own.admits, worth))
        for gang, topology in zip(self.variables.gangs, wholes.topologies, strict=True):
            found[gang.admit] = wholeness(self.instance, wholes.shaper, gang, topology, family)
        return found

    @cached_property
    def _optimism(self) -> Optimism:
        return Optimism(self.instance)
