"""The gangs on the nodes that another gang could use, and what would be free without some of them.

Answers in one free space: quick, but rules that depend on who runs (spares, queues) are taken as they are
now. Whoever names a gang checks it in the changed world.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import TypeVar

from planner.search.explain.causes import World, sharers
from planner.search.explain.counterfactual import placed_in, placement
from planner.search.free_space import FreeSpace
from planner.search.start.greedy import missing_demand

One = TypeVar("One")
Cost = tuple[int, int]

MAX_DOMAINS = 16
"""Domains in which a few gangs are looked for, those with most room first."""


class Room:
    """Pods of the gang's largest role for which there is room, by domain of its required level.

    ``counted``: whether there is such a role; without GPUs nothing is counted, and all is enough.
    """

    def __init__(self, world: World, space: FreeSpace) -> None:
        self._world = world
        demand = missing_demand(space, world.gang)
        role = max(demand.gpu_roles, key=lambda one: one.gpus * one.count, default=None)
        self.counted = role is not None
        if role is None:
            return
        self._gpus, self.needed = role.gpus, role.count
        cluster = world.instance.cluster
        spec = world.spec.roles[role.role]
        levels = [one for one in (world.spec.required, spec.required) if one is not None]
        self.of = cluster.domain_of[max(levels)] if levels else (0,) * len(cluster.nodes)
        self._nodes = role.nodes
        self._free = {n: int(space.arrays.free[n]) for n in role.nodes}
        self.pods: Counter[int] = Counter()
        for n, free in self._free.items():
            self.pods[self.of[n]] += max(0, free) // self._gpus

    def gained(self, index: int) -> Counter[int]:
        """Pods for which there is room by domain once a gang is gone, that are not there now."""
        gang, left = self._world.instance.gangs[index], Counter[int]()
        for pod in self._world.decisions[index].pods:
            if pod.node in self._nodes:
                left[pod.node] += gang.roles[pod.role].gpus
        found: Counter[int] = Counter()
        for n, gpus in left.items():
            free = self._free[n]
            found[self.of[n]] += max(0, free + gpus) // self._gpus - max(0, free) // self._gpus
        return found

    def enough(self) -> bool:
        """Whether some domain has room for all of its pods."""
        return not self.counted or any(pods >= self.needed for pods in self.pods.values())

    def enough_without(self, index: int) -> bool:
        """The same once a gang is gone."""
        if not self.counted:
            return True
        return any(self.pods[d] + pods >= self.needed for d, pods in self.gained(index).items())

    def remove(self, index: int) -> None:
        """Count as if a gang were gone."""
        if not self.counted:
            return
        self.pods.update(self.gained(index))
        gang = self._world.instance.gangs[index]
        for pod in self._world.decisions[index].pods:
            if pod.node in self._nodes:
                self._free[pod.node] += gang.roles[pod.role].gpus


def needed(
    gone: Sequence[One], put_back: Callable[[Sequence[One]], bool], late: Callable[[], bool]
) -> tuple[One, ...]:
    """Those that cannot be put back, tried in order: whole chunks at first, since most can.

    ``put_back``: whether the gang starts with these, too; they then stay. All that is left when it is late
    counts as needed.
    """
    left, kept, size = list(gone), list[One](), max(1, len(gone) // 2)
    while left and not late():
        size = min(size, len(left))
        if put_back(left[:size]):
            left, size = left[size:], 2 * size
        elif size == 1:
            kept.append(left.pop(0))
        else:
            size //= 2
    return (*kept, *left)


class Holders:
    """``late``: whether no further question is to be asked."""

    def __init__(self, world: World, late: Callable[[], bool]) -> None:
        self.world = world
        self.late = late
        self.space = FreeSpace(world.instance, world.decisions)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Gangs with pods on its nodes: those that give way most easily, and lose least, first."""
        instance, own = self.world.instance, self.world.spec
        nodes = frozenset[int]().union(*(instance.eligible_nodes(role) for role in own.roles))
        found = [
            index
            for index, one in enumerate(self.world.decisions)
            if index != self.world.gang and any(pod.node in nodes for pod in one.pods)
        ]
        return tuple(sorted(found, key=self._reluctance))

    def _reluctance(self, index: int) -> tuple[bool, bool, int, int, int]:
        gang, own = self.world.instance.gangs[index], self.world.spec
        higher = gang.priority >= own.priority
        return not gang.preemptible, higher, gang.priority, self.size(index), index

    def size(self, index: int) -> int:
        """GPUs that a gang has after the plan."""
        roles = self.world.instance.gangs[index].roles
        return sum(roles[pod.role].gpus for pod in self.world.decisions[index].pods)

    def sizes(self, gangs: Iterable[int]) -> int:
        """GPUs that these gangs have."""
        return sum(map(self.size, gangs))

    def starts_without(self, gone: Collection[int]) -> bool:
        """Whether the gang finds a place without some others."""
        if not self.sharers.isdisjoint(gone):
            return placement(self.world.without(gone)) is not None
        mark = self.space.mark()
        for index in gone:
            self.space.set(index, ())
        pods = placed_in(self.space, self.world.gang)
        self.space.undo(mark)
        return pods is not None

    @cached_property
    def sharers(self) -> frozenset[int]:
        """Gangs whose parts of GPUs become free for others once they have left."""
        return frozenset(sharers(self.world.instance))

    @cached_property
    def single(self) -> tuple[int, ...]:
        """Those without each of which alone the gang starts, as far as the time went, in order."""
        room, parts = Room(self.world, self.space), self.sharers
        found = (i for i in self.order if i in parts or room.enough_without(i))
        return tuple(i for i in found if not self.late() and self.starts_without([i]))

    def needed(self, gone: Sequence[int]) -> tuple[int, ...]:
        """Of gangs without which it starts those that must go for that, last ones rather than first."""
        if not self.sharers.isdisjoint(gone):
            left = list(gone)

            def without(chunk: Sequence[int]) -> bool:
                rest = [index for index in left if index not in chunk]
                found = self.starts_without(rest)
                left[:] = rest if found else left
                return found

            return needed(gone, without, self.late)
        start, decisions = self.space.mark(), self.world.decisions
        for index in gone:
            self.space.set(index, ())

        def put_back(chunk: Sequence[int]) -> bool:
            mark = self.space.mark()
            for index in chunk:
                self.space.set(index, decisions[index].pods)
            if placed_in(self.space, self.world.gang) is not None:
                return True
            self.space.undo(mark)
            return False

        found = needed(gone, put_back, self.late)
        self.space.undo(start)
        return found

    def few(self, among: Sequence[int], cost: Callable[[Sequence[int]], Cost]) -> tuple[int, ...]:
        """A few of these gangs without all of which it starts, and none of them needlessly; none if not.

        Looked for in the domains with most room, or everywhere; the least cost counts. Earlier ones stay
        rather than later ones.
        """
        best: tuple[int, ...] = ()
        for domain in self._domains():
            if self.late():
                break
            inside = self._in_domain(domain, among)
            found = self.needed(inside) if inside and self.starts_without(inside) else ()
            if found and (not best or cost(found) < cost(best)):
                best = found
        if best or self.late() or not self.starts_without(among):
            return best
        return self.needed(among)

    def _domains(self) -> list[int]:
        """Those with most room; none where all nodes are one domain."""
        room = Room(self.world, self.space)
        if not room.counted or len(room.pods) < 2:
            return []
        return [domain for domain, _ in room.pods.most_common(MAX_DOMAINS)]

    def _in_domain(self, domain: int, gangs: Sequence[int]) -> list[int]:
        of = Room(self.world, self.space).of
        decisions = self.world.decisions
        return [i for i in gangs if any(of[pod.node] == domain for pod in decisions[i].pods)]
