"""The course of one ``run``: what was asked, what came of it so far, clocks, signals, phases.

Promises: the clock and signals of a run enter here and nowhere else. Made by ``planner.live.running``; used
by ``planner.live.rounds``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from planner.live.applying import Way
from planner.live.doorway import Reach
from planner.planning import Phases, Wish
from planner.signals import Interrupted, Stop

if TYPE_CHECKING:
    from planner.console import Console
    from planner.showing.runs import RunReport


@dataclass(frozen=True, slots=True)
class RunWish:
    """What ``run`` was asked for. ``planning``: less the paths of what is recorded.

    ``timeout_s``: of one request. ``skip``: resources that are not recorded. ``metrics``: file to write.
    """

    planning: Wish
    way: Way = field(default_factory=Way)
    context: str | None = None
    kubeconfig: str | None = None
    timeout_s: float = 30.0
    skip: frozenset[str] = frozenset()
    metrics: Path | None = None


@dataclass(frozen=True, slots=True)
class Course:
    """``clock``: seconds that pass; ``wall``: seconds since the epoch."""

    wish: RunWish
    console: Console
    report: RunReport
    stop: Stop
    clock: Callable[[], float]
    wall: Callable[[], float]

    @property
    def reach(self) -> Reach:
        """The cluster; once it was reached, by the context that it was reached with."""
        wish = self.wish
        context = wish.context if self.report.context is None else self.report.context
        return Reach(self.console.environ, context, wish.kubeconfig, wish.timeout_s)

    def check_signal(self) -> None:
        """Raises Interrupted if a signal came."""
        if self.stop.exit_code is not None:
            raise Interrupted(self.stop.exit_code - 128)

    def caught(self, exit_code: int) -> None:
        """A signal came while another handler was in charge; the next one ends the process."""
        self.stop.exit_code = exit_code
        self.stop.event.set()

    def pause(self, seconds: float) -> None:
        """Wait. Raises Interrupted when a signal comes."""
        self.stop.event.wait(seconds)
        self.check_signal()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the seconds of the block to a phase."""
        phases = Phases(self.clock)
        try:
            with phases.phase(name):
                yield
        finally:
            self.add(name, phases.seconds[name])

    def add(self, phase: str, seconds: float) -> None:
        known = self.report.seconds
        known[phase] = round(known.get(phase, 0.0) + seconds, 3)
