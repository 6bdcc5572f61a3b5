"""What comes to which nodes, as the flow of a solution says (``models.program.slots.slot_flow``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from models.instance.solution import PodPlacement
from models.program.slots.slot_flow import NodeSet, SlotFlow
from models.program.slots.slot_rooms import Mode
from planner.search.free_space import FreeSpace


class FlowPlaces:
    """What is to come to nodes: by the GPUs that they have free at first, and to those that have a pattern.

    A node gets a pattern, which is what a solution has on one such node, with the first pod that comes to it.
    ``sizes``: by gang, GPUs that it has on one node each, where the solution says how its pods share nodes.
    """

    def __init__(self, flow: SlotFlow, values: Sequence[int], space: FreeSpace) -> None:
        self._flow, self._space = flow, space
        self._free = space.arrays.free.copy()
        nodes, most = len(self._free), max(len(own.left) for own in flow.sets)
        self._values = list(values)
        self.sizes: dict[int, set[int]] = {}
        self._set_of = flow.set_of
        self._patterns: dict[tuple[int, int], Counter[tuple[int, ...]]] = {}
        self._open = np.zeros((len(flow.sets), most, most), np.int64)
        for number, own in enumerate(flow.sets):
            for free, taken in _paths(own, values):
                self._patterns.setdefault((number, free), Counter())[tuple(taken)] += 1
                self._open[number, free, list({*taken})] += 1
        self._free = np.minimum(self._free, most - 1)
        self._begun = np.zeros(nodes, bool)
        self._ahead = np.zeros((nodes, most), np.int64)

    def home(self, mode: Mode) -> frozenset[int] | None:
        """The nodes of the set in which a gang of small pods is whole; None of one in a narrower domain."""
        kind = self._flow.kind(mode) if mode.level == self._flow.level else None
        homes, values = self._flow.homes.get(kind, {}) if kind else {}, self._values
        number = next((n for n, variable in homes.items() if values[variable]), -1)
        if kind is None or number < 0:
            return None
        values[homes[number]] -= 1
        (_, size, count), shares = kind[0][0], self._flow.shares.get((kind, number), {})
        if own := [pods for pods, variable in shares.items() if values[variable] > 0]:
            pods = [own[-1]] * (count // own[-1]) + [count % own[-1]]
            for one in filter(None, pods):
                values[shares[one]] -= 1
            self.sizes[mode.option.demand.gang] = {size * one for one in pods} - {0}
        return self._flow.sets[number].nodes

    def nodes(self, mode: Mode, among: Iterable[int]) -> frozenset[int]:
        """Those of some nodes on which the solution may have a pod of the gang."""
        nodes = np.array(list(among), np.int64)
        nodes = nodes[self._set_of[nodes] >= 0]
        found = np.zeros(len(nodes), bool)
        sizes = self.sizes.get(mode.option.demand.gang) or self._flow.sizes(mode)
        for size in sizes & {*range(self._ahead.shape[1])}:
            ahead = self._open[self._set_of[nodes], self._free[nodes], size]
            found |= np.where(self._begun[nodes], self._ahead[nodes, size], ahead) > 0
        return frozenset(nodes[found].tolist())

    def take(self, mode: Mode, pods: Iterable[PodPlacement]) -> None:
        """These pods of a gang have come."""
        gang = self._space.instance.gangs[mode.option.demand.gang]
        sizes, known = dict[int, list[int]](), self._flow.sizes(mode)
        for pod in pods:
            if gang.roles[pod.role].gpus and self._set_of[pod.node] >= 0:
                sizes.setdefault(pod.node, []).append(gang.roles[pod.role].gpus)
        for n, own in sizes.items():
            taken = Counter([sum(own)] if sum(own) in known else own)
            if not self._begun[n]:
                self._begin(n, taken)
            self._ahead[n, list(taken)] -= [*taken.values()]

    def _begin(self, n: int, taken: Counter[int]) -> None:
        """Give a node a pattern with most of these sizes, if there is one with any."""
        number, free = int(self._set_of[n]), int(self._free[n])
        self._begun[n] = True
        left = self._patterns.get((number, free), Counter())
        one = max(left, default=(), key=lambda own: (Counter[int](own) & taken).total())
        if not taken.keys().isdisjoint(one):
            pattern = Counter(one)
            left[one] -= 1
            if not left[one]:
                del left[one]
            self._open[number, free, list(pattern)] -= 1
            self._ahead[n, list(pattern)] = [*pattern.values()]


def _paths(own: NodeSet, values: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """(free GPUs at first, what is taken of them) of each node of a set to which pods come."""
    open_: dict[int, list[tuple[int, list[int]]]] = {}
    for one in own.patterns:
        taken = [size for size, count in one.taken for _ in range(count)]
        open_.setdefault(one.left, []).extend([(one.free, taken)] * values[one.variable])
    for free in range(len(own.left) - 1, 0, -1):
        arcs = ((size, own.arcs.get((free, size))) for size in range(free, 0, -1))
        going = [size for size, arc in arcs if arc is not None for _ in range(values[arc])]
        here = open_.pop(free, [])
        here += [(free, []) for _ in range(len(going) - len(here))]
        yield from here[len(going) :]
        for (start, taken), size in zip(here, going, strict=False):
            open_.setdefault(free - size, []).append((start, [*taken, size]))
    yield from open_.get(0, [])
