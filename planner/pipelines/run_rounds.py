"""The course of one ``run``: what was asked, what came of it so far, clocks, signals, phases.

Promises: the clock and signals of a run enter here and nowhere else. Made by ``planner.pipelines.run``; used
by ``planner.pipelines.run_rounds``.

What ``run`` does under the lock: recover, record, plan, verify, apply; planned once more if it moved.

Promises: nothing is applied after a signal came or without time left on the lock; a plan that orders
nothing writes nothing. Called by ``planner.pipelines.run``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from models.apply.outcomes import GangVerdict, Outcome, Verdict
from planner.errors import Fault, LockedError, StaleError
from planner.pipelines.apply_steps import TICK_S, Reach, Way
from planner.pipelines.plan import Phases, PlanRequest
from planner.pipelines.replan import Planner, Source
from planner.show.run import announce, tell
from planner.signals import Interrupted, Stop, interruptible

if TYPE_CHECKING:
    from planner.show.console import Console
    from planner.show.run import RunReport


@dataclass(frozen=True, slots=True)
class RunWish:
    """What ``run`` was asked for. ``planning``: less the paths of what is recorded.

    ``timeout_s``: of one request. ``skip``: resources that are not recorded. ``metrics``: file to write.
    """

    planning: PlanRequest
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


if TYPE_CHECKING:
    from models.apply.live_state import ClusterView
    from models.apply.outcomes import ApplyLimits
    from models.policy import KubernetesPolicy
    from planner.cluster.lock import Lock
    from planner.cluster.sending import RequestSender
    from planner.cluster.transport import Transport
    from planner.pipelines.apply_steps import Ready
    from planner.pipelines.plan import Planned

LEAST_LOCK_S = 15.0
"""Nothing is begun with less time left on the lock."""


@dataclass(frozen=True, slots=True)
class Rounds:
    course: Course
    lock: Lock

    def work(self, wire: Transport, settings: KubernetesPolicy) -> None:
        """What is done under the lock."""
        from planner.cluster.backends.table import backend_of
        from planner.cluster.sending import RequestSender

        sender = RequestSender(
            wire=wire,
            settings=settings,
            backend=backend_of(settings.gpu_backend),
            lock=self.lock,
            stop=self.course.stop.event,
            clock=self.course.clock,
            sleep=self.course.stop.event.wait,
        )
        self.course.check_signal()
        with self.course.phase("recover"):
            recovered = self._recovered(sender)
        self._judge()
        if recovered.stop is None:
            self.course.check_signal()
            self._rounds(sender)
            self._judge()

    def _recovered(self, sender: RequestSender) -> Verdict:
        """Finish, take back or report what an earlier run left half there."""
        from models.apply.live_state import PodClassifier
        from models.apply.machine import recover_gangs
        from planner.cluster import rights
        from planner.cluster.plan_status import forged_warning, namespaces_to_recover
        from planner.cluster.sending import carried
        from planner.show.apply import ApplyProgress

        way, settings = self.course.wish.way, sender.settings
        view = sender.read_view()
        self.course.report.cluster = view.cluster
        self.course.check_signal()
        if (line := forged_warning(view)) is not None:
            self.course.console.warn(line)
            self.course.report.warnings.append(line)
        classifier = PodClassifier(settings.scheduling_gate, settings.scheduler_name)
        namespaces = namespaces_to_recover(view, classifier)
        if not namespaces:
            return Verdict()
        bound = {pod.namespace for pod in view.pods.values() if classifier.binds(pod)}
        rights.demand(
            sender.wire,
            rights.working(
                namespaces,
                evictions=way.evict_partial,
                backend=settings.gpu_backend,
                bound=bound,
            ),
        )
        progress = ApplyProgress(self.course.console, self.course.clock)
        verdict = carried(recover_gangs(view, _limits(settings, way)), sender, progress.on_event)
        progress.done()
        self.course.report.recovered = verdict
        tell(self.course.console, None, verdict, self._undo)
        return verdict

    def _rounds(self, sender: RequestSender) -> None:
        """Plan and apply; once more where the cluster moved meanwhile."""
        from planner.pipelines.apply_steps import check_guarded, ready

        planner = self._planner(sender)
        try:
            planned = self._planned(planner, None)
            plan = ready(planned.document, planned.plan)
            try:
                self._applied(plan, sender)
            except StaleError as error:
                if sender.reader.view is not None and not self.course.wish.way.shared_nodes:
                    # Nodes that are open to other schedulers would be so for another plan, too.
                    check_guarded(plan, sender.reader.view, one_by_one=True)
                for fault in error.faults:
                    self.course.console.say(f"{fault.what}; planning once more")
                self.course.report.replanned = True
                planned = self._planned(planner, planned)
                self._applied(ready(planned.document, planned.plan), sender)
        finally:
            self.course.report.warnings += planner.warnings
            for phase, seconds in planner.seconds.items():
                self.course.add(phase, seconds)

    def _planner(self, sender: RequestSender) -> Planner:
        from models.apply.live_state import PodClassifier
        from planner.cluster import rights as tenants

        wish, settings = self.course.wish, sender.settings
        classifier, view = (
            PodClassifier(settings.scheduling_gate, settings.scheduler_name),
            sender.reader.view,
        )
        assert view is not None  # it was recovered from
        left = tenants.unserved(sender.wire, view, classifier, settings.gpu_backend)
        if left:
            self.course.console.warn(tenants.told(left))
            self.course.report.warnings.append(tenants.told(left))
        # Plans that stop or move what runs could not be applied whole.
        planning = replace(wish.planning, keep_running=not wish.way.allow_evictions)
        if wish.way.allow_evictions:
            kept = tenants.unyielding(sender.wire, view, settings.gpu_backend)
            planning = replace(planning, keep_in=frozenset(kept))
        source = Source(
            self.course.console.environ,
            context=self.course.report.context,
            kubeconfig=wish.kubeconfig,
            timeout_s=wish.timeout_s,
            skip=wish.skip,
            seal_key=self.lock.seal_key,
            leave=tenants.waiting_in(left, classifier),
        )
        # Ages are counted by the server's clock: that of this host may be anything.
        return Planner(
            planning, source, self.course.console, clock=self.course.clock, date=self.lock.now
        )

    def _planned(self, planner: Planner, before: Planned | None) -> Planned:
        """A plan of the cluster as it is, while the lock is kept."""
        from models.apply.orders import plan_id

        lock = self.lock
        try:
            with lock.keeping(), interruptible():
                planned = planner.plan(before)
        except Interrupted as signal:
            self.course.caught(signal.exit_code)
            raise
        self.course.report.decided = planned.plan
        lock.plan = self.course.report.plan = plan_id(planned.plan)
        if planned.signal_exit is not None:
            self.course.caught(planned.signal_exit)
        self.course.check_signal()
        if not lock.holds(LEAST_LOCK_S):
            what = f"the lock was lost while planning: {lock.lost or 'it could not be renewed'}"
            raise LockedError(
                Fault(what, "nothing of the plan was applied; the next run tries again")
            )
        return planned

    def _applied(self, plan: Ready, sender: RequestSender) -> None:
        """Apply the plan, if it orders anything. Raises StaleError before the first write."""
        from planner.pipelines.apply_steps import carry, check_rights
        from planner.show.apply import ApplyProgress

        if not any(one.starts or one.stops or one.resizes for one in plan.orders.gangs):
            return
        report, console, way = self.course.report, self.course.console, self.course.wish.way
        if way.max_evictions is not None:
            way = replace(way, max_evictions=max(0, way.max_evictions - report.evicted))
        progress = ApplyProgress(console, self.course.clock)

        def seen(view: ClusterView) -> None:
            progress.pods = announce(console, plan.orders, view, evictions=way.allow_evictions)

        with self.course.phase("apply"):
            check_rights(plan, way, sender.wire)
            verdict = carry(plan, way, sender, progress.on_event, seen)
            progress.done()
        before = report.recovered
        report.applied = verdict
        tell(
            console,
            plan.orders.plan,
            verdict,
            self._undo,
            told=() if before is None else before.gangs,
        )

    def _undo(self, verdict: GangVerdict) -> list[str]:
        from planner.show.apply import undo_commands

        if verdict.outcome is not Outcome.partial:
            return []
        return undo_commands(verdict.undo, self.course.report.context, self.course.wish.kubeconfig)

    def _judge(self) -> None:
        """Status and exit code by what became of every gang."""
        from planner.pipelines.apply_steps import exit_code

        report = self.course.report
        found = (report.recovered or Verdict(), report.applied or Verdict())
        # A gang whose intents were taken back is simply planned anew: that is no failure.
        taken_back = {one.gang for one in found[0].gangs if one.outcome is Outcome.skipped} - {
            one.gang for one in found[1].gangs
        }
        gangs = tuple(one for one in report.verdicts if one.gang not in taken_back)
        stop = found[1].stop or found[0].stop
        report.exit_code = exit_code(Verdict(gangs, stop=stop), self.course.stop.exit_code)
        if report.exit_code > 128:
            report.status = "interrupted"
        elif report.exit_code:
            report.status = "stopped part-way"
        else:
            report.status = "applied" if report.writes else "unchanged"


def _limits(settings: KubernetesPolicy, way: Way) -> ApplyLimits:
    """What the machine is held to while it only settles what others left."""
    from models.apply.outcomes import ApplyLimits

    return ApplyLimits(
        allow_evictions=way.allow_evictions,
        max_evictions=sys.maxsize if way.max_evictions is None else way.max_evictions,
        evict_partial=way.evict_partial,
        wait_rounds=math.ceil(way.wait_s / TICK_S),
        tick_s=TICK_S,
        gate=settings.scheduling_gate,
        scheduler=settings.scheduler_name,
        backend=settings.gpu_backend,
    )
