"""Progress of the search on stderr: one live line on a terminal, otherwise a line per improvement."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from planner.show.text import NO_BOUND, number, percent
from planner.untrusted_text import safe

if TYPE_CHECKING:
    from planner.show.console import Console

LINE_EVERY_S = 5.0
"""Off a terminal, at most one line in this many seconds."""

FIRST_AFTER_S = 1.0
"""Off a terminal, a search that ends sooner prints no progress."""

LIVE_EVERY_S = 0.1


class SearchProgress:
    """``update`` is called by the search thread, ``tick`` by the waiting thread. Only ``tick`` writes."""

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console = console
        self._clock = clock
        self._start = clock()
        self._lock = threading.Lock()
        self._state: tuple[str, int | None, int | None] | None = None
        self._news = False
        self._live = console.is_terminal(console.stderr) and not console.json_log
        self._due = self._start + (0 if self._live else FIRST_AFTER_S)

    def update(self, tier: str, value: int | None, bound: int | None) -> None:
        """Record a new value or bound, or the end of a tier."""
        with self._lock:
            if self._state != (tier, value, bound):
                self._state = (tier, value, bound)
                self._news = True

    def tick(self) -> None:
        """Write a line if one is due."""
        now = self._clock()
        with self._lock:
            state, news = self._state, self._news or self._live
            if state is None or not news or now < self._due:
                return
            self._news = False
            self._due = now + (LIVE_EVERY_S if self._live else LINE_EVERY_S)
        self._write(now - self._start, *state)

    def done(self) -> None:
        """Clear the live line."""
        self._console.clear_live()

    def _write(self, seconds: float, tier: str, value: int | None, bound: int | None) -> None:
        gap = None
        if value is not None and bound is not None:
            gap = abs(bound - value) / max(1, abs(value))
        self._console.event(
            "solve_progress",
            seconds=round(seconds, 1),
            tier=tier,
            value=value,
            bound=bound,
            gap=gap,
        )
        known = NO_BOUND if bound is None else f"bound {number(bound)}  gap {percent(gap)}"
        line = f"{seconds:5.1f}s  {safe(tier)}  value {number(value)}  {known}"
        if self._live:
            self._console.live(line)
        else:
            self._console.say(line)
