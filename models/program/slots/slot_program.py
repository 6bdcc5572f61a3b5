"""The coarsest program: who runs and how tightly, by counting slots; bounds at any size in no time.

A node with f free GPUs has floor(f / g) slots of g GPUs, and a pod of s GPUs takes at least floor(s / g) of
them, wherever it is; a gang that is whole on a node counts as one pod. So for every size g, and every set of
nodes that pods are held to, the pods chosen take at most the slots that there are when everybody is away who
may be elsewhere. Domains have slots of j large pods likewise: a gang of k of them that is whole in one takes
floor(k / j). What a gang has follows from the level at which it is whole, and from the slowest of its GPUs.
Instances and parts of GPUs are counted over all nodes (``slot_parts``). Rules about who runs are kept
(``RULES``), and no other: every plan is an assignment, and not every assignment is a plan. Nobody takes
the slots of nodes that stay idle (contract 2.21); of rules that share nodes only one counts, since one idle
node may be a spare of both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, product

from models.instance.instance import Instance
from models.program.base_state import BaseState, build_base_state
from models.program.linear_program import Linear, Program, Question, never
from models.program.options import Choice, Option
from models.program.rules import queues, running
from models.program.slots.slot_flow import SlotFlow
from models.program.slots.slot_meshes import Scattered, SlotMeshes
from models.program.slots.slot_parts import Reshaped, hold_parts
from models.program.slots.slot_rooms import DomainSlots, Mode, Piece, Spares
from models.program.slots.slot_spread import SlotSpread
from models.program.slots.slot_state import MAX_APART, Slots
from models.program.tier_expressions import (
    OPTION_VALUES,
    counts_speed,
    option_sum,
    speed_worth,
)
from models.program.variables import Model, Variables
from models.rates.gang_bandwidth import FULL_SHARE
from models.rules.demands import Demand
from models.tiers import Tier
from models.values.leftover import gpu_models, request_domains
from models.values.nearness import loosened
from models.values.tier_values import PLACEMENT_VALUES, Evaluation, most_speed

MAX_DOMAINS = 200
"""The nodes that are left with free GPUs are counted in so many domains at most, or else in wider ones."""

RULES = (
    queues.keep_order,
    queues.add,
    running.limit_moves,
    running.limit_evictions,
)
"""Rules about who runs, wherever it is: the rows of the full program, where every mode counts as an option.

