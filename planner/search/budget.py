"""What a search tells while it runs.

Promises: one small protocol, so that the search never knows a terminal; calls are cheap and rare.
Implemented by ``planner.cli.console``; called by ``planner.search``.

How much effort is left: deterministic effort, the clock, and the wish to stop.

Promises: everything ends; what cut a search short is remembered as the plan's stoppedBy: a signal
before the clock before the effort.
One per run; handed to every engine call.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from typing import Protocol

from models.policy import SolveLimits
from models.solution import StoppedBy


class Progress(Protocol):
    """Receives improvements. ``value`` and ``bound`` None: none yet."""

    def update(self, tier: str, value: int | None, bound: int | None) -> None: ...


class Silent:
    """Tells nobody."""

    def update(self, tier: str, value: int | None, bound: int | None) -> None:
        del tier, value, bound


SMALLEST = 1e-3
"""Effort below which no engine is started."""


@dataclass
class Budget:
    """``effort``: deterministic units used so far. ``stop``: set by a signal handler.

    ``clocked``: an engine was cut off by the clock, so that the same input may give another plan.
    """

    limits: SolveLimits
    stop: threading.Event = field(default_factory=threading.Event)
    effort: float = 0.0
    clocked: bool = False
    stopped_by: StoppedBy = "proof"
    started: float = field(default_factory=time.monotonic)

    def effort_left(self) -> float:
        return max(0.0, self.limits.budget - self.effort)

    def seconds_left(self) -> float:
        return max(0.0, self.limits.time_limit_s - (time.monotonic() - self.started))

    def hold_back(self, part: float) -> None:
        """Leave that part of what is left, effort and time, to a later search."""
        spent = self.limits.time_limit_s - self.seconds_left()
        self.limits = replace(
            self.limits,
            budget=max(1, int(self.effort + self.effort_left() * (1 - part))),
            time_limit_s=max(1, int(spent + self.seconds_left() * (1 - part))),
        )

    def spend(self, effort: float) -> None:
        self.effort += effort

    def exhausted(self) -> bool:
        """Whether nothing more may be started; notes why."""
        if self.stop.is_set():
            self.stopped_by = "signal"
        elif self.seconds_left() <= 0:
            self.stopped_by = "time"
        elif self.effort_left() <= SMALLEST:
            self.stopped_by = "time" if self.clocked else "budget"
        else:
            return False
        return True

    def cut(self) -> None:
        """An engine ended without a proof: note which limit it was."""
        if not self.exhausted():
            self.stopped_by = "time" if self.clocked else "budget"
