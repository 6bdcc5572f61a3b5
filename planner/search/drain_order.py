"""In which waves nodes are drained so that every gang on them restarts once.

Nodes that share a gang are drained together: they form a *group*. What a wave interrupts restarts on nodes
that no later wave drains; where there is no room for it, where it ran, when its nodes return.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from models.instance.instance import Instance
from models.instance.solution import GangDecision
from models.program.base_state import base_decisions
from models.program.demand_builder import remaining_demand
from models.queues.reservations import expected_end
from planner.search.free_space import FreeSpace, Pods, counts_of
from planner.search.start.greedy import place


@dataclass(frozen=True, slots=True)
class Restart:
    """A gang (index) that a wave interrupts, and where it can restart.

    ``at_once``: it need not wait for the nodes of the wave.
    """

    gang: int
    at_once: bool
    pods: Pods

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes of its pods, ascending."""
        return tuple(sorted({pod.node for pod in self.pods}))


@dataclass(frozen=True, slots=True)
class Wave:
    """Nodes drained together, ascending, and what restarts."""

    nodes: tuple[int, ...]
    restarts: tuple[Restart, ...]


def drain_order(instance: Instance, drained: Collection[int], at_most: int) -> tuple[Wave, ...]:
    """The waves. ``at_most``: nodes out at once; a group that is larger is a wave by itself.

    Empty nodes come first, for they are room for all others; then gangs that may be stopped, small groups
    first.
    """
    groups = _groups(instance, drained)
    groups.sort(key=lambda group: _turn(instance, group))
    ordering = _Ordering(instance, drained)
    return tuple(ordering.wave(nodes, gangs) for nodes, gangs in _waves(groups, at_most))


Group = tuple[tuple[int, ...], tuple[int, ...]]
"""Nodes, and the gangs that stand on them."""


def stoppable(instance: Instance, gang: int) -> bool:
    """Whether a running gang said that it may be interrupted."""
    one = instance.gangs[gang]
    return one.preemptible or one.movable


def gpus_of(instance: Instance, gang: int) -> int:
    """What the pods of a running gang count."""
    one = instance.gangs[gang]
    return one.units_of(one.running_pods)


def end_of(instance: Instance, gang: int) -> int | None:
    """When a running gang should end by itself, in seconds since the epoch; None where nobody knows."""
    end = expected_end(instance, gang, GangDecision("keep"))
    return None if end is None else max(end, instance.now)


def _turn(instance: Instance, group: Group) -> tuple[bool, bool, int, tuple[int, ...]]:
    nodes, gangs = group
    held = sum(gpus_of(instance, gang) for gang in gangs)
    return bool(gangs), not all(stoppable(instance, gang) for gang in gangs), held, nodes


def _groups(instance: Instance, drained: Collection[int]) -> list[Group]:
    """The nodes to drain, those together that gangs join."""
    above = {n: n for n in drained}

    def root(n: int) -> int:
        while above[n] != n:
            above[n] = above[above[n]]
            n = above[n]
        return n

    standing: dict[int, list[int]] = {}
    for index, gang in enumerate(instance.gangs):
        nodes = sorted({pod.node for pod in gang.running_pods if pod.node in above})
        if nodes:
            standing[index] = nodes
            for n in standing[index]:
                above[root(n)] = root(standing[index][0])
    members, gangs = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    for n in sorted(above):
        members[root(n)].append(n)
    for index, nodes in standing.items():
        gangs[root(nodes[0])].append(index)
    return [(tuple(nodes), tuple(gangs[key])) for key, nodes in members.items()]


def _waves(groups: Sequence[Group], at_most: int) -> Iterator[Group]:
    """Groups after one another, as many together as may be out at once."""
    nodes: list[int] = []
    gangs: list[int] = []
    for own, standing in groups:
        if nodes and len(nodes) + len(own) > at_most:
            yield tuple(sorted(nodes)), tuple(gangs)
            nodes, gangs = [], []
        nodes += own
        gangs += standing
    if nodes:
        yield tuple(sorted(nodes)), tuple(gangs)


class _Ordering:
    """What is free as the waves go on. ``_settled``: nodes that no later wave drains."""

    def __init__(self, instance: Instance, drained: Collection[int]) -> None:
        self._instance = instance
        self._space = FreeSpace(instance, base_decisions(instance))
        self._settled = frozenset(range(len(instance.cluster.nodes))) - frozenset(drained)

    def wave(self, nodes: tuple[int, ...], gangs: Sequence[int]) -> Wave:
        """Large gangs first. One that finds no room keeps its places: its nodes return with the wave."""
        large = sorted(gangs, key=lambda gang: (-gpus_of(self._instance, gang), gang))
        restarts = tuple(sorted(map(self._restart, large), key=lambda one: one.gang))
        self._settled |= frozenset(nodes)
        return Wave(nodes, restarts)

    def _restart(self, gang: int) -> Restart:
        space, mark = self._space, self._space.mark()
        before = space.pods[gang]
        space.set(gang, ())
        found: Pods | None = None
        counts = counts_of(self._instance.gangs[gang], before)
        demand = remaining_demand(self._instance, gang, counts).within(self._settled)
        if demand.possible and all(role.nodes for role in demand.roles):
            found = place(space, demand)
        if found is None:
            space.undo(mark)
        else:
            space.set(gang, found)
        return Restart(gang, found is not None, space.pods[gang])
