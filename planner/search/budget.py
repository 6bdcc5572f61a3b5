"""The search budget: deterministic effort, the clock and the stop signal; and the progress protocol.

A plan's ``stoppedBy`` names the limit that cut the search short: a signal before the clock before
the effort.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from models.documents.policy import SolveLimits
from models.instance.solution import StoppedBy


class Progress(Protocol):
    """Receives improvements of a tier.

    ``value`` and ``bound`` are None until known. Calls are cheap and rare.
    """

    def update(self, tier: str, value: int | None, bound: int | None) -> None: ...


class NullProgress:
    def update(self, tier: str, value: int | None, bound: int | None) -> None:
        del tier, value, bound


MIN_EFFORT = 1e-3
"""No engine is started with less effort than this."""


@dataclass
class Budget:
    """``effort``: deterministic units used so far; ``calls``: of solvers. ``stop``: set by a signal handler.

    ``clocked``: the clock ended an engine call, so the same input may give another plan. ``seconds``:
    time from ``started``, by default the limit's. ``held_back``: (effort, seconds) of what is left that
    is not to be had for now.
    """

    limits: SolveLimits
    stop: threading.Event = field(default_factory=threading.Event)
    effort: float = 0.0
    calls: int = 0
    clocked: bool = False
    stopped_by: StoppedBy = "proof"
    started: float = field(default_factory=time.monotonic)
    seconds: float | None = None
    held_back: tuple[float, float] = (0.0, 0.0)

    @contextmanager
    def holding_back(self, part: float) -> Iterator[None]:
        """Keep this part of what is left now for later."""
        self.held_back = (part * self.effort_left(), part * self.seconds_left())
        try:
            yield
        finally:
            self.held_back = (0.0, 0.0)

    def effort_left(self) -> float:
        return max(0.0, self.limits.budget - self.effort - self.held_back[0])

    def seconds_left(self) -> float:
        limit = self.limits.time_limit_s if self.seconds is None else self.seconds
        return max(0.0, limit - (time.monotonic() - self.started) - self.held_back[1])

    def used(self, part: float) -> Callable[[], bool]:
        """A test whether this part of what is left now has been used since."""
        effort = self.effort + self.effort_left() * part
        seconds = self.seconds_left() * (1 - part)

        def reached() -> bool:
            late = self.seconds_left() <= seconds
            self.clocked |= late
            return late or self.effort >= effort

        return reached

    def spend(self, effort: float, calls: int = 0) -> None:
        """``calls``: of solvers that were counted elsewhere."""
        self.effort += effort
        self.calls += calls

    def exhausted(self) -> bool:
        """Whether the budget is used up; records which limit ended it."""
        if self.stop.is_set():
            self.stopped_by = "signal"
        elif self.seconds_left() <= 0:
            self.stopped_by = "time"
        elif self.effort_left() <= MIN_EFFORT:
            self.stopped_by = "time" if self.clocked else "budget"
        else:
            return False
        return True

    def record_limit(self) -> None:
        """Record which limit ended an engine call without a proof."""
        if not self.exhausted():
            self.stopped_by = "time" if self.clocked else "budget"
