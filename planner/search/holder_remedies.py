"""What other gangs could do so that a gang starts: one moves, one or a few stop, or some end in time.

Each is done before it is said. Counts of GPUs decide what is worth a try; they may let too much through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from models.program.demand_builder import remaining_demand
from models.reservations import LAST_TIME, end_of, yields
from models.solution import GangDecision
from models.units import first_of, plural, time_text
from planner.search.causes import World
from planner.search.counterfactual import placed_in, placement
from planner.search.free_space import FreeSpace
from planner.search.greedy import missing_demand, place
from planner.search.remedy import Pods, Remedy, tried

MAX_STOPPED = 12
"""Gangs that one remedy stops."""

MAX_DOMAINS = 16
"""Domains in which a few gangs to stop are looked for, those with most room first."""


class _Room:
    """Pods of the gang's largest role for which there is room, by domain of its required level.

    ``enough``: whether some domain has room for all. Without GPUs nothing is counted, and all is enough.
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

    def enough(self, gained: Counter[int] | None = None) -> bool:
        """With what is gained somewhere."""
        if not self.counted:
            return True
        if gained is None:
            return any(pods >= self.needed for pods in self.pods.values())
        return any(self.pods[d] + pods >= self.needed for d, pods in gained.items())

    def remove(self, index: int) -> None:
        """Count as if a gang were gone."""
        if not self.counted:
            return
        self.pods.update(self.gained(index))
        gang = self._world.instance.gangs[index]
        for pod in self._world.decisions[index].pods:
            if pod.node in self._nodes:
                self._free[pod.node] += gang.roles[pod.role].gpus


