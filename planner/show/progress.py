"""Progress of a search on stderr: one live line on a terminal, otherwise a few lines.

It says what a person wants to know: the effective GPUs of the best plan so far, at most how much more is
possible, and how to end the search. JSON events name the tier that is searched, with its value and bound.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from planner.show.text import gpu_amount, percent, width

if TYPE_CHECKING:
    from planner.show.console import Console

LINE_EVERY_S = 5.0
"""Off a terminal, at most one line in this many seconds; lines, not events, come ever more rarely."""

FIRST_AFTER_S = 1.0
"""Off a terminal, a search that ends sooner prints no progress."""

LIVE_EVERY_S = 0.1

STOPPING = "stopping"

PHASES = {
    "first plan": "making the first plan",
    "building": "building the model",
    "improving": "improving",
    "moves": "measuring what moves gain",
    "explaining": "explaining what waits",
    STOPPING: "stopping: the search ends, then the best plan so far is verified",
}
"""What is said of a phase; of others, that it searches."""

VERIFYING_FIRST = "verifying the first plan"
"""Shown beside the phase while the search goes on."""

WITH_TIER = (None, "solving", "improving")
"""Phases in which the tier that was reported last is the one that is worked on."""

WORK = ("goodput", "admission")
"""Families of tiers that count work."""

CTRL_C = "Ctrl-C ends with it"
"""With the plan that is named before, or the first one: a signal before it waits for it."""


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
        self._tier: str | None = None
        self._known: dict[str, tuple[int | None, int | None]] = {}
        self._phase: str | None = None
        self._news = False
        self.meanwhile: str | None = None
        """What is done while the search goes on."""
        self.effective: float | None = None
        """Effective GPUs of the best plan so far; None before the first."""
        self._live = console.is_terminal(console.stderr) and not console.json_log
        self._due = self._start + (0 if self._live else FIRST_AFTER_S)

    def update(self, tier: str, value: int | None, bound: int | None) -> None:
        """Record a new value or bound, or the end of a tier."""
        with self._lock:
            self._news |= tier != self._tier or self._known.get(tier) != (value, bound)
            self._tier, self._known[tier] = tier, (value, bound)

    def tick(self, phase: str | None = None, budget_left: float | None = None) -> None:
        """Write a line if one is due; at once when the search is stopped."""
        now = self._clock()
        with self._lock:
            stops = phase == STOPPING != self._phase
            self._news |= phase != self._phase
            self._phase = phase
            tier = self._tier if phase in WITH_TIER else None
            known, more = self._known.get(tier or "", (None, None)), self._more()
            if not (self._news or self._live) or (now < self._due and not stops):
                return
            self._news = False
            passed = now - self._start
            rare = LINE_EVERY_S if self._console.json_log else max(LINE_EVERY_S, passed)
            self._due = now + (LIVE_EVERY_S if self._live else rare)
        left = None if self._limit_s is None else max(0.0, self._limit_s - passed)
        self._event(passed, tier, known, left, budget_left)
        self._say(passed, more, left)

    def done(self) -> None:
        """Clear the live line."""
        self._console.clear_live()

    def _more(self) -> str | None:
        """How much more a better plan may have of the first tier of work that is open.

        A bound holds for plans that are as good in all tiers before it: nothing is said beyond the tier after
        the first one that is open.
        """
        gaps = 0
        for name in self._place:
            value, bound = self._known.get(name, (None, None))
            gap = None if value is None or bound is None else abs(bound - value)
            family, _, priority = name.partition("/")
            if gap and value and family in WORK:
                return f"at most {percent(gap / abs(value))} more at priority {priority}"
            gaps += gap != 0
            if gaps > 1:
                break
        return None

    def _event(
        self,
        seconds: float,
        tier: str | None,
        known: tuple[int | None, int | None],
        left: float | None,
        budget_left: float | None,
    ) -> None:
        value, bound = known
        gap = None
        if value is not None and bound is not None:
            gap = abs(bound - value) / max(1, abs(value))
        self._console.event(
            "solve_progress",
            seconds=round(seconds, 1),
            phase=self._phase,
            tier=tier,
            tier_number=None if tier is None else self._place.get(tier),
            tiers=len(self._place) or None,
            value=value,
            bound=bound,
            gap=gap,
            effective_gpus=self.effective,
            seconds_left=None if left is None else round(left, 1),
            budget_left=None if budget_left is None else round(budget_left, 1),
        )

    def _say(self, seconds: float, more: str | None, left: float | None) -> None:
        """The line, without its last parts where the terminal is too narrow."""
        doing = PHASES.get(self._phase or "", "searching")
        parts = [doing]
        if self._phase != STOPPING:
            left_s = [] if left is None else [f"{left:,.0f} s left"]
            beside = [self.meanwhile] if self.meanwhile else []
            ending = [CTRL_C, *left_s] if self._live else []
            parts = [doing, *ending, *beside]
            if self.effective is not None:
                best = f"the best plan has {gpu_amount(self.effective)} effective GPUs"
                parts = [best, *([more] if more else []), *ending, doing, *beside]
        clock = f"{seconds:5.1f}s  "
        if not self._live:
            self._console.say(clock + "; ".join(parts))
            return
        lines = [clock + "; ".join(parts[:kept]) for kept in range(len(parts), 0, -1)]
        fitting = (line for line in lines if width(line) < self._console.live_width)
        self._console.live(next(fitting, lines[-1]))
