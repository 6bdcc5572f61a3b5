"""A way to make a waiting gang start that was done: the world that it changes, and the place found there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from models.rules.registry import named
from planner.search.explain.world import Pods, World


@dataclass(frozen=True, slots=True)
class Remedy:
    """``change``: what is to be done, as fields of its kind. ``pods``: where it then starts in ``world``.

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
