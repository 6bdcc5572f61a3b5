"""Progress of a search on stderr: one live line on a terminal, otherwise a line per improvement."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from planner.show.text import NO_BOUND, number, percent, width
from planner.untrusted_text import safe

if TYPE_CHECKING:
    from planner.show.console import Console

LINE_EVERY_S = 5.0
"""Off a terminal, at most one line in this many seconds."""

FIRST_AFTER_S = 1.0
"""Off a terminal, a search that ends sooner prints no progress."""

LIVE_EVERY_S = 0.1

SOLVING = "solving"
STOPPING = "stopping"

PHASES = {
    "first plan": "making the first plan",
    "building": "building the model",
    "improving": "improving",
    "moves": "measuring what moves gain",
    "explaining": "explaining what waits",
    STOPPING: "stopping: the search ends, then the best plan so far is verified",
}
"""What is said of a phase. Nothing in ``solving``, in which the tier says it."""

VERIFYING_FIRST = "verifying the first plan"
"""Shown after the tier while the search goes on."""

WITH_TIER = (None, SOLVING, "improving")
"""Phases in which the tier that was reported last is the one that is worked on."""


class SearchProgress:
    """``update`` is called by the search thread, ``tick`` by the waiting thread. Only ``tick`` writes.

    ``tiers``: names, in order. ``limit_s``: seconds that the search may take.
    """

    def __init__(
        self,
        console: Console,
        clock: Callable[[], float],
        *,
        tiers: Sequence[str] = (),
        limit_s: float | None = None,
    ) -> None:
        self._console = console
        self._clock = clock
        self._place = {name: place for place, name in enumerate(tiers, 1)}
        self._limit_s = limit_s
        self._start = clock()
        self._lock = threading.Lock()
        self._state: tuple[str, int | None, int | None] | None = None
        self._phase: str | None = None
        self._news = False
        self.meanwhile: str | None = None
        """What is done while the search goes on."""
        self._live = console.is_terminal(console.stderr) and not console.json_log
        self._due = self._start + (0 if self._live else FIRST_AFTER_S)

    def update(self, tier: str, value: int | None, bound: int | None) -> None:
        """Record a new value or bound, or the end of a tier."""
        with self._lock:
            if self._state != (tier, value, bound):
                self._state = (tier, value, bound)
                self._news = True

    def tick(self, phase: str | None = None, budget_left: float | None = None) -> None:
        """Write a line if one is due; at once when the search is stopped."""
        now = self._clock()
        with self._lock:
            stops = phase == STOPPING != self._phase
            self._news |= phase != self._phase
            self._phase = phase
            state = self._state if phase in WITH_TIER else None
            if state is None and phase not in PHASES:
                return
            if not (self._news or self._live) or (now < self._due and not stops):
                return
            self._news = False
            self._due = now + (LIVE_EVERY_S if self._live else LINE_EVERY_S)
        self._write(now - self._start, state, phase, budget_left)

    def done(self) -> None:
        """Clear the live line."""
        self._console.clear_live()

    def _write(
        self,
        seconds: float,
        state: tuple[str, int | None, int | None] | None,
        phase: str | None,
        budget_left: float | None,
    ) -> None:
        tier, value, bound = state or (None, None, None)
        gap = None
        if value is not None and bound is not None:
            gap = abs(bound - value) / max(1, abs(value))
        left = None if self._limit_s is None else max(0.0, self._limit_s - seconds)
        self._console.event(
            "solve_progress",
            seconds=round(seconds, 1),
            phase=phase,
            tier=tier,
            tier_number=None if tier is None else self._place.get(tier),
            tiers=len(self._place) or None,
            value=value,
            bound=bound,
            gap=gap,
            seconds_left=None if left is None else round(left, 1),
            budget_left=None if budget_left is None else round(budget_left, 1),
        )
        doing = [PHASES[phase]] if phase in PHASES else []
        bounds: list[str] = []
        if tier is not None:
            place = self._place.get(tier)
            doing.append(f"tier {place} of {len(self._place)} " * (place is not None) + safe(tier))
            doing.append(f"value {number(value)}")
            bounds = [NO_BOUND] if bound is None else [f"bound {number(bound)}"]
        gaps = [] if bound is None else [f"gap {percent(gap)}"]
        beside = [self.meanwhile] if self.meanwhile and phase != STOPPING else []
        parts = [f"{seconds:5.1f}s", *doing, *bounds, *gaps, *beside]
        if not self._live:
            self._console.say("  ".join(parts))
            return
        limits = [] if left is None else [f"left: {left:,.0f}s"]
        limits += [] if budget_left is None else [f"budget {budget_left:,.0f}"]
        # Where all is too wide: the bound follows from value and gap.
        shorter = [parts[0], *doing, *gaps]
        lines = ["  ".join([*parts, ", ".join(limits)])]
        lines += ["  ".join([*shorter, ", ".join(limits[:kept])]) for kept in (2, 1, 0)]
        fitting = [line.rstrip() for line in lines if width(line) < self._console.live_width]
        line = next(iter(fitting), lines[-1])
        self._console.live(line)
