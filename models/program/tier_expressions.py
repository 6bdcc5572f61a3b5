"""Every tier as a linear expression over the variables of the full formulation.

For a feasible assignment an expression is no better than the value of the decoded plan, and equal to it at
an optimum. Gangs that are not decided about contribute the constant of the base plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial

from models.instance.gang import ExistingPod, Gang, Role
from models.instance.instance import Instance
from models.instance.solution import placed
from models.program.base_state import base_decisions
from models.program.linear_program import Linear, Program
from models.program.options import Effect, standing_gpus
from models.program.rules.gpus import FreeServers
from models.program.rules.queues import QUEUE_TIERS
from models.program.rules.topology import Topology
from models.program.variables import GangVariables, Model, SliceVariables
from models.queues.queue_shares import within_guarantee
from models.rules.demands import Demand, RoleDemand
from models.tiers import Tier
from models.values.leftover import gpu_models, request_domains, suspects
from models.values.nearness import anchored, companions, home
from models.values.tier_values import (
    PLACEMENT_VALUES,
    Evaluation,
    GangValue,
    gang_value,
    known_masks,
    known_value,
    most_speed,
)

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


def _growth(worth: Callable[[Role], int]) -> OptionValue:
    """What pods beyond the fewest add, each as much as this."""

    def grown(instance: Instance, demand: Demand, effect: Effect) -> int:
        counts = zip(instance.gangs[demand.gang].roles, demand.counts, strict=True)
        more = sum((count - role.min) * worth(role) for role, count in counts)
        return more if effect.admitted else 0

    return grown


SPEED_FACTORS: dict[str, Callable[[Instance, Gang], int]] = {
    "goodput": lambda _instance, _gang: 1,
    "aged": lambda instance, gang: int(instance.aged(gang)),
    "aged-waiting": lambda instance, gang: instance.age(gang) if instance.aged(gang) else 0,
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


OPTION_VALUES: dict[str, OptionValue] = {
    "guarantee": _if(within_guarantee, _weight),
    "kept": lambda _instance, _demand, effect: effect.kept,
    "aged": _if(Instance.aged, _weight),
    "aged-waiting": _if(Instance.aged, _waited),
    "admission": _weight,
    "waiting": _waited,
    "disruption": _disruption,
    "growth": _if(lambda _, gang: gang.elastic, _growth(lambda role: role.units)),
    "growth-pods": _growth(lambda role: not role.units),
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
        largest = max(instance.cluster.nodes[n].gpus for n in nodes)
        for n in nodes:
            if n in free.model.servers:
                total.add_linear(free.left(n), every)
            else:  # what pods with parts take there is lost, too
                total.constant += every * free.model.state.rooms[n].free_gpus
            for size, permille in mix:
                if size <= largest:
                    total.add_linear(free.requests(n, size), -permille * size)
        full = [n for n in nodes if instance.cluster.nodes[n].gpus == largest]
        for size, permille in mix:
            if size > largest:
                servers = -(-size // largest)
                for members in request_domains(instance, nodes, size):
                    whole = free.whole((n for n in full if n in members), usable=True)
                    most = program.bound_above(whole) // servers
                    if most > 0:
                        count = program.integer(0, most)
                        program.at_least(whole.add(count, -servers))
                        total.add(count, -permille * size)
    pieces = (p for partition in free.model.variables.partitions for p in partition.pieces)
    return total.add_all((piece.variable for piece in pieces), every)


def defragment(program: Program, instance: Instance, free: FreeServers) -> Linear:
    """GPUs of nodes left whole, and again of innermost domains of which every GPU node is left whole."""
    total, cluster = Linear(), instance.cluster
    largest: dict[int, int] = {}
    for nodes in gpu_models(instance).values():
        most = max(cluster.nodes[n].gpus for n in nodes)
        largest.update(dict.fromkeys(nodes, most))
        total.add_linear(free.whole(n for n in nodes if cluster.nodes[n].gpus == most), most)
    for domain in cluster.domains[cluster.counted_levels[-1]] if cluster.counted_levels else ():
        own = [n for n in domain.nodes if n in largest]
        # a single node is already counted
        if len(own) > 1 and all(cluster.nodes[n].gpus == largest[n] for n in own):
            whole = program.boolean()
            program.at_least(free.whole(own).add(whole, -len(own)))
            total.add(whole, sum(largest[n] for n in own))
    return total


def suspect(_program: Program, instance: Instance, free: FreeServers) -> Linear:
    """GPUs left free on nodes that failed lately."""
    return Linear.total(free.left(n) for n in sorted(suspects(instance)))


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


def gpus_as_planned(program: Program, gang: GangVariables) -> Linear:
    """GPUs of pods to place that may be on the nodes an earlier plan had for them.

    For a role and a node: matched <= pods placed there, matched <= pods planned there; with a variable a
    slice, for each slice matched <= its pods planned there x d[slice, domain].
    """
    total = Linear()
    for role in gang.roles.values() if gang.gang.planned else ():
        units = gang.gang.roles[role.role].units
        for n, rows in sorted(_planned_on(gang, role).items()) if units else ():
            placed_there = gang.pods(role, [n])
            if placed_there.terms:
                for count, chosen in rows:
                    here = program.integer(0, count)
                    placed_there.add(here, -1)
                    total.add(here, units)
                    if chosen is not None:
                        program.at_most(Linear().add(here).add(chosen, -count))
                program.at_least(placed_there)
    return total


def _planned_on(gang: GangVariables, role: RoleDemand) -> dict[int, list[tuple[int, int | None]]]:
    """By node, for each slice: pods planned there, and the boolean that allows it.

    None instead of the boolean where slices have no variables of their own.
    """
    slices: SliceVariables = gang.slices.get(role.role, [[(role.indices, [])]])[0]
    found: dict[int, list[tuple[int, int | None]]] = {}
    for indices, options in slices:
        counts = Counter(
            p.node for p in gang.gang.planned if p.role == role.role and p.index in indices
        )
        for n, count in counts.items():
            chosen = next((variable for nodes, variable in options if n in nodes), None)
            if chosen is not None or not options:
                found.setdefault(n, []).append((count, chosen))
    return found


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
    total = Linear()
    weight, weights = gang.gang.weight_gpus, instance.cluster.span_weights
    for level in instance.cluster.counted_levels:
        factor = weight * weights[level]
        total.add_linear(topology.count(level), factor).add_all(gang.admits, -factor)
    return total.add_linear(topology.nodes(), weight).add_all(gang.admits, -weight)


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
        total = Linear()
        for own in (*self.model.variables.gangs, *self._admitted_stays):
            worth = speed_worth(self.model.instance, tier, own.gang)
            if own.admit in self.model.bandwidth:
                total.add_linear(self.model.bandwidth[own.admit].speed, worth)
            else:
                speed = self._standing.speed(own.demand.gang, own.demand.stays)
                total.add(own.admit, speed * worth)
        return total

    def _options(self) -> list[tuple[Demand, Effect, int]]:
        """(demand, effect, admit variable) of every option."""
        own = (*self.model.variables.gangs, *self.model.variables.stays)
        return [(demand, one.effect, admit) for one in own for demand, admit in one.members]

    def stability(self) -> Linear:
        """GPUs of planned pods that are elsewhere: all that there are, less those on the planned node."""
        total = Linear()
        for demand, _, admit in self._options():
            total.add(admit, elsewhere(self.model.instance.gangs[demand.gang], demand))
        for owner in self.model.variables.gangs:
            total.add_linear(gpus_as_planned(self.model.program, owner), -1)
        return total

    def preference(self) -> Linear:
        total = self._placed("preference", gang_preference)
        return total.add_linear(near_gpus(self.model, self.topologies, self.base))

    def bandwidth(self) -> Linear:
        total = Linear()
        for own in (*self.model.variables.gangs, *self._admitted_stays):
            if own.admit in self.model.bandwidth:
                share = self.model.bandwidth[own.admit].share
                total.add_linear(share, own.gang.weight * own.gang.weight_gpus)
            else:
                total.add(own.admit, self._standing_value("bandwidth", own))
        return total

    def span(self) -> Linear:
        return self._placed("span", partial(gang_span, self.model.instance))

    def _placed(self, family: str, worth: Callable[[GangVariables, Topology], Linear]) -> Linear:
        """What gangs add where they are placed, and with the pods that they have where nothing is."""
        pairs = zip(self.model.variables.gangs, self.topologies, strict=True)
        total = Linear.total(worth(gang, topology) for gang, topology in pairs)
        for stay in self._admitted_stays:
            total.add(stay.admit, self._standing_value(family, stay))
        return total

    @property
    def _admitted_stays(self) -> list[GangVariables]:
        """Options that place nothing and leave the gang running."""
        return [stay for stay in self.model.variables.stays if stay.effect.admitted]

    @cached_property
    def _standing(self) -> StandingValues:
        return StandingValues(self.model.instance)

    def _standing_value(self, family: str, stay: GangVariables) -> int:
        return self._standing.value(family, stay.demand.gang, stay.demand.stays)


EXPRESSIONS: dict[str, Callable[[TierExpressions], Linear]] = {
    "preference": TierExpressions.preference,
    "bandwidth": TierExpressions.bandwidth,
    "span": TierExpressions.span,
    "stability": TierExpressions.stability,
}
"""Tiers that depend on placements: what the gangs that are decided about add."""


Homes = Mapping[int, Linear]
"""By domain, 1 only if a gang is in it."""


def anywhere(gang: Gang) -> int:
    """What a gang adds that counts as beside another one wherever it is, if it is whole there."""
    return gang.weight_gpus if gang.near is not None and gang.near.anywhere else 0


def near_gpus(model: Model, topologies: Sequence[Topology], base: Evaluation) -> Linear:
    """What gangs beside each other add beyond what they add in the base plan.

    For a gang g with ``near``, home(h, D) = 1 only if h runs whole with all its pods that count in the domain
    D: y[g, D] <= home(g, D), y[g, D] <= sum over the gangs h that g names of home(h, D); g adds w(g) x sum of
    y. Arguments as in ``TierExpressions``.
    """
    total, gangs = Linear(), model.instance.gangs
    homes_of = cache(partial(_homes, model, topologies, base))
    for index, others in companions(model.instance).items():
        gang = gangs[index]
        if gang.near is None or gang.near.anywhere or base.near[index]:
            continue
        level, anchors = gang.near.level, anchored(model.instance, index)
        for domain, here in homes_of(index, level).items():
            if domain in anchors:
                total.add_linear(here, gang.weight_gpus)
                continue
            beside = Linear.total(homes_of(i, level).get(domain, Linear()) for i in others)
            if model.program.bound_above(here) and model.program.bound_above(beside):
                together = model.program.boolean()
                for one in (here, beside):
                    model.program.at_least(Linear().add_linear(one).add(together, -1))
                total.add(together, gang.weight_gpus)
    return total


def _homes(
    model: Model, topologies: Sequence[Topology], base: Evaluation, index: int, level: int
) -> Homes:
    """The domains in which a gang may be whole."""
    instance, found = model.instance, dict[int, Linear]()
    gang, line = instance.gangs[index], base.lines[index]
    light = not any(role.gpus for role in gang.roles)
    if line.admitted and (there := home(instance, gang, line.decision.pods, level)) is not None:
        found[there] = Linear({}, 1)
    for owner, topology in zip(model.variables.gangs, topologies, strict=True):
        if owner.demand.gang == index and owner.effect.admitted:
            for domain, own in topology.homes(level, gpus_only=not light).items():
                found.setdefault(domain, Linear()).add_linear(own)
    for stay in model.variables.stays:
        if stay.demand.gang == index and stay.effect.admitted:
            there = home(instance, gang, placed(gang, stay.demand.stays), level)
            if there is not None:
                found.setdefault(there, Linear()).add(stay.admit)
    return found
