"""The coarsest program: who runs and how tightly, by counting slots; bounds at any size in no time.

A node with f free GPUs has floor(f / g) slots of g GPUs, and a pod of s GPUs takes at least floor(s / g) of
them, wherever it is; a gang that is whole on a node counts as one pod. So for every size g, and every set of
nodes that pods are held to, the pods chosen take at most the slots that there are when everybody is away who
may be elsewhere. Domains have slots of j large pods likewise: a gang of k of them that is whole in one takes
floor(k / j). What a gang has follows from the level at which it is whole. No other rule is kept: every plan
is an assignment, and not every assignment is a plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from models.gang import ExistingPod
from models.instance import Instance
from models.nearness import loosened
from models.occupancy import rooms
from models.program.aggregated.bounds import PLACEMENT_BOUNDS
from models.program.aggregated.pools import Shape, ShapeBounds
from models.program.base_state import BaseState, base_decisions, build_base_state
from models.program.demand_builder import placing
from models.program.demands import Demand, RoleDemand
from models.program.interruption import Question, never
from models.program.linear_program import Linear, Program
from models.program.nearness import anywhere
from models.program.options import Choice, Option
from models.program.tier_expressions import (
    OPTION_VALUES,
    StandingValues,
    counts_speed,
    option_sum,
    speed_worth,
)
from models.tier_values import Evaluation, ValueCache, most_speed
from models.tiers import Tier

MAX_SETS = 24
"""Sets of nodes that have rows of their own, those that most GPUs are held to."""


@dataclass(frozen=True, slots=True)
class Mode:
    """An option of a gang that is whole in a domain of ``level`` (-1: none) with that shape.

    ``shape`` None: its pods stay as they are. ``speed``: permille, at most.
    """

    option: Option
    level: int
    variable: int
    shape: Shape | None
    speed: int


class SlotModel:
    """The program, and the expressions of the tiers that it bounds; ``expression`` is None for others.

    ``immovable``: gangs that must not move. ``complete``: whether every plan is an assignment. Raises
    Interrupted if ``interrupted`` says so while it is built.
    """

    def __init__(
        self,
        instance: Instance,
        immovable: frozenset[int] = frozenset(),
        *,
        cache: ValueCache | None = None,
        interrupted: Question = never,
    ) -> None:
        self.instance = instance = loosened(instance, 0)
        self.program = Program(interrupted)
        self._state = build_base_state(instance, immovable=immovable, interrupted=interrupted)
        self.requests = self._state.requests
        self.complete = all(choice.complete for choice in self.requests.choices)
        self._base = Evaluation(instance, self._state.base, cache)
        self._standing = StandingValues(instance)
        self._shapes = _Shapes(instance, self._state)
        self.modes: list[Mode] = []
        for choice in self.requests.choices:
            self._choose(choice)
        self._room = _Room(instance, self._state, self.modes)
        found = self._node_sets()
        everywhere = frozenset[int]().union(*found)
        self._node_rows(everywhere, found[:MAX_SETS])
        self._domain_rows(everywhere)
        self.program.interrupted = never

    def _choose(self, choice: Choice) -> None:
        first = len(self.modes)
        for option in choice.options:
            if option.demand.possible:
                self.modes += self._modes_of(option)
        one = Linear().add_all(mode.variable for mode in self.modes[first:])
        if choice.must and choice.complete:
            self.program.equal(one, 1)
        else:
            self.program.at_most(one, 1)

    def _modes_of(self, option: Option) -> Iterator[Mode]:
        """A variable for each level at which the gang may be whole, and where that makes a difference."""
        demand = option.demand
        if not demand.gpu_roles or demand.stays:
            speed = self._standing_speed(demand)
            yield Mode(option, -1, self.program.boolean(), None, speed)
            return
        most = most_speed(self.instance, demand.gang)
        for level, shape in self._shapes.of(demand):
            speed = shape.speed if most is None else min(shape.speed, most)
            yield Mode(option, level, self.program.boolean(), shape, speed)

    def _standing_speed(self, demand: Demand) -> int:
        """The speed of pods that stay, or the most of those next to them."""
        if not demand.roles:
            return self._standing.speed(demand.gang, demand.stays)
        most = most_speed(self.instance, demand.gang)
        return self._shapes.most_speed(demand) if most is None else most

    def _node_rows(self, everywhere: frozenset[int], found: Iterable[frozenset[int]]) -> None:
        """Slots of nodes, of every size, for each set of nodes that pods are held to."""
        sizes = {role.gpus for mode in self.modes for role in mode.option.demand.gpu_roles} | {1}
        for nodes, size in product(dict.fromkeys((everywhere, *found)), sorted(sizes)):
            taken = Linear()
            for mode in self.modes:
                taken.add(mode.variable, self._room.taken(mode, nodes, size))
            if taken.terms:
                self.program.at_most(taken.add_linear(self._room.slots(nodes, size), -1))

    def _domain_rows(self, everywhere: frozenset[int]) -> None:
        """Slots of several of the largest pods in one domain, for each level."""
        whole = [mode for mode in self.modes if mode.shape is not None and mode.level >= 0]
        roles = (role for mode in self.modes for role in mode.option.demand.gpu_roles)
        size = max((role.gpus for role in roles), default=0)
        counts = {mode.variable: _pods_of(mode.option.demand, size) for mode in whole}
        several = sorted({count for count in counts.values() if count > 1})
        for level, pods in product(range(self.instance.cluster.node_level), several):
            taken = Linear()
            for mode in whole:
                if mode.level >= level:
                    taken.add(mode.variable, counts[mode.variable] // pods)
            if taken.terms:
                limit = self._room.domain_slots(everywhere, level, size, pods)
                self.program.at_most(taken.add_linear(limit, -1))

    def _node_sets(self) -> list[frozenset[int]]:
        """The sets of nodes that pods are held to, those first to which most GPUs are."""
        asked = Counter[frozenset[int]]()
        for mode in self.modes:
            for role in mode.option.demand.gpu_roles:
                asked[role.nodes] += role.gpus * role.count
        return sorted(asked, key=lambda own: (-asked[own], len(own), min(own, default=0)))

    def expression(self, tier: Tier) -> Linear | None:
        """The tier's value, or a bound that no plan with these options beats; None if there is none."""
        instance, total = self.instance, Linear()
        if counts_speed(instance, tier):
            for mode in self.modes:
                worth = speed_worth(instance, tier, instance.gangs[mode.option.demand.gang])
                if worth and mode.option.effect.admitted:
                    total.add(mode.variable, worth * mode.speed)
        elif tier.family in OPTION_VALUES:
            chosen = ((m.option.demand, m.option.effect, m.variable) for m in self.modes)
            total = option_sum(instance, tier, chosen)
        elif tier.family in PLACEMENT_BOUNDS:
            for mode in self.modes:
                if mode.option.effect.admitted:
                    total.add(mode.variable, self._placed(tier.family, mode))
        else:
            return None
        total.constant = self._base.tier(tier)
        return total

    def _placed(self, family: str, mode: Mode) -> int:
        """What a gang adds to a tier about placements at most; to ``span`` at least."""
        demand = mode.option.demand
        if mode.shape is not None:
            return int(getattr(mode.shape, family))
        if not demand.roles:
            near = anywhere(self.instance.gangs[demand.gang]) if family == "preference" else 0
            return near + self._standing.value(family, demand.gang, demand.stays)
        return 0 if family == "span" else self._shapes.most(family, demand)


