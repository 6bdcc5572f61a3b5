"""Places for gangs that could be faster or start, in domains from which others go that stay as fast."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from models.instance.speed import FULL_SPEED
from models.program.demand_builder import remaining_demand
from models.program.options import standing_gpus
from models.rules.demands import Demand
from planner.search.free_space import Pods
from planner.search.improve.fewest_restarts import LEAST_FASTER, Changes, FewestRestarts, Step
from planner.search.improve.rearranging import ways
from planner.search.start.greedy import demand_like, value_of

MAX_TARGETS = 120
"""Gangs for which room is made: those that could gain most, of those that run and wait in turn."""

DOMAINS = 3
"""Domains of each level in which room is made for one gang."""

EVICTED = (1, 2, 3, 5, 8, 12)
"""Numbers of gangs that make room for one gang, after which a place for it is looked for."""

WAYS = 4
"""Ways to make room for one gang from which moves are taken back: the cheapest ones."""


def steps_by_making_room(finder: FewestRestarts) -> Iterator[Step]:
    """For each gang that could gain the cheapest step that was found: first those that need no other gang."""
    room = _Room(finder)
    targets = room.targets()
    for ways_of in (room.alone, room.in_domains):
        for gang in tuple(targets):
            if finder.ended():
                return
            changes = sorted(ways_of(gang), key=finder.cost)[:WAYS]
            steps = (finder.cheapest(one, frozenset([gang])) for one in changes)
            found = [step for step in steps if step is not None]
            if found:
                targets.remove(gang)
                yield min(found, key=lambda step: step.cost)


class _Room:
    """Makes room in the plan in which nothing moves. ``_tenants``: by node, the gangs that may leave it."""

    def __init__(self, finder: FewestRestarts) -> None:
        self._finder, self._instance, self._space = finder, finder.instance, finder.space
        self._speeds = [(line.speed or 0) if line.admitted else 0 for line in finder.before.lines]
        self._everywhere = frozenset(range(len(self._instance.cluster.nodes)))
        self._tenants: list[list[int]] = [[] for _ in self._instance.cluster.nodes]
        for index, gang in enumerate(self._instance.gangs):
            if (gang.movable or not gang.running) and index not in self._instance.incomplete:
                for n in sorted({pod.node for pod in finder.unmoved[index].pods}):
                    self._tenants[n].append(index)

    def targets(self) -> list[int]:
        """Gangs that could be faster or start, by what they could gain."""
        found: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        for index, gang in enumerate(self._instance.gangs):
            missing = FULL_SPEED - self._speeds[index]
            held = gang.hold is not None or index in self._instance.incomplete
            if not held and missing >= LEAST_FASTER and (gang.movable or not gang.running):
                found[gang.running].append((-gang.least_units * missing, index))
        in_turn = zip_longest(*(sorted(found[running]) for running in (True, False)))
        return [one[1] for pair in in_turn for one in pair if one is not None][:MAX_TARGETS]

    def alone(self, index: int) -> Iterator[Changes]:
        """The running gang where it is faster; those that wait would have started if they could."""
        space, mark = self._space, self._space.mark()
        if self._instance.gangs[index].running:
            space.set(index, ())
            if self._placed(index, self._everywhere, faster=True):
                yield {index: space.pods[index]}
            space.undo(mark)

    def in_domains(self, index: int) -> Iterator[Changes]:
        """The gang in domains where others make room, so that it is faster or starts."""
        space, mark = self._space, self._space.mark()
        for nodes in self._domains(index):
            for largest_first in (True, False):
                if self._finder.ended():
                    return
                found = self._in_domain(index, nodes, largest_first=largest_first)
                space.undo(mark)
                if found is not None:
                    yield found

    def _domains(self, index: int) -> Iterator[frozenset[int]]:
        """Nodes of the domains where least has to go for the gang, level by level, the narrowest first."""
        cluster, need = self._instance.cluster, self._demand(index).gpus
        nodes = cluster.nodes
        for level in range(cluster.node_level, -1, -1):
            able = []
            for number, domain in enumerate(cluster.domains[level]):
                own = [n for n in domain.nodes if nodes[n].gpus]
                usable = (nodes[n] for n in own if self._instance.schedulable(nodes[n]))
                if sum(node.healthy_gpus for node in usable) >= need:
                    free = sum(self._space.by_node[n].free for n in own)
                    able.append((max(0, need - free), -free, number, own))
            for *_, own in sorted(able)[:DOMAINS]:
                yield frozenset(own)

    def _in_domain(
        self, index: int, nodes: frozenset[int], *, largest_first: bool
    ) -> Changes | None:
        """The gang in a domain from which others go, one after another, and return where they can."""
        space, finder = self._space, self._finder
        space.set(index, ())
        gangs, sign = self._instance.gangs, -1 if largest_first else 1

        def size(i: int) -> tuple[int, int]:
            return sign * (standing_gpus(self._instance, i) or gangs[i].least_units), i

        gone: list[int] = []
        placed = self._placed(index, nodes, faster=True)
        for other in sorted({i for n in nodes for i in self._tenants[n] if i != index}, key=size):
            if placed or len(gone) == EVICTED[-1]:
                break
            space.set(other, ())
            gone.append(other)
            placed = len(gone) in EVICTED and self._placed(index, nodes, faster=True)
        if not placed:
            return None
        by_cost = sorted(gone, key=lambda i: finder.cost([i]), reverse=True)
        away = [i for i in by_cost if not space.put_back(i, finder.unmoved[i].pods)]
        for other in sorted(away, key=lambda i: not gangs[i].running):
            if not self._placed(other, self._everywhere) and gangs[other].running:
                return None
        return {i: space.pods[i] for i in (index, *away)}

    def _demand(self, index: int) -> Demand:
        """All pods of the gang, at the size that it has, or at its smallest."""
        if pods := self._finder.unmoved[index].pods:
            return demand_like(self._space, index, pods)
        return remaining_demand(self._instance, index, self._instance.gangs[index].target_counts)

    def _placed(self, index: int, nodes: frozenset[int], *, faster: bool = False) -> bool:
        """Place the gang on some of the nodes, the fastest of some places; whether one is fast enough.

        ``faster``: than in the plan in which nothing moves, else running gangs are at least as fast as there.
        """
        demand = self._demand(index).within(nodes)
        if not demand.possible or demand.gpus > sum(self._space.by_node[n].free for n in nodes):
            return False
        held = faster or self._instance.gangs[index].running
        least = self._speeds[index] + LEAST_FASTER * faster if held else 0
        best: tuple[int, Pods] | None = None
        for pods in ways(self._space, demand):
            speed = value_of(self._space, index, pods).speed
            if speed >= least and (best is None or speed > best[0]):
                best = speed, pods
        if best is not None:
            self._space.set(index, best[1])
        return best is not None
