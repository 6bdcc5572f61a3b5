"""What the tiers get of a running gang that stays where it is, in all or in part.

Promises: the plan's own figures for those pods, as integers. Called by ``tiers``.

Tiers of what is left free: stranded GPUs, and whole nodes and domains, as linear expressions.

Promises: exact on every region whose packing is; domains that may be left whole get a variable each.
Called by ``tiers``.

How many GPUs of a gang may be on the nodes an earlier plan had for them (tier ``stability``).

For a role of GPU pods and a region: matched <= pods placed there, matched <= pods planned there before.
Where slices are told apart, for each of them: matched there <= its pods planned there x d[slice, domain].
Exact where a region is one node and slices, if any, are told apart; otherwise no plan does better.
Called by ``tiers``.

The tiers of the contract's section 4 as linear expressions over the formulation's variables.

Promises: for every feasible assignment the expression is no better than the decoded plan's value, and
equal at an optimum; contributions of gangs that nothing is decided about are constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from models.gang import Gang, StandingPod
from models.instance import Instance
from models.occupancy import Room
from models.program.base_state import base_decisions, placed
from models.program.demands import Demand, RoleDemand
from models.program.linear_program import Linear, Program
from models.program.options import PLACED, Effect, standing_gpus
from models.program.packing import SetType
from models.program.packing_flows import RegionFlow
from models.program.regions import Pools, Region
from models.program.rules.bandwidth import Claims
from models.program.rules.topology import Topology
from models.program.variables import Apart, GangVariables, GroupVariables, StayVariables, Variables
from models.rates.gang_bandwidth import ideal_MBps, share_permille
from models.rates.gpu_sets import UnknownRate
from models.tier_values import (
    Evaluation,
    Tier,
    gang_value,
    gpu_models,
    known_masks,
    request_domains,
)


@dataclass(frozen=True, slots=True)
class Standing:
    """``preference``, ``bandwidth``, ``span``: what the gang adds to these tiers."""

    preference: int
    bandwidth: int
    span: int


class Stander:
    """Values of gangs as they stand; ``known``: GPUs held now, a node."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._known = known_masks(instance, base_decisions(instance))

    def value(self, index: int, stays: Sequence[StandingPod]) -> Standing:
        """What these pods of the gang are worth by themselves."""
        instance, gang = self._instance, self._instance.gangs[index]
        pods = placed(instance, index, stays)
        value = gang_value(instance, gang, pods, self._known)
        weight, node_level = gang.weight_gpus, instance.cluster.node_level
        preference = 0
        if gang.preferred is not None and value.domains[gang.preferred] == 1:
            preference += weight
        for number, role in enumerate(gang.roles):
            if role.preferred is not None:
                of = instance.cluster.domain_of[role.preferred]
                if len({of[pod.node] for pod in pods if pod.role == number}) == 1:
                    preference += role.min * role.gpus or 1
        counted = gang.pattern != "none"
        span = sum(
            weight * (used - 1) * 4 ** (node_level - level)
            for level, used in enumerate(value.domains)
        )
        share = value.share if counted and value.share is not None else 0
        return Standing(preference, gang.weight * weight * share, span)


@dataclass(frozen=True)
class Rests:
    """What the flows leave on the servers of every region; the other nodes are left as they are."""

    pools: Pools
    rooms: Sequence[Room]
    flows: Sequence[RegionFlow]

    @cached_property
    def region_of(self) -> dict[int, Region]:
        return {n: region for region in self.pools.regions for n in region.nodes}

    def whole(self, members: Sequence[int], largest: int) -> Linear:
        """How many of these nodes are left with so many free GPUs, in full regions."""
        total = Linear()
        seen: set[int] = set()
        for n in members:
            region = self.region_of.get(n)
            if region is None:
                total.constant += int(self.rooms[n].free_gpus == largest)
            elif region.number not in seen:
                seen.add(region.number)
                for state, rest in self.flows[region.number].rests.items():
                    if region.packing.size(state) == largest:
                        total.add(rest)
        return total