def _pods_of(demand: Demand, gpus: int) -> int:
    """Its pods with so many GPUs."""
    return sum(role.count for role in demand.gpu_roles if role.gpus == gpus)


class _Room:
    """The slots that there are, and those that pods take.

    Gangs that only may stop are counted where they stand; for each pod of theirs that leaves a node, as
    many slots more as the node has without all of them.
    """

    def __init__(self, instance: Instance, state: BaseState, modes: list[Mode]) -> None:
        self._instance = instance
        self._state = state
        self._modes = modes
        self._within: dict[tuple[frozenset[int], frozenset[int]], bool] = {}

    def taken(self, mode: Mode, nodes: frozenset[int], size: int) -> int:
        """Slots on these nodes that the pods take at least, where they may be elsewhere."""
        demand = mode.option.demand
        roles = [role for role in demand.gpu_roles if self._inside(role, nodes)]
        if mode.level == self._instance.cluster.node_level:
            return sum(role.gpus * role.count for role in roles) // size
        own = sum(role.count * (role.gpus // size) for role in roles)
        if mode.shape is not None and mode.shape.piece > 1 and roles:
            (role,) = demand.gpu_roles
            sets = -(-role.count // (2 * mode.shape.piece - 1))
            own = max(own, sets * (mode.shape.piece * role.gpus // size))
        if demand.gang not in self._movable:
            return own
        known = self._instance.gangs[demand.gang].roles
        stays = (p for p in demand.stays if p.node in nodes and p.node in self._countable)
        return own + sum(known[p.role].gpus // size for p in stays if p not in self._always)

    def slots(self, nodes: frozenset[int], size: int) -> Linear:
        """Slots of so many GPUs on these nodes."""
        free = Counter(self._free[n] for n in nodes)
        total = Linear(constant=sum(count * (gpus // size) for gpus, count in free.items()))
        return self._with_leaving(total, nodes, size)

    def domain_slots(self, nodes: frozenset[int], level: int, size: int, pods: int) -> Linear:
        """Slots of so many pods of that size in the domains of a level."""
        of, found = self._instance.cluster.domain_of[level], Counter[int]()
        for n in nodes:
            found[of[n]] += self._free[n] // size
        total = Linear(constant=sum(here // pods for here in found.values()))
        return self._with_leaving(total, nodes, size)

    def _with_leaving(self, total: Linear, nodes: frozenset[int], size: int) -> Linear:
        for n, leaving in self._leaving.items():
            more = self._state.rooms[n].free_gpus // size - self._free[n] // size
            if n in nodes and more:
                for own in leaving:
                    total.add_linear(own, more)
        return total

    def _inside(self, role: RoleDemand, nodes: frozenset[int]) -> bool:
        """Whether all nodes of a role are among these."""
        key = (role.nodes, nodes)
        if key not in self._within:
            self._within[key] = role.nodes <= nodes
        return self._within[key]

    @cached_property
    def _always(self) -> frozenset[ExistingPod]:
        """Pods that stay under every option: the rooms are next to them."""
        return frozenset(pod for choice in self._state.requests.choices for pod in choice.always)

    @cached_property
    def _movable(self) -> frozenset[int]:
        """Gangs of which pods may be elsewhere after the plan."""
        choices = self._state.requests.choices
        return frozenset(c.gang for c in choices if any(o.effect.moved for o in c.options))

    @cached_property
    def _countable(self) -> frozenset[int]:
        """Nodes on which the pods that run take no more than there is, so that their slots can be counted."""
        nodes = self._instance.cluster.nodes
        now = rooms(self._instance, base_decisions(self._instance))
        return frozenset(
            n
            for n, room in enumerate(now)
            if self._instance.schedulable(nodes[n])
            and not room.unknown
            and nodes[n].healthy.bit_count() == nodes[n].gpus
            and room.mask.bit_count() == room.free_gpus
        )

    @cached_property
    def _free(self) -> list[int]:
        """Free GPUs of every node without the gangs that may move; those that only may stop are there."""
        stays, now = list(self._state.base), base_decisions(self._instance)
        for choice in self._state.requests.choices:
            if choice.gang not in self._movable:
                stays[choice.gang] = now[choice.gang]
        beside = rooms(self._instance, stays)
        return [
            beside[n].free_gpus if n in self._countable else room.free_gpus
            for n, room in enumerate(self._state.rooms)
        ]

    @cached_property
    def _leaving(self) -> dict[int, list[Linear]]:
        """By node, 1 for each pod that leaves it without a place elsewhere."""
        staying: dict[tuple[int, ExistingPod], Linear] = {}
        for mode in self._modes:
            gang = mode.option.demand.gang
            if gang not in self._movable:
                for pod in mode.option.demand.stays:
                    own = staying.setdefault((gang, pod), Linear(constant=1))
                    own.add(mode.variable, -1)
        found: dict[int, list[Linear]] = {}
        for choice in self._state.requests.choices:
            for pod in self._instance.gangs[choice.gang].running_pods:
                counted = pod.node in self._countable and pod not in choice.always
                if counted and choice.gang not in self._movable and pod.node is not None:
                    left = staying.get((choice.gang, pod), Linear(constant=1))
                    found.setdefault(pod.node, []).append(left)
        return found


class _Shapes:
    """The shapes that gangs may have if only the pods are there that stay in any case."""

    def __init__(self, instance: Instance, state: BaseState) -> None:
        self._instance = instance
        self._bounds = ShapeBounds(instance, state.rooms)
        self._known: dict[object, list[tuple[int, Shape]]] = {}

    def of(self, demand: Demand) -> list[tuple[int, Shape]]:
        """(level, shape), the narrowest first; wider ones only if they add nothing less."""
        key = placing(self._instance, demand)
        if key not in self._known:
            self._known[key] = list(self._found(demand))
        return self._known[key]

    def most_speed(self, demand: Demand) -> int:
        """The highest speed next to pods that stay, permille."""
        fastest = self._bounds.fastest(demand)
        return self._bounds.speed(demand, fastest, self._instance.cluster.node_level)

    def most(self, family: str, demand: Demand) -> int:
        """What a gang next to pods that stay adds to ``preference`` or ``bandwidth`` at most."""
        shape = self._bounds.shape(demand, self._instance.cluster.node_level)
        return int(getattr(shape, family))

    def _found(self, demand: Demand) -> Iterator[tuple[int, Shape]]:
        gang, node_level = self._instance.gangs[demand.gang], self._instance.cluster.node_level
        widest = -1 if gang.required is None else gang.required
        fastest = self._bounds.fastest(demand)
        single = sum(role.count for role in demand.gpu_roles) == 1
        for level in range(node_level, widest - 1, -1):
            if level == node_level and demand.gpus > self._bounds.largest(demand):
                continue
            if 0 <= level < node_level and not self._in_one_domain(demand, level):
                continue
            for shape in self._bounds.at(demand, level, pieces=True, relative=fastest):
                yield level, shape
            if single:
                return

    def _in_one_domain(self, demand: Demand, level: int) -> bool:
        """Whether one domain of the level has room for every role, and for its slices."""
        domains = self._bounds.gangs(demand, level)
        for role in demand.gpu_roles:
            for size, narrower in self._instance.gangs[demand.gang].roles[role.role].slice_layers:
                if narrower > level:
                    whole = self._slices(role, size, narrower, level)
                    domains = {d: n for d, n in domains.items() if whole[d] >= role.cut(size).whole}
        return bool(domains)

    def _slices(self, role: RoleDemand, size: int, level: int, wider: int) -> Counter[int]:
        """Whole slices that find room, by domain of a wider level."""
        cluster, found = self._instance.cluster, Counter[int]()
        for domain, pods in self._bounds.capacity(role, level):
            n = domain if level == cluster.node_level else cluster.domains[level][domain].nodes[0]
            found[cluster.domain_of[wider][n]] += pods // size
        return found
