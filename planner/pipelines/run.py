"""The pipeline of ``run``: lock, recover, record, plan, verify, apply; one summary, whatever happens.

Promises: never asks; nothing is applied that the checker refuses, or after a signal came; the lock is
renewed while the solver works and given back at the end. Called by ``planner.cli.run``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.atomic_files import check_target
from planner.errors import (
    Fault,
    GangplanError,
    LockedError,
    NoPlanError,
    NotPermittedError,
    RefusedPlanError,
    StaleError,
    UnavailableError,
)
from planner.pipelines.run_rounds import Course, RunWish
from planner.show.run import RunReport
from planner.signals import Interrupted, stop_on_signal

if TYPE_CHECKING:
    from models.policy import KubernetesPolicy
    from planner.cluster.lock import Lock
    from planner.cluster.proxy import ProxyTransport
    from planner.show.console import Console

LEAST_LOCK_S = 15.0
"""Nothing is begun with less time left on the lock."""

_STATUS: tuple[tuple[type[BaseException], str], ...] = (
    (LockedError, "locked"),
    (StaleError, "stale"),
    (RefusedPlanError, "refused"),
    (NoPlanError, "without a plan"),
    (NotPermittedError, "not permitted"),
    (UnavailableError, "unavailable"),
    (Interrupted, "interrupted"),
)
"""What a run came to that an error ended, in a word or two."""


def run(
    wish: RunWish,
    console: Console,
    *,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> int:
    """Do it all; the exit code. Every expected failure has been said, and the summary, too."""
    report, begun = RunReport(), clock()
    said: tuple[Fault, ...] = ()
    with stop_on_signal() as stop:
        try:
            _Run(Course(wish, console, report, stop, clock, wall)).go()
        except (GangplanError, Interrupted) as error:
            _failed(report, error)
            _say(console, wish, report, error)
            said = getattr(error, "faults", ())
        except BaseException as error:
            # A bug: the command line says what it is, and its event is the summary.
            _failed(report, error)
            with contextlib.suppress(GangplanError):
                _metrics(wish, report, wall)
            console.say(report.line(clock() - begun))
            raise
        try:
            _metrics(wish, report, wall)
        except GangplanError as error:
            if error.faults != said:  # a file that cannot be written was looked at first of all
                _say(console, wish, report, error)
            if not report.exit_code:
                _failed(report, error)
        report.tell(console, clock() - begun)
    return report.exit_code


def _metrics(wish: RunWish, report: RunReport, wall: Callable[[], float]) -> None:
    if wish.metrics is not None:
        from planner.show import metrics

        metrics.write(wish.metrics, report.metrics(wall()))


def _failed(report: RunReport, error: BaseException) -> None:
    report.exit_code = getattr(error, "exit_code", 1)
    report.status = next((word for kind, word in _STATUS if isinstance(error, kind)), "failed")


def _say(console: Console, wish: RunWish, report: RunReport, error: BaseException) -> None:
    if isinstance(error, GangplanError):
        for fault in error.faults:
            console.error(fault)
        return
    kept = wish.planning.out if report.decided is not None else None
    hint = None if kept is None else f"the best plan until then is in {kept}, checked"
    console.error(Fault("interrupted; nothing of the plan was applied", hint))


@dataclass(frozen=True, slots=True)
class _Run:
    """One run, under its signal handlers."""

    course: Course

    def go(self) -> None:
        """From the first check to the release of the lock."""
        from planner.read.inputs import read_policy

        planning = self.course.wish.planning
        for target in (planning.out, self.course.wish.metrics):
            if target is not None:
                check_target(target)
        settings = read_policy(planning.paths, policy=planning.policy).kubernetes
        with contextlib.ExitStack() as stack:
            with self.course.phase("connect"):
                door = stack.enter_context(self._doorway(settings))
            self.course.report.context = door.context
            with self.course.phase("lock"):
                lock = self._locked(door)
            with self._released(lock):
                self._work(door, lock, settings)

    def _doorway(self, settings: KubernetesPolicy) -> AbstractContextManager[ProxyTransport]:
        from planner.pipelines.apply_steps import for_writing

        return for_writing(self.course.reach, self.course.wish.way, settings)

    def _locked(self, door: ProxyTransport) -> Lock:
        """The lock. Raises LockedError that says who has it, NotPermittedError before anything else."""
        from planner.cluster import lease, rights
        from planner.cluster.discovery import served_groups
        from planner.cluster.lease_document import here
        from planner.cluster.retry import RetryingTransport

        way, wire = self.course.wish.way, RetryingTransport(door)
        self.course.check_signal()
        # A kind that is served and may not be read would have its gangs taken for single pods.
        read = rights.reading(served_groups(wire), skip=self.course.wish.skip)
        every = (*read, *rights.looking(), *rights.locking(way.lock_namespace))
        rights.demand(wire, tuple(dict.fromkeys(every)))
        self.course.check_signal()
        return lease.acquire(
            door,
            namespace=way.lock_namespace,
            operation="run",
            plan=None,
            who=here(self.course.console.environ),
            wait_s=way.lock_wait_s,
            sleep=self.course.pause,
            tell=lambda holder: self.course.console.say(f"waiting: {holder.worded()}"),
            unlock=(*self.course.console.program.split(), "unlock"),
        )

    @contextmanager
    def _released(self, lock: Lock) -> Iterator[None]:
        """Give the lock back at the end, with what the run came to."""
        from models.units import time_text

        try:
            yield
        except BaseException as error:
            _failed(self.course.report, error)
            raise
        finally:
            with self.course.phase("release"):
                given_back = lock.release(self.course.report.note(time_text(lock.now())))
            if not given_back:
                line = f"the lock was not given back: {lock.lost or 'no answer'}"
                self.course.console.warn(line)
                self.course.report.warnings.append(line)

    def _work(self, door: ProxyTransport, lock: Lock, settings: KubernetesPolicy) -> None:
        """What is done under the lock."""
        from planner.cluster.lock import Guarded
        from planner.cluster.retry import RetryingTransport
        from planner.pipelines.run_rounds import Rounds

        self.course.check_signal()
        wire = RetryingTransport(Guarded(door, lock), sleep=self.course.stop.event.wait)
        Rounds(self.course, lock).work(wire, settings)
