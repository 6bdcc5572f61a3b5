"""Every tier as a linear expression over the variables of the full formulation.

For a feasible assignment an expression is no better than the value of the decoded plan, and equal to it at
an optimum. Gangs that are not decided about contribute the constant of the base plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

from models.instance.gang import ExistingPod, Gang
from models.instance.instance import Instance
from models.instance.solution import placed
from models.program.base_state import base_decisions
from models.program.free_servers import FreeServers
from models.program.linear_program import Linear, Program
from models.program.nearness import near_gpus
from models.program.options import PLACED, Effect, standing_gpus
from models.program.queue_usage import QUEUE_TIERS
from models.program.regions import RegionSet
from models.program.rules.bandwidth import Speeds
from models.program.rules.bandwidth_carriers import relative_speed
from models.program.rules.topology import Topology
from models.program.variables import (
    GangVariables,
    GroupVariables,
    Model,
    Piece,
    SliceVariables,
    StayVariables,
)
from models.queues.queue_shares import within_guarantee
from models.rates.gang_bandwidth import FULL_SHARE, ideal_MBps, share_permille
from models.rates.gpu_sets import UnknownRate
from models.rules.demands import Demand, RoleDemand
from models.tiers import Tier
from models.values.leftover import gpu_models, request_domains, suspects
from models.values.tier_values import (
    PLACEMENT_VALUES,
    Evaluation,
    GangValue,
    gang_value,
    known_masks,
    known_value,
    most_speed,
)

LEAST_GANG = 2
"""Fewest GPUs that have a bandwidth between them."""

OptionValue = Callable[[Instance, Demand, Effect], int]


def _weight(instance: Instance, demand: Demand, effect: Effect) -> int:
    return instance.gangs[demand.gang].weight_gpus if effect.admitted else 0


def _waited(instance: Instance, demand: Demand, effect: Effect) -> int:
    gang = instance.gangs[demand.gang]
    return 0 if gang.running else _weight(instance, demand, effect) * instance.age(gang)


def _if(counts: Callable[[Instance, Gang], bool], worth: OptionValue) -> OptionValue:
    """The same of gangs that count, 0 of others."""
    return lambda instance, demand, effect: (
        worth(instance, demand, effect) if counts(instance, instance.gangs[demand.gang]) else 0
    )


def _disruption(instance: Instance, demand: Demand, effect: Effect) -> int:
    # the base plan counts the gang as stopped: an option gives back what is not lost
    gang = instance.gangs[demand.gang]
    spared = effect.lost - standing_gpus(instance, demand.gang)
    return instance.disruption_cost(gang) * spared if gang.running else 0


def _growth(instance: Instance, demand: Demand, effect: Effect) -> int:
    gang = instance.gangs[demand.gang]
    if not gang.elastic or not effect.admitted:
        return 0
    counts = zip(gang.roles, demand.counts, strict=True)
    return sum((count - role.min) * role.units for role, count in counts)


def _growth_pods(instance: Instance, demand: Demand, effect: Effect) -> int:
    gang = instance.gangs[demand.gang]
    if not effect.admitted:
        return 0
    counts = zip(gang.roles, demand.counts, strict=True)
    return sum(count - role.min for role, count in counts if not role.units)


def _age_if_aged(instance: Instance, gang: Gang) -> int:
    return instance.age(gang) if instance.aged(gang) else 0


SPEED_FACTORS: dict[str, Callable[[Instance, Gang], int]] = {
    "goodput": lambda _instance, _gang: 1,
    "aged": lambda instance, gang: int(instance.aged(gang)),
    "aged-waiting": _age_if_aged,
}
"""Tiers that depend on speeds if the policy lists goodput: what a gang's GPUs times speed count."""


def counts_speed(instance: Instance, tier: Tier) -> bool:
    """Whether the tier depends on the speeds of gangs."""
    return instance.by_speed and tier.family in SPEED_FACTORS


def speed_worth(instance: Instance, tier: Tier, gang: Gang) -> int:
    """What a permille of its speed adds to such a tier."""
    if tier.priority != gang.priority:
        return 0
    return SPEED_FACTORS[tier.family](instance, gang) * gang.weight_gpus


