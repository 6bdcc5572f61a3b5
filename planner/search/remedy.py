"""A way to make a waiting gang start that was done: the world that it changes, and the place found there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from models.program.demand_builder import identity
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
    """Gangs that wait, or are stopped, and come before this one, and would leave it no place."""
    space = FreeSpace(world.instance, world.decisions)
    mine = queue_key(world.instance, missing_demand(space, world.gang))
    found, failed = list[tuple[str, str]](), set[object]()
    stopped = (
        missing_demand(space, index)
        for index, one in enumerate(world.decisions)
        if one.decision == "preempt" and index != world.gang
        if world.instance.gangs[index].priority >= world.spec.priority
    )
    ahead = [*stopped, *(d for d in queue(space) if queue_key(world.instance, d) < mine)]
    for demand in ahead:
        kind = identity(world.instance, demand)
        if kind in failed or len(failed) > MAX_FIRST:
            continue
        pods = placed_in(space, demand.gang)
        if pods is None:
            failed.add(kind)
            continue
        space.set(demand.gang, pods)
        found.append(world.instance.gangs[demand.gang].key)
    return tuple(found) if found and placed_in(space, world.gang) is None else ()
