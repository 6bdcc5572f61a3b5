"""How applying is going: one live line on a terminal, a line every few seconds elsewhere.

Promises: only stderr, only counts and names of gangs; never faster than a reader can follow. Made by
``planner.verbs.apply``; told of every request by ``planner.cluster.applying``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from models.applying.asking import (
    Bind,
    Done,
    Event,
    Evict,
    Hold,
    LookAround,
    Request,
    Ungate,
)
from planner.showing.text import plural, safe

if TYPE_CHECKING:
    from planner.console import Console

LINE_EVERY_S = 5.0
LIVE_EVERY_S = 0.1


class ApplyProgress:
    """Counts what was done; ``pods``: how many are to be started."""

    def __init__(self, console: Console, clock: Callable[[], float], pods: int = 0) -> None:
        self._console = console
        self._clock = clock
        self._start = clock()
        self._live = console.is_terminal(console.stderr) and not console.json_log
        self._due = self._start + (0.0 if self._live else LINE_EVERY_S)
        self.pods = pods
        self._started: set[str] = set()
        self._evicted: set[str] = set()
        self._what = ""

    def tell(self, request: Request, event: Event) -> None:
        """Take note of one answer, and say how far we are if it is time."""
        done = isinstance(event, Done)
        match request:
            case Hold(what):
                self._what = what
            case LookAround(after_s) if after_s:
                self._what = "waiting"
            case Bind(pod) if done:
                self._started.add(pod.uid)
            case Ungate(pod, pin=True) if done:
                self._started.add(pod.uid)
            case Evict(stop) if done:
                self._evicted.add(stop.uid)
        now = self._clock()
        if now >= self._due:
            self._due = now + (LIVE_EVERY_S if self._live else LINE_EVERY_S)
            self._say(now - self._start)

    def done(self) -> None:
        """Wipe the live line."""
        self._console.clear_live()

    def _say(self, seconds: float) -> None:
        line = f"{seconds:5.1f}s  started {len(self._started):,} of {plural(self.pods, 'pod')}"
        line += f", evicted {len(self._evicted):,}" if self._evicted else ""
        line += f"  {safe(self._what)}" if self._what else ""
        if self._live:
            self._console.live(line)
        else:
            self._console.say(line.strip())
