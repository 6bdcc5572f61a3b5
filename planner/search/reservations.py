"""Which waiting gangs hold a reservation (2.18), when they start and where.

Gangs take turns in the order of the queue. Each gets the earliest start that is found, now or when
something ends, next to what runs then and to earlier reservations.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby

from models.disruption_budgets import guards
from models.gang import Gang
from models.instance import Instance
from models.program.demand_builder import identity
from models.program.demands import Demand
from models.reservations import LAST_TIME, arrivals, end_of, may_come, queue_place, yields
from models.solution import STARTS, GangDecision, PodPlacement, Reserved
from models.tiers import MAINS
from planner.search.budget import Budget
from planner.search.free_space import FreeSpace
from planner.search.greedy import meets_min_share, missing_demand, place
from planner.search.shortage import FreeCounts, shortage

CHANGED = ("place", "complete", "move", "resize")
"""Decisions by which pods may come to nodes."""

LEAST_S = 0.5
"""Seconds that there are for them, even if the time is up."""

SHARE = 0.1
"""Most of the time that is left that they take."""

MANY = 1 << 62
"""More than any index."""

MAX_TRIES = 2000
"""Times at which it is tried to place a gang, for all reservations of a plan."""


def holders(instance: Instance, decisions: Sequence[GangDecision]) -> list[int]:
    """Gangs that wait and may hold a reservation, in the order of the queue.

    None does if no tier rewards a start.
    """
    rules = instance.policy.reservations
    if rules is None or not any(map(instance.policy.lists, (*MAINS, "waiting"))):
        return []
    found = [
        index
        for index, (gang, decision) in enumerate(zip(instance.gangs, decisions, strict=True))
        if decision.decision == "wait" and gang.hold is None and rules.admits(gang.priority)
    ]
    return sorted(found, key=lambda i: queue_place(instance.gangs[i]))


def first_come(
    instance: Instance,
    decisions: Sequence[GangDecision],
    budget: Budget,
    without: Collection[int] = (),
) -> tuple[Reserved, ...]:
    """Reservations as if no gang started that comes later in the queue; also for a start right now.

    ``without``: gangs that get none.
    """
    waiting = [i for i in holders(instance, decisions) if i not in without]
    if not waiting:
        return ()
    finder = _Finder(instance, decisions, budget, alone=True)
    return tuple(one for _, one in finder.find(waiting))


def with_reservations(
    instance: Instance, decisions: Sequence[GangDecision], budget: Budget
) -> tuple[tuple[GangDecision, ...], bool]:
    """The decisions with what is reserved, and whether all of ``Instance.reserved`` still holds.

    Where it does not, what is reserved is found anew next to this plan.
    """
    given, waiting = instance.reserved, holders(instance, decisions)
    if not waiting and not given:
        return tuple(decisions), True
    position = {gang.key: i for i, gang in enumerate(instance.gangs)}
    finder = _Finder(instance, decisions, budget, alone=False)
    held = [(position[one.gang], one) for one in given]
    kept = all(decisions[i].pods or finder.holds(i, one) for i, one in held)
    if not kept:
        held = []
    finder.take(one for _, one in held)
    known = {i for i, _ in held}
    held += finder.find([i for i in waiting if i not in known])
    found = list(decisions)
    for i, one in held:
        found[i] = replace(found[i], reserved=one)
    return tuple(found), kept


class _Moments:
    """The free space from the time at which something ends to the next, forward and back.

    ``times``: in seconds since the epoch, ascending, the first that of the plan. Of gangs that have
    ended the space has no pods.
    """

    def __init__(
        self, space: FreeSpace, ends: Sequence[tuple[int, int]], times: Iterable[int]
    ) -> None:
        self._space = space
        self._ends = ends
        self._marks: list[tuple[int, int]] = []
        self.times = sorted({*times, *(at for at, _ in ends)})

    def go_to(self, at: int) -> None:
        """Take off what has ended by then, and put back what has not."""
        while self._marks and self._marks[-1][0] > at:
            self._space.undo(self._marks.pop()[1])
        reached = self._marks[-1][0] if self._marks else None
        first = 0 if reached is None else bisect_right(self._ends, (reached, MANY))
        last = bisect_right(self._ends, (at, MANY))
        for end, group in groupby(self._ends[first:last], key=lambda one: one[0]):
            self._marks.append((end, self._space.mark()))
            for _, index in group:
                self._space.set(index, ())


class _Finder:
    """``alone``: gangs that start are left out where they come later in the queue.

    ``_found``: reservations so far. ``_behind``: gangs left out, those last that come first.
    """

    def __init__(
        self,
        instance: Instance,
        decisions: Sequence[GangDecision],
        budget: Budget,
        *,
        alone: bool,
    ) -> None:
        rules = instance.policy.reservations
        assert rules is not None, "see holders"
        self._rules, self._alone = rules, alone
        self._until = time.monotonic() + max(LEAST_S, SHARE * budget.seconds_left())
        self._instance = replace(instance, reserved=())
        self._gangs, self._decisions = instance.gangs, decisions
        self._places = [queue_place(gang) for gang in instance.gangs]
        self._space = FreeSpace(self._instance, decisions)
        self._counts = FreeCounts.of(self._space)
        self._last = min(instance.now + rules.horizon_s, LAST_TIME)
        self._ends = sorted(self._expected())
        self._found: list[Reserved] = []
        self._tries = 0
        started = [i for i, one in enumerate(decisions) if alone and one.decision in STARTS]
        self._behind = sorted(started, key=lambda i: self._places[i], reverse=True)
        for index in self._behind:
            self._space.set(index, self._space.original[index])

    def _expected(self) -> Iterator[tuple[int, int]]:
        """(time, gang) of the gangs that end within the horizon."""
        for index, decision in enumerate(self._decisions):
            end = end_of(self._instance, index, decision) if decision.pods else None
            if end is not None and end <= self._last:
                yield end, index

    def take(self, given: Iterable[Reserved]) -> None:
        """These reservations stand."""
        self._found += given

    def find(self, waiting: Sequence[int]) -> list[tuple[int, Reserved]]:
        """Reservations of those of these gangs that get one; the gangs come in the order of the queue."""
        numbers = Counter(-one.place[0] for one in self._found)
        failed, found = set[object](), list[tuple[int, Reserved]]()
        for index in waiting:
            gang = self._gangs[index]
            if self._tries >= MAX_TRIES or time.monotonic() >= self._until:
                break
            if numbers[gang.priority] >= self._rules.per_priority:
                continue
            self._let_start_before(index)
            demand = missing_demand(self._space, index)
            kind = (identity(self._instance, demand), gang.priority, gang.expected_duration_s)
            one = None if kind in failed else self._earliest(demand)
            if one is None:
                failed.add(kind)  # less is left for those behind it
                continue
            numbers[gang.priority] += 1
            found.append((index, one))
            self._found.append(one)
        return found

    def holds(self, index: int, one: Reserved) -> bool:
        """Whether the gang can start as it is reserved, next to what this plan leaves there."""
        space, mark = self._space, self._space.mark()
        if one.start <= self._instance.now:
            return False
        self._stop_lower(index)
        _Moments(space, self._ends, ()).go_to(one.start)
        space.set(index, one.pods)
        fits = all(space.is_valid(n) and index not in space.stale_indices(n) for n in one.nodes)
        fits = fits and meets_min_share(space, index)
        space.undo(mark)
        return fits

    def _let_start_before(self, index: int) -> None:
        """Let the gangs start that come before this one in the queue."""
        while self._behind and self._places[self._behind[-1]] < self._places[index]:
            other = self._behind.pop()
            self._space.set(other, self._decisions[other].pods)

    def _stop_lower(self, index: int) -> None:
        """Take off the gangs that may be stopped for this one."""
        own, fixed = self._places[index], guards(self._instance).fixed
        for other, gang in enumerate(self._gangs):
            if self._space.pods[other] and other not in fixed and yields(gang, own):
                self._space.set(other, ())

    def _earliest(self, demand: Demand) -> Reserved | None:
        """The earliest start that is found, if possible one that every plan can keep.

        A better plan may keep gangs running that this one stops or moves.
        """
        if not demand.possible:
            return None
        kept = self._earliest_beside(demand, self._left) if self._alone and self._left else None
        return kept or self._earliest_beside(demand, {})

    def _earliest_beside(
        self, demand: Demand, left: Mapping[int, Collection[int]]
    ) -> Reserved | None:
        """The earliest start off the nodes of gangs that may be there: more is free as time goes on.

        ``left``: see ``_left``.
        """
        gang, mark = self._gangs[demand.gang], self._space.mark()
        self._stop_lower(demand.gang)
        ends = (one.end for one in self._found if one.end is not None and one.end <= self._last)
        moments = _Moments(self._space, self._ends, (*ends, *(self._instance.now,) * self._alone))
        found: dict[int, tuple[PodPlacement, ...]] = {}

        def fits(at: int) -> bool:
            moments.go_to(at)
            pods = self._pods(demand, at, left)
            if pods is not None:
                found[at] = pods
            return pods is not None

        for _, group in groupby(moments.times, key=lambda at: self._taken(gang, at)):
            stretch = list(group)
            if fits(stretch[-1]):
                bisect_left(stretch[:-1], 1, key=fits)
                break
        self._space.undo(mark)
        return self._held_for(demand.gang, min(found), found[min(found)]) if found else None

    def _taken(self, gang: Gang, at: int) -> tuple[int, ...]:
        """Reservations (positions) whose nodes the gang may not share if it starts then."""
        seconds = gang.expected_duration_s
        return tuple(
            number
            for number, one in enumerate(self._found)
            if (one.end is None or one.end > at) and (seconds is None or at + seconds > one.start)
        )

    def _pods(
        self, demand: Demand, at: int, left: Mapping[int, Collection[int]]
    ) -> tuple[PodPlacement, ...] | None:
        """Pods of the gang if it starts then, where it was planned before if that is possible."""
        self._tries += 1
        gang = self._gangs[demand.gang]
        taken = [self._found[number] for number in self._taken(gang, at)]
        closed = {n for one in taken for n in one.nodes} | self._staying(demand.gang, at)
        closed.update(
            n for other in left if not self._over(other, demand.gang, at) for n in left[other]
        )
        if closed:
            demand = demand.within(self._everywhere - closed)
        if not all(role.nodes for role in demand.roles) or shortage(self._counts, demand):
            return None
        planned = frozenset(pod.node for pod in gang.planned)
        again = demand.within(planned) if planned else demand
        mark = self._space.mark()
        for one in taken:  # what queues may hold counts them, too
            self._space.set(self._numbers[one.gang], one.pods)
        pods = place(self._space, again) if all(role.nodes for role in again.roles) else None
        pods = pods if pods is not None or not planned else place(self._space, demand)
        self._space.undo(mark)
        return pods

    @cached_property
    def _numbers(self) -> dict[tuple[str, str], int]:
        return {gang.key: i for i, gang in enumerate(self._gangs)}

    @cached_property
    def _everywhere(self) -> frozenset[int]:
        return frozenset(range(len(self._instance.cluster.nodes)))

    def _staying(self, index: int, at: int) -> set[int]:
        """Nodes to which pods come by this plan that would have to give way if the gang starts then."""
        late = self._late(index, at)
        return {n for other in late if not self._before(other, index) for n in self._new[other]}

    def _over(self, other: int, index: int, at: int) -> bool:
        """Whether a gang that goes on as it runs has ended by then, or may be stopped for this one."""
        fixed = other in guards(self._instance).fixed
        if not fixed and yields(self._gangs[other], self._places[index]):
            return True
        end = end_of(self._instance, other, GangDecision("keep"))
        return end is not None and end <= at

    @cached_property
    def _left(self) -> dict[int, frozenset[int]]:
        """The nodes that gangs leave by this plan, those of them that run."""
        found = {}
        for index, pods in enumerate(self._space.original):
            there = {pod.node for pod in self._decisions[index].pods}
            gone = frozenset(pod.node for pod in pods) - there
            if gone:
                found[index] = gone
        return found

    def _late(self, index: int, at: int) -> list[int]:
        """Gangs that come to nodes by this plan and may not come to those of the gang if it starts then."""
        own, seconds = self._places[index], at - self._instance.now
        there = self._new.keys() - set(
            self._behind
        )  # also those that end earlier than if they started now
        return sorted(o for o in there if not may_come(self._gangs[o], own, seconds))

    def _before(self, other: int, index: int) -> bool:
        """Whether another gang that starts comes before the gang in the queue."""
        starts = self._decisions[other].decision in STARTS
        return starts and self._places[other] < self._places[index]

    @cached_property
    def _new(self) -> dict[int, frozenset[int]]:
        """The nodes to which pods of a gang come by this plan."""
        pairs = enumerate(zip(self._gangs, self._decisions, strict=True))
        changed = ((i, gang, one.pods) for i, (gang, one) in pairs if one.decision in CHANGED)
        return {i: frozenset(p.node for p in arrivals(gang, pods)) for i, gang, pods in changed}

    def _held_for(self, index: int, start: int, pods: tuple[PodPlacement, ...]) -> Reserved:
        gang, nodes = self._gangs[index], frozenset(pod.node for pod in pods)
        seconds = gang.expected_duration_s
        beside = (o for o in self._late(index, start) if not nodes.isdisjoint(self._new[o]))
        return Reserved(
            gang.key,
            self._places[index],
            start,
            None if seconds is None else start + seconds,
            tuple(sorted(nodes)),
            pods,
            tuple(sorted(self._gangs[other].key for other in beside)),
        )