Of single GPU models only the pods that stay are counted: with less held, no plan is lost.
"""


class SlotModel(Slots):
    """The program, and the expressions of the tiers that it bounds; ``expression`` is None for others.

    ``immovable``: gangs that must not move. ``complete``: whether every plan is an assignment;
    ``covers_admission``: whether every plan is one as far as the running gangs go. Raises
    Interrupted if ``interrupted`` says so while it is built.
    """

    def __init__(
        self,
        instance: Instance,
        immovable: frozenset[int] = frozenset(),
        *,
        interrupted: Question = never,
    ) -> None:
        instance = loosened(instance)
        self._state = build_base_state(instance, immovable=immovable, interrupted=interrupted)
        super().__init__(instance, Program(interrupted), self._state)
        self.complete = all(choice.complete for choice in self.choices)
        self.covers_admission = all(choice.covers_admission for choice in self.choices)
        self._base = Evaluation(instance, self._state.base)
        self._span = Linear()
        self.spread: SlotSpread | None = None
        self.flow: SlotFlow | None = None
        for choice in self.choices:
            self._choose(choice)
        self.spares = Spares(instance, self.room)
        rooms = self._state.rooms
        self.parts = hold_parts(instance, self.program, self.choices, self.modes, rooms)
        found = self._node_sets()
        everywhere = self.everywhere = frozenset[int]().union(*found)
        self._node_rows(everywhere, found[:MAX_APART])
        self._domain_rows(everywhere, found[:MAX_APART])
        self.meshes = [SlotMeshes(kind, self) for kind in self.shapes.meshes]
        self._who_runs = _add_rules(instance, self.program, self._state, self.modes)
        self.program.interrupted = never

    def scattered(self, mode: Mode) -> tuple[SlotMeshes, Scattered] | None:
        """What a gang on several servers needs of which kind, where not every set will do."""
        found = ((mesh, mesh.scattered(mode)) for mesh in self.meshes)
        return next(((mesh, key) for mesh, key in found if key is not None), None)

    def _choose(self, choice: Choice) -> None:
        first = len(self.modes)
        for option in choice.options:
            if option.demand.possible:
                self.modes += self._modes_of(option)
        one = Linear().add_all(mode.variable for mode in self.modes[first:])
        hold = self.program.equal if choice.must and choice.complete else self.program.at_most
        hold(one, 1)

    def _modes_of(self, option: Option) -> Iterator[Mode]:
        """A variable for each level at which the gang may be whole, and for each speed of its GPUs."""
        demand = option.demand
        if not demand.gpu_roles or demand.stays:
            speed = self._standing_speed(demand)
            yield Mode(option, -1, self.program.boolean(), None, speed)
            return
        most, least = most_speed(self.instance, demand.gang), self._least_share(demand.gang)
        for held in self.shapes.by_speed(demand):
            own = option if held is demand else Option(held, option.effect)
            for level, shape, only in self.shapes.of(held):
                if shape.share < least:
                    continue
                speed = shape.speed if most is None else min(shape.speed, most)
                here = own if only is None else Option(held.on_gpus(only), option.effect)
                yield Mode(here, level, self.program.boolean(), shape, speed)

    def _least_share(self, index: int) -> int:
        """The least share of its ideal bandwidth at which a gang starts (contract 2.10), permille."""
        gang = self.instance.gangs[index]
        if gang.running or gang.pattern == "none":
            return 0
        return int(FULL_SHARE * self.instance.min_share(gang))

    def _standing_speed(self, demand: Demand) -> int:
        """The speed of pods that stay, or the most of those next to them."""
        if not demand.roles and not self.unsure(demand):
            return self._standing.speed(demand.gang, demand.stays)
        most = most_speed(self.instance, demand.gang)
        return self.shapes.most_speed(demand) if most is None else most

    def _node_rows(self, everywhere: frozenset[int], found: Iterable[frozenset[int]]) -> None:
        """Slots of nodes, of every size, for each set of nodes that pods are held to."""
        sizes = {role.gpus for mode in self.modes for role in mode.option.demand.gpu_roles} | {1}
        sets = dict.fromkeys(map(self.room.known, (everywhere, *found)))
        lost = {(one.nodes, size): self._lost(one, size) for one in self.parts for size in sizes}
        for nodes, size in product(sets, sorted(sizes)):
            taken = Linear(constant=self.spares.slots(nodes, size))
            for mode in self.modes:
                taken.add(mode.variable, self.room.taken(mode, nodes, size))
            for one in self.parts:
                if one.nodes <= nodes:
                    taken.add_linear(lost[one.nodes, size])
            if taken.terms:
                self.program.at_most(taken.add_linear(self.room.slots(nodes, size), -1))

    def _lost(self, one: Reshaped, size: int) -> Linear:
        """Slots of so many GPUs that GPUs take at least which are not given whole.

        Those that are left beside the slots of each node come first.
        """
        if size == 1:
            return one.opened
        beside, most = 0, 0
        for n in one.nodes:
            gpus = self.room.most(n)
            most += gpus // size
            beside += gpus % size if self.room.standing(n) == gpus else size - 1
        lost = self.program.integer(0, most)
        self.program.at_least(Linear({lost: size}).add_linear(one.opened, -1), -beside)
        return Linear({lost: 1})

    def _domain_rows(self, everywhere: frozenset[int], held: Iterable[frozenset[int]]) -> None:
        """Slots of large pods, domain by domain, for all that has to be whole in one."""
        if not self.units:
            return
        cluster = self.instance.cluster
        slots = DomainSlots(cluster, self.program, self.units, self.room, everywhere)
        self._domain_slots = slots
        asked: dict[Piece, Linear] = {}
        for mode in self.modes:
            for piece, count in self.pieces(mode):
                asked.setdefault(piece, Linear()).add(mode.variable, count)
        for piece, total in asked.items():
            self._house(slots, (piece,), total, everywhere)
        apart = [nodes for nodes in held if nodes < everywhere]
        if cluster.node_level:
            self._keep_spares(slots, everywhere, apart)
            for nodes in (everywhere, *apart):
                self._loosen(slots, nodes)
        for within, here in slots.taken.items():
            domain = cluster.domains[within[0]][within[1]]
            slots.hold(domain.nodes, [*here, *slots.idle.get(within, ())])
        taken = [(mode.variable, self.taken(mode)) for mode in self.modes]
        idle = (own for (level, _), own in slots.idle.items() if not level)
        slots.hold(everywhere, [*taken, *chain(*idle)])

    def _keep_spares(
        self, slots: DomainSlots, everywhere: frozenset[int], apart: Sequence[frozenset[int]]
    ) -> None:
        """Nodes stay idle in domains, and take their slots."""
        inner = self.instance.cluster.node_level - 1
        kept = self.spares.keep(self.program, everywhere, inner, self.units, apart)
        for nodes, variable, own in kept:
            there = slots.there(nodes, 0)
            self.program.at_most(Linear().add(variable, own[0]).add_linear(there, -1))
            slots.held[variable] = frozenset(nodes)
            for level in range(inner + 1):
                within = level, self.instance.cluster.domain_of[level][nodes[0]]
                slots.idle.setdefault(within, []).append((variable, own))

    def _house(
        self, slots: DomainSlots, path: tuple[Piece, ...], total: Linear, inside: frozenset[int]
    ) -> None:
        """So many pieces have a domain each on these nodes, and their parts have domains in it."""
        if path[-1].even or path[-1].least:
            share = self._share_evenly if path[-1].even else self._share_out
            share(slots, path, total, inside)
            return
        cluster, piece, housed = self.instance.cluster, path[-1], Linear()
        widest, most = path[-2].level if len(path) > 1 else -1, self.program.bound_above(total)
        for domain, room in slots.most_within(piece, inside):
            if not room:
                continue
            variable = self.program.integer(0, min(most, room))
            housed.add(variable)
            self.homes.setdefault(path, {})[domain] = variable
            nodes = cluster.domains[piece.level][domain].nodes
            slots.held[variable] = path[0].nodes
            self._occupy(slots, (widest, piece.level), nodes[0], [(variable, piece.slots)])
            for part, count in piece.parts:
                self._house(slots, (*path, part), Linear({variable: count}), frozenset(nodes))
        self.program.equal(housed.add_linear(total, -1), 0)

    def _occupy(
        self,
        slots: DomainSlots,
        levels: tuple[int, int],
        n: int,
        taken: Sequence[tuple[int, tuple[int, ...]]],
    ) -> None:
        """Slots are taken in the domains of a node, of levels behind the first one."""
        for level in range(levels[0] + 1, levels[1] + 1):
            within = level, self.instance.cluster.domain_of[level][n]
            slots.taken.setdefault(within, []).extend(taken)

    def _share_evenly(
        self, slots: DomainSlots, path: tuple[Piece, ...], total: Linear, inside: frozenset[int]
    ) -> None:
        """The pods of so many pieces are in several domains, as many or one more in each."""
        piece, every, found = path[-1], self.program.bound_above(total), Linear()
        domains = len([*slots.most_within(piece.of_pods(1), inside)])
        for least in sorted(
            {piece.pods // used for used in range(1, 1 + min(domains, piece.pods))}
        ):
            pieces = self.program.integer(0, every)
            own = (*path[:-1], replace(piece, least=least))
            self._share_out(slots, own, Linear({pieces: 1}), inside)
            found.add(pieces)
        self.program.equal(found.add_linear(total, -1))

    def _share_out(
        self, slots: DomainSlots, path: tuple[Piece, ...], total: Linear, inside: frozenset[int]
    ) -> None:
        """The pods of so many pieces are in several domains, as many or more in each as a piece says."""
        piece, program, found = path[-1], self.program, Linear()
        share, other, pods = piece.of_pods(piece.least), piece.of_pods(piece.others), piece.others
        widest, every = path[-2].level if len(path) > 1 else -1, program.bound_above(total)
        most = every if piece.even else every * (piece.pods // piece.least)
        for domain, room in slots.most_within(share, inside):
            if not room:
                continue
            shares = program.integer(0, min(most, room))
            beside = program.integer(0, min(most, room) * (1 if piece.even else piece.least - 1))
            if piece.even:
                program.at_most(Linear({shares: 1, beside: 1}).add_linear(total, -1))
            else:
                program.at_most(Linear({shares: 1 - piece.least, beside: 1}))
            found.add(shares, piece.least).add(beside, pods)
            self.homes.setdefault((*path, share), {})[domain] = shares
            self.homes.setdefault((*path, other), {})[domain] = beside
            n = self.instance.cluster.domains[piece.level][domain].nodes[0]
            taken = [(shares, share.slots), (beside, other.slots)]
            slots.held |= {shares: path[0].nodes, beside: path[0].nodes}
            self._occupy(slots, (widest, piece.level), n, taken)
        program.equal(found.add_linear(total, -piece.pods), 0)

    def _loosen(self, slots: DomainSlots, nodes: frozenset[int]) -> None:
        """The innermost domains have the large slots that all others held to these nodes take, too.

        ``loose``: a variable for each domain: those of gangs that are whole in a wider one, or in none.
        """
        cluster, program, every = self.instance.cluster, self.program, nodes >= self.everywhere
        inner = cluster.node_level - 1
        one = Piece(inner, (1, *(self.units[0] // unit for unit in self.units[1:])), nodes)
        total, housed = Linear(), dict[int, Linear]()
        loose = self.loose if every else self.loose_of.setdefault(nodes, {})
        for domain, most in slots.most_within(one, nodes):
            own = housed[domain] = slots.housed((inner, domain), None if every else nodes)
            inside = nodes.intersection(cluster.domains[inner][domain].nodes)
            if most:
                loose[domain] = program.integer(0, most)
                own.add(loose[domain])
            if most and every:
                slots.taken.setdefault((inner, domain), []).append((loose[domain], one.slots))
            elif most:
                program.at_most(Linear({loose[domain]: 1, self.loose[domain]: -1}))
            if not every and own.terms:
                idle = slots.housed((inner, domain), nodes, slots.idle)
                program.at_most(idle.add_linear(own).add_linear(slots.there(inside, 0), -1))
            total.add_linear(own)
        for mode in self.modes:
            if every or mode.option.demand.gpu_nodes <= nodes:
                total.add(mode.variable, -self.taken(mode)[0])
                continue
            for piece, count in self.pieces(mode):
                total.add(mode.variable, -count * piece.slots[0] if piece.nodes <= nodes else 0)
        program.equal(total, 0)
        self._within_wider(slots, inner, housed, nodes)

    def _within_wider(
        self, slots: DomainSlots, inner: int, housed: dict[int, Linear], nodes: frozenset[int]
    ) -> None:
        """The innermost domains of a wider one have all large slots that are taken in that one."""
        cluster, inside = self.instance.cluster, dict[tuple[int, int], Linear]()
        for domain, own in housed.items():
            n = cluster.domains[inner][domain].nodes[0]
            for level in range(inner):
                within = level, cluster.domain_of[level][n]
                inside.setdefault(within, Linear()).add_linear(own)
        for within, own in inside.items():
            least = slots.housed(within, None if nodes >= self.everywhere else nodes)
            own.add_linear(least, -1)
            if least.terms:
                self.program.at_least(own, 0)
            spare = self.spare.setdefault(within, own)
            if spare is not own:  # those that may be elsewhere have the rest
                self.program.at_most(Linear().add_linear(own).add_linear(spare, -1))

    def _node_sets(self) -> list[frozenset[int]]:
        """The sets of nodes that pods are held to, those first to which most GPUs are."""
        asked = Counter[frozenset[int]]()
        for mode in self.modes:
            for role in mode.option.demand.gpu_roles:
                asked[role.nodes] += role.gpus * role.count
        return sorted(asked, key=lambda own: (-asked[own], len(own), min(own, default=0)))

    def expression(self, tier: Tier) -> Linear | None:
        """The tier's value, or a bound that no plan with these options beats; None if there is none."""
        if tier.family == "stranded":
            return stranded(self, self.flow or SlotFlow(self, self.parts, self.meshes, -1))
        if tier.family in queues.QUEUE_TIERS:
            return queues.QUEUE_TIERS[tier.family](self._who_runs, tier)
        total = self._sum(tier)
        if total is not None:
            total.constant = self._base.tier(tier)
        if total is not None and tier.family == "span":
            self._span = total
        return total

    def _sum(self, tier: Tier) -> Linear | None:
        """What modes add to a tier; None if it is no sum over them."""
        instance, total = self.instance, Linear()
        if counts_speed(instance, tier):
            for mode in self.modes:
                worth = speed_worth(instance, tier, instance.gangs[mode.option.demand.gang])
                if worth and mode.option.effect.admitted:
                    total.add(mode.variable, worth * mode.speed)
        elif tier.family in OPTION_VALUES:
            chosen = ((m.option.demand, m.option.effect, m.variable) for m in self.modes)
            total = option_sum(instance, tier, chosen)
        elif tier.family == "span" and self.spread is not None:
            total = self.spread.span()
        elif tier.family in PLACEMENT_VALUES:
            for mode in self.modes:
                if mode.option.effect.admitted:
                    total.add(mode.variable, self.placed_value(tier.family, mode))
        else:
            return None
        return total

    def tell_apart(self, family: str, known: Sequence[int] = ()) -> None:
        """From now on ``span`` or ``stranded`` is bounded more tightly, with more variables.

        ``known``: a solution; its gangs are counted one by one. The expression of ``span`` counts the nodes
        of small pods, too, once they are.
        """
        slots, cluster = self._domain_slots, self.instance.cluster
        if family == "stranded":
            inner = min((cluster.node_level - 1, *(mesh.level for mesh in self.meshes)))
            narrow = (o for o in range(inner, -1, -1) if len(cluster.domains[o]) <= MAX_DOMAINS)
            self.flow = SlotFlow(self, self.parts, self.meshes, next(narrow, -1))
            self._span.add_linear(self.flow.beyond)
        elif slots is not None and self.loose:
            self.spread = SlotSpread(self, slots, known)


