"""Trying what makes a gang start: whether a changed world lets it in, and the smallest such change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from models.instance.solution import GangDecision
from planner.search.explain.remedy import Remedy
from planner.search.explain.replan import in_turn
from planner.search.explain.world import One, World, needed

MAX_PAIRS = 100_000
"""Pairs of a node and a gang up to which those that come first are let in before each question."""

Way = Callable[[World], object]
"""Whether the gang starts, or has a place, in a world."""


class Trial:
    """``world``: that of the plan. ``late``: whether no further question is to be asked."""

    def __init__(self, world: World, late: Callable[[], bool]) -> None:
        self._world = world
        self._late = late

    def starts(self, world: World) -> bool:
        """Whether the gang starts there once those that come first took what they can."""
        return bool(self.in_turn(world)[world.gang].pods)

    def in_turn(self, world: World) -> tuple[GangDecision, ...]:
        """What those that come first, and then it, take; in large clusters the plan as it is."""
        small = (
            len(self._world.instance.cluster.nodes) * len(self._world.instance.gangs) <= MAX_PAIRS
        )
        return in_turn(world) if small else world.decisions

    def way(self, world: World) -> Way | None:
        """What to ask of smaller changes than this one: that it starts, or finds a place beside the plan.

        None if neither holds.
        """
        if self.starts(world):
            return self.starts
        return World.placement if world.placement() else None

    def tried(self, kind: str, world: World, **more: Any) -> Iterator[Remedy]:  # noqa: ANN401  # fields
        """The remedy if the gang has a place in the world; with those that would take it first."""
        decisions = self.in_turn(world)
        own, place = decisions[world.gang].pods, world.placement()
        if own or place or kind == "stop":  # those who start in the plan may go elsewhere
            gangs = zip(self._world.instance.gangs, self._world.decisions, decisions, strict=True)
            started = tuple(one.key for one, old, new in gangs if len(new.pods) > len(old.pods))
            yield Remedy(kind, world, own or place or (), first=() if own else started, **more)

    def least(self, low: int, high: int, enough: Callable[[int], object]) -> int | None:
        """The least number that is enough; ``high`` is. None if it is late."""
        while low < high and not self._late():
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle + 1, high)
        return high if low == high else None

    def fewest(
        self, every: Sequence[One], world_with: Callable[[Collection[One]], World], way: Way
    ) -> tuple[One, ...]:
        """Those of a set of changes, all of which are enough, that are needed."""
        left = set(every)

        def put_back(chunk: Sequence[One]) -> bool:
            if not way(world_with(left.difference(chunk))):
                return False
            left.difference_update(chunk)
            return True

        return needed(every, put_back, self._late)
