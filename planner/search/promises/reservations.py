"""Which waiting gangs start in turn, and which hold a reservation (2.18): when they start and where.

Gangs take turns in the order of the queue. Each gets the earliest start that is found, now or when
something ends, next to what runs then and to what those before it got.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby

from models.instance.disruption_budgets import guards, may_stop
from models.instance.instance import Instance
from models.instance.policy import may_reserve
from models.instance.run_times import protected_until, stoppable_from
from models.instance.solution import STARTS, GangDecision, PodPlacement, Reserved
from models.program.demand_builder import identity
from models.queues.delays import waiting_in_turn, with_causes
from models.queues.queue_order import must_wait
from models.queues.queue_shares import within_guarantee
from models.queues.reservations import (
    LAST_TIME,
    arrivals,
    end_of,
    holder,
    may_come,
    queue_place,
    yields,
)
from models.rules.demands import Demand
from models.rules.giving_way import claim, takes
from planner.search.budget import Budget
from planner.search.explain.shortage import FreeCounts, shortage
from planner.search.free_space import Decisions, FreeSpace, Pods
from planner.search.start.greedy import meets_min_share, missing_demand, place

COMES = ("place", "complete", "move")
"""Those after which its time to run begins anew."""

CHANGED = ("place", "complete", "move", "resize")
"""Decisions by which pods may come to nodes."""

LEAST_S = 0.5
"""Seconds that there are for them, even if the time is up."""

SHARE = 0.2
"""Most of the time that is left that they take."""

MANY = 1 << 62
"""More than any index."""

MAX_TRIES = 2000
"""Times at which it is tried to place a gang, for all reservations of a plan."""


def in_turn(
    instance: Instance, decisions: Sequence[GangDecision], budget: Budget
) -> tuple[tuple[Reserved, ...], Decisions]:
    """What is reserved if gangs take turns, those included that start now; and a plan in which these do.

    ``decisions``: the plan that changes nothing.
    """
    waiting = waiting_in_turn(instance, decisions)
    if not waiting:
        return (), tuple(decisions)
    finder = _Finder(instance, decisions, budget)
    found = finder.turns(waiting, now=True)
    return tuple(one for _, one in found), tuple(finder.decisions)


def with_reservations(
    instance: Instance, decisions: Sequence[GangDecision], budget: Budget
) -> tuple[Decisions, bool]:
    """The decisions with what is reserved, and whether all of ``Instance.reserved`` still holds.

    Where it does not, what is reserved is found anew next to this plan.
    """
    given, waiting = instance.reserved, waiting_in_turn(instance, decisions)
    if not waiting and not given:
        return tuple(decisions), True
    position = {gang.key: i for i, gang in enumerate(instance.gangs)}
    finder = _Finder(instance, decisions, budget)
    held = [(position[one.gang], one) for one in given]
    kept = all(decisions[i].pods or finder.holds(i, one) for i, one in held)
    if not kept:
        held = [(i, one) for i, one in held if decisions[i].pods and not one.nodes]
    finder.take(one for i, one in held if not decisions[i].pods)
    known = {i for i, _ in held}
    held += finder.turns([i for i in waiting if i not in known], now=False)
    found = list(decisions)
    for i, one in held:
        found[i] = replace(found[i], reserved=one)
    return with_causes(instance, found), kept


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
    """``decisions``: the plan, in which gangs start as they take turns.

    ``_found``: where gangs that start later will be, and when; of those in ``_loose``, which hold no
    reservation, the GPUs alone are taken. ``_pending``: where gangs that were promised a start by an earlier
    plan are to be, while they have not had their turn. ``_new``: nodes to which pods of gangs come
    by the plan; ``_left``: those that gangs leave by it, of those that run.
    """

    def __init__(
        self, instance: Instance, decisions: Sequence[GangDecision], budget: Budget
    ) -> None:
        rules = instance.policy.reservations
        assert rules is not None, "see waiting_in_turn"
        self._rules, self._budget = rules, budget
        self._started = time.monotonic()
        self._until = self._started + max(LEAST_S, SHARE * budget.seconds_left())
        self._instance = instance.with_reserved(())
        self._gangs, self.decisions = instance.gangs, list(decisions)
        self._places = [queue_place(instance, gang) for gang in instance.gangs]
        self._space = FreeSpace(self._instance, decisions)
        self._counts = FreeCounts.of(self._space)
        self._last = min(instance.now + rules.horizon_s, LAST_TIME)
        runs = ((i, one) for i, one in enumerate(decisions) if one.pods)
        ends = ((end_of(self._instance, i, one), i) for i, one in runs)
        self._ends = sorted((end, i) for end, i in ends if end is not None and end <= self._last)
        self._found: list[Reserved] = []
        self._loose: set[tuple[str, str]] = set()
        self._pending: dict[int, Reserved] = {}
        self._held: Counter[tuple[int, str | None]] = Counter()
        self._tries = 0
        changed = (i for i, one in enumerate(decisions) if one.decision in CHANGED)
        self._new = {
            i: frozenset(p.node for p in arrivals(self._gangs[i], decisions[i].pods))
            for i in changed
        }
        self._left: dict[int, frozenset[int]] = {}

    def _over(self) -> bool:
        late = time.monotonic()
        stopped = self._budget.stop.is_set() and late >= self._started + LEAST_S
        return self._tries >= MAX_TRIES or stopped or late >= self._until

    def take(self, given: Iterable[Reserved]) -> None:
        for one in given:
            self._found.append(one)
            self._held[holder(self._instance, one)] += 1

    def turns(self, waiting: Sequence[int], *, now: bool) -> list[tuple[int, Reserved]]:
        """What is reserved for those of these gangs that get something; they come in the order of the queue.

        ``now``: who may start now does, and those that hold no reservation have a place, too; else the plan
        stays as it is.
        """
        self._pending = {i: place for i in waiting if (place := self._promise(i)) is not None}
        found = list[tuple[int, Reserved]]()
        failed: set[object] = set()
        listed = [i for i in waiting if may_reserve(self._rules, self._gangs[i].own_priority)]
        ahead = Counter(self._gangs[i].priority for i in listed)
        for index in waiting if now else listed:
            priority = self._gangs[index].priority
            most = self._rules.per_priority  # none behind it may hold a reservation
            if self._over() or all(n < 1 or self._held[p, None] >= most for p, n in ahead.items()):
                break
            ahead[priority] -= 1
            promised = self._pending.pop(index, None)
            holds = self._may_hold(index, promised=promised is not None)
            if not now and not holds:
                continue
            demand = missing_demand(self._space, index)
            kind = (
                identity(self._instance, demand),
                self._places[index][:2],
                self._gangs[index].expected_duration_s,
                self._arrived(index),
            )
            hopeless = promised is None and kind in failed
            one = None if hopeless else self._earliest(demand, promised, now=now)
            if one is None:
                failed.add(kind)  # less is left for those behind it
                continue
            if one.start <= self._instance.now:
                if self._start(index, one):
                    found.append((index, replace(one, nodes=(), pods=(), beside=())))
                    continue
                one = self._earliest(demand, promised, now=False)
                if one is None:
                    continue
            self._found.append(one)
            if not holds:
                self._loose.add(one.gang)
            else:
                self._held[holder(self._instance, one)] += 1
                found.append((index, one))
        return found

    def _may_hold(self, index: int, *, promised: bool) -> bool:
        """Whether it may hold a reservation: not in the place of another that was promised one."""
        priority = self._gangs[index].priority
        if not may_reserve(self._rules, self._gangs[index].own_priority):
            return False
        others = 0
        if not promised and not self._arrived(index):
            others = sum(1 for i in self._pending if self._gangs[i].priority == priority)
        own = self._held[priority, self._gangs[index].namespace]
        return self._held[priority, None] + own + others < self._rules.per_priority

    def _arrived(self, index: int) -> bool:
        """Whether it has come since the earlier plan; False without one."""
        earlier = self._instance.earlier
        return earlier is not None and self._gangs[index].key not in earlier.gangs

    def _promise(self, index: int) -> Reserved | None:
        """Where and when an earlier plan let the gang start, if that is known and may still be."""
        instance, gang = self._instance, self._gangs[index]
        start = None if instance.earlier is None else instance.earlier.starts.get(gang.key)
        if start is None or not may_reserve(self._rules, gang.own_priority):
            return None
        nodes = frozenset(pod.node for pod in gang.planned)
        usable = all(instance.schedulable(instance.cluster.nodes[n]) for n in nodes)
        if not nodes or not usable or len(gang.planned) < sum(role.min for role in gang.roles):
            return None
        start, seconds = max(start, instance.now), gang.expected_duration_s
        end = None if seconds is None else start + seconds
        pods = tuple(
            PodPlacement(pod.role, pod.index, pod.node, None if gang.roles[pod.role].gpus else 0)
            for pod in gang.planned
        )
        return Reserved(gang.key, self._places[index], start, end, tuple(sorted(nodes)), pods)

    def _start(self, index: int, one: Reserved) -> bool:
        """Start the gang now, and stop those in its way; returns whether that is possible."""
        space, mark, stopped = self._space, self._space.mark(), list[int]()
        space.set(index, (*space.pods[index], *one.pods))
        for n in one.nodes:
            while not space.is_valid(n) or space.stale_indices(n):
                victim = self._victim(index, n)
                if victim is None:
                    space.undo(mark)
                    return False
                space.set(victim, ())
                stopped.append(victim)
        for victim in stopped:
            self._left[victim] = frozenset(pod.node for pod in space.original[victim])
        for gang in (index, *stopped):
            self.decisions[gang] = space.decision(gang)
        self._new[index] = frozenset(one.nodes)
        if one.end is not None and one.end <= self._last:
            insort(self._ends, (one.end, index))
        return True

    def _victim(self, index: int, n: int) -> int | None:
        """The lowest gang that runs on the node and may be stopped for this one there."""
        space, own = self._space, claim(self._instance, index)
        lower = [
            g
            for g in {gang for gang, _, _ in space.by_node[n].tenants}
            if space.original[g] and may_stop(self._instance, g)
            if takes(self._instance, own, g, n)
            if not (self._places[index][0] and within_guarantee(self._instance, self._gangs[g]))
        ]
        return min(lower, key=lambda g: (self._gangs[g].priority, -g), default=None)

    def holds(self, index: int, one: Reserved) -> bool:
        """Whether the gang can start as it is reserved, next to what this plan leaves there."""
        space, mark = self._space, self._space.mark()
        if one.start <= self._instance.now:
            return False
        _Moments(space, self._ends_beside(index), ()).go_to(one.start)
        in_queues = space.keeps_queue_rules(index, one.pods) and space.keeps_cells(index, one.pods)
        space.set(index, one.pods)
        fits = in_queues and all(
            space.is_valid(n) and index not in space.stale_indices(n) for n in one.nodes
        )
        fits = fits and meets_min_share(space, index)
        space.undo(mark)
        return fits

    def _ends_beside(self, index: int) -> list[tuple[int, int]]:
        """(time, gang) of what ends, with the gangs that may be stopped for this one from then on.

        Those that may be stopped now are taken off.
        """
        own, guarded = self._places[index], guards(self._instance).fixed
        found = []
        for other, gang in enumerate(self._gangs):
            may_go = self._space.pods[other] and other not in guarded
            if may_go and yields(self._instance, gang, own):
                comes = self.decisions[other].decision in COMES
                at = stoppable_from(self._instance, other, comes=comes)
                if at <= self._instance.now:
                    self._space.set(other, ())
                elif at <= self._last:
                    found.append((at, other))
        return sorted([*self._ends, *found]) if found else self._ends

    def _earliest(self, demand: Demand, promised: Reserved | None, *, now: bool) -> Reserved | None:
        """The earliest start that is found, if possible one that every plan can keep.

        A better plan may keep gangs running that this one stops. A promise is kept where it is possible.
        """
        if not demand.possible:
            return None
        if not now and promised is not None and promised.start <= self._instance.now:
            promised = None  # its time has come, and it does not start
        one = self._reclaiming(demand) if now else None
        if one is None and self._left:
            one = self._earliest_beside(demand, self._left, promised, now=now)
        one = one or self._earliest_beside(demand, {}, promised, now=now)
        if promised is None or (one is not None and one.start <= promised.start):
            return one
        return self._as_promised(demand, promised) or one

    def _as_promised(self, demand: Demand, promised: Reserved) -> Reserved | None:
        """A start at the promised time, where the gang was planned to be."""
        at, mark = promised.start, self._space.mark()
        _Moments(self._space, self._ends_beside(demand.gang), ()).go_to(at)
        there = demand.within(frozenset(promised.nodes))  # elsewhere nobody has left room for it
        pods = self._pods(there, at, {}, promised)
        self._space.undo(mark)
        return None if pods is None else self._held_for(demand.gang, at, pods)

    def _reclaiming(self, demand: Demand) -> Reserved | None:
        """A start now in the room of gangs that borrow, where the gang may take that back."""
        own = claim(self._instance, demand.gang)
        if not own.rights:
            return None
        mark = self._space.mark()
        for other in range(len(self._gangs)):
            running = self._space.pods[other] and self._space.original[other]
            if running and may_stop(self._instance, other) and takes(self._instance, own, other):
                self._space.set(other, ())
        pods = self._pods(demand, self._instance.now, {})
        self._space.undo(mark)
        return None if pods is None else self._held_for(demand.gang, self._instance.now, pods)

    def _earliest_beside(
        self,
        demand: Demand,
        left: Mapping[int, Collection[int]],
        promised: Reserved | None,
        *,
        now: bool,
    ) -> Reserved | None:
        """The earliest start off the nodes of gangs that may be there: more is free as time goes on.

        ``left``: see ``_left``.
        """
        mark = self._space.mark()
        running = self._ends_beside(demand.gang)
        moments = _Moments(self._space, running, self._times(promised, now=now))
        found: dict[int, Pods] = {}

        def fits(at: int) -> bool:
            moments.go_to(at)
            pods = self._pods(demand, at, left)
            if pods is not None:
                found[at] = pods
            return pods is not None

        def taken(at: int) -> list[tuple[object, bool]]:
            return [(one.gang, one.start > at) for one in self._taken(demand.gang, at)]

        for _, group in groupby(moments.times, key=taken):  # the same is taken by others
            stretch = list(group)
            if fits(stretch[-1]):
                bisect_left(stretch[:-1], 1, key=fits)
                break
            if self._over():
                break
        self._space.undo(mark)
        return self._held_for(demand.gang, min(found), found[min(found)]) if found else None

    def _times(self, promised: Reserved | None, *, now: bool) -> Iterator[int]:
        """Times at which a gang may start, but for those at which a gang that is there ends."""
        places = (*self._found, *self._pending.values())
        yield from (p.end for p in places if p.end is not None and p.end <= self._last)
        if now:
            yield self._instance.now
        if promised is not None:
            yield promised.start

    def _taken(self, index: int, at: int, promised: Reserved | None = None) -> list[Reserved]:
        """Places that the gang may not share if it starts then.

        ``promised``: it starts as promised, and there: others that were promised a start have left room.
        """
        gang, now = self._gangs[index], self._instance.now
        seconds = gang.expected_duration_s
        pending = (
            one for one in self._pending.values() if promised is None and self._reckons(index, one)
        )
        return [
            one
            for one in (*self._found, *pending)
            if one.end is None or one.end > at
            if seconds is None or at + seconds > one.start
            if at > now or not may_come(self._instance, gang, one.place, one.start - now)
        ]

    def _reckons(self, index: int, one: Reserved) -> bool:
        """Whether the gang, at its turn, leaves room for one behind it that was promised this place.

        Who came since does not, nor who is within a guarantee for one that borrows.
        """
        return not self._arrived(index) and one.place[0] <= self._places[index][0]

    def _pods(
        self,
        demand: Demand,
        at: int,
        left: Mapping[int, Collection[int]],
        promised: Reserved | None = None,
    ) -> Pods | None:
        """Pods of the gang if it starts then, where it was planned before if that is possible.

        If possible not on nodes to which gangs come now that go before it: these may come to others, too.
        """
        if at <= self._instance.now and must_wait(self._instance, self._space.pods, demand.gang):
            return None
        taken = self._taken(demand.gang, at, promised)
        closed = {
            n for one in taken if one.start > at or one.gang not in self._loose for n in one.nodes
        }
        shared, others = self._staying(demand.gang, at)
        closed |= others
        closed.update(
            n for other in left if not self._ends_by(other, demand.gang, at) for n in left[other]
        )
        mark = self._space.mark()
        if promised is not None:  # those who reckoned with it have left room for it in their queues
            taken = [one for one in taken if not self._reckons(self._numbers[one.gang], promised)]
        later = [one for one in taken if one.pods and one.start > at]
        for one in taken:  # what queues may hold counts them, too
            if one.pods and one.start <= at:
                self._space.set(self._numbers[one.gang], one.pods)
        pods = None
        for nodes in (closed | shared, closed) if shared else (closed,):
            pods = self._placed(demand, nodes)
            if pods is not None and self._hinders(demand.gang, pods, later):
                pods = None
            if pods is not None:
                break
        self._space.undo(mark)
        return pods

    def _hinders(self, index: int, pods: Sequence[PodPlacement], later: Sequence[Reserved]) -> bool:
        """Whether its queues may not hold these pods beside one that starts later, when that starts."""
        queues = self._space.queues
        if queues is None:
            return False
        pods_of = self._space.pods
        changes = [(at, g, pods_of[g], -1) for at, g in self._ends if pods_of[g]]
        for one in later:
            gang = self._numbers[one.gang]
            changes.append((one.start, gang, one.pods, 1))
            changes += [] if one.end is None else [(one.end, gang, one.pods, -1)]
        changes.sort(key=lambda change: change[0])
        done, allowed = 0, True
        for start in sorted({one.start for one in later}):
            if not allowed:
                break
            while done < len(changes) and changes[done][0] <= start:
                queues.add(*changes[done][1:])
                done += 1
            allowed = queues.allow(index, pods)
        for _, gang, own, sign in changes[:done]:
            queues.add(gang, own, -sign)
        return not allowed

    def _placed(self, demand: Demand, closed: Collection[int]) -> Pods | None:
        """Pods of the gang off these nodes, where it was planned before if that is possible."""
        self._tries += 1
        gang = self._gangs[demand.gang]
        if closed:
            demand = demand.within(self._everywhere.difference(closed))
        if not all(role.nodes for role in demand.roles) or shortage(self._counts, demand):
            return None
        planned = frozenset(pod.node for pod in gang.planned)
        if planned:
            pods = place(self._space, demand.within(planned))
            if pods is not None:
                return pods
        return place(self._space, demand)

    @cached_property
    def _numbers(self) -> dict[tuple[str, str], int]:
        return {gang.key: i for i, gang in enumerate(self._gangs)}

    @cached_property
    def _everywhere(self) -> frozenset[int]:
        return frozenset(range(len(self._instance.cluster.nodes)))

    def _staying(self, index: int, at: int) -> tuple[set[int], set[int]]:
        """Nodes to which pods come by this plan that would have to give way if the gang starts then.

        Of gangs that start and come before it in the queue, and of others.
        """
        before, others = set[int](), set[int]()
        for other in self._late(index, at):
            starts = self.decisions[other].decision in STARTS
            ahead = starts and self._places[other] < self._places[index]
            (before if ahead else others).update(self._new[other])
        return before, others

    def _ends_by(self, other: int, index: int, at: int) -> bool:
        """Whether a gang that goes on as it runs has ended by then, or may be stopped for this one."""
        guarded = other in guards(self._instance).fixed
        if not guarded and yields(self._instance, self._gangs[other], self._places[index]):
            return (protected_until(self._instance, other) or at) <= at
        end = end_of(self._instance, other, GangDecision("keep"))
        return end is not None and end <= at

    def _late(self, index: int, at: int) -> list[int]:
        """Gangs that come to nodes by this plan and may not come to those of the gang if it starts then."""
        own, seconds = self._places[index], at - self._instance.now
        return sorted(
            o for o in self._new if not may_come(self._instance, self._gangs[o], own, seconds)
        )

    def _held_for(self, index: int, start: int, pods: Pods) -> Reserved:
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