class SpeedLadder:
    """The speeds of identical gangs that take places of several speeds.

    ``gangs``: with their admit variables, in the order in which they start: the first ones get the fastest
    places. ``places``: (variable, permille). With booleans z[i, s] <= admit[i] and, for every speed s but the
    lowest, sum over i of z[i, s] <= places of speed s or more, gang i has the lowest speed x admit[i], plus
    every step up to s x z[i, s].
    """

    def __init__(
        self,
        program: Program,
        gangs: Sequence[tuple[Gang, int]],
        places: Sequence[tuple[int, int]],
    ) -> None:
        self._program = program
        self._gangs = gangs
        self._places = places

    def total(self, worth: Callable[[Gang], int]) -> Linear:
        """The sum of speed times what a permille of it is worth."""
        worths = [worth(gang) for gang, _ in self._gangs]
        if not any(worths):
            return Linear()
        if len(set(worths)) == 1:
            scaled = ((variable, speed * worths[0]) for variable, speed in self._places)
            return _sum(scaled)
        rungs = zip(self._rungs, worths, strict=True)
        return _sum((v, c * factor) for rung, factor in rungs if factor for v, c in rung)

    @cached_property
    def _rungs(self) -> list[list[tuple[int, int]]]:
        """(variable, permille) of every gang."""
        speeds = sorted({speed for _, speed in self._places}) or [0]
        rungs = [[(admit, speeds[0])] for _, admit in self._gangs]
        for lower, speed in pairwise(speeds):
            reached = Linear().add_all((v for v, s in self._places if s >= speed), -1)
            for (_, admit), rung in zip(self._gangs, rungs, strict=True):
                fast = self._program.boolean()
                reached.add(fast)
                self._program.at_most(Linear().add(fast).add(admit, -1))
                rung.append((fast, speed - lower))
            self._program.at_most(reached)
        return rungs


def group_ladder(model: Model, group: GroupVariables) -> SpeedLadder:
    """Speeds of identical gangs that take one piece each."""
    instance, gang = model.instance, group.gangs[0]
    speeds = Speeds(instance, group.demands[0].gang, gang)
    places = []
    for piece in group.pieces:
        n = model.region_set.regions[piece.region].nodes[0]
        relative = relative_speed(instance, gang, n)
        places.append((piece.variable, speeds.of(_piece_share(model, group, piece), relative)))
    return SpeedLadder(model.program, list(zip(group.gangs, group.admits, strict=True)), places)


def _piece_share(model: Model, group: GroupVariables, piece: Piece) -> int | None:
    """Permille of the ideal that a gang on one node reaches there; None if it has no bandwidth."""
    server = model.region_set.regions[piece.region].model.model
    assert server is not None
    if piece.kind.inside is None:
        return None
    if group.gangs[0].by_rank:
        return FULL_SHARE
    try:
        return share_permille(piece.kind.inside, ideal_MBps((server,), group.demands[0].total_gpus))
    except UnknownRate:
        return None


def _sum(terms: Iterable[tuple[int, int]]) -> Linear:
    total = Linear()
    for variable, coefficient in terms:
        total.add(variable, coefficient)
    return total


OPTION_VALUES: dict[str, OptionValue] = {
    "guarantee": _if(within_guarantee, _weight),
    "kept": lambda _instance, _demand, effect: effect.kept,
    "aged": _if(Instance.aged, _weight),
    "aged-waiting": _if(Instance.aged, _waited),
    "admission": _weight,
    "waiting": _waited,
    "disruption": _disruption,
    "growth": _growth,
    "growth-pods": _growth_pods,
}
"""Tiers that depend on the chosen options alone: what an option adds, in both models alike."""


def option_sum(
    instance: Instance, tier: Tier, options: Iterable[tuple[Demand, Effect, int]]
) -> Linear:
    """What the chosen options add to a tier. ``options``: (demand, effect, admit variable)."""
    worth, total = OPTION_VALUES[tier.family], Linear()
    for demand, effect, admit in options:
        if tier.priority in (None, instance.gangs[demand.gang].priority):
            total.add(admit, worth(instance, demand, effect))
    return total


