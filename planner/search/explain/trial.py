"""Ways to make a waiting gang start: whether a changed world lets it in, and the smallest such change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from models.instance.solution import GangDecision
from models.program.linear_program import Question
from models.rules.registry import named
from planner.search.explain.world import One, Pods, World, in_turn, needed

Way = Callable[[World], object]
"""Whether the gang starts, or has a place, in a world."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """``world``: as it is then. ``change``: what is to be done, as fields of its kind. ``pods``: its place.

    ``at``: when, in seconds since the epoch, if it has to wait. ``first``: gangs that wait, come before it
    and would take the room. ``gangs``: keys of those that stop, move or end; ``moved``: where one of them
    goes. ``by_hand``: no plan would do it. ``replanned``: a new plan starts it, with everything else free.
    ``rank``: the least first.
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
    replanned: bool = False

    @property
    def rank(self) -> tuple[bool, int]:
        """What a person would do first: see docs/explain.md. What others would profit from comes last."""
        if self.at is not None and self.at - self.world.instance.now <= SOON_S:
            return bool(self.first), _ORDER.index("soon")
        own = sum(role.min * role.gpus for role in self.world.spec.roles)
        dear = self.by_hand and 2 * int(self.change.get("gpus", 0)) > own  # type: ignore[call-overload]  # a count
        kind = f"{self.kind}ByHand" if dear or not self.change.get("lower", True) else self.kind
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
    "rule",
    "moveByHand",
    "stopByHand",
    "wait",
    "addNode",
    "smaller",
)
"""Kinds of remedies, the cheapest first; ``wish``, ``rule``: what the gang, or the policy, no longer asks.

``ByHand``: to gangs that are not of lower priority, or by hand to more than half as many GPUs as it needs.
"""


@dataclass(frozen=True, slots=True)
class Trial:
    """``world``: that of the plan. ``late``: whether no further question is to be asked.

    ``turns``: whether the gangs that come first take their turns, too.
    """

    world: World
    late: Question
    turns: bool

    def starts(self, world: World) -> bool:
        """Whether the gang starts there once those that come first took what they can."""
        return bool(self.in_turn(world)[world.gang].pods)

    def in_turn(self, world: World) -> tuple[GangDecision, ...]:
        """What those that come first, and then it, take; in large clusters the plan as it is."""
        return in_turn(world) if self.turns else world.decisions

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
            gangs = zip(self.world.instance.gangs, self.world.decisions, decisions, strict=True)
            started = tuple(one.key for one, old, new in gangs if len(new.pods) > len(old.pods))
            yield Remedy(kind, world, own or place or (), first=() if own else started, **more)

    def least(self, low: int, high: int, enough: Callable[[int], object]) -> int | None:
        """The least number that is enough; ``high`` is. None if it is late."""
        while low < high and not self.late():
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

        return needed(every, put_back, self.late)
