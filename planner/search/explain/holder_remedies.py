"""What other gangs could do so that a gang starts: one moves, one or a few stop, or some end in time.

Each is done before it is said. Counts of GPUs decide what is worth a try; they may let too much through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from models.instance.solution import GangDecision
from models.program.demand_builder import remaining_demand
from models.queues.reservations import LAST_TIME, end_of, expected_end, yields
from models.units import time_text
from planner.search.explain.causes import World
from planner.search.explain.counterfactual import placed_in, placement
from planner.search.explain.holders import Holders, Room
from planner.search.explain.remedy import Remedy, tried
from planner.search.free_space import FreeSpace
from planner.search.start.greedy import place

MAX_STOPPED = 12
"""Gangs that one remedy stops."""


class HolderRemedies:
    """Of the gang of ``holders``. ``together``: gangs without all of which it starts, if that is known."""

    def __init__(self, holders: Holders, together: Sequence[int]) -> None:
        self._world = holders.world
        self._late = holders.late
        self._holders = holders
        self._together = together

    def remedies(self) -> Iterator[Remedy]:
        """Those that are found."""
        single = self._holders.single
        yield from self._moved(single)
        if single:
            yield from self._stopped(single[:1])
        else:
            yield from self._several_stopped()
        yield from self._waiting()

    def _moved(self, single: Sequence[int]) -> Iterator[Remedy]:
        """One gang that finds another place beside this one, movable ones first."""
        gangs, size = self._world.instance.gangs, self._holders.size
        for index in sorted(single, key=lambda i: (not gangs[i].movable, size(i), i)):
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
            World(instance, tuple(decisions), world.gang),
            pods,
            gangs=(gang.key,),
            moved=elsewhere,
            change={
                "gpus": self._holders.size(index),
                "running": gang.running,
                "movable": gang.movable,
            },
            by_hand=gang.running and not gang.movable,
        )

    def _stopped(self, gone: Sequence[int]) -> Iterator[Remedy]:
        gangs = [self._world.instance.gangs[index] for index in gone]
        own = self._world.spec.priority
        running = [gang for gang in gangs if gang.running]
        firm = sum(not gang.preemptible for gang in running)
        higher = sum(gang.preemptible and gang.priority >= own for gang in running)
        change = {
            "gpus": self._holders.sizes(gone),
            "notRunning": len(gangs) - len(running),
            "notPreemptible": firm,
            "notLower": higher,
        }
        yield from tried(
            "stop",
            self._world.without(gone),
            gangs=tuple(gang.key for gang in gangs),
            change=change,
            by_hand=bool(firm or higher or len(running) < len(gangs)),
        )

    def _several_stopped(self) -> Iterator[Remedy]:
        """The few gangs of which the fewest are not preemptible or not of lower priority."""
        own, gangs, holders = self._world.spec.priority, self._world.instance.gangs, self._holders
        may = [i for i in holders.order if gangs[i].preemptible or gangs[i].priority < own]
        easy = holders.few(may[::-1], lambda gone: (holders.sizes(gone), len(gone)))

        def cost(gone: Sequence[int]) -> tuple[int, int]:
            firm = sum(not gangs[i].preemptible or gangs[i].priority >= own for i in gone)
            return firm, len(gone)

        best = min(filter(None, (easy, self._together)), key=cost, default=())
        if 0 < len(best) <= MAX_STOPPED:
            yield from self._stopped(best)

    def _waiting(self) -> Iterator[Remedy]:
        """When so many gangs have ended as expected that it starts."""
        world, space = self._world, self._holders.space
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
        room, gone, mark = Room(world, space), list[int](), space.mark()
        at = None
        for end, index in sorted(ends):
            if self._late():
                break
            gone.append(index)
            room.remove(index)
            space.set(index, ())
            if room.enough() and placed_in(space, world.gang) is not None:
                at = end
                break
        space.undo(mark)
        if at is not None:
            yield from self._waited(gone, self._holders.needed(gone), at)

    def _waited(
        self, gone: Sequence[int], awaited: Sequence[int], at: int, **change: object
    ) -> Iterator[Remedy]:
        """``gone``: gangs that have ended by then; ``awaited``: those that it waits for."""
        gangs = self._world.instance.gangs
        keys = tuple(gangs[index].key for index in awaited)
        overdue = {"overdue": found} if (found := list(self._overdue(awaited))) else {}
        world = self._world.without(gone)
        yield from tried("wait", world, at=at, gangs=keys, change={**change, **overdue})

    def _overdue(self, awaited: Sequence[int]) -> Iterator[dict[str, object]]:
        """Of these gangs those that are past their expected end, and when they are taken to end."""
        instance, decisions = self._world.instance, self._world.decisions
        for index in awaited:
            stated = expected_end(instance, index, decisions[index])
            assumed = end_of(instance, index, decisions[index])
            if stated is not None and assumed is not None and stated < assumed:
                yield {
                    "gang": "/".join(instance.gangs[index].key),
                    "expectedEnd": time_text(stated),
                    "assumedEnd": time_text(assumed),
                    "overdueSeconds": instance.now - stated,
                }

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
            if index not in gone and yields(world.instance, gangs[index], own.place)
            if any(pod.node in nodes for pod in one.pods)
        ]
        there = [i for i in gone if any(pod.node in nodes for pod in world.decisions[i].pods)]
        return next(self._waited(gone, there, own.start, reserved=True), None)
