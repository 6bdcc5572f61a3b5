"""Progress of a search on stderr: one live line on a terminal, otherwise a few lines.

It says what a person wants to know: the effective GPUs of the best plan so far, at most how much more is
possible, and how to end the search. JSON events name the tier that is searched, with its value and bound.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from planner.show.text import number, percent

if TYPE_CHECKING:
    from planner.show.console import Console

LINE_EVERY_S = 5.0
"""Off a terminal, at most one line in this many seconds; lines, not events, come ever more rarely."""

FIRST_AFTER_S = 1.0
"""Off a terminal, a search that ends sooner prints no progress."""

LIVE_EVERY_S = 0.1

FIRST_PLAN, STOPPING = "first plan", "stopping"

PHASES = {
    FIRST_PLAN: "making the first plan",
    "building": "building the model",
    "improving": "improving",
    "moves": "measuring what moves gain",
    "explaining": "explaining what waits",
    STOPPING: "stopping: the search ends, then the best plan so far is verified",
}
"""What is said of a phase; of others, that it searches."""

WORK = ("goodput", "admission")
"""Families of tiers that count work."""

CTRL_C = "Ctrl-C ends with it"
"""With the plan that is named before, or the first one: a signal before it waits for it."""


class SearchProgress:
    """``update`` is called by the search thread, ``tick`` by the waiting thread. Only ``tick`` writes.

    ``tiers``: names, in order. ``limit_s``: seconds that the search may take.
    """

    def __init__(
        self, console: Console, clock: Callable[[], float], tiers: Sequence[str], limit_s: float
    ) -> None:
        self._console = console
        self._clock = clock
        self._place = {name: place for place, name in enumerate(tiers, 1)}
        self._limit_s = limit_s
        self._start = clock()
        self._lock = threading.Lock()
        self._tier = ""
        self._known: dict[str, tuple[int | None, int | None]] = {}
        self._phase = ""
        self._news = False
        self.effective: float | None = None
        """Effective GPUs of the best plan so far; None before the first."""
        self._due = self._start + (0 if console.has_live_line else FIRST_AFTER_S)

    def update(self, tier: str, value: int | None, bound: int | None) -> None:
        """Record a new value or bound, or the end of a tier."""
        with self._lock:
            self._news |= tier != self._tier or self._known.get(tier) != (value, bound)
            self._tier, self._known[tier] = tier, (value, bound)

    def tick(self, phase: str, budget_left: float) -> None:
        """Write a line if one is due; at once when the search is stopped."""
        now, live = self._clock(), self._console.has_live_line
        seconds = now - self._start
        with self._lock:
            stops = phase == STOPPING != self._phase
            self._news |= phase != self._phase
            self._phase = phase
            if not (self._news or live) or (now < self._due and not stops):
                return
            self._news = False
            rare = LINE_EVERY_S if self._console.json_log else max(LINE_EVERY_S, seconds)
            self._due = now + (LIVE_EVERY_S if live else rare)
            tier, more = self._tier, self._more()
            value, bound = self._known.get(tier, (None, None))
        left = max(0.0, self._limit_s - seconds)
        self._console.event(
            "solve_progress",
            seconds=round(seconds, 1),
            phase=phase,
            tier=tier or None,
            tier_number=self._place.get(tier),
            tiers=len(self._place),
            value=value,
            bound=bound,
            effective_gpus=self.effective,
            seconds_left=round(left, 1),
            budget_left=round(budget_left, 1),
        )
        doing = PHASES.get(phase, "searching")
        ending = [CTRL_C, f"{left:,.0f} s left"] if live else []
        if phase == STOPPING:
            parts = [doing]
        elif self.effective is None:
            parts = [doing, *ending]
        else:
            best = f"the best plan has {number(self.effective)} effective GPUs"
            parts = [best, *([more] if more else []), *ending, doing]
        self._console.progress(seconds, parts)

    def _more(self) -> str | None:
        """How much more a better plan may have of the first tier of work that is open.

        A bound holds for plans that are as good in all tiers before it: nothing is said beyond the tier after
        the first one that is open.
        """
        known = [(name, *self._known.get(name, (None, None))) for name in self._place]
        for name, value, bound in [one for one in known if None in one or one[1] != one[2]][:2]:
            family, _, priority = name.partition("/")
            if value and bound is not None and family in WORK:
                more = percent(abs(bound - value) / abs(value))
                return f"at most {more} more at priority {priority}"
        return None
