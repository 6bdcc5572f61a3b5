"""Start gangs that wait in the room of others: of those that may move, that only start, or that give way.

A busy cluster has GPUs free in pieces that no waiting gang can use, while gangs that could be elsewhere
keep whole nodes from those that can. Gangs are taken in the order of the queue. Each is placed as if nobody
who may leave was there, on nodes that few GPUs have to leave; who was there goes elsewhere, and where that
is not enough is stopped or waits, as the rules allow. Otherwise the gang waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, takewhile

import numpy as np

from models.instance.disruption_budgets import may_move, may_stop
from models.instance.instance import Instance
from models.instance.solution import STARTS, GangDecision, PodPlacement
from models.instance.speed import FULL_SPEED
from models.program.base_state import moves_pods
from models.program.demand_builder import identity, remaining_demand
from models.program.options import standing_gpus
from models.rules.demands import Demand
from models.rules.giving_way import claim, takes
from planner.search.budget import Budget
from planner.search.free_space import FreeSpace, Pods, counts_of
from planner.search.improve.rearranging import starting_demand
from planner.search.improve.repair import elsewhere, needless_undone
from planner.search.start.greedy import (
    ORDERS,
    admit,
    greedy,
    in_turn,
    missing_demand,
    place,
    queue_key,
    value_of,
)

LEAVING = (1, 2, 4)
"""GPUs that leave a node at most, as long as the gang finds room so; after these, any number."""

TRIES = 16
"""Choices of nodes for one gang, each without room that another could not leave."""


def clear(
    instance: Instance,
    decisions: Sequence[GangDecision],
    *,
    budget: Budget,
    immovable: frozenset[int] = frozenset(),
) -> Iterator[tuple[GangDecision, ...]]:
    """Plans with more gangs started, or started where they are faster, one after each priority.

    ``immovable``: running gangs that must not move.
    """
    clearing = _Clearing(FreeSpace(instance, decisions), immovable)
    everyone = [
        starting_demand(clearing.space, decisions, index)
        if one.decision in STARTS
        else missing_demand(clearing.space, index)
        for index, one in enumerate(decisions)
        if one.decision in STARTS or _waits(instance, index, one)
    ]
    possible = [demand for demand in everyone if demand.possible]
    ordered = in_turn(instance, possible, ORDERS[0])
    for _, peers in groupby(ordered, key=lambda one: queue_key(instance, one)[:2]):
        before = len(clearing.changed)
        own = list(peers)
        for step in (clearing.start, clearing.hasten):
            for demand in takewhile(lambda _: not budget.exhausted(), own):
                step(demand)
        if len(clearing.changed) > before:
            yield needless_undone(instance, clearing.plan(decisions), clearing.changed)
    stopped = [index for index, gang in enumerate(instance.gangs) if clearing.stopped(index)]
    spared = False
    for index in sorted(stopped, key=lambda one: (-instance.gangs[one].priority, one)):
        spared |= not budget.exhausted() and clearing.spare(index)
    if spared:
        plan = needless_undone(instance, clearing.plan(decisions), clearing.changed)
        yield greedy(instance, plan, ended=budget.exhausted)


def _waits(instance: Instance, index: int, decision: GangDecision) -> bool:
    """Whether the gang waits, or lacks pods, and nothing holds it."""
    gang = instance.gangs[index]
    if gang.hold is not None or decision.decision not in ("wait", "keep"):
        return False
    return not gang.running or index in instance.incomplete


class _Clearing:
    """``space``: the plan. ``changed``: gangs that are elsewhere now, or wait.

    ``_moving``: GPUs of the gangs that move, by gang. ``_rooms``: by whether gangs may also stop or wait, the
    room without those that may leave. ``_stuck``: who found no other place when a gang came last; it stays
    from then on, for that only gets harder.
    """

    def __init__(self, space: FreeSpace, immovable: frozenset[int]) -> None:
        self.space = space
        self.changed: set[int] = set()
        self._instance = space.instance
        self._immovable = immovable
        self._moving: dict[int, int] = {}
        for gang in range(len(space.pods)):
            self._count(gang)
        self._rooms: dict[bool, tuple[object, FreeSpace | None]] = {}
        self._loose = {
            index
            for index, gang in enumerate(self._instance.gangs)
            if space.pods[index]
            and (not gang.running or self._goes(index) or may_stop(self._instance, index))
        }
        self._failed: set[object] = set()
        self._stuck: int | None = None

    def start(self, demand: Demand) -> None:
        """Start the gang if it waits, where others have to leave for it."""
        gang, space = demand.gang, self.space
        if space.pods[gang] != space.original[gang]:
            return
        if demand.gpus <= space.arrays.idle_gpus and admit(space, demand):
            self._note(gang)
        else:
            self._start_among(demand, 0)

    def hasten(self, demand: Demand) -> None:
        """Place a gang that starts anew if it is faster where others leave for it."""
        gang, space = demand.gang, self.space
        if not self._instance.by_speed or space.pods[gang] == space.original[gang]:
            return
        now = value_of(space, gang, ()).speed
        if now == FULL_SPEED:
            return
        mark, before = space.mark(), space.pods[gang]
        self._put(gang, space.original[gang])
        if not self._start_among(demand, now + 1):
            space.undo(mark)
            self._put(gang, before)

    def stopped(self, gang: int) -> bool:
        """Whether the gang runs now and not after the plan."""
        return bool(self.space.original[gang]) and not self.space.pods[gang]

    def spare(self, gang: int) -> bool:
        """Let a gang that is stopped run on, if who came in its place goes elsewhere; whether it does.

        Who comes after it in the order of the tiers may wait.
        """
        space, mark, before = self.space, self.space.mark(), self.space.pods
        held, changed = list(before), {gang}
        space.set(gang, space.original[gang])
        done = True
        for n in sorted({pod.node for pod in space.original[gang]}):
            while done and not space.is_valid(n):
                came = self._last_to_come(n, gang)
                # one that has gone once may have been put back for another: that could go on for ever
                done = came is not None and came not in changed and self._away(came, n, gang)
                changed |= {came} if came is not None else set()
            done = done and not space.stale_indices(n)
        if done:
            for one in changed:
                self._note(one)
            return True
        space.undo(mark)
        for one in changed:
            self._restore(one, held[one])
        return False

    def _last_to_come(self, n: int, gang: int) -> int | None:
        """Of the gangs that came to a node the one that comes last in the queue."""
        gangs = self._instance.gangs
        came = {
            one
            for (one, _, _), (_, stays) in self.space.by_node[n].tenants.items()
            if not stays and one != gang and one not in self._instance.incomplete
        }
        return min(came, key=lambda one: (gangs[one].priority, -one), default=None)

    def _away(self, gang: int, n: int, spared: int) -> bool:
        """Move a gang that came off a node, not slower than before; whether it could, or may wait."""
        space, gangs = self.space, self._instance.gangs
        before, speed = space.pods[gang], value_of(space, gang, ()).speed
        pods = elsewhere(space, gang, n)
        space.set(gang, pods)
        if pods and value_of(space, gang, ()).speed >= speed:
            return True
        if gangs[gang].running:
            return False
        space.set(gang, ())
        if gangs[gang].priority <= gangs[spared].priority:
            return True
        demand = remaining_demand(self._instance, gang, counts_of(gangs[gang], before), ())
        others = space.arrays.tree.everywhere - {n}
        self._restore(gang, ())
        return demand.possible and self._start_in(demand.within(others), speed, forced=False)

    def _restore(self, gang: int, pods: Pods) -> None:
        """Let the rooms have a gang that only starts where the plan has it."""
        if not self.space.original[gang]:
            self._put(gang, pods)

    def _start_among(self, demand: Demand, speed: int) -> bool:
        """Start the gang at least so fast: others go elsewhere for it, else they stop or wait, too."""
        kind = identity(self._instance, demand)
        for forced in (False, True):
            key = (kind, queue_key(self._instance, demand)[:2], speed, forced)
            if key not in self._failed:
                if self._start_in(demand, speed, forced=forced):
                    return True
                self._failed.add(key)
        return False

    def _start_in(self, demand: Demand, speed: int, *, forced: bool) -> bool:
        room = self._room(demand, forced=forced)
        if room is None:
            return False
        for most in (*LEAVING, None):
            for _ in range(TRIES):
                nodes = self._nodes(room, demand, most)
                pods = None if nodes is None else place(room, demand.within(nodes))
                if pods is None or value_of(room, demand.gang, pods).speed < speed:
                    break
                if self._takes(demand, pods, speed, forced=forced):
                    return True
                if self._stuck is None:
                    break
                room.set(self._stuck, self.space.pods[self._stuck])
        return False

    def _room(self, demand: Demand, *, forced: bool) -> FreeSpace | None:
        """The room without those that may leave; None if none may stop or wait for this gang."""
        key = claim(self._instance, demand.gang) if forced else None
        known = self._rooms.get(forced)
        if known is None or known[0] != key:
            known = self._rooms[forced] = key, self._without(demand, forced=forced)
        return known[1]

    def _without(self, demand: Demand, *, forced: bool) -> FreeSpace | None:
        """The plan without those that may leave for the gang."""
        space = self.space
        here = [gang for gang in sorted(self._loose | self.changed) if space.pods[gang]]
        giving = {gang for gang in here if forced and self._gives_way(gang, demand)}
        if forced and not giving:
            return None
        plan = list(map(space.decision, range(len(space.pods))))
        for gang in here:
            if gang in giving or self._goes(gang):
                plan[gang] = GangDecision("wait")
        return FreeSpace(self._instance, plan)

    def _goes(self, gang: int) -> bool:
        """Whether it may go elsewhere."""
        if gang in self._instance.incomplete:
            return False
        if not self._instance.gangs[gang].running:
            return True
        return (
            may_move(self._instance, gang)
            and gang not in self._immovable
            and (gang in self._moving or self._within_limits(gang))
        )

    def _within_limits(self, gang: int) -> bool:
        """Whether the policy lets one more gang move."""
        limits = self._instance.policy.moves
        if limits is None:
            return True
        gpus = 0
        if limits.max_gpus is not None:
            gpus = sum(self._moving.values()) + standing_gpus(self._instance, gang)
        return limits.allow(len(self._moving) + 1, gpus)

    def _count(self, gang: int) -> None:
        """Count the gang among those that move, or no longer."""
        standing, pods = self.space.original[gang], self.space.pods[gang]
        if pods is not standing and standing and pods and moves_pods(standing, pods):
            self._moving[gang] = standing_gpus(self._instance, gang)
        else:
            self._moving.pop(gang, None)

    def _gives_way(self, gang: int, demand: Demand) -> bool:
        """Whether it may stop, or wait in the place of starting, for another gang."""
        instance, own = self._instance, claim(self._instance, demand.gang)
        if gang == demand.gang or gang in instance.incomplete or not takes(instance, own, gang):
            return False
        return not instance.gangs[gang].running or may_stop(instance, gang)

    def _nodes(self, room: FreeSpace, demand: Demand, most: int | None) -> frozenset[int] | None:
        """Nodes that at most so many GPUs have to leave; None if the gang finds no room there."""
        free, largest = room.arrays.free, max((role.gpus for role in demand.roles), default=0)
        chosen = np.full(len(free), fill_value=True)
        if most is not None:
            chosen &= free - self.space.arrays.free <= most
        pods = sum(role.count for role in demand.roles if role.gpus == largest)
        if largest and int((free[chosen] // largest).sum()) < pods:
            return None
        return frozenset(np.flatnonzero(chosen).tolist())

    def _takes(self, demand: Demand, pods: Pods, speed: int, *, forced: bool) -> bool:
        """Put the gang on the nodes of these pods, and those in its way elsewhere; whether all went well."""
        space, mark = self.space, self.space.mark()
        leaving = self._in_the_way(demand, pods, forced=forced)
        before = {gang: space.pods[gang] for gang in leaving}
        speeds = {gang: value_of(space, gang, ()).speed for gang in leaving}
        for gang in leaving:
            space.set(gang, ())
        nodes = frozenset(pod.node for pod in pods)
        self._stuck = None
        done = admit(space, demand.within(nodes), least_speed=speed)
        largest_first = sorted(leaving, key=lambda one: (-_gpus(space, one, before[one]), one))
        for gang in largest_first if done else ():
            if not self._resettled(gang, before[gang], speeds[gang]) and not (
                forced and self._gives_way(gang, demand)
            ):
                self._stuck = gang
                done = False
                break
            self._count(gang)
        if not done:
            space.undo(mark)
            for gang in leaving:
                self._count(gang)
            return False
        for gang in (demand.gang, *leaving):
            self._note(gang)
        return True

    def _in_the_way(self, demand: Demand, pods: Pods, *, forced: bool) -> list[int]:
        """Gangs that leave the nodes of these pods: those that restart last, and no more than needed."""
        space, needed = self.space, dict[int, int]()
        gangs = self._instance.gangs
        for pod in pods:
            own = gangs[demand.gang].roles[pod.role].gpus
            needed[pod.node] = needed.get(pod.node, 0) + own
        found = list[int]()
        for n, gpus in sorted(needed.items()):
            sizes: dict[int, int] = {}
            for gang, role, _ in space.by_node[n].tenants:
                if self._goes(gang) or (forced and self._gives_way(gang, demand)):
                    sizes[gang] = sizes.get(gang, 0) + gangs[gang].roles[role].gpus
            freed, chosen = space.by_node[n].free, list[int]()
            for gang in sorted(sizes, key=lambda one: (self._cost(one), sizes[one], one)):
                if freed >= gpus:
                    break
                chosen.append(gang)
                freed += sizes[gang]
            for gang in reversed(chosen):
                if freed - sizes[gang] >= gpus:
                    chosen.remove(gang)
                    freed -= sizes[gang]
            found += (gang for gang in chosen if gang not in found)
        return found

    def _cost(self, gang: int) -> tuple[int, int]:
        """0 for those that do not restart, 1 for those that restart elsewhere, 2 for those that stop.

        Of these the lowest priority first.
        """
        standing = self.space.original[gang]
        if not standing or moves_pods(standing, self.space.pods[gang]):
            return 0, 0
        return (1, 0) if self._goes(gang) else (2, self._instance.gangs[gang].priority)

    def _resettled(self, gang: int, before: Pods, speed: int) -> bool:
        """Place the gang elsewhere, not slower than before, if it may go; whether that was possible."""
        space, spec = self.space, self._instance.gangs[gang]
        if not self._goes(gang):
            return False
        demand = remaining_demand(self._instance, gang, counts_of(spec, before), ())
        pods = place(space, demand) if demand.possible else None
        if pods is None or value_of(space, gang, pods).speed < speed:
            return False
        space.set(gang, pods)
        return True

    def _note(self, gang: int) -> None:
        """The gang has changed."""
        self.changed.add(gang)
        self._count(gang)
        if not self.space.original[gang] and self.space.pods[gang]:
            self._put(gang, self.space.pods[gang])

    def _put(self, gang: int, pods: Pods) -> None:
        """Put the gang there, in the plan and in the rooms: who comes stays."""
        self.space.set(gang, pods)
        for _, room in self._rooms.values():
            if room is not None:
                room.set(gang, pods)

    def plan(self, decisions: Sequence[GangDecision]) -> tuple[GangDecision, ...]:
        """The plan as it is in the space."""
        return tuple(
            self.space.decision(index) if index in self.changed else one
            for index, one in enumerate(decisions)
        )


def _gpus(space: FreeSpace, gang: int, pods: Iterable[PodPlacement]) -> int:
    """GPUs of these pods."""
    return sum(space.instance.gangs[gang].roles[pod.role].gpus for pod in pods)