class HolderRemedies:
    """``late``: whether no further remedy is to be tried."""

    def __init__(self, world: World, late: Callable[[], bool]) -> None:
        self._world = world
        self._late = late
        self._space = FreeSpace(world.instance, world.decisions)
        self._room = _Room(world, self._space)

    def remedies(self) -> Iterator[Remedy]:
        """Those that are found."""
        single = [i for i in self._holders() if self._room.enough(self._gained(i))]
        single = [i for i in single if not self._late() and self._starts_without([i])]
        yield from self._moved(single)
        if single:
            yield from self._stopped(single[:1])
        else:
            yield from self._several_stopped()
        yield from self._waiting()

    def _gained(self, index: int) -> Counter[int] | None:
        return self._room.gained(index) if self._room.counted else None

    def _holders(self) -> list[int]:
        """Gangs with pods on its nodes: those that give way most easily, and lose least, first."""
        instance, own = self._world.instance, self._world.spec
        nodes = frozenset[int]().union(*(instance.eligible_nodes(role) for role in own.roles))
        found = [
            index
            for index, one in enumerate(self._world.decisions)
            if index != self._world.gang and any(pod.node in nodes for pod in one.pods)
        ]
        return sorted(found, key=self._reluctance)

    def _reluctance(self, index: int) -> tuple[bool, bool, int, int, int]:
        gang, own = self._world.instance.gangs[index], self._world.spec
        higher = gang.priority >= own.priority
        return not gang.preemptible, higher, gang.priority, self._size(index), index

    def _size(self, index: int) -> int:
        """GPUs that it has after the plan."""
        roles = self._world.instance.gangs[index].roles
        return sum(roles[pod.role].gpus for pod in self._world.decisions[index].pods)

    def _starts_without(self, gone: Sequence[int]) -> bool:
        """Whether the gang finds a place without some gangs: a quick answer, in one space for all."""
        mark = self._space.mark()
        for index in gone:
            self._space.set(index, ())
        pods = placed_in(self._space, self._world.gang)
        self._space.undo(mark)
        return pods is not None

    def _moved(self, single: Sequence[int]) -> Iterator[Remedy]:
        """One gang that finds another place beside this one, movable ones first."""
        gangs = self._world.instance.gangs
        for index in sorted(single, key=lambda i: (not gangs[i].movable, self._size(i), i)):
            if self._late():
                return
            found = self._both(index)
            if found is not None:
                yield found
                return

    def _both(self, index: int) -> Remedy | None:
        """The gang where another was, and that one elsewhere."""
        world = self._world
        gone = world.without([index])
        pods = placement(gone)
        if pods is None:
            return None
        gang, old = world.instance.gangs[index], world.decisions[index].pods
        gangs, decisions = list(gone.instance.gangs), list(gone.decisions)
        gangs[index] = replace(gang, pods=(), planned=())
        decisions[world.gang] = GangDecision("place", pods)
        instance = replace(gone.instance, gangs=tuple(gangs))
        counts = Counter(pod.role for pod in old)
        demand = remaining_demand(instance, index, [counts[r] for r in range(len(gang.roles))])
        if not demand.possible or any(not role.nodes for role in demand.roles):
            return None
        elsewhere = place(FreeSpace(instance, decisions), demand)
        if elsewhere is None:
            return None
        decisions[index] = GangDecision("place", elsewhere)
        return Remedy(
            "move",
            self._move_text(index, elsewhere),
            World(instance, tuple(decisions), world.gang),
            pods,
            gangs=(gang.key,),
            moved=elsewhere,
            by_hand=not gang.movable,
        )

    def _move_text(self, index: int, elsewhere: Pods) -> str:
        gang, nodes = self._world.instance.gangs[index], self._world.instance.cluster.nodes
        to = first_of(sorted({nodes[pod.node].name for pod in elsewhere}), 3, "other node")
        note = "" if gang.movable else "; it is not movable: by hand"
        return f"move {'/'.join(gang.key)} ({plural(self._size(index), 'GPU')}) to {to}{note}"

    def _stopped(self, gone: Sequence[int]) -> Iterator[Remedy]:
        gangs = [self._world.instance.gangs[index] for index in gone]
        names = first_of(["/".join(gang.key) for gang in gangs], 3, "other gang")
        gpus = plural(sum(self._size(index) for index in gone), "GPU")
        own = self._world.spec.priority
        firm = sum(not gang.preemptible for gang in gangs)
        higher = sum(gang.preemptible and gang.priority >= own for gang in gangs)
        note = f"; {firm} not preemptible" if firm else ""
        note += f"; {higher} not of lower priority" if higher else ""
        note += ": by hand" if note else ""
        keys = tuple(gang.key for gang in gangs)
        world = self._world.without(gone)
        yield from tried(
            "stop", f"stop {names} ({gpus}{note})", world, gangs=keys, by_hand=bool(note)
        )

    def _several_stopped(self) -> Iterator[Remedy]:
        """The cheapest few gangs of one domain: preemptible ones, or else those of lower priority."""
        best: list[int] | None = None
        own, gangs = self._world.spec.priority, self._world.instance.gangs
        may = [i for i in self._holders() if gangs[i].preemptible or gangs[i].priority < own]
        if not self._room.counted:
            return
        for domain, _ in self._room.pods.most_common(MAX_DOMAINS):
            if self._late():
                break
            chosen = self._in_domain(domain, may)
            if chosen is not None and (best is None or self._cost(chosen) < self._cost(best)):
                best = chosen
        if best is not None:
            yield from self._stopped(best)

    def _cost(self, gone: Sequence[int]) -> int:
        return sum(map(self._size, gone))

    def _in_domain(self, domain: int, may: Sequence[int]) -> list[int] | None:
        """Gangs of a domain without which it starts, none of them needlessly."""
        room = _Room(self._world, self._space)
        here = [i for i in may if room.gained(i)[domain] or self._stands_in(i, domain)]
        chosen: list[int] = []
        for index in here:
            if room.pods[domain] >= room.needed or self._late():
                break
            room.remove(index)
            chosen.append(index)
        if room.pods[domain] < room.needed or not self._starts_without(chosen):
            return None
        for index in sorted(chosen, key=self._size, reverse=True):
            rest = [i for i in chosen if i != index]
            if not self._late() and self._starts_without(rest):
                chosen = rest
        return chosen if len(chosen) <= MAX_STOPPED else None

    def _stands_in(self, index: int, domain: int) -> bool:
        return any(self._room.of[pod.node] == domain for pod in self._world.decisions[index].pods)

    def _waiting(self) -> Iterator[Remedy]:
        """When so many gangs have ended as expected that it starts."""
        world = self._world
        ends = [
            (end, index)
            for index, one in enumerate(world.decisions)
            if one.pods and index != world.gang
            if (end := end_of(world.instance, index, one)) is not None and end <= LAST_TIME
        ]
        reserved = self._reserved(ends)
        if reserved is not None:
            yield reserved
            return
        room, gone, mark = _Room(world, self._space), list[int](), self._space.mark()
        at = None
        for end, index in sorted(ends):
            if self._late():
                break
            gone.append(index)
            room.remove(index)
            self._space.set(index, ())
            if room.enough() and placed_in(self._space, world.gang) is not None:
                at = end
                break
        self._space.undo(mark)
        if at is not None:
            keys = tuple(world.instance.gangs[i].key for i in gone)
            yield from tried(
                "wait", self._wait_text(at, gone), world.without(gone), at=at, gangs=keys
            )

    def _reserved(self, ends: Sequence[tuple[int, int]]) -> Remedy | None:
        """When what is reserved for it starts: others have ended by then, or give way there."""
        world, gangs = self._world, self._world.instance.gangs
        own = next((one for one in world.instance.reserved if one.gang == world.spec.key), None)
        if own is None:
            return None
        nodes = frozenset(own.nodes)
        gone = [index for end, index in ends if end <= own.start]
        gone += [
            index
            for index, one in enumerate(world.decisions)
            if index not in gone and yields(gangs[index], own.place)
            if any(pod.node in nodes for pod in one.pods)
        ]
        what = f"wait until {time_text(own.start)}: nodes are reserved for it from then"
        keys = tuple(gangs[index].key for index in gone)
        return next(tried("wait", what, world.without(gone), at=own.start, gangs=keys), None)

    def _wait_text(self, at: int, gone: Sequence[int]) -> str:
        last = "/".join(self._world.instance.gangs[gone[-1]].key)
        others = f" and {plural(len(gone) - 1, 'gang')} before it" if gone[1:] else ""
        return f"wait until {time_text(at)}, when {last}{others} should have ended"
