"""What nodes have left, by counting: a pod that takes s of f free GPUs leaves a node with f - s.

So pods are arcs from one number of free GPUs to another, and nodes flow along them (arc flow: Valério de
Carvalho, Annals of Operations Research 86, 1999). Nodes are counted by GPU model and domain: as many are
left with f free GPUs as had so many, and came to it, less those that went on. Gangs of small pods that are
whole in such a domain are counted there, others wherever their pods may be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from models.program.linear_program import Linear, integers
from models.program.slots.slot_meshes import NodePattern, SlotMeshes
from models.program.slots.slot_parts import Reshaped
from models.program.slots.slot_rooms import Leaving, Mode
from models.program.slots.slot_state import MAX_APART, Slots
from models.values.leftover import gpu_models

MAX_SHARED = 32
"""Sets of nodes at most, if it is counted how many pods of a gang share nodes there."""

Chunk = tuple[frozenset[int], int, int]
"""Nodes, GPUs on one of them, how many times: of pods of a gang, or of all that must be on one."""

Numbers = tuple[int, ...]
"""Of sets of nodes, ascending."""

Kind = tuple[tuple[Chunk, ...], int, int, int]
"""Chunks of gangs, the level at which they are whole, their weight, and the fewest nodes of one."""


@dataclass
class NodeSet:
    """Nodes of one GPU model and domain. ``largest``: GPUs of the largest node of the model.

    ``left``: by number of free GPUs, the nodes that have so many at the end, if all are away of whom it is
    not known what GPUs they leave. ``arcs``: (free GPUs before, GPUs taken) to a variable; ``patterns``: of
    servers on which not only the number of GPUs counts, before all arcs; ``came``: what is taken, by GPUs.
    """

    nodes: frozenset[int]
    largest: int
    left: list[Linear]
    arcs: dict[tuple[int, int], int] = field(default_factory=dict)
    patterns: list[NodePattern] = field(default_factory=list)
    came: defaultdict[int, Linear] = field(default_factory=lambda: defaultdict(Linear))


class SlotFlow:
    """``level``: of the domains; -1: all nodes of a GPU model are one set.

    ``homes``: by kind, and by set of nodes, a variable: gangs of small pods that are whole there; ``shares``:
    where so many pods of one share a node.
    ``beyond``: what nodes of such gangs add to ``span`` beyond the fewest. ``variables``: how many a solution
    that says all this has at least.
    """

    def __init__(
        self, model: Slots, parts: Iterable[Reshaped], meshes: Sequence[SlotMeshes], level: int
    ) -> None:
        self._model, self._program, self.level = model, model.program, level
        self._meshes = meshes
        self._patterned = {n for mesh in meshes for own in mesh.classes for n, _ in own.nodes}
        cluster = model.instance.cluster
        self.sets = list(self._sets())
        self.homes: dict[Kind, dict[int, int]] = {}
        self.shares: dict[tuple[Kind, int], dict[int, int]] = {}
        self.set_of = np.full(len(cluster.nodes), -1)
        for number, own in enumerate(self.sets):
            self.set_of[list(own.nodes)] = number
        self._touched: dict[frozenset[int], tuple[int, ...]] = {}
        for mesh in meshes:
            self._place_patterns(mesh)
        self.beyond = Linear()
        held, kinds = self._coming()
        for one in parts:
            held[self.numbers(one.nodes), 1].add_linear(one.opened)
        least = self._house(kinds, held)
        self._flow(held)
        self._hold(held)
        for (number, size), coming in least.items():
            self._program.at_most(coming.add_linear(self.sets[number].came[size], -1))
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
                yield NodeSet(frozenset(own), largest, self._starts(own, largest))

    def _starts(self, nodes: Iterable[int], largest: int) -> list[Linear]:
        """The nodes with each number of free GPUs before anybody comes."""
        room, found = self._model.room, defaultdict[int, Linear](Linear)
        alike = defaultdict[tuple[int, tuple[int, ...]], list[Leaving]](list)
        for n in nodes:
            if n in self._patterned:
                continue
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
        return [found[free] for free in range(1 + largest)]

    def _place_patterns(self, mesh: SlotMeshes) -> None:
        """Nodes flow from what they have while all stay to what their pattern leaves."""
        for one in mesh.classes:
            own = self.sets[self.set_of[one.nodes[0][0]]]
            own.left[one.free].constant += len(one.nodes)
            own.patterns += one.patterns
            for chosen in one.patterns:
                own.left[one.free].add(chosen.variable, -1)
                own.left[chosen.left].add(chosen.variable)
                for size, count in chosen.taken:
                    own.came[size].add(chosen.variable, count)

    def chunks(self, mode: Mode) -> Iterator[Chunk]:
        """What comes of a gang; of pods that share nodes in any number, each pod."""
        roles = mode.option.demand.gpu_roles
        if mode.level == self._model.instance.cluster.node_level:
            nodes = frozenset.intersection(*(role.nodes for role in roles))
            yield nodes, sum(role.gpus * role.count for role in roles), 1
            return
        meshed = self._meshed(mode.option.demand.gpu_nodes)
        for role in roles:
            sets, piece = (0, 1) if meshed else self._model.room.pieces(mode, role)
            if sets:
                yield role.nodes, piece * role.gpus, sets
            if role.count > sets * piece:
                yield role.nodes, role.gpus, role.count - sets * piece

    def _meshed(self, nodes: frozenset[int]) -> bool:
        """Whether what comes to these nodes is in patterns, all but single GPUs."""
        return any(nodes <= mesh.kind.nodes for mesh in self._meshes)

    def _scattered(self, mode: Mode) -> bool:
        """Whether a gang on several servers has sets of several pods in patterns."""
        return any(mesh.scattered(mode) for mesh in self._meshes)

    def kind(self, mode: Mode) -> Kind | None:
        """Of a gang of small pods that is whole in a domain, on several nodes; None of others."""
        instance, shape = self._model.instance, mode.shape
        inside = 0 <= self.level <= mode.level < instance.cluster.node_level
        inside &= mode.option.effect.admitted  # or else it counts in no tier
        if shape is None or not inside or self._scattered(mode):
            return None
        chunks, units = tuple(self.chunks(mode)), self._model.units
        if max((size for _, size, _ in chunks), default=0) >= max(units, default=0):
            return None
        weight = instance.gangs[mode.option.demand.gang].weight_gpus
        return chunks, mode.level, weight, shape.fewest[-1]

    def _coming(self) -> tuple[dict[tuple[Numbers, int], Linear], dict[Kind, Linear]]:
        """(what comes by sets and GPUs of gangs of no kind, gangs by kind)."""
        held = defaultdict[tuple[Numbers, int], Linear](Linear)
        kinds = defaultdict[Kind, Linear](Linear)
        for mode in self._model.modes:
            kind, meshed = self.kind(mode), self._meshed(mode.option.demand.gpu_nodes)
            if kind is not None:
                kinds[kind].add(mode.variable)
            elif not self._scattered(mode):
                for nodes, size, count in self.chunks(mode):
                    if size == 1 or not meshed:
                        held[self.numbers(nodes), size].add(mode.variable, count)
        for nodes, variable in chain.from_iterable(mesh.singles() for mesh in self._meshes):
            held[self.numbers(nodes), 1].add(variable)
        return held, kinds

    def sizes(self, mode: Mode) -> set[int]:
        """What may come of a gang to a node, in GPUs."""
        kind, chunks = self.kind(mode), [*self.chunks(mode)]
        most = [1] if kind is None else self._shares(kind)
        if self._scattered(mode):
            most = [*range(1, chunks[0][2])]
        return {size * own for own in most for _, size, _ in chunks}

    def _shares(self, kind: Kind) -> list[int]:
        """How many pods of such a gang may be on a node, if it is open how many; or else of a chunk."""
        (nodes, size, count), *others = kind[0]
        if others or len(self.sets) > MAX_SHARED or (size > 1 and self._meshed(nodes)):
            return [1]
        largest = max(self.sets[number].largest for number in self.numbers(nodes))
        return [*range(1, max(2, min(count, 1 + largest // size)))]

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
                here = Linear()
                for free in range(size, len(own.left)):
                    arc = own.arcs[free, size] = self._program.integer(0, most)
                    own.left[free].add(arc, -1)
                    own.left[free - size].add(arc)
                    here.add(arc)
                own.came[size].add_linear(here)
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

    def _house(
        self, kinds: Mapping[Kind, Linear], held: dict[tuple[Numbers, int], Linear]
    ) -> dict[tuple[int, int], Linear]:
        """Gangs that are whole in a domain are in one; returns what comes at least, by set and GPUs."""
        least, program = defaultdict[tuple[int, int], Linear](Linear), self._program
        for kind, total in kinds.items():
            (numbers, *others), homes = (
                {self.numbers(nodes) for nodes, _, _ in kind[0]},
                {-1: total},
            )
            # or else there may be pods of it in several sets of a domain
            if not others and len({*map(self._domain, numbers)}) == len(numbers):
                own = {n: program.integer(0, program.bound_above(total)) for n in numbers}
                program.equal(Linear().add_all(own.values()).add_linear(total, -1))
                homes, self.homes[kind] = {n: Linear({one: 1}) for n, one in own.items()}, own
            used, shares = Linear().add_linear(total, -kind[-1]), len(self._shares(kind))
            meshed = self._meshed(frozenset().union(*(nodes for nodes, _, _ in kind[0])))
            for number, gangs in homes.items():
                for nodes, size, coming in self._divided(kind, number, gangs, used):
                    least[number, size].add_linear(coming)
                    if shares > 1 or size == 1 or not meshed:
                        held[self.numbers(nodes), size].add_linear(coming)
            if shares > 1:
                more = program.integer(0, max(0, program.bound_above(used)))
                program.at_least(Linear({more: 1}).add_linear(used, -1))
                weights = self._model.instance.cluster.span_weights
                self.beyond.add(more, kind[2] * weights[-1])
        return {key: own for key, own in least.items() if key[0] >= 0}

    def _divided(
        self, kind: Kind, number: int, gangs: Linear, used: Linear
    ) -> Iterator[tuple[frozenset[int], int, Linear]]:
        """(nodes, GPUs, how many) of what comes of gangs, whose pods may share nodes: those are ``used``."""
        shares = self._shares(kind)
        for nodes, size, count in kind[0]:
            pods, most = Linear().add_linear(gangs, -count), self._program.bound_above(gangs)
            if len(shares) == 1:
                yield nodes, size, Linear().add_linear(gangs, count)
                continue
            for own in shares:
                one = self._program.integer(0, count * most // own)
                self.shares.setdefault((kind, number), {})[own] = one
                pods.add(one, own)
                used.add(one)
                yield nodes, size * own, Linear({one: 1})
            self._program.equal(pods)

    def _domain(self, number: int) -> int:
        return self._model.instance.cluster.domain_of[self.level][min(self.sets[number].nodes)]

    def _large(self) -> None:
        """As many nodes are taken whole in a domain as large slots are."""
        units, level = self._model.units, self.level
        if level < 0 or not units or any(own.largest != units[0] for own in self.sets):
            return
        came = defaultdict[int, Linear](Linear)
        for number, own in enumerate(self.sets):
            came[self._domain(number)].add_linear(own.came[units[0]])
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
