"""When gangs without a reservation are expected to start, if nothing new arrives: an estimate.

Time goes from one expected end to the next; each time the gangs that wait are tried in the order of the
queue, beside reservations.
Nobody is moved or stopped, but for reservations.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from dataclasses import replace

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import NEVER, GangDecision, Reserved
from models.program.demand_builder import identity
from models.queues.reservations import LAST_TIME, end_of, queue_place, yields
from models.rules.demands import Demand
from models.rules.shape import exclusive_levels
from planner.search.budget import Budget
from planner.search.free_space import Decisions, FreeSpace, Pods
from planner.search.start.greedy import missing_demand, place

MAX_TRIES = 3000
"""Times that it is tried to place a gang."""

LEAST_S, MOST_S = 0.3, 2.0
"""Seconds that there are for it even if the time is up, and if it is not."""

MAX_GANGS = 1000
"""Gangs, the first in the queue, for which a start is estimated."""


def with_expected_starts(
    instance: Instance, decisions: Sequence[GangDecision], budget: Budget
) -> Decisions:
    """The decisions with the estimates, as far as tries and time go. ``decisions``: with what is reserved."""
    if instance.policy.reservations is None:
        return tuple(decisions)
    waiting = [
        index
        for index, one in enumerate(decisions)
        if one.decision == "wait"
        and one.reserved is None
        and instance.gangs[index].hold is None
        and (one.reason is None or one.reason.code != NEVER)
    ]
    if not waiting:
        return tuple(decisions)
    found = list(decisions)
    for index, at in _Forecast(instance, decisions, budget).starts(waiting).items():
        found[index] = replace(found[index], expected_start=at)
    return tuple(found)


def _ending(instance: Instance) -> tuple[Gang, ...]:
    """The gangs; none that runs and is to end keeps others for good off a domain that is exclusive."""
    if not exclusive_levels(instance):
        return instance.gangs
    return tuple(
        replace(gang, movable=True) if gang.running and gang.expected_duration_s else gang
        for gang in instance.gangs
    )


class _Forecast:
    """``_due``: reservations that have not begun, by gang. ``_events``: (time, whether one begins, gang).

    Else the gang ends then.
    """

    def __init__(
        self, instance: Instance, decisions: Sequence[GangDecision], budget: Budget
    ) -> None:
        self._instance = replace(instance, reserved=(), gangs=_ending(instance))
        self._gangs = instance.gangs
        self._until = time.monotonic() + min(MOST_S, max(LEAST_S, budget.seconds_left()))
        self._space = FreeSpace(self._instance, decisions)
        self._tries = 0
        self._due: dict[int, Reserved] = {}
        self._events: list[tuple[int, bool, int]] = []
        for index, one in enumerate(decisions):
            if one.pods:
                self._add(index, end_of(self._instance, index, one))
            elif one.reserved is not None:
                self._due[index] = one.reserved
                heapq.heappush(self._events, (one.reserved.start, True, index))

    def starts(self, waiting: Sequence[int]) -> dict[int, int]:
        """The expected start of gangs that find a place in time."""
        order = sorted(waiting, key=lambda i: queue_place(self._instance, self._gangs[i]))
        queue = [missing_demand(self._space, index) for index in order[:MAX_GANGS]]
        queue = [demand for demand in queue if demand.possible]
        found: dict[int, int] = {}
        while queue and self._events and (at := self._events[0][0]) <= LAST_TIME:
            self._pass(at)
            queue = self._start(queue, at, found)
            if self._tries >= MAX_TRIES or time.monotonic() >= self._until:
                break
        return found

    def _pass(self, at: int) -> None:
        """Let end and start what does by then."""
        while self._events and self._events[0][0] <= at:
            _, begins, index = heapq.heappop(self._events)
            if not begins:
                self._space.set(index, ())
                continue
            one = self._due.pop(index)
            for other in {gang for n in one.nodes for gang, _, _ in self._space.by_node[n].tenants}:
                if yields(self._instance, self._gangs[other], one.place):  # it ran long enough
                    self._space.set(other, ())
            self._space.set(index, one.pods)
            self._add(index, one.end)

    def _add(self, index: int, end: int | None) -> None:
        if end is not None:
            heapq.heappush(self._events, (end, False, index))

    def _start(self, queue: list[Demand], at: int, found: dict[int, int]) -> list[Demand]:
        """Start what fits now, in order; returns the others."""
        failed, left = set[object](), list[Demand]()
        for position, demand in enumerate(queue):
            seconds = self._gangs[demand.gang].expected_duration_s
            if self._tries >= MAX_TRIES:
                return left + queue[position:]
            if demand.gpus > self._space.arrays.idle_gpus:
                left.append(demand)
                continue
            kind = (identity(self._instance, demand), seconds)
            pods = None
            if kind not in failed:
                self._tries += 1
                pods = self._place(demand, at, seconds)
            if pods is None:
                failed.add(kind)
                left.append(demand)
                continue
            self._space.set(demand.gang, pods)
            self._add(demand.gang, None if seconds is None else at + seconds)
            found[demand.gang] = at
        return left

    def _place(self, demand: Demand, at: int, seconds: int | None) -> Pods | None:
        """Pods of the gang now, not on nodes of which a reservation starts before it ends."""
        closed = {
            n
            for one in self._due.values()
            if seconds is None or at + seconds > one.start
            for n in one.nodes
        }
        if closed:
            demand = demand.within(demand.nodes - closed)
        return place(self._space, demand)