def unusable(program: Program, instance: Instance, left: Rests) -> Linear:
    """sum over nodes of what no size of the mix can use, less what whole nodes give larger sizes."""
    mix = instance.policy.mix
    total = Linear()
    for nodes in gpu_models(instance).values():
        own = set(nodes)
        largest = max(instance.cluster.nodes[n].gpus for n in nodes)
        small = [(size, permille) for size, permille in mix if size <= largest]
        unused = [
            sum(permille for _, permille in mix) * free
            - sum(permille * size * (free // size) for size, permille in small)
            for free in range(largest + 1)
        ]
        total.constant += sum(
            unused[left.rooms[n].free_gpus] for n in nodes if n not in left.region_of
        )
        for region in left.pools.regions:
            if region.nodes[0] in own:
                for state, rest in left.flows[region.number].rests.items():
                    total.add(rest, unused[region.packing.size(state)])
        for size, permille in mix:
            if size > largest:
                _larger(program, instance, left, total, nodes, largest, size, permille)
    return total


def _larger(
    program: Program,
    instance: Instance,
    left: Rests,
    total: Linear,
    nodes: Sequence[int],
    largest: int,
    size: int,
    permille: int,
) -> None:
    """Requests of several whole nodes: per domain, servers x placeable <= nodes left whole."""
    servers = -(-size // largest)
    for members in request_domains(instance, nodes, size):
        whole = left.whole(members, largest)
        most = program.bound_above(whole) // servers
        if most > 0:
            count = program.integer(0, most)
            program.at_least(whole.add(count, -servers))
            total.add(count, -permille * size)


def defragmented(program: Program, instance: Instance, left: Rests) -> Linear:
    """GPUs of nodes left whole, and again of innermost domains of which every GPU node is left whole."""
    total = Linear()
    largest: dict[int, int] = {}
    for nodes in gpu_models(instance).values():
        most = max(instance.cluster.nodes[n].gpus for n in nodes)
        largest.update(dict.fromkeys(nodes, most))
        total.add_linear(left.whole(nodes, most), most)
    cluster = instance.cluster
    members: dict[int, list[int]] = {}
    if cluster.levels:
        of = cluster.domain_of[len(cluster.levels) - 1]
        for n in sorted(largest):
            members.setdefault(of[n], []).append(n)
    for domain in sorted(members):
        own = members[domain]
        if len(own) < 2:  # a node by itself was counted
            continue
        whole = program.boolean()
        for most in sorted({largest[n] for n in own}):
            same = [n for n in own if largest[n] == most]
            program.at_least(left.whole(same, most).add(whole, -len(same)))
        total.add(whole, sum(largest[n] for n in own))
    return total


def matched(program: Program, pools: Pools, gang: GangVariables) -> Linear:
    """GPUs of pods to place that may go where they were planned."""
    total = Linear()
    if not gang.gang.planned:
        return total
    region_of = {n: region.number for region in pools.regions for n in region.nodes}
    for position, role in enumerate(gang.demand.gpu_roles):
        if role.role in gang.exchange:
            wanted = {
                p.index: region_of.get(p.node) for p in gang.gang.planned if p.role == role.role
            }
            for indices, places in gang.exchange[role.role]:
                total.add_all(
                    (v for r, v in places.items() if r == wanted.get(indices[0])), role.gpus
                )
            continue
        for number, rows in sorted(_wanted(gang, role, region_of).items()):
            placed = gang.gpu_pods(position, [number])
            if placed.terms:
                for count, chosen in rows:
                    here = program.integer(0, count)
                    placed.add(here, -1)
                    total.add(here, role.gpus)
                    if chosen is not None:
                        program.at_most(Linear().add(here).add(chosen, -count))
                program.at_least(placed)
    return total


def _wanted(
    gang: GangVariables, role: RoleDemand, region_of: Mapping[int, int]
) -> dict[int, list[tuple[int, int | None]]]:
    """By region, for each slice: pods planned there, and the boolean that allows it.

    None instead of the boolean where slices are not told apart.
    """
    slices: Apart = gang.apart.get(role.role, [[(role.indices, [])]])[0]
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


def matched_alone(pools: Pools, group: GroupVariables) -> Linear:
    """The same for a gang on one node: a gang that was planned before is a group by itself."""
    total = Linear()
    if not group.gangs[0].planned:
        return total
    demand = group.demands[0]
    for piece in group.pieces:
        gpus = [
            sum(
                role.gpus
                for role in demand.gpu_roles
                for pod in group.gangs[0].planned
                if pod.role == role.role and pod.index in role.indices and pod.node == n
            )
            for n in pools.regions[piece.region].nodes
        ]
        total.add(piece.variable, max(gpus))
    return total


class Tiers:
    """Builds and remembers the expression of every tier.

    ``doubted``: by admit variable, claims of gangs that stay, where what they are worth hangs on others.
    """

    def __init__(
        self,
        program: Program,
        instance: Instance,
        variables: Variables,
        pools: Pools,
        rooms: Sequence[Room],
        topologies: Sequence[Topology],
        claims: Sequence[Claims],
        doubted: Mapping[int, Claims],
        base: Evaluation,
    ) -> None:
        self._program = program
        self._instance = instance
        self._variables = variables
        self._pools = pools
        self._topologies = topologies
        self._claims = claims
        self._doubted = doubted
        self._base = base
        self._ground = Rests(pools, rooms, variables.flows)
        self._stranded: Linear | None = None
        self._stood: list[tuple[StayVariables, Standing]] | None = None

    def expression(self, tier: Tier) -> Linear:
        """The tier's value as an expression; constant for what this planner leaves as it is."""
        if tier.family == "stranded":
            return self._stranded_tier()
        if tier.family == "defragment":
            return defragmented(self._program, self._instance, self._ground)
        builder = {
            "kept": self._kept,
            "aged": self._aged,
            "aged-waiting": self._aged_waiting,
            "admission": self._admission,
            "waiting": self._waiting,
            "disruption": self._disruption,
            "preference": self._preference,
            "bandwidth": self._bandwidth,
            "growth": self._growth,
            "span": self._span,
            "stability": self._stability,
        }[tier.family]
        return Linear(constant=self._base.tier(tier)).add_linear(builder(tier))

    def _members(self) -> list[tuple[Gang, Demand, int, Effect]]:
        """(gang, demand, its admit variable, effect) of every option."""
        found = [(g.gang, g.demand, g.admit, g.effect) for g in self._variables.gangs]
        found += [(s.gang, s.demand, s.admit, s.effect) for s in self._variables.stays]
        for group in self._variables.groups:
            found += [
                (gang, demand, admit, PLACED)
                for gang, demand, admit in zip(
                    group.gangs, group.demands, group.admits, strict=True
                )
            ]
        return found

    def _weighted(self, tier: Tier, worth: Callable[[Gang], int], *, aged: bool = False) -> Linear:
        """Sum of worth over admitted gangs of the tier's priority."""
        total = Linear()
        for gang, _, admit, effect in self._members():
            counts = effect.admitted and (not aged or self._instance.aged(gang))
            if gang.priority == tier.priority and counts:
                total.add(admit, worth(gang))
        return total

    def _waited(self, gang: Gang) -> int:
        return 0 if gang.running else gang.weight_gpus * self._instance.age(gang)

    def _aged(self, tier: Tier) -> Linear:
        return self._weighted(tier, lambda gang: gang.weight_gpus, aged=True)

    def _aged_waiting(self, tier: Tier) -> Linear:
        return self._weighted(tier, self._waited, aged=True)

    def _admission(self, tier: Tier) -> Linear:
        return self._weighted(tier, lambda gang: gang.weight_gpus)

    def _waiting(self, tier: Tier) -> Linear:
        return self._weighted(tier, self._waited)

    def _kept(self, tier: Tier) -> Linear:
        total = Linear()
        for gang, _, admit, effect in self._members():
            if gang.priority == tier.priority:
                total.add(admit, effect.kept)
        return total

    def _disruption(self, tier: Tier) -> Linear:
        """Without any option a gang is stopped, and all of it is lost: the base says so."""
        del tier
        total = Linear()
        for gang, demand, admit, effect in self._members():
            if gang.running:
                gone = effect.lost - standing_gpus(self._instance, demand.gang)
                total.add(admit, self._instance.harm(gang) * gone)
        return total

    def _growth(self, tier: Tier) -> Linear:
        total = Linear()
        for gang, demand, admit, effect in self._members():
            if gang.priority == tier.priority and gang.elastic and effect.admitted:
                above = sum(
                    (count - role.min) * role.gpus
                    for role, count in zip(gang.roles, demand.counts, strict=True)
                )
                total.add(admit, above)
        return total

    def _stability(self, tier: Tier) -> Linear:
        """Pods planned before that are elsewhere: all that are there, less those on the planned node."""
        del tier
        total = Linear()
        for gang, demand, admit, _ in self._members():
            if gang.planned:
                stays = {(p.role, p.index): p.node for p in demand.stays}
                comes = {(role.role, index) for role in demand.roles for index in role.indices}
                for pod in gang.planned:
                    key = (pod.role, pod.index)
                    if (key in stays or key in comes) and stays.get(key) != pod.node:
                        total.add(admit, gang.roles[pod.role].gpus)
        for owner in self._variables.gangs:
            total.add_linear(matched(self._program, self._pools, owner), -1)
        for group in self._variables.groups:
            total.add_linear(matched_alone(self._pools, group), -1)
        return total

    def _preference(self, tier: Tier) -> Linear:
        del tier
        total = Linear()
        for gang, topology in zip(self._variables.gangs, self._topologies, strict=True):
            spec = gang.gang
            if spec.preferred is not None:
                total.add_linear(topology.whole(spec.preferred), spec.weight_gpus)
            for number, role in enumerate(spec.roles):
                if role.preferred is not None:
                    worth = role.min * role.gpus or 1
                    total.add_linear(topology.whole(role.preferred, number), worth)
        for stay, value in self._standing():
            total.add(stay.admit, value.preference)
        for group in self._variables.groups:
            spec = group.gangs[0]
            worth = spec.weight_gpus if spec.preferred is not None else 0
            worth += sum(r.min * r.gpus or 1 for r in spec.roles if r.preferred is not None)
            total.add_all(group.admits, worth)
        return total

    def _bandwidth(self, tier: Tier) -> Linear:
        del tier
        total = Linear()
        for gang, claims in zip(self._variables.gangs, self._claims, strict=True):
            total.add_linear(claims.value, gang.gang.weight * gang.gang.weight_gpus)
        for stay, value in self._standing():
            if stay.admit in self._doubted:
                own = self._doubted[stay.admit].value
                total.add_linear(own, stay.gang.weight * stay.gang.weight_gpus)
            else:
                total.add(stay.admit, value.bandwidth)
        for group in self._variables.groups:
            spec = group.gangs[0]
            if spec.pattern == "none" or group.demands[0].total_gpus < 2:
                continue
            for piece in group.pieces:
                share = self._piece_share(group, piece.region, piece.kind)
                total.add(piece.variable, spec.weight * spec.weight_gpus * share)
        return total

    def _piece_share(self, group: GroupVariables, region: int, kind: SetType) -> int:
        model = self._pools.regions[region].model.model
        assert model is not None
        if kind.inside is None:
            return 0
        try:
            return share_permille(kind.inside, ideal_MBps((model,), group.demands[0].total_gpus))
        except UnknownRate:
            return 0

    def _span(self, tier: Tier) -> Linear:
        del tier
        total = Linear()
        node_level = self._instance.cluster.node_level
        for gang, topology in zip(self._variables.gangs, self._topologies, strict=True):
            weight = gang.gang.weight_gpus
            for level in range(node_level):
                factor = weight * 4 ** (node_level - level)
                total.add_linear(topology.count(level), factor).add(gang.admit, -factor)
            total.add_linear(topology.nodes(), weight).add(gang.admit, -weight)
        for stay, value in self._standing():
            total.add(stay.admit, value.span)
        return total

    def _standing(self) -> list[tuple[StayVariables, Standing]]:
        """What the tiers get of gangs that place nothing."""
        if self._stood is None:
            stander = Stander(self._instance)
            self._stood = [
                (stay, stander.value(stay.demand.gang, stay.demand.stays))
                for stay in self._variables.stays
                if stay.effect.admitted
            ]
        return self._stood

    def _stranded_tier(self) -> Linear:
        if self._stranded is None:
            self._stranded = unusable(self._program, self._instance, self._ground)
        return self._stranded