class StandingValues:
    """What gangs add to the placement tiers with the pods they have now."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._known = known_masks(instance, base_decisions(instance))
        self._values: dict[tuple[int, tuple[ExistingPod, ...]], GangValue] = {}

    def value(self, family: str, index: int, stays: Sequence[ExistingPod]) -> int:
        """What these pods of the gang add to one tier."""
        gang = self._instance.gangs[index]
        value = self._value(index, stays)
        return PLACEMENT_VALUES[family](self._instance, gang, placed(gang, stays), value)

    def speed(self, index: int, stays: Sequence[ExistingPod]) -> int:
        """The speed of the gang with these pods, permille."""
        most = most_speed(self._instance, index)
        speed = self._value(index, stays).speed
        return speed if most is None else min(most, speed)

    def _value(self, index: int, stays: Sequence[ExistingPod]) -> GangValue:
        gang, key = self._instance.gangs[index], (index, tuple(stays))
        if key not in self._values:
            pods = placed(gang, stays)
            known = known_value(self._instance, index, pods)
            self._values[key] = known or gang_value(self._instance, gang, pods, self._known)
        return self._values[key]


def stranded(program: Program, instance: Instance, free: FreeServers) -> Linear:
    """Sum over nodes of what no request of the mix can use, less what whole nodes give larger requests.

    Partitioned GPUs are of no use to any: so no plan partitions more than it has to.
    """
    mix = instance.policy.mix
    every = sum(permille for _, permille in mix)
    total = Linear()
    for nodes in gpu_models(instance).values():
        own = set(nodes)
        largest = max(instance.cluster.nodes[n].gpus for n in nodes)
        small = [(size, permille) for size, permille in mix if size <= largest]
        unused = [
            every * gpus - sum(permille * size * (gpus // size) for size, permille in small)
            for gpus in range(largest + 1)
        ]
        for n in nodes:
            if n not in free.region_of:
                usable, left = free.usable_outside(n), free.outside(n).free_gpus
                taken = free.model.rooms[n].free_gpus - left
                total.constant += unused[usable] + every * (left - usable + taken)
        for region in free.model.region_set.regions:
            if region.nodes[0] not in own:
                continue
            limited = free.limited.get(region.number, ())
            for gpus, rest in free.rests(region):
                total.add(rest, every * gpus if limited else unused[gpus])
            for gpus, chosen in limited:
                total.add(chosen, unused[gpus] - every * gpus)
        for size, permille in mix:
            if size > largest:
                placeable = _whole_node_requests(program, instance, free, nodes, largest, size)
                total.add_linear(placeable, -permille * size)
    pieces = (p for partition in free.model.variables.partitions for p in partition.pieces)
    return total.add_all((piece.variable for piece in pieces), every)


def _whole_node_requests(
    program: Program,
    instance: Instance,
    free: FreeServers,
    nodes: Sequence[int],
    largest: int,
    size: int,
) -> Linear:
    """Requests of several whole nodes that fit: per domain, servers x requests <= nodes left whole."""
    servers, total = -(-size // largest), Linear()
    for members in request_domains(instance, nodes, size):
        whole = free.whole(members, largest, usable=True)
        most = program.bound_above(whole) // servers
        if most > 0:
            count = program.integer(0, most)
            program.at_least(whole.add(count, -servers))
            total.add(count)
    return total


def defragment(program: Program, instance: Instance, free: FreeServers) -> Linear:
    """GPUs of nodes left whole, and again of innermost domains of which every GPU node is left whole."""
    total = Linear()
    largest: dict[int, int] = {}
    for nodes in gpu_models(instance).values():
        most = max(instance.cluster.nodes[n].gpus for n in nodes)
        largest.update(dict.fromkeys(nodes, most))
        total.add_linear(free.whole(nodes, most), most)
    cluster = instance.cluster
    members: dict[int, list[int]] = {}
    if cluster.counted_levels:
        of = cluster.domain_of[cluster.counted_levels[-1]]
        for n in sorted(largest):
            members.setdefault(of[n], []).append(n)
    for domain in sorted(members):
        own = members[domain]
        if len(own) < 2:  # a single node is already counted
            continue
        whole = program.boolean()
        for most in sorted({largest[n] for n in own}):
            same = [n for n in own if largest[n] == most]
            program.at_least(free.whole(same, most).add(whole, -len(same)))
        total.add(whole, sum(largest[n] for n in own))
    return total


def suspect(_program: Program, instance: Instance, free: FreeServers) -> Linear:
    """GPUs left free on nodes that failed lately."""
    return free.left(sorted(suspects(instance)))


FREE_SPACE: dict[str, Callable[[Program, Instance, FreeServers], Linear]] = {
    "stranded": stranded,
    "defragment": defragment,
    "suspect": suspect,
}
"""Tiers that depend on the free GPUs of every node alone: exact in both models."""


def elsewhere(gang: Gang, demand: Demand) -> int:
    """GPUs of planned pods that the option has, without those that stay where they were planned."""
    stays = {(pod.role, pod.index): pod.node for pod in demand.stays}
    comes = {(role.role, index) for role in demand.roles for index in role.indices}
    return gang.units_of(
        pod
        for pod in gang.planned
        if ((pod.role, pod.index) in stays or (pod.role, pod.index) in comes)
        and stays.get((pod.role, pod.index)) != pod.node
    )


def gpus_as_planned(program: Program, region_set: RegionSet, gang: GangVariables) -> Linear:
    """GPUs of pods to place that may be on the nodes an earlier plan had for them.

    For a role and a region: matched <= pods placed there, matched <= pods planned there; with a variable a
    slice, for each slice matched <= its pods planned there x d[slice, domain]. Exact where a region is one
    node and slices, if any, have variables of their own; an upper bound elsewhere.
    """
    total = Linear()
    if not gang.gang.planned:
        return total
    region_of, demand = region_set.region_of, gang.demand
    counted = [(role, partial(gang.gpu_pods, i)) for i, role in enumerate(demand.gpu_roles)]
    light = enumerate(demand.cpu_only_roles)
    counted += [(role, partial(gang.cpu_only_pods, i)) for i, role in light]
    for role, pods_in in counted:
        units = gang.gang.roles[role.role].units
        if not units:
            continue
        if role.role in gang.exchange:
            planned = {
                p.index: region_of.get(p.node) for p in gang.gang.planned if p.role == role.role
            }
            for indices, places in gang.exchange[role.role]:
                total.add_all((v for r, v in places.items() if r == planned.get(indices[0])), units)
            continue
        for number, rows in sorted(_planned_in(gang, role, region_of).items()):
            placed_there = pods_in([number])
            if placed_there.terms:
                for count, chosen in rows:
                    here = program.integer(0, count)
                    placed_there.add(here, -1)
                    total.add(here, units)
                    if chosen is not None:
                        program.at_most(Linear().add(here).add(chosen, -count))
                program.at_least(placed_there)
    return total


def _planned_in(
    gang: GangVariables, role: RoleDemand, region_of: Mapping[int, int]
) -> dict[int, list[tuple[int, int | None]]]:
    """By region, for each slice: pods planned there, and the boolean that allows it.

    None instead of the boolean where slices have no variables of their own.
    """
    slices: SliceVariables = gang.slices.get(role.role, [[(role.indices, [])]])[0]
    found: dict[int, list[tuple[int, int | None]]] = {}
    for indices, options in slices:
        counts: dict[int, int] = {}
        for pod in gang.gang.planned:
            if pod.role == role.role and pod.index in indices and pod.node in region_of:
                number = region_of[pod.node]
                counts[number] = counts.get(number, 0) + 1
        for number, count in counts.items():
            chosen = next((variable for regions, variable in options if number in regions), None)
            if chosen is not None or not options:
                found.setdefault(number, []).append((count, chosen))
    return found


def group_gpus_as_planned(region_set: RegionSet, group: GroupVariables) -> Linear:
    """The same for a gang on one node: a gang that was planned before is a group of one."""
    total = Linear()
    if not group.gangs[0].planned:
        return total
    demand = group.demands[0]
    for piece in group.pieces:
        gpus = [
            sum(
                group.gangs[0].roles[role.role].units
                for role in demand.roles
                for pod in group.gangs[0].planned
                if pod.role == role.role and pod.index in role.indices and pod.node == n
            )
            for n in region_set.regions[piece.region].nodes
        ]
        total.add(piece.variable, max(gpus))
    return total


def gang_preference(gang: GangVariables, topology: Topology) -> Linear:
    """What the gang adds to ``preference`` by its own place."""
    total, spec = Linear(), gang.gang
    if spec.preferred is not None:
        total.add_linear(topology.whole(spec.preferred), spec.weight_gpus)
    for number, role in enumerate(spec.roles):
        if role.preferred is not None:
            total.add_linear(topology.whole(role.preferred, (number,)), spec.gpus_of((number,)))
    for one in spec.together:
        whole = topology.whole(one.level, one.roles, gpus_only=True)
        total.add_linear(whole, spec.gpus_of(one.roles))
    if spec.near is not None and spec.near.anywhere:
        total.add_linear(topology.whole(spec.near.level, gpus_only=True), spec.weight_gpus)
    return total


def gang_span(instance: Instance, gang: GangVariables, topology: Topology) -> Linear:
    """What the gang adds to ``span``."""
    total = Linear()
    weight, weights = gang.gang.weight_gpus, instance.cluster.span_weights
    for level in instance.cluster.counted_levels:
        factor = weight * weights[level]
        total.add_linear(topology.count(level), factor).add(gang.admit, -factor)
    return total.add_linear(topology.nodes(), weight).add(gang.admit, -weight)


@dataclass(frozen=True)
class TierExpressions:
    """Builds the expression of every tier.

    ``topologies``: of the gangs with variables of their own. ``base``: the plan without the gangs that are
    decided about.
    """

    model: Model
    topologies: Sequence[Topology]
    base: Evaluation

    def expression(self, tier: Tier) -> Linear:
        """The tier's value."""
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
        return total.add_linear(EXPRESSIONS[tier.family](self))

    def _speed(self, tier: Tier) -> Linear:
        """GPUs times speed of the gangs that the tier counts."""
        worth, total = partial(speed_worth, self.model.instance, tier), Linear()
        for gang in self.model.variables.gangs:
            total.add_linear(self.model.bandwidth[gang.admit].speed, worth(gang.gang))
        for stay in self._admitted_stays:
            if stay.admit in self.model.bandwidth:
                total.add_linear(self.model.bandwidth[stay.admit].speed, worth(stay.gang))
            else:
                speed = self._standing.speed(stay.demand.gang, stay.demand.stays)
                total.add(stay.admit, speed * worth(stay.gang))
        for ladder in self._ladders:
            total.add_linear(ladder.total(worth))
        return total

    @cached_property
    def _ladders(self) -> list[SpeedLadder]:
        return [group_ladder(self.model, group) for group in self.model.variables.groups]

    def _options(self) -> list[tuple[Demand, Effect, int]]:
        """(demand, effect, admit variable) of every option."""
        found = [(g.demand, g.effect, g.admit) for g in self.model.variables.gangs]
        found += [(s.demand, s.effect, s.admit) for s in self.model.variables.stays]
        for group in self.model.variables.groups:
            members = zip(group.demands, group.admits, strict=True)
            found += [(demand, PLACED, admit) for demand, admit in members]
        return found

    def stability(self) -> Linear:
        """GPUs of planned pods that are elsewhere: all that there are, less those on the planned node."""
        total = Linear()
        for demand, _, admit in self._options():
            total.add(admit, elsewhere(self.model.instance.gangs[demand.gang], demand))
        for owner in self.model.variables.gangs:
            total.add_linear(gpus_as_planned(self.model.program, self.model.region_set, owner), -1)
        for group in self.model.variables.groups:
            total.add_linear(group_gpus_as_planned(self.model.region_set, group), -1)
        return total

    def preference(self) -> Linear:
        total = Linear()
        for gang, topology in zip(self.model.variables.gangs, self.topologies, strict=True):
            total.add_linear(gang_preference(gang, topology))
        for stay in self._admitted_stays:
            total.add(stay.admit, self._standing_value("preference", stay))
        for group in self.model.variables.groups:
            total.add_all(group.admits, group.gangs[0].most_preference)
        return total.add_linear(near_gpus(self.model, self.topologies, self.base))

    def bandwidth(self) -> Linear:
        total = Linear()
        for gang in self.model.variables.gangs:
            own = self.model.bandwidth[gang.admit].share
            total.add_linear(own, gang.gang.weight * gang.gang.weight_gpus)
        for stay in self._admitted_stays:
            if stay.admit in self.model.bandwidth:
                own = self.model.bandwidth[stay.admit].share
                total.add_linear(own, stay.gang.weight * stay.gang.weight_gpus)
            else:
                total.add(stay.admit, self._standing_value("bandwidth", stay))
        for group in self.model.variables.groups:
            spec = group.gangs[0]
            if spec.pattern == "none" or group.demands[0].total_gpus < 2:
                continue
            for piece in group.pieces:
                share = _piece_share(self.model, group, piece) or 0
                total.add(piece.variable, spec.weight * spec.weight_gpus * share)
        return total

    def span(self) -> Linear:
        total = Linear()
        for gang, topology in zip(self.model.variables.gangs, self.topologies, strict=True):
            total.add_linear(gang_span(self.model.instance, gang, topology))
        for stay in self._admitted_stays:
            total.add(stay.admit, self._standing_value("span", stay))
        return total

    @property
    def _admitted_stays(self) -> list[StayVariables]:
        """Options that place nothing and leave the gang running."""
        return [stay for stay in self.model.variables.stays if stay.effect.admitted]

    @cached_property
    def _standing(self) -> StandingValues:
        return StandingValues(self.model.instance)

    def _standing_value(self, family: str, stay: StayVariables) -> int:
        return self._standing.value(family, stay.demand.gang, stay.demand.stays)


EXPRESSIONS: dict[str, Callable[[TierExpressions], Linear]] = {
    "preference": TierExpressions.preference,
    "bandwidth": TierExpressions.bandwidth,
    "span": TierExpressions.span,
    "stability": TierExpressions.stability,
}
"""Tiers that depend on placements: what the gangs that are decided about add."""
