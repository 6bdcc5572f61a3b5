"""What the program of slots counts: the modes of gangs, the domains that they have, and what is left free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

from models.instance.instance import Instance
from models.instance.speed import FULL_SPEED
from models.program.base_state import BaseState
from models.program.demand_builder import placing
from models.program.linear_program import Linear, Program
from models.program.packing import MeshKind, by_count, mesh_sets
from models.program.slots.shapes import Shape, ShapeBounds, domain_rates, joins, nvlink_level
from models.program.slots.slot_rooms import DomainSlots, Mode, Part, Piece, SlotRooms
from models.program.tier_expressions import StandingValues, anywhere
from models.rates.gang_bandwidth import FULL_SHARE
from models.rules.demands import Demand, RoleDemand
from models.rules.shape import may_be_uneven
from models.values.tier_values import most_speed

MAX_UNITS = 2
"""Sizes in GPUs whose slots are counted domain by domain."""

MAX_APART = 8
"""Sets of nodes with rows, and spread kinds, that are told apart: the largest of each."""

Placed = tuple[int, Shape, frozenset[int] | None]
"""Level, shape, and the only nodes on which it has that shape (None: all that the gang may use)."""


class Slots:
    """What is counted, without rows: a program fills it (``slot_program``), and its rules read it.

    ``homes``: variables by path of pieces and domain. ``loose``: by innermost domain, of slots of gangs that
    are whole in a wider one or in none; ``spare``: by (level, domain), those of them that come from outside.
    ``room``: the slots of nodes.
    """

    def __init__(self, instance: Instance, program: Program, state: BaseState) -> None:
        self.instance, self.program = instance, program
        self.choices = state.choices
        self._standing = StandingValues(instance)
        self.shapes = _Shapes(instance, state)
        self.modes: list[Mode] = []
        self.homes: dict[tuple[Piece, ...], dict[int, int]] = {}
        self.loose: dict[int, int] = {}
        self.loose_of: dict[frozenset[int], dict[int, int]] = {}
        self.spare: dict[tuple[int, int], Linear] = {}
        self.room = SlotRooms(instance, state, self.modes)
        self._domain_slots: DomainSlots | None = None

    @cached_property
    def units(self) -> tuple[int, ...]:
        """Sizes in GPUs whose slots are counted domain by domain, the largest first.

        These are the largest, and those for which room decides most: that of large pieces, and of many.
        """
        found = Counter[int]()
        for mode in self.modes:
            if mode.shape is not None and mode.level < self.instance.cluster.node_level:
                piece, roles = mode.shape.piece, mode.option.demand.gpu_roles
                for size in {piece * role.gpus for role in roles if role.count > piece}:
                    found[size] += size * size
        first = max(found, default=0)
        chosen = sorted(found, key=lambda size: (size != first, -found[size], -size))[:MAX_UNITS]
        return tuple(sorted(chosen, reverse=True))

    def taken(self, mode: Mode) -> tuple[int, ...]:
        """Slots of each unit that the pods take at least that are placed."""
        return tuple(self.room.placed(mode, None, unit) for unit in self.units)

    def pieces(self, mode: Mode) -> tuple[Part, ...]:
        """(piece, count): what has to be whole in a domain each."""
        demand, cluster = mode.option.demand, self.instance.cluster
        if mode.shape is None or mode.level == cluster.node_level or not self.units:
            return ()
        parts = Counter[Piece]()
        for role in demand.gpu_roles:
            parts.update(dict(self._parts(demand, role, mode.level, mode.shape.group)))
        nodes = demand.gpu_nodes
        slots, weight = self.taken(mode), self.instance.gangs[demand.gang].weight_gpus
        if mode.level < 0 or max(slots) < 2:
            return tuple(parts.items())
        piece = Piece(mode.level, slots, nodes, tuple(parts.items()), weight, whole=True)
        return ((piece, 1),)

    def _parts(self, demand: Demand, role: RoleDemand, within: int, group: int) -> Iterator[Part]:
        """(piece, count): the slices of a role in a domain of that level, the widest ones.

        ``group``: pods of its least share of an NVLink domain.
        """
        spec, weight = (
            self.instance.gangs[demand.gang].roles[role.role],
            self.instance.gangs[demand.gang].weight_gpus,
        )
        slots = tuple(role.gpus // unit for unit in self.units)
        node_level, parts, below = self.instance.cluster.node_level, tuple[Part, ...](), 0
        for size, level in spec.slice_layers:
            if within < level < node_level and size > 1 and any(slots):
                inner = tuple((piece, size // below) for piece, _ in parts)
                taken = tuple(size * one for one in slots)
                parts, below = ((Piece(level, taken, role.nodes, inner, weight), 1),), size
        for piece, _ in parts:
            if whole := role.cut(below).whole:
                yield piece, whole
        domains = nvlink_level(self.instance.cluster)
        if group > 1 and domains is not None and within < domains and not parts and any(slots):
            taken = tuple(role.count * one for one in slots)
            yield Piece(domains, taken, role.nodes, (), weight, pods=role.count, least=group), 1
            return
        gang = self.instance.gangs[demand.gang]
        even = gang.balance if may_be_uneven(gang) and not parts and any(slots) else None
        if even is not None and within < even < node_level and demand.gpu_roles == (role,):
            taken = tuple(role.count * one for one in slots)
            yield Piece(even, taken, role.nodes, (), weight, pods=role.count, even=True), 1

    def large_taken(self, level: int, domain: int) -> Linear | None:
        """Large slots that are taken in a domain; None if they are not counted."""
        slots, cluster = self._domain_slots, self.instance.cluster
        inner = cluster.node_level - 1
        if slots is None or not self.loose:
            return None
        inside = {cluster.domain_of[inner][n] for n in cluster.domains[level][domain].nodes}
        return Linear.total(slots.housed((inner, own)) for own in sorted(inside))

    def large_left(self, nodes: Collection[int], size: int) -> Linear | None:
        """Large slots of the innermost domains of these nodes that nobody takes; None if not counted.

        Those of all nodes of the domains, since it is not known on which of them the others are.
        """
        slots, cluster = self._domain_slots, self.instance.cluster
        if slots is None or not self.loose or self.units[0] != size:
            return None
        inner, left = cluster.node_level - 1, Linear()
        for domain in sorted({cluster.domain_of[inner][n] for n in nodes}):
            left.add_linear(slots.there(cluster.domains[inner][domain].nodes, 0))
            left.add_linear(slots.housed((inner, domain)), -1)
        return left

    def unsure(self, demand: Demand) -> bool:
        """Whether what pods that stay are worth depends on others: it is not known which GPUs they hold."""
        nodes, roles = self.instance.cluster.nodes, self.instance.gangs[demand.gang].roles
        return any(
            pod.gpus is None
            and roles[pod.role].gpus
            and (model := nodes[pod.node].model) is not None
            and not by_count(model, nodes[pod.node].effective_nics)
            for pod in demand.stays
            if pod.node is not None
        )

    def placed_value(self, family: str, mode: Mode) -> int:
        """What a gang adds to a tier about placements at most; to ``span`` at least."""
        demand = mode.option.demand
        if mode.shape is not None:
            return int(getattr(mode.shape, family))
        if not demand.roles and not (family == "bandwidth" and self.unsure(demand)):
            near = anywhere(self.instance.gangs[demand.gang]) if family == "preference" else 0
            return near + self._standing.value(family, demand.gang, demand.stays)
        return 0 if family == "span" else self.shapes.most(family, demand)


class _Shapes:
    """The shapes that gangs may have if only the pods are there that stay in any case."""

    def __init__(self, instance: Instance, state: BaseState) -> None:
        self._instance = instance
        self.bounds = ShapeBounds(instance, state.rooms)
        self._known: dict[object, list[Placed]] = {}

    def by_speed(self, demand: Demand) -> Iterator[Demand]:
        """The demand on nodes of one speed and all above it, the slowest first: it counts that speed."""
        speeds = [nodes for _, nodes in self.bounds.by_speed(demand)]
        for slowest in range(len(speeds)):
            held = demand.on_gpus(frozenset().union(*speeds[slowest:])) if slowest else demand
            if all(role.nodes for role in held.gpu_roles):
                yield held

    @cached_property
    def meshes(self) -> list[MeshKind]:
        """Kinds of servers on which not only the number of GPUs counts."""
        found: dict[int, set[int]] = {}
        for n, hardware in enumerate(self.bounds.hardware_of.tolist()):
            found.setdefault(hardware, set()).add(n)
        nodes = self._instance.cluster.nodes
        kinds = ((frozenset(own), mesh_sets(nodes[min(own)])) for own in found.values())
        return [MeshKind(own, sets) for own, sets in kinds if sets is not None]

    def of(self, demand: Demand) -> list[Placed]:
        """(level, shape, nodes), the narrowest first; wider ones only if they add nothing less."""
        # a gang that runs counts at most its speed before the plan
        key = placing(self._instance, demand), most_speed(self._instance, demand.gang)
        if key not in self._known:
            self._known[key] = list(self._found(demand))
        return self._known[key]

    def most_speed(self, demand: Demand) -> int:
        """The highest speed next to pods that stay, permille."""
        fastest = max((speed for speed, _ in self.bounds.by_speed(demand)), default=FULL_SPEED)
        level = self._instance.cluster.node_level
        return self.bounds.shape(demand, level, relative=fastest).speed

    def most(self, family: str, demand: Demand) -> int:
        """What a gang next to pods that stay adds to ``preference`` or ``bandwidth`` at most."""
        return int(getattr(self.bounds.shape(demand, self._instance.cluster.node_level), family))

    def _found(self, demand: Demand) -> Iterator[Placed]:
        gang, node_level = self._instance.gangs[demand.gang], self._instance.cluster.node_level
        widest = -1 if gang.required is None else gang.required
        single = sum(role.count for role in demand.gpu_roles) == 1
        for level in range(node_level, widest - 1, -1):
            if level == node_level:
                yield from self._alone(demand)
                if single and demand.gpus <= self.bounds.largest(demand):
                    return
                continue
            if 0 <= level < node_level and not self._in_one_domain(demand, level):
                continue
            for shape in self._at(demand, level):
                yield level, shape, None

    def _at(self, demand: Demand, level: int) -> Iterator[Shape]:
        gang, roles = self._instance.gangs[demand.gang], demand.gpu_roles
        cluster, kinds = self._instance.cluster, self.bounds.kinds(demand.gpu_nodes)
        if any(joins(cluster, gang, node) for node in kinds):
            every = all(joins(cluster, gang, node) for node in kinds)
            shapes = self._by_domains(demand, level) if every else ()
            yield from shapes or self.bounds.at(demand, level)
            return
        kind = next((k for k in self.meshes if all(r.nodes <= k.nodes for r in roles)), None)
        if kind is None or len(roles) > 1 or gang.in_groups or not kind.sets.connected:
            yield from self.bounds.at(demand, level)
            return
        (role,) = roles
        most = min(kind.sets.gpus // role.gpus, role.count - 1)
        sizes = range(role.gpus, most * role.gpus + 1, role.gpus)
        yield from self._by_rates(demand, level, kind.sets.rates(sizes, self.bounds.over(level)))

    def _by_domains(self, demand: Demand, level: int) -> list[Shape]:
        """By the least pods in an NVLink domain, where that makes a difference; none if that is unknown."""
        gang, kinds = self._instance.gangs[demand.gang], self.bounds.kinds(demand.gpu_nodes)
        found, whole = dict[int, Shape](), nvlink_level(self._instance.cluster)
        if whole is None or level >= whole:
            return []
        for before, rate in enumerate(domain_rates(gang, demand, kinds, self.bounds.over(level))):
            shape = self.bounds.shape(demand, level, inside=rate)
            found.setdefault(shape.share, replace(shape, group=before + 1))
            if shape.share == FULL_SHARE:
                break
        return list(found.values())

    def _alone(self, demand: Demand) -> Iterator[Placed]:
        """The shapes on one server: of each kind on which not only the number of GPUs counts, by its sets."""
        node_level, bounds = self._instance.cluster.node_level, self.bounds
        nodes = frozenset.intersection(*(role.nodes for role in demand.gpu_roles))
        rest = nodes.difference(*(kind.nodes for kind in self.meshes))
        for kind in self.meshes:
            own = nodes & kind.nodes
            only = None if all(r.nodes <= kind.nodes for r in demand.gpu_roles) else own
            held = demand if only is None else demand.on_gpus(only)
            if not own or demand.gpus > bounds.largest(held):
                continue
            if bounds.slowest(held) == bounds.slowest(demand):  # or else it is a demand of its own
                rates = kind.sets.rates((demand.gpus,), None)
                for shape in self._by_rates(held, node_level, rates):
                    yield node_level, shape, only
        held = demand if len(rest) == len(nodes) else demand.on_gpus(rest)
        if rest and demand.gpus <= bounds.largest(held):
            for shape in bounds.at(held, node_level):
                yield node_level, shape, None if held is demand else rest

    def _by_rates(self, demand: Demand, level: int, rates: Sequence[Fraction]) -> Iterator[Shape]:
        """By the least that its GPUs on each server give it, where that makes a difference."""
        found = dict[object, Shape]()
        for least in reversed(rates):
            shape = self.bounds.shape(demand, level, inside=least)
            differs = self._instance.gangs[demand.gang].pattern != "none"
            found.setdefault((shape.speed, shape.bandwidth, shape.share) if differs else (), shape)
        yield from found.values()

    def _in_one_domain(self, demand: Demand, level: int) -> bool:
        """Whether one domain of the level has room for every role, and for its slices."""
        rooms = ((self.bounds.capacity(role, level), role.count) for role in demand.gpu_roles)
        domains = set.intersection(*({d for d, pods in room if pods >= n} for room, n in rooms))
        for role in demand.gpu_roles:
            for size, narrower in self._instance.gangs[demand.gang].roles[role.role].slice_layers:
                if narrower > level:
                    whole = self._slices(role, size, narrower, level)
                    domains = {d for d in domains if whole[d] >= role.cut(size).whole}
        return bool(domains)

    def _slices(self, role: RoleDemand, size: int, level: int, wider: int) -> Counter[int]:
        """Whole slices that find room, by domain of a wider level."""
        cluster, found = self._instance.cluster, Counter[int]()
        for domain, pods in self.bounds.capacity(role, level):
            n = cluster.domains[level][domain].nodes[0]
            found[cluster.domain_of[wider][n]] += pods // size
        return found
