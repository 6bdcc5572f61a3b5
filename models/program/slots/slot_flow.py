"""What nodes have left, by counting: a pod that takes s of f free GPUs leaves a node with f - s.

So pods are arcs from one number of free GPUs to another, and nodes flow along them (arc flow: Valério de
Carvalho, Annals of Operations Research 86, 1999). Nodes are counted by GPU model and domain: as many are
left with f free GPUs as had so many, and came to it, less those that went on. Gangs of small pods that are
whole in such a domain are counted there, others wherever their pods may be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from models.program.linear_program import Linear, integers
from models.program.slots.slot_parts import Reshaped
from models.program.slots.slot_rooms import Leaving, Mode
from models.program.slots.slot_state import MAX_APART, Slots
from models.values.leftover import gpu_models

Chunk = tuple[frozenset[int], int, int]
"""Nodes, GPUs on one of them, how many times: of pods of a gang, or of all that must be on one."""

Numbers = tuple[int, ...]
"""Of sets of nodes, ascending."""

Kind = tuple[tuple[Chunk, ...], int]
"""Chunks of gangs, and the level at which they are whole."""


@dataclass
class NodeSet:
    """Nodes of one GPU model and domain. ``largest``: GPUs of the largest node of the model.

    ``left``: by number of free GPUs, the nodes that have so many at the end, if all are away of whom it is
    not known what GPUs they leave. ``arcs``: (free GPUs before, GPUs taken) to a variable; ``came``: all of
    them, by GPUs taken.
    """

    nodes: frozenset[int]
    largest: int
    left: list[Linear]
    arcs: dict[tuple[int, int], int] = field(default_factory=dict)
    came: dict[int, Linear] = field(default_factory=dict)


class SlotFlow:
    """``level``: of the domains; -1: all nodes of a GPU model are one set.

    ``homes``: by kind, and by set of nodes, a variable: gangs of small pods that are whole there.
    ``variables``: how many a solution that says all this has at least.
    """

    def __init__(self, model: Slots, parts: Iterable[Reshaped], level: int) -> None:
        self._model, self._program, self.level = model, model.program, level
        cluster = model.instance.cluster
        self.sets = list(self._sets())
        self.homes: dict[Kind, dict[int, int]] = {}
        self.set_of = np.full(len(cluster.nodes), -1)
        for number, own in enumerate(self.sets):
            self.set_of[list(own.nodes)] = number
        self._touched: dict[frozenset[int], tuple[int, ...]] = {}
        held, housed = self._coming()
        for one in parts:
            held[self.numbers(one.nodes), 1].add_linear(one.opened)
        self._flow(held)
        self._hold(held)
        self._house(housed)
        self._large()
        for own in self.sets:
            for left in own.left:
                self._program.at_least(left, 0)
        self.variables = len(self._program.lower)

    def _sets(self) -> Iterator[NodeSet]:
        cluster = self._model.instance.cluster
        for nodes in gpu_models(self._model.instance).values():
            largest = max(cluster.nodes[n].gpus for n in nodes)
            found = defaultdict[int, list[int]](list)
            for n in nodes:
                found[cluster.domain_of[self.level][n] if self.level >= 0 else 0].append(n)
            for own in found.values():
                yield NodeSet(frozenset(own), largest, self._starts(own))

    def _starts(self, nodes: Iterable[int]) -> list[Linear]:
        """The nodes with each number of free GPUs before anybody comes."""
        room, found = self._model.room, defaultdict[int, Linear](Linear)
        alike = defaultdict[tuple[int, tuple[int, ...]], list[Leaving]](list)
        for n in nodes:
            leaving = [one for one in room.leaving(n) if one.gpus]
            found[room.standing(n)].constant += 1
            if leaving:
                alike[room.standing(n), tuple(sorted(one.gpus for one in leaving))] += leaving
        for (free, gpus), leaving in sorted(alike.items(), key=lambda one: one[0]):
            sums, most, cleared, total = {0}, len(leaving) // len(gpus), Linear(), Linear()
            for size in gpus:
                sums |= {size + freed for freed in sums}
            for freed in sorted(sums - {0}):
                nodes_left = self._program.integer(0, most)
                found[free + freed].add(nodes_left)
                found[free].add(nodes_left, -1)
                cleared.add(nodes_left)
                total.add(nodes_left, freed)
            for pod in leaving:
                total.add_linear(pod.left, -pod.gpus)
            self._program.at_most(cleared, most)
            self._program.equal(total)
        return [found[free] for free in range(1 + max(found))]

    def chunks(self, mode: Mode) -> Iterator[Chunk]:
        """What comes of a gang; of pods that share nodes in any number, each pod."""
        roles = mode.option.demand.gpu_roles
        if mode.level == self._model.instance.cluster.node_level:
            nodes = frozenset.intersection(*(role.nodes for role in roles))
            yield nodes, sum(role.gpus * role.count for role in roles), 1
            return
        for role in roles:
            sets, piece = self._model.room.pieces(mode, role)
            if sets:
                yield role.nodes, piece * role.gpus, sets
            if role.count > sets * piece:
                yield role.nodes, role.gpus, role.count - sets * piece

    def kind(self, mode: Mode) -> Kind | None:
        """Of a gang of small pods that is whole in a domain, on several nodes; None of others."""
        if not 0 <= self.level <= mode.level < self._model.instance.cluster.node_level:
            return None
        chunks, units = tuple(self.chunks(mode)), self._model.units
        large = max((size for _, size, _ in chunks), default=0)
        return (
            None if mode.shape is None or large >= max(units, default=0) else (chunks, mode.level)
        )

    def _coming(self) -> tuple[dict[tuple[Numbers, int], Linear], dict[Kind, Linear]]:
        """(what comes by sets and GPUs, gangs by kind)."""
        held = defaultdict[tuple[Numbers, int], Linear](Linear)
        housed = defaultdict[Kind, Linear](Linear)
        for mode in self._model.modes:
            for nodes, size, count in self.chunks(mode):
                held[self.numbers(nodes), size].add(mode.variable, count)
            kind = self.kind(mode)
            if kind is not None:
                housed[kind].add(mode.variable)
        return held, housed

    def numbers(self, nodes: frozenset[int]) -> Numbers:
        """The sets of which these are nodes."""
        if nodes not in self._touched:
            found = np.unique(self.set_of[integers(nodes)])
            self._touched[nodes] = tuple(found[found >= 0].tolist())
        return self._touched[nodes]

    def _flow(self, held: Mapping[tuple[Numbers, int], Linear]) -> None:
        """All that comes flows somewhere."""
        totals = defaultdict[int, Linear](Linear)
        for (_, size), total in held.items():
            totals[size].add_linear(total)
        for size, total in sorted(totals.items()):
            came, most = Linear(), self._program.bound_above(total)
            for own in self.sets:
                here = own.came[size] = Linear()
                for free in range(size, len(own.left)):
                    arc = own.arcs[free, size] = self._program.integer(0, most)
                    own.left[free].add(arc, -1)
                    own.left[free - size].add(arc)
                    here.add(arc)
                came.add_linear(here)
            self._program.equal(came.add_linear(total, -1))

    def _hold(self, held: Mapping[tuple[Numbers, int], Linear]) -> None:
        """So many come to some sets at least: those that can be in no others."""
        weight = defaultdict[Numbers, int](int)
        for (numbers, size), total in held.items():
            if len(numbers) < len(self.sets):
                weight[numbers] += size * self._program.bound_above(total)
        for numbers in sorted(weight, key=lambda one: (-weight[one], one))[:MAX_APART]:
            inside = {*numbers}
            for size in {size for other, size in held if other == numbers}:
                least = Linear()
                for (other, pods), total in held.items():
                    if pods == size and inside.issuperset(other):
                        least.add_linear(total)
                for number in numbers:
                    least.add_linear(self.sets[number].came[size], -1)
                self._program.at_most(least)

    def _house(self, housed: Mapping[Kind, Linear]) -> None:
        """Gangs that are whole in a domain are in one."""
        least = defaultdict[tuple[int, int], Linear](Linear)
        for kind, total in housed.items():
            numbers, *others = {self.numbers(nodes) for nodes, _, _ in kind[0]}
            if others or len({*map(self._domain, numbers)}) < len(numbers):
                continue  # there may be pods of it in several sets of a domain
            most, homes = self._program.bound_above(total), self.homes.setdefault(kind, {})
            for number in numbers:
                homes[number] = self._program.integer(0, most)
                for _, size, count in kind[0]:
                    least[number, size].add(homes[number], count)
            self._program.equal(Linear().add_all(homes.values()).add_linear(total, -1))
        for (number, size), own in least.items():
            self._program.at_most(own.add_linear(self.sets[number].came[size], -1))

    def _domain(self, number: int) -> int:
        return self._model.instance.cluster.domain_of[self.level][min(self.sets[number].nodes)]

    def _large(self) -> None:
        """As many nodes are taken whole in a domain as large slots are."""
        units, level = self._model.units, self.level
        if level < 0 or not units or any(own.largest != units[0] for own in self.sets):
            return
        came = defaultdict[int, Linear](Linear)
        for number, own in enumerate(self.sets):
            came[self._domain(number)].add_linear(own.came.get(units[0], Linear()))
        for domain, total in came.items():
            taken = self._model.large_taken(level, domain)
            if taken is not None:
                self._program.equal(total.add_linear(taken, -1))

    def around(self, nodes: frozenset[int]) -> frozenset[int]:
        """All nodes of the sets of which these are."""
        return frozenset[int]().union(*(self.sets[n].nodes for n in self.numbers(nodes)))

    def requests(self, nodes: frozenset[int], size: int) -> Linear:
        """Requests of so many GPUs that find room on these nodes, which are whole sets."""
        found = Linear()
        for number in self.numbers(nodes):
            for free, left in enumerate(self.sets[number].left):
                if free >= size:
                    found.add_linear(left, free // size)
        return found
