"""A way to make a waiting gang start that was done: the world that it changes, and the place found there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from models.solution import PodPlacement
from planner.search.causes import World
from planner.search.counterfactual import placed_in, placement
from planner.search.free_space import FreeSpace
from planner.search.greedy import missing_demand, queue, queue_key

MAX_FIRST = 40
"""Gangs that are asked whether they would start first."""

Pods = tuple[PodPlacement, ...]


@dataclass(frozen=True, slots=True)
class Remedy:
    """``what``: to do, in words. ``pods``: where the gang then starts, on nodes of ``world``.

    ``at``: when, in seconds since the epoch, if it has to wait. ``first``: gangs that wait, come before it
    and would take the room. ``gangs``: keys of those that stop or move; ``moved``: where one of them goes.
    ``change``: what else is changed, by name. ``by_hand``: no plan would do it. ``rank``: the least first.
    """

    kind: str
    what: str
    world: World
    pods: Pods
    at: int | None = None
    first: tuple[tuple[str, str], ...] = ()
    gangs: tuple[tuple[str, str], ...] = ()
    moved: Pods = ()
    change: Mapping[str, object] = field(default_factory=dict)
    by_hand: bool = False

    @property
    def rank(self) -> int:
        """What it costs others, the cheapest first."""
        return _RANKS.get(self.kind, 0) + (_BY_HAND if self.by_hand else 0)


_RANKS = {"node": 1, "move": 2, "stop": 3, "wait": 4, "smaller": 5, "addNode": 6, "smallest": 9}
"""Kinds of remedies that change more than what the gang, or the policy, asks for."""

_BY_HAND = 5
"""What is added to the rank of what no plan would do."""


def tried(kind: str, what: str, world: World, **more: Any) -> Iterator[Remedy]:  # noqa: ANN401  # fields
    """The remedy if the gang finds a place in the world."""
    pods = placement(world)
    if pods is not None:
        yield Remedy(kind, what, world, pods, first=_first(world), **more)


def _first(world: World) -> tuple[tuple[str, str], ...]:
    """Gangs that wait, or are stopped, and would start before this one and leave it no place.

    Priority by priority the gangs of the plan come back to their places, as far as those are free, and then
    gangs start that come before this one: as a new plan would do, which may give up the lower ones.
    """
    space, own = FreeSpace(world.instance, world.decisions), world.spec.priority
    mine = queue_key(world.instance, missing_demand(space, world.gang))
    gangs = world.instance.gangs
    ahead = [
        demand
        for demand in queue(space)
        if gangs[demand.gang].priority > own or queue_key(world.instance, demand) < mine
    ][:MAX_FIRST]
    stopped = [i for i, one in enumerate(world.decisions) if one.decision == "preempt"]
    waiting = {demand.gang for demand in ahead}
    waiting.update(i for i in stopped if gangs[i].priority >= own and i != world.gang)
    if not waiting:
        return ()
    highest = max(gangs[i].priority for i in waiting)
    planned = {
        i: pods
        for i, pods in enumerate(space.pods)
        if pods and own <= gangs[i].priority < highest and _gives_way(world, i)
    }
    lower = [i for i, pods in enumerate(space.pods) if pods and gangs[i].priority < own]
    for index in (*planned, *(i for i in lower if _gives_way(world, i))):
        space.set(index, ())
    found = list[tuple[str, str]]()
    for index in sorted({*planned, *waiting}, key=lambda i: (-gangs[i].priority, i in waiting, i)):
        pods = planned.get(index)
        if pods is not None:
            _return(space, index, pods)
        elif (pods := placed_in(space, index)) is not None:
            space.set(index, pods)
            found.append(gangs[index].key)
    return tuple(found) if found and placed_in(space, world.gang) is None else ()


def _gives_way(world: World, index: int) -> bool:
    """Whether a new plan may leave the gang out for one of higher priority."""
    gang = world.instance.gangs[index]
    return not gang.running or gang.preemptible


def _return(space: FreeSpace, index: int, pods: Pods) -> None:
    """Give a gang its places of the plan, if all of them are free, or else others if there are any."""
    space.set(index, pods)
    if not all(space.is_valid(pod.node) for pod in pods):
        space.set(index, ())
        space.set(index, placed_in(space, index) or ())
