"""The slots that there are, on nodes and in domains, and those that pods take of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from models.instance.cluster import Cluster
from models.instance.gang import ExistingPod
from models.instance.instance import Instance
from models.instance.occupancy import Room, rooms
from models.program.base_state import BaseState, base_decisions
from models.program.linear_program import UNBOUNDED, Linear, Program, integers
from models.program.options import Option
from models.program.slots.shapes import Shape
from models.rules.demands import RoleDemand
from models.rules.shape import SpareNodes, spare_nodes


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


@dataclass(frozen=True)
class Piece:
    """Pods that are in one domain of a level, on some of these nodes: the slots of each unit that they take.

    ``parts``: (piece, count) of those that are in one domain each of a narrower level. ``weight``: of the
    gang in GPUs; ``whole``: all its pods. ``least``: not 0 if its ``pods`` are in several domains of it,
    so many or more in each; ``even``: as many or one more.
    """

    level: int
    slots: tuple[int, ...]
    nodes: frozenset[int]
    parts: tuple[Part, ...] = ()
    weight: int = 0
    whole: bool = False
    pods: int = 1
    least: int = 0
    even: bool = False

    @property
    def others(self) -> int:
        """Pods of its larger shares where they are even, or else those that are more than a share."""
        return self.least + 1 if self.even else 1

    def of_pods(self, pods: int) -> Piece:
        """Some pods of it, in one domain."""
        slots = tuple(own // self.pods * pods for own in self.slots)
        return Piece(self.level, slots, self.nodes, (), self.weight)


Part = tuple[Piece, int]
"""Of a piece, or of a gang: a piece, and how many of them."""


Taken = dict[tuple[int, int], list[tuple[int, tuple[int, ...]]]]
"""By level and domain, variables, and the slots that each of what they count takes."""


class DomainSlots:
    """Slots of each unit in each domain: those that are free, and a variable for what may be cleared.

    ``taken``: by pieces, ``idle``: by nodes that stay idle; ``held``: the nodes to which they are held.
    """

    def __init__(
        self,
        cluster: Cluster,
        program: Program,
        units: tuple[int, ...],
        room: SlotRooms,
        nodes: frozenset[int],
    ) -> None:
        self._cluster, self._program, self._units, self._room = cluster, program, units, room
        self._every = nodes
        self._now = {n: tuple(room.standing(n) // unit for unit in units) for n in nodes}
        self._most = {n: tuple(room.most(n) // unit for unit in units) for n in nodes}
        self._domain_of = [np.array(of, np.int64) for of in cluster.domain_of]
        self._most_slots = np.zeros((len(units), len(cluster.nodes)), np.int64)
        for n, most in self._most.items():
            self._most_slots[:, n] = most
        self._cleared = {
            n: tuple(self._clear(n, unit) for unit in units)
            for n in sorted(nodes)
            if self._most[n] != self._now[n]
        }
        self.taken: Taken = {}
        self.idle: Taken = {}
        self.held: dict[int, frozenset[int]] = {}

    def housed(
        self,
        within: tuple[int, int],
        nodes: frozenset[int] | None = None,
        of: Taken | None = None,
    ) -> Linear:
        """Large slots that are taken in a domain of a level by what is held to these nodes; None: by all."""
        found = Linear()
        for variable, taken in (self.taken if of is None else of).get(within, ()):
            if nodes is None or self.held.get(variable, self._every) <= nodes:
                found.add(variable, taken[0])
        return found

    def _clear(self, n: int, unit: int) -> int | None:
        """A variable: slots that a node has more because pods leave it; None if it never has more."""
        program, room = self._program, self._room
        now, most = room.standing(n) // unit, room.most(n) // unit
        if most == now:
            return None
        variable = program.integer(0, most - now)
        freed, every = Linear(constant=room.standing(n) - now * unit), most == now + 1
        for one in room.leaving(n):
            freed.add_linear(one.left, one.gpus)
            if every and (room.most(n) - one.gpus) // unit == now:
                program.at_most(Linear().add(variable).add_linear(one.left, -1))
            else:
                every = False
        if not every:
            program.at_most(Linear().add(variable, unit).add_linear(freed, -1))
        return variable

    def most_within(self, piece: Piece, inside: frozenset[int]) -> Iterator[tuple[int, int]]:
        """(domain, the most of these pieces that it may have on nodes inside)."""
        nodes = np.sort(integers(piece.nodes & inside))
        of = self._domain_of[piece.level][nodes]
        domains, first, group = np.unique(of, return_index=True, return_inverse=True)
        fits = np.full(len(domains), 0 if not any(piece.slots) else UNBOUNDED, np.int64)
        for slots, most in zip(piece.slots, self._most_slots, strict=True):
            if slots:
                total = np.zeros(len(domains), np.int64)
                np.add.at(total, group, most[nodes])
                fits = np.minimum(fits, total // slots)
        order = np.argsort(first)
        yield from zip(domains[order].tolist(), fits[order].tolist(), strict=True)

    def most_in(self, level: int) -> dict[int, int]:
        """The most large slots, by domain of a level; only domains with any."""
        found = Counter[int]()
        for n, slots in self._most.items():
            found[self._cluster.domain_of[level][n]] += slots[0]
        return {domain: most for domain, most in sorted(found.items()) if most}

    def on_nodes(self, nodes: Iterable[int]) -> Iterator[tuple[int, int, int | None]]:
        """Large slots of each node: (now, most, those cleared); of all from which nobody leaves together."""
        now = sum(self._now[n][0] for n in nodes if n in self._now and n not in self._cleared)
        if now:
            yield now, now, None
        for n in nodes:
            if n in self._cleared and self._most[n][0]:
                yield self._now[n][0], self._most[n][0], self._cleared[n][0]

    def there(self, nodes: Iterable[int], number: int) -> Linear:
        """Slots of a unit on these nodes, whoever takes them."""
        total = Linear()
        for n in nodes:
            if n in self._now:
                total.constant += self._now[n][number]
            else:  # nobody comes here
                total.constant += self._room.most(n) // self._units[number]
            variable = self._cleared[n][number] if n in self._cleared else None
            if variable is not None:
                total.add(variable)
        return total

    def hold(self, inside: Iterable[int], taken: Sequence[tuple[int, tuple[int, ...]]]) -> None:
        """What is inside takes no more slots than there are; pieces of j slots no more than j at a time."""
        nodes = [n for n in inside if n in self._now]
        for number in range(len(self._units)):
            here = Linear().add_linear(self.there(nodes, number), -1)
            for variable, slots in taken:
                here.add(variable, slots[number])
            self._program.at_most(here)
            most = sum(self._most[n][number] for n in nodes)
            for several in sorted({own[number] for _, own in taken if most % (own[number] or 1)}):
                whole = Linear()
                for variable, slots in taken:
                    whole.add(variable, slots[number] // several)
                self._program.at_most(whole, most // several)


@dataclass(frozen=True, slots=True)
class Leaving:
    """A pod that may leave its node. ``mask``: of its GPUs, 0 if not known; ``left``: 1 where it leaves.

    ``stops``: it leaves only where its gang stops.
    """

    gpus: int
    mask: int
    left: Linear
    stops: bool


class SlotRooms:
    """The slots that there are, and those that pods take.

    Gangs that only may stop are counted where they stand; for each pod of theirs that leaves a node, as
    many slots more as the node has without all of them.
    """

    def __init__(self, instance: Instance, state: BaseState, modes: list[Mode]) -> None:
        self._instance = instance
        self._state = state
        self._modes = modes
        self._kinds: dict[object, int] = {}
        self._kind: dict[int, int] = {}
        self._placed: dict[tuple[int, frozenset[int] | None, int], int] = {}
        self._sets: dict[frozenset[int], frozenset[int]] = {}
        self._largest: dict[frozenset[int], int] = {}

    def taken(self, mode: Mode, nodes: frozenset[int], size: int) -> int:
        """Slots on these nodes that the pods take at least, where they may be elsewhere."""
        demand = mode.option.demand
        own = self.placed(mode, nodes, size) if demand.roles else 0
        if not demand.stays or demand.gang not in self._movable:
            return own
        known = self._instance.gangs[demand.gang].roles
        stays = (p for p in demand.stays if p.node in nodes and p.node in self._countable)
        return own + sum(known[p.role].gpus // size for p in stays if p not in self._always)

    def placed(self, mode: Mode, nodes: frozenset[int] | None, size: int) -> int:
        """The same of the pods that are placed; ``nodes`` None: wherever they are. Counted once a kind."""
        if not mode.option.demand.roles:
            return 0
        if mode.variable not in self._kind:
            roles = [(role.nodes, role.gpus, role.count) for role in mode.option.demand.gpu_roles]
            kind = (mode.level, 0 if mode.shape is None else mode.shape.piece, *roles)
            self._kind[mode.variable] = self._kinds.setdefault(kind, len(self._kinds))
        key = (self._kind[mode.variable], nodes, size)
        if key not in self._placed:
            self._placed[key] = self._placed_of_kind(mode, nodes, size)
        return self._placed[key]

    def _placed_of_kind(self, mode: Mode, nodes: frozenset[int] | None, size: int) -> int:
        demand = mode.option.demand
        roles = [role for role in demand.gpu_roles if nodes is None or role.nodes <= nodes]
        if mode.level == self._instance.cluster.node_level:
            return sum(role.gpus * role.count for role in roles) // size
        own = sum(role.count * (role.gpus // size) for role in roles)
        for role in roles:
            sets, piece = self.pieces(mode, role)
            own = max(own, sets * (piece * role.gpus // size))
        return own

    def pieces(self, mode: Mode, role: RoleDemand) -> tuple[int, int]:
        """(how many at least, pods of each): the pieces of a gang that are whole on a node; (0, 1): none."""
        piece = 1 if mode.shape is None else mode.shape.piece
        if piece < 2:
            return 0, 1
        if role.nodes not in self._largest:
            self._largest[role.nodes] = max(map(self.most, role.nodes), default=0)
        fit = max(piece, self._largest[role.nodes] // role.gpus)
        return -(-role.count // min(2 * piece - 1, fit)), piece

    def slots(self, nodes: frozenset[int], size: int) -> Linear:
        """Slots of so many GPUs on these nodes."""
        free = Counter(self._free[n] for n in nodes)
        total = Linear(constant=sum(count * (gpus // size) for gpus, count in free.items()))
        for n in self._leaving.keys() & nodes & self._countable:
            more = self._state.rooms[n].free_gpus // size - self._free[n] // size
            for one in self._leaving[n] if more else ():
                if one.stops:
                    total.add_linear(one.left, more)
        return total

    def left_free(self, nodes: Iterable[int], *, most: bool = False) -> Linear:
        """GPUs that are free at least, where all pods of the modes are on these nodes.

        ``most``: at most, with what leaves nodes whose slots cannot be counted.
        """
        total, every = Linear(), self._instance.cluster.nodes
        for n in set(nodes):
            total.constant += self._now[n].free_gpus
            if n in self._countable or most:
                for one in self._leaving.get(n, ()):
                    total.add_linear(one.left, one.gpus)
            if most and n not in self._countable and every[n].releasable:
                room = self._state.rooms[n]
                mask = room.mask & every[n].releasable if room.free_gpus else 0
                total.constant += mask.bit_count()
        for mode in self._modes:
            roles = mode.option.demand.gpu_roles
            total.add(mode.variable, -sum(role.gpus * role.count for role in roles))
        return total

    def standing(self, n: int) -> int:
        """Free GPUs of a node while everybody stands where he is."""
        return self._now[n].free_gpus if n in self._countable else self._state.rooms[n].free_gpus

    def most(self, n: int) -> int:
        """Free GPUs of a node without all who may leave it."""
        return self._state.rooms[n].free_gpus

    def leaving(self, n: int) -> Sequence[Leaving]:
        """The pods that may leave the node; none where slots cannot be counted."""
        return self._leaving.get(n, ()) if n in self._countable else ()

    def free_masks(self, n: int) -> tuple[int, list[tuple[int, Linear]]]:
        """GPUs of a node that are free, and of the pods that may leave it: (mask, 1 where it leaves).

        All GPUs where it is not known which of them are free.
        """
        if n in self._countable:
            return self._now[n].mask, [(o.mask, o.left) for o in self.leaving(n) if o.mask]
        model = self._instance.cluster.nodes[n].model
        return (model.all_gpus if model is not None and self.most(n) else 0), []

    def known(self, nodes: frozenset[int]) -> frozenset[int]:
        """The same set, one object for all that are equal: compared with others it costs no time."""
        return self._sets.setdefault(nodes, nodes)

    @cached_property
    def _always(self) -> frozenset[ExistingPod]:
        """Pods that stay under every option: the rooms are next to them."""
        return frozenset(pod for choice in self._state.choices for pod in choice.always)

    @cached_property
    def _movable(self) -> frozenset[int]:
        """Gangs of which pods may be elsewhere after the plan."""
        choices = self._state.choices
        return frozenset(c.gang for c in choices if any(o.effect.moved for o in c.options))

    @cached_property
    def stopping(self) -> frozenset[int]:
        """Nodes with pods that leave only where their gang stops."""
        gangs = self._instance.gangs
        return frozenset(
            pod.node
            for choice in self._state.choices
            if choice.gang not in self._movable
            for pod in gangs[choice.gang].running_pods
            if pod.node is not None and gangs[choice.gang].roles[pod.role].gpus
        )

    @cached_property
    def _countable(self) -> frozenset[int]:
        """Nodes on which the pods that run take no more than there is, so that their slots can be counted."""
        nodes, now, held = self._instance.cluster.nodes, self._now, Counter[int]()
        for gang in self._instance.gangs:
            for pod in gang.running_pods:
                if pod.node is not None:
                    held[pod.node] |= pod.gpus or 0
        return frozenset(
            n
            for n, room in enumerate(now)
            if self._instance.schedulable(nodes[n])
            and not room.unknown
            and not nodes[n].releasable  # nobody counts what leaves it
            and not held[n] & ~nodes[n].healthy  # what leaves such a GPU leaves no room
            and room.mask.bit_count() == room.free_gpus
        )

    @cached_property
    def _free(self) -> list[int]:
        """Free GPUs of every node without the gangs that may move; those that only may stop are there."""
        stays, now = list(self._state.base), base_decisions(self._instance)
        for choice in self._state.choices:
            if choice.gang not in self._movable:
                stays[choice.gang] = now[choice.gang]
        beside = rooms(self._instance, stays)
        return [
            beside[n].free_gpus if n in self._countable else room.free_gpus
            for n, room in enumerate(self._state.rooms)
        ]

    @cached_property
    def _now(self) -> tuple[Room, ...]:
        return rooms(self._instance, base_decisions(self._instance))

    @cached_property
    def _leaving(self) -> dict[int, list[Leaving]]:
        staying: dict[
            tuple[int, ExistingPod], Linear
        ] = {}  # 1 less the options under which they stay
        for mode in self._modes:
            for pod in mode.option.demand.stays:
                key = mode.option.demand.gang, pod
                staying.setdefault(key, Linear(constant=1)).add(mode.variable, -1)
        found: dict[int, list[Leaving]] = {}
        for choice in self._state.choices:
            gang, stops = self._instance.gangs[choice.gang], choice.gang not in self._movable
            for pod in gang.running_pods:
                if pod.node is not None and pod not in choice.always:
                    left = staying.get((choice.gang, pod), Linear(constant=1))
                    one = Leaving(gang.roles[pod.role].gpus, pod.gpus or 0, left, stops)
                    found.setdefault(pod.node, []).append(one)
        return found


class Spares:
    """Nodes that rules keep idle (contract 2.21), domain by domain.

    ``rules``: by its number in ``spare_nodes``, each rule that counts, with the nodes that may be idle.
    ``idle``: (rule, variable, nodes of one innermost domain of which so many stay idle). ``emptied``:
    variables of those that are idle only if a gang stops there, which it may only for one that comes.
    """

    def __init__(self, instance: Instance, room: SlotRooms) -> None:
        self._instance = instance
        self._stopping = room.stopping
        self.rules: dict[int, SpareNodes] = {}
        self.idle: list[tuple[int, int, frozenset[int]]] = []
        self.emptied: list[int] = []
        known = set[int]()
        for number, rule in enumerate(spare_nodes(instance)):
            if known.isdisjoint(rule.nodes):
                gpus = instance.cluster.nodes
                nodes = tuple(n for n in rule.nodes if room.most(n) == gpus[n].gpus)
                self.rules[number] = SpareNodes(nodes, rule.least)
                known.update(rule.nodes)

    def slots(self, nodes: frozenset[int], size: int) -> int:
        """Slots on these nodes that nobody takes, at least."""
        return sum(least * slots[0] for _, _, least, slots in self._inside(nodes, (size,)))

    def keep(
        self,
        program: Program,
        nodes: frozenset[int],
        level: int,
        units: tuple[int, ...],
        apart: Sequence[frozenset[int]],
    ) -> Iterator[tuple[list[int], int, tuple[int, ...]]]:
        """(nodes of a domain of the level, a variable: how many stay idle, slots of each unit of one).

        Nodes in other sets ``apart`` have other variables: gangs that are held to a set are not on all.
        """
        of = self._instance.cluster.domain_of[level]
        for number, inside, least, slots in self._inside(nodes, units):
            total, found = Linear(), dict[tuple[int, ...], list[int]]()
            for n in inside:
                sets = (n in one for one in apart)
                found.setdefault((of[n], n in self._stopping, *sets), []).append(n)
            for (_, stopping, *_), own in sorted(found.items()):
                variable = program.integer(0, min(least, len(own)))
                total.add(variable)
                if stopping:
                    self.emptied.append(variable)
                else:
                    self.idle.append((number, variable, frozenset(own)))
                yield own, variable, slots
            program.equal(total, least)

    def _inside(
        self, nodes: frozenset[int], sizes: tuple[int, ...]
    ) -> Iterator[tuple[int, list[int], int, tuple[int, ...]]]:
        """(rule, its nodes among these, how many of them stay idle, slots of each size of one)."""
        gpus = self._instance.cluster.nodes
        for number, rule in self.rules.items():
            inside = [n for n in rule.nodes if n in nodes]
            least = rule.least - (len(rule.nodes) - len(inside))
            if least > 0:
                fewest = min(gpus[n].gpus for n in inside)
                yield number, inside, least, tuple(fewest // size for size in sizes)