def _add_rules(
    instance: Instance, program: Program, state: BaseState, modes: Sequence[Mode]
) -> Model:
    """Add the rows; returns what they see, for tiers about what queues hold."""
    own: dict[int, list[Mode]] = {choice.gang: [] for choice in state.choices}
    for mode in modes:
        own[mode.option.demand.gang].append(mode)
    choices = tuple(
        replace(choice, options=tuple(mode.option for mode in own[choice.gang]))
        for choice in state.choices
    )
    admits = [[mode.variable for mode in found] for found in own.values()]
    model = Model(program, instance, replace(state, choices=choices), {}, Variables(admits))
    for add in RULES:
        add(model)
    return model


def stranded(model: SlotModel, flow: SlotFlow) -> Linear:
    """The expression: what requests of each size find on the nodes that are left with so many free GPUs."""
    instance, program, total = model.instance, model.program, Linear()
    models = [frozenset(nodes) for nodes in gpu_models(instance).values()]
    everywhere = frozenset[int]().union(*models)
    left, most = model.room.left_free(everywhere), model.room.left_free(everywhere, most=True)
    for one in model.parts:  # no request has a GPU that is partitioned or shared
        most.add_linear(one.opened, -1)
    for size, permille in instance.policy.mix:
        total.add_linear(left, permille)
        requests = Linear()
        for nodes in models:
            largest = max(instance.cluster.nodes[n].gpus for n in nodes)
            if size > largest:
                requests.add_all(_whole(model, flow, nodes, largest, size))
                continue
            own = program.integer(0, sum(model.room.most(n) // size for n in nodes))
            program.at_most(Linear({own: 1}).add_linear(flow.requests(nodes, size), -1))
            requests.add(own)
        program.at_most(Linear().add_linear(requests, size).add_linear(most, -1))
        total.add_linear(requests, -permille * size)
    return total


def _whole(
    model: Slots, flow: SlotFlow, nodes: frozenset[int], largest: int, size: int
) -> Iterator[int]:
    """A variable for each domain: requests of several whole servers that fit in it."""
    servers, within = -(-size // largest), dict[frozenset[int], Linear]()
    for members in request_domains(model.instance, sorted(nodes), size):
        most = sum(model.room.most(n) // largest for n in members) // servers
        if most:
            requests = model.program.integer(0, most)
            inside = model.large_left(members, largest)
            if inside is not None:
                model.program.at_most(Linear().add(requests, servers).add_linear(inside, -1))
            around = flow.around(nodes.intersection(members))
            within.setdefault(around, Linear()).add(requests, servers)
            yield requests
    for around, asked in within.items():
        model.program.at_most(asked.add_linear(flow.requests(around, largest), -1))
