"""A way to make a waiting gang start that was done: the world that it changes, and the place found there.

The first ones are what other gangs could do: one moves, one or a few stop, or some end in time. Counts of
GPUs decide what is worth a try; they may let too much through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from models.gpu_shares import SHARE
from models.instance.gang import has_parts, is_part
from models.instance.solution import GangDecision, PodPlacement
from models.mig import RESOURCE
from models.program.demand_builder import remaining_demand
from models.queues.reservations import LAST_TIME, end_of, expected_end, yields
from models.rules.registry import named
from models.units import time_text
from planner.search.explain.causes import World, sharers
from planner.search.explain.counterfactual import placed_in, placement
from planner.search.explain.holders import Holders, Room
from planner.search.free_space import FreeSpace
from planner.search.start.greedy import missing_demand, place, queue, queue_key

MAX_FIRST = 40
"""Gangs that are asked whether they would start first."""

Pods = tuple[PodPlacement, ...]


@dataclass(frozen=True, slots=True)
class Remedy:
    """``change``: what is to be done, as fields of its kind. ``pods``: where it then starts in ``world``.

    ``at``: when, in seconds since the epoch, if it has to wait. ``first``: gangs that wait, come before it
    and would take the room. ``gangs``: keys of those that stop, move or end; ``moved``: where one of them
    goes. ``by_hand``: no plan would do it. ``rank``: the least first.
    """

    kind: str
    world: World
    pods: Pods
    at: int | None = None
    first: tuple[tuple[str, str], ...] = ()
    gangs: tuple[tuple[str, str], ...] = ()
    moved: Pods = ()
    change: Mapping[str, object] = field(default_factory=dict)
    by_hand: bool = False

    @property
    def rank(self) -> tuple[bool, int]:
        """What a person would do first: see docs/explain.md. What others would profit from comes last."""
        if self.at is not None and self.at - self.world.instance.now <= SOON_S:
            return bool(self.first), _RANKS["soon"]
        return bool(self.first), _rank_of("byHand" if self.by_hand else self.kind)


SOON_S = 3600
"""Seconds that are better waited than spent on changes."""

_OWNER, _OPERATOR = "owner", "operator"

_ORDER = (
    ("soon",),
    ("node",),
    (_OWNER,),
    ("request",),
    ("move",),
    ("stop",),
    ("smaller", "fewerGpus"),
    ("wait",),
    ("addNode",),
    (_OPERATOR,),
    ("byHand",),
    ("several",),
    ("addMany",),
    ("smallest", "fewestGpus"),
)
_RANKS = {kind: rank for rank, kinds in enumerate(_ORDER) for kind in kinds}
"""Of each kind of remedy, of what is done by hand or comes within the hour; of what is dropped, by whom."""


def _rank_of(kind: str) -> int:
    asked = named(kind)
    if kind in _RANKS or asked is None:
        return _RANKS[kind]
    return _RANKS[_OPERATOR if asked.operator else _OWNER]


def tried(kind: str, world: World, **more: Any) -> Iterator[Remedy]:  # noqa: ANN401  # fields
    """The remedy if the gang finds a place in the world."""
    pods = placement(world)
    if pods is not None:
        yield Remedy(kind, world, pods, first=_first(world, pods), **more)


def _first(world: World, pods: Pods) -> tuple[tuple[str, str], ...]:
    """Gangs that wait, or are stopped, and would start before this one and leave it no place.

    ``pods``: its place. There a new plan may give up gangs of lower priority for them.
    """
    space, own, gangs = (
        FreeSpace(world.instance, world.decisions),
        world.spec.priority,
        world.instance.gangs,
    )
    mine = queue_key(world.instance, missing_demand(space, world.gang))
    ahead = [
        demand.gang
        for demand in queue(space)
        if gangs[demand.gang].priority > own or queue_key(world.instance, demand) < mine
    ]
    ahead += [
        index
        for index, one in enumerate(world.decisions)
        if one.decision == "preempt" and gangs[index].priority >= own and index != world.gang
    ]
    there = {gang for pod in pods for gang, _, _ in space.by_node[pod.node].tenants}
    nodes = {pod.node for pod in pods}
    found, beside = list[tuple[str, str]](), list[tuple[str, str]]()
    for index in sorted(ahead, key=lambda i: (-gangs[i].priority, i))[:MAX_FIRST]:
        if _starts(space, index, [i for i in there if _gives_way(world, i, index)]):
            here = any(pod.node in nodes for pod in space.pods[index])
            (found if here else beside).append(gangs[index].key)
    if placed_in(space, world.gang) is not None:
        return ()
    return tuple(found or beside)


def _starts(space: FreeSpace, index: int, aside: Sequence[int]) -> bool:
    """Place a gang, if need be where others are, which then go elsewhere or wait."""
    pods, mark = placed_in(space, index), space.mark()
    if pods is None:
        before = {i: space.pods[i] for i in aside}
        for other in before:
            space.set(other, ())
        pods = placed_in(space, index)
        if pods is None:
            space.undo(mark)
            return False
        space.set(index, pods)
        gangs = space.instance.gangs
        for other in sorted(before, key=lambda i: (-gangs[i].priority, i)):
            _return(space, other, before[other])
    space.set(index, pods)
    return True


def _gives_way(world: World, index: int, other: int) -> bool:
    """Whether a new plan may leave the gang out for another one."""
    gang = world.instance.gangs[index]
    lower = gang.priority < world.instance.gangs[other].priority
    return lower and (not gang.running or gang.preemptible)


def _return(space: FreeSpace, index: int, pods: Pods) -> None:
    """Give a gang its places of the plan, if all of them are free, or else others if there are any."""
    space.set(index, pods)
    if not all(space.is_valid(pod.node) for pod in pods):
        space.set(index, ())
        space.set(index, placed_in(space, index) or ())


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
        parts, again = self._parts(index), self._again(index)
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
                **({"parts": parts} if parts else {}),
                **({"again": True} if again else {}),
            },
            by_hand=gang.running and (not gang.movable or again),
        )

    def _parts(self, index: int) -> list[str]:
        """Parts of GPUs that its pods have, by node."""
        instance = self._world.instance
        gang = instance.gangs[index]
        found = Counter(
            (
                request.removeprefix(RESOURCE).removeprefix(SHARE),
                instance.cluster.nodes[pod.node].name,
            )
            for pod in gang.running_pods
            if pod.node is not None
            for request, _ in gang.roles[pod.role].requests
            if is_part(request)
        )
        return [
            f"{'' if count == 1 else f'{count} x '}{part} on {node}"
            for (part, node), count in sorted(found.items())
        ]

    def _again(self, index: int) -> bool:
        """Whether it has parts of GPUs that others get no more of in the same plan.

        Not where it is alone and may leave: then the GPU is idle.
        """
        instance = self._world.instance
        gang, nodes = instance.gangs[index], sharers(instance).get(index, ())
        others = Counter[int]()
        for other in sharers(instance).keys() - {index}:
            for role in instance.gangs[other].roles:
                for n, mask in role.keeps:
                    others[n] |= mask
        return any(
            has_parts(gang.roles[pod.role].requests)
            and not gang.roles[pod.role].keeps_on(pod.node) & (pod.gpus or 0) & ~others[pod.node]
            for pod in gang.running_pods
            if pod.node is not None and pod.node in nodes
        )

    def _stopped(self, gone: Sequence[int]) -> Iterator[Remedy]:
        gangs = [self._world.instance.gangs[index] for index in gone]
        own = self._world.spec.priority
        running = [gang for gang in gangs if gang.running]
        firm = sum(not gang.preemptible for gang in running)
        higher = sum(gang.preemptible and gang.priority >= own for gang in running)
        change: dict[str, object] = {
            "gpus": self._holders.sizes(gone),
            "notRunning": len(gangs) - len(running),
            "notPreemptible": firm,
            "notLower": higher,
        }
        parts = [part for index in gone for part in self._parts(index)]
        if parts:
            change["parts"] = parts
        again = any(map(self._again, gone))
        if again:
            change["again"] = True
        yield from tried(
            "stop",
            self._world.without(gone),
            gangs=tuple(gang.key for gang in gangs),
            change=change,
            by_hand=bool(firm or higher or again or len(running) < len(gangs)),
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
