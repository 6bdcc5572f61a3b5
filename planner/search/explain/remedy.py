"""A way to make a waiting gang start that was done: the world that it changes, and the place found there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from models.rules.registry import named
from planner.search.explain.world import Pods, World, placed_in
from planner.search.free_space import FreeSpace
from planner.search.start.greedy import missing_demand, queue, queue_key

MAX_FIRST = 40
"""Gangs that are asked whether they would start first."""


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
            return bool(self.first), _ORDER.index("soon")
        kind = f"{self.kind}ByHand" if not self.change.get("lower", True) else self.kind
        if kind not in _ORDER:
            asked = named(self.kind)
            kind = "rule" if asked is not None and asked.operator else "wish"
        return bool(self.first), _ORDER.index(kind)


SOON_S = 3600
"""Seconds that are better waited than spent on changes."""

_ORDER = (
    "soon",
    "node",
    "move",
    "stop",
    "wish",
    "request",
    "moveByHand",
    "stopByHand",
    "wait",
    "addNode",
    "rule",
    "smaller",
)
"""Kinds of remedies, the cheapest first; ``wish``, ``rule``: what the gang, or the policy, no longer asks.

``ByHand``: to gangs that are not of lower priority.
"""


def tried(kind: str, world: World, **more: Any) -> Iterator[Remedy]:  # noqa: ANN401  # fields
    """The remedy if the gang finds a place in the world."""
    pods = world.placement()
    if pods is not None:
        yield Remedy(kind, world, pods, first=_first(world, pods), **more)


def _first(world: World, pods: Pods) -> tuple[tuple[str, str], ...]:
    """Gangs that wait, or are stopped, and would start before this one and leave it no place.

    ``pods``: its place. There a new plan may give up gangs of lower priority for them.
    """
    space, gangs = FreeSpace(world.instance, world.decisions), world.instance.gangs
    own, mine = world.spec.priority, queue_key(world.instance, missing_demand(space, world.gang))
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
