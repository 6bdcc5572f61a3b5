"""The search budget: deterministic effort, the clock and the stop signal; and the progress protocol.

A plan's ``stoppedBy`` names the limit that cut the search short: a signal before the clock before
the effort.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from typing import Protocol

from models.policy import SolveLimits
from models.solution import StoppedBy


class Progress(Protocol):
    """Receives improvements of a tier.

    ``value`` and ``bound`` are None until known. Calls are cheap and rare.
    """

    def update(self, tier: str, value: int | None, bound: int | None) -> None: ...


class NullProgress:
    """Discards progress."""

    def update(self, tier: str, value: int | None, bound: int | None) -> None:
        del tier, value, bound


MIN_EFFORT = 1e-3
"""No engine is started with less effort than this."""


@dataclass
class Budget:
    """``effort``: deterministic units used so far. ``stop``: set by a signal handler.

    ``clocked``: the clock ended an engine call, so the same input may give another plan.
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

    def reserve(self, part: float) -> None:
        """Reserve this part of the remaining effort and time for a later search."""
        spent = self.limits.time_limit_s - self.seconds_left()
        self.limits = replace(
            self.limits,
            budget=max(1, int(self.effort + self.effort_left() * (1 - part))),
            time_limit_s=max(1, int(spent + self.seconds_left() * (1 - part))),
        )

    def spend(self, effort: float) -> None:
        self.effort += effort

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
