"""Every tier over pooled pods: exact for who runs, what it costs and what it leaves, a bound for the rest.

For every plan the value of its assignment is no worse than the plan's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from models.instance.gang import Gang
from models.program.aggregated.pools import PooledClass, ShapeBounds
from models.program.aggregated.spread import span
from models.program.free_servers import FreeServers
from models.program.linear_program import Linear, Program
from models.program.nearness import anywhere, most_near, near_gpus
from models.program.options import Effect
from models.program.queue_usage import QUEUE_TIERS
from models.program.regions import RegionSet
from models.program.rules.topology import Topology
from models.program.tier_expressions import (
    FREE_SPACE,
    LEAST_GANG,
    OPTION_VALUES,
    SpeedLadder,
    StandingValues,
    counts_speed,
    elsewhere,
    gang_preference,
    gang_span,
    gpus_as_planned,
    group_gpus_as_planned,
    group_ladder,
    option_sum,
    speed_worth,
)
from models.program.variables import GangVariables, Model, PodPool
from models.rates.gang_bandwidth import FULL_SHARE
from models.rules.demands import Demand, RoleDemand
from models.tiers import Tier
from models.values.tier_values import Evaluation


class PlannedGpus:
    """Upper bound on the pooled GPUs that are where an earlier plan had them; ``total``: their sum.

    For a gang, the pool of a role and a region: m <= pods planned there, m <= pods planned there x gangs
    that may use the region; over all gangs of a pool sum of m <= pieces of the pool in the region. A gang
    that is one piece on one node: sum over regions of z <= 1 if it is, z counting the GPUs planned on the
    best node of the region.
    """

    def __init__(self, program: Program, region_set: RegionSet, node_level: int) -> None:
        self.total = Linear()
        self._program = program
        self._region_set = region_set
        self._node_level = node_level
        self._region_of = region_set.region_of
        self._taken: dict[tuple[int, int], tuple[PodPool, Linear]] = {}

    def add(self, own: PooledClass, gang: Gang) -> None:
        """A gang that is a class of its own."""
        (demand,) = own.demands
        for role, pool in zip(demand.gpu_roles, own.pools, strict=bool(own.pools)):
            wanted: dict[int, int] = {}
            for n in _nodes(gang, [role]):
                if n in self._region_of:
                    region = self._region_of[n]
                    wanted[region] = wanted.get(region, 0) + 1
            for region, pods in sorted(wanted.items()):
                here = self._program.integer(0, pods)
                excluded = self._excluded(own, region)
                row = Linear().add(here).add_all(own.admits, -pods)
                self._program.at_most(row.add_linear(excluded, pods))
                self._take(pool, region, here)
                self.total.add(here, gang.roles[role.role].units)
        for role in demand.cpu_only_roles:  # nobody counts where they are
            units = gang.roles[role.role].units * len(_nodes(gang, [role]))
            self.total.add_all(own.admits, units)
        if own.alone is not None:
            self._alone(own, own.alone, gang, demand)

    def _excluded(self, own: PooledClass, region: int) -> Linear:
        """1 if the gang is whole in a domain that the region is not in, or one piece on one node."""
        excluded = Linear()
        for shape, places in own.shapes:
            for domain, variable in places.items():
                inside = (
                    domain is None
                    or shape.level is None
                    or self._region_set.regions[region].domains[shape.level] == domain
                )
                if shape.level == self._node_level or not inside:
                    excluded.add(variable)
        return excluded

    def _alone(self, own: PooledClass, pool: PodPool, gang: Gang, demand: Demand) -> None:
        gpus: dict[int, int] = {}
        for role in demand.gpu_roles:
            for n in _nodes(gang, [role]):
                gpus[n] = gpus.get(n, 0) + gang.roles[role.role].units
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
        """The total, after all gangs are added: no pool gives more than it has."""
        for (_, region), (pool, taken) in self._taken.items():
            self._program.at_most(taken.add_linear(pool.pods([region]), -1))
        return self.total


def _nodes(gang: Gang, roles: Sequence[RoleDemand]) -> list[int]:
    """Nodes planned for the pods of these roles that are to be placed."""
    wanted = {(role.role, index) for role in roles for index in role.indices}
    return [pod.node for pod in gang.planned if (pod.role, pod.index) in wanted]


def _most_bandwidth(_bounds: TierBounds, gang: Gang, demand: Demand) -> int:
    gpus = sum(r.gpus * n for r, n in zip(gang.roles, demand.counts, strict=True))
    counted = gang.pattern != "none" and gpus >= LEAST_GANG
    return gang.weight * gang.weight_gpus * FULL_SHARE if counted else 0


def _least_span(bounds: TierBounds, gang: Gang, demand: Demand) -> int:
    # pods that stay may hold more GPUs than their node has
    nodes = len(demand.standing_nodes) or -(-demand.gpus // bounds.largest_node)
    return gang.weight_gpus * max(0, nodes - 1)


PLACEMENT_BOUNDS: dict[str, Callable[[TierBounds, Gang, Demand], int]] = {
    "preference": lambda _bounds, gang, _demand: gang.most_preference + anywhere(gang),
    "bandwidth": _most_bandwidth,
    "span": _least_span,
}
"""The most (for a tier to be minimised: the least) that a gang adds under an option, wherever it is."""


def _shape_bandwidth(bounds: TierBounds, gang: GangVariables, topology: Topology) -> Linear:
    return by_shape(bounds, gang, topology, partial(bounds.shapes.bandwidth, gang.demand))


def by_shape(
    bounds: TierBounds, gang: GangVariables, topology: Topology, most: Callable[[int], int]
) -> Linear:
    """The most at the widest shape, and what each narrower one adds if the gang is whole there.

    ``most``: by level of the shape, -1 for none.
    """
    widest = -1 if gang.gang.required is None else gang.gang.required
    worth = most(widest)
    total = gang.admitted(worth)
    for level in range(widest + 1, bounds.model.instance.cluster.node_level + 1):
        narrower = most(level)
        if narrower > worth:
            total.add_linear(topology.whole(level, gpus_only=True), narrower - worth)
            worth = narrower
    return total


GANG_BOUNDS: dict[str, Callable[[TierBounds, GangVariables, Topology], Linear]] = {
    "preference": lambda _bounds, gang, topology: gang_preference(gang, topology),
    "bandwidth": _shape_bandwidth,
    "span": lambda bounds, gang, topology: gang_span(bounds.model.instance, gang, topology),
}
"""The same for a gang with variables of its own, from the domains in which it is whole."""


@dataclass(frozen=True)
class TierBounds:
    """Builds the expression of every tier of the aggregated model.

    ``base``: the plan without the gangs to decide about. ``topologies``: of the gangs with variables of
    their own. ``shaped``: tiers for which the model has variables for the domains in which gangs are whole.
    ``stable``: whether gangs that an earlier plan placed are classes of their own.
    """

    model: Model
    pooled: Sequence[PooledClass]
    base: Evaluation
    shapes: ShapeBounds
    topologies: Sequence[Topology]
    shaped: Collection[str]
    stable: bool

    def expression(self, tier: Tier) -> Linear:
        """The tier's value, or a bound that no plan with these variables beats."""
        if tier.family in FREE_SPACE:
            free = FreeServers(self.model)
            return FREE_SPACE[tier.family](self.model.program, self.model.instance, free)
        if tier.family in QUEUE_TIERS:
            return QUEUE_TIERS[tier.family](self.model, tier)
        total = Linear(constant=self.base.tier(tier))
        if counts_speed(self.model.instance, tier):
            return total.add_linear(self._speed(tier))
        if tier.family in OPTION_VALUES:
            return total.add_linear(option_sum(self.model.instance, tier, self._options()))
        if tier.family in PLACEMENTS:
            own = BOUNDS.get(tier.family)
            return total.add_linear(self._placement(tier.family) if own is None else own(self))
        assert tier.sense == "min", f"{tier.family} needs a bound: no default holds for a maximum"
        return Linear()

    def _options(self) -> Iterator[tuple[Demand, Effect, int]]:
        """(demand, effect, admit variable) of every option."""
        for choice, admits in zip(
            self.model.requests.choices, self.model.variables.admits, strict=True
        ):
            for option, admit in zip(choice.options, admits, strict=True):
                yield option.demand, option.effect, admit

    def _speed(self, tier: Tier) -> Linear:
        """GPUs times the highest speed of the gangs that the tier counts."""
        worth, total = partial(speed_worth, self.model.instance, tier), Linear()
        for gang, topology in zip(self.model.variables.gangs, self.topologies, strict=True):
            if worth(gang.gang):
                total.add_linear(self._gang_speed(gang, topology), worth(gang.gang))
        for stay in self.model.variables.stays:
            if stay.effect.admitted and worth(stay.gang):
                speed = self._standing.speed(stay.demand.gang, stay.demand.stays)
                total.add(stay.admit, speed * worth(stay.gang))
        for ladder in self._ladders:
            total.add_linear(ladder.total(worth))
        return total

    def _gang_speed(self, gang: GangVariables, topology: Topology) -> Linear:
        """The highest speed at the widest shape, and what each narrower one adds."""
        fastest = self.shapes.fastest(gang.demand)
        return by_shape(
            self, gang, topology, lambda level: self.shapes.speed(gang.demand, fastest, level)
        )

    @cached_property
    def _ladders(self) -> list[SpeedLadder]:
        """Of all gangs of a class and of all that are one piece on one node."""
        places: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        gangs: dict[tuple[int, ...], list[Gang]] = {}
        for own in self.pooled:
            gangs[own.admits] = [self.model.instance.gangs[d.gang] for d in own.demands]
            found = places.setdefault(own.admits, [])
            found += [(v, shape.speed) for shape, by in own.shapes for v in by.values()]
        ladders = [
            SpeedLadder(self.model.program, list(zip(own, admits, strict=True)), places[admits])
            for admits, own in gangs.items()
        ]
        return ladders + [group_ladder(self.model, group) for group in self.model.variables.groups]

    def _placement(self, family: str) -> Linear:
        shaped = self._shaped(family) if family in self.shaped else {}
        total = Linear()
        for demand, effect, admit in self._options():
            if admit not in shaped and effect.admitted:
                total.add(admit, self._option_bound(family, demand))
        for own in {id(found): found for found in shaped.values()}.values():
            total.add_linear(own)
        if family == "preference" and family in self.shaped:
            total.add_linear(near_gpus(self.model, self.topologies, self.base))
        elif family == "preference":
            total.constant += most_near(self.base)
        return total

    def _option_bound(self, family: str, demand: Demand) -> int:
        gang = self.model.instance.gangs[demand.gang]
        if not demand.roles:
            near = anywhere(gang) if family == "preference" else 0
            return near + self._standing.value(family, demand.gang, demand.stays)
        return PLACEMENT_BOUNDS[family](self, gang, demand)

    def _shaped(self, family: str) -> dict[int, Linear]:
        """By admit variable, what options whose shape is a variable add; one expression a class."""
        found: dict[int, Linear] = {}
        for own in self.pooled:
            if not own.demands[0].stays:
                if own.spread is not None and family == "span":
                    worth = span(self.model.instance, own)
                else:
                    worth = Linear()
                    for shape, places in own.shapes:
                        worth.add_all(places.values(), int(getattr(shape, family)))
                together = found.get(own.admits[0], Linear()).add_linear(worth)
                found.update(dict.fromkeys(own.admits, together))
        for gang, topology in zip(self.model.variables.gangs, self.topologies, strict=True):
            found[gang.admit] = GANG_BOUNDS[family](self, gang, topology)
        return found

    def stability(self) -> Linear:
        """GPUs of planned pods that are elsewhere; none where gangs are not classes of their own."""
        total = Linear()
        if not self.stable:
            return total
        back = PlannedGpus(
            self.model.program, self.model.region_set, self.model.instance.cluster.node_level
        )
        for demand, _, admit in self._options():
            total.add(admit, elsewhere(self.model.instance.gangs[demand.gang], demand))
        for own in self.pooled:
            gang = self.model.instance.gangs[own.demands[0].gang]
            if gang.planned:
                back.add(own, gang)
        for one in self.model.variables.gangs:
            total.add_linear(gpus_as_planned(self.model.program, self.model.region_set, one), -1)
        for group in self.model.variables.groups:
            total.add_linear(group_gpus_as_planned(self.model.region_set, group), -1)
        return total.add_linear(back.close(), -1)

    @cached_property
    def largest_node(self) -> int:
        """GPUs of the largest node."""
        return max((node.gpus for node in self.model.instance.cluster.nodes), default=0) or 1

    @cached_property
    def _standing(self) -> StandingValues:
        return StandingValues(self.model.instance)


BOUNDS: dict[str, Callable[[TierBounds], Linear]] = {"stability": TierBounds.stability}
"""Bounds of the other tiers. A tier to be minimised may be absent: no value is below 0."""

PLACEMENTS = frozenset((*PLACEMENT_BOUNDS, *BOUNDS))
"""Tiers whose values depend on the domains in which gangs are whole."""
