"""The pipeline of ``run``: lock, recover, record, plan, verify, apply; one summary, whatever happens.

Never asks. Nothing is applied that the verifier refuses, or after a signal or without time left on the lock,
which is renewed while the solver works and released at the end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from models.apply.live_state import ClusterView, PodClassifier
from models.apply.notes import promised_by
from models.apply.plan_actions import plan_id
from models.apply.recovery import with_lost_counted
from models.apply.request_steps import has_news
from models.apply.requests import GangVerdict, Outcome, Verdict
from models.documents.plan import PlanDocument
from models.instance.solution import QUEUE_LIMIT
from models.units import epoch_seconds, shown_of, time_text
from planner import last_plan
from planner.atomic_files import check_target
from planner.cluster import retry, rights
from planner.cluster.lock import Lock
from planner.cluster.pages import served_groups
from planner.cluster.request_sender import RequestSender
from planner.cluster.snapshot import ACCEPT, LiveLists, SnapshotRequest, read_lists
from planner.cluster.store import Store
from planner.cluster.transport import Transport
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
from planner.pipelines import plan as planning
from planner.pipelines.apply import (
    ApplyOptions,
    ClusterTarget,
    VerifiedPlan,
    check_and_apply,
    check_rights,
    exit_code,
    ordered,
    recover,
    run_paths,
    sender_of,
    settings_to_run,
    take_lock,
)
from planner.pipelines.plan import Phases, Planned, PlanRequest
from planner.read.instance_builder import LoadedInput
from planner.show.apply import ApplyProgress, announce_changes, undo_commands
from planner.show.console import Console
from planner.show.run import RunReport, show_verdict, write_metrics
from planner.signals import Interrupted, Stop, interruptible, stop_on_signal

LEAST_LOCK_S = 15.0
"""Least time left on the lock to start applying."""

_STATUS: tuple[tuple[type[BaseException], str], ...] = (
    (LockedError, "locked"),
    (StaleError, "stale"),
    (RefusedPlanError, "refused"),
    (NoPlanError, "without a plan"),
    (NotPermittedError, "not permitted"),
    (UnavailableError, "unavailable"),
    (Interrupted, "interrupted"),
)
"""Status of a run that an error ended."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Arguments of ``run``. ``planning``: without the recorded paths.

    ``skip``: resources that are not recorded. ``metrics``: file to write.
    """

    planning: PlanRequest
    target: ClusterTarget
    options: ApplyOptions = field(default_factory=ApplyOptions)
    skip: frozenset[str] = frozenset()
    metrics: Path | None = None


Work = Callable[[RunRequest, Console, RunReport, Stop, Callable[[], float]], None]
"""What a run does between its first and its last line. It fills in the report."""


def run(
    request: RunRequest,
    console: Console,
    *,
    work: Work | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Run everything; the exit code. Expected failures and the summary are printed.

    ``work``: in the place of planning and applying.
    """
    report, begun = RunReport(), clock()
    shown: tuple[Fault, ...] = ()
    with stop_on_signal() as stop:
        try:
            if work is None:
                _Run(request, console, report, stop, clock).execute()
            else:
                work(request, console, report, stop, clock)
        except (GangplanError, Interrupted) as error:
            _record_failure(report, error)
            _show_error(console, request, report, error)
            shown = getattr(error, "faults", ())
        except BaseException as error:
            # A bug: the command line reports it, and its event is the summary.
            _record_failure(report, error)
            with contextlib.suppress(GangplanError):
                _write_metrics(request, report)
            console.say(report.line(clock() - begun))
            raise
        try:
            _write_metrics(request, report)
        except GangplanError as error:
            if error.faults != shown:  # the first check of the run may have reported it
                _show_error(console, request, report, error)
            if not report.exit_code:
                _record_failure(report, error)
        report.print_summary(console, clock() - begun)
    return report.exit_code


def _write_metrics(request: RunRequest, report: RunReport) -> None:
    if request.metrics is not None:
        write_metrics(request.metrics, report, time.time())


def _record_failure(report: RunReport, error: BaseException) -> None:
    report.exit_code = getattr(error, "exit_code", 1)
    report.status = next((word for kind, word in _STATUS if isinstance(error, kind)), "failed")


def _show_error(
    console: Console, request: RunRequest, report: RunReport, error: BaseException
) -> None:
    if isinstance(error, GangplanError):
        for fault in error.faults:
            console.error(fault)
        return
    saved = request.planning.out if report.decided is not None else None
    hint = None if saved is None else f"the best plan so far is saved and verified: {saved}"
    console.error(Fault("interrupted; nothing of the plan was applied", hint))


@dataclass(slots=True)
class _Run:
    """One run under its signal handlers: lock, recover, plan, verify, apply. ``clock``: monotonic seconds.

    ``wire``, ``lock``, ``sender``: once there are.
    """

    request: RunRequest
    console: Console
    report: RunReport
    stop: Stop
    clock: Callable[[], float]
    wire: Transport = field(init=False)
    phases: Phases = field(init=False)
    lock: Lock = field(init=False)
    sender: RequestSender = field(init=False)

    def execute(self) -> None:
        """From the first check to the release of the lock."""
        planning, options = self.request.planning, self.request.options
        self.phases = Phases(self.clock)
        self.report.seconds = self.phases.seconds
        for file in (planning.out, self.request.metrics):
            if file is not None:
                check_target(file)
        settings = settings_to_run(planning.paths, planning.policy)
        with contextlib.ExitStack() as stack:
            with self.phases.phase("connect"):
                paths = dict.fromkeys((*run_paths(options, settings), *ACCEPT))
                proxy = stack.enter_context(self.request.target.connect(paths))
            self.wire, self.report.context = proxy, proxy.context
            self.stop.check()
            with self.phases.phase("lock"):
                transport, namespace = retry.RetryingTransport(proxy), options.lock_namespace
                groups = served_groups(transport)
                rights.require_run(transport, groups, self.request.skip, namespace)
                self.stop.check()
                self.lock = take_lock(proxy, self.console, self.stop, options, operation="run")
            with self._released():
                self.stop.check()
                wire, lock, stop, clock = self.wire, self.lock, self.stop, self.clock
                self.sender = sender_of(wire, lock, stop, settings, options, clock=clock)
                self._execute_locked()

    @contextmanager
    def _released(self) -> Iterator[None]:
        """Release the lock at the end, with a note about this run."""
        try:
            yield
        except BaseException as error:
            _record_failure(self.report, error)
            raise
        finally:
            with self.phases.phase("release"):
                released = self.lock.release(self.report.note(time_text(self.lock.now())))
            if not released:
                self._warn(f"the lock was not released: {self.lock.lost or 'no answer'}")

    def _warn(self, line: str) -> None:
        self.console.warn(line)
        self.report.warnings.append(line)

    def _record_signal(self, exit_code: int) -> None:
        """Note a signal that another handler received; the next one ends the process."""
        self.stop.exit_code = exit_code
        self.stop.event.set()

    @property
    def _classifier(self) -> PodClassifier:
        return PodClassifier(self.sender.settings.scheduling_gate)

    def _execute_locked(self) -> None:
        self.stop.check()
        with self.phases.phase("recover"):
            recovered = self._recover()
        self._judge()
        if recovered.stop is None:
            self.stop.check()
            self._plan_and_apply(recovered)
            self._judge()

    def _recover(self) -> Verdict:
        """Complete, withdraw or report what earlier runs left incomplete."""
        view = self.sender.read_view()
        self.report.cluster = view.cluster
        self.stop.check()
        progress = ApplyProgress(self.console, self.clock)
        verdict = recover(view, self.request.options, self.sender, self._warn, progress.on_event)
        if verdict is None:
            return Verdict()
        self.console.clear_live()
        self.report.recovered = verdict
        show_verdict(self.console, None, verdict, self._undo_commands)
        return verdict

    def _plan_and_apply(self, recovered: Verdict) -> None:
        """Plan and apply; once more if the cluster changed in between."""
        planner, planned = self._planner(recovered), None
        try:
            planned = self._make_plan(planner, None)
            try:
                self._apply(ordered(planned.plan))
            except StaleError as error:
                for fault in error.faults:
                    self.console.say(f"{fault.what}; planning once more")
                self.report.replanned = True
                planned = self._make_plan(planner, planned)
                self._apply(ordered(planned.plan))
        finally:
            if planned is not None:
                made_from = f"the cluster of context {self.report.context}"
                last_plan.keep(self.console.environ, planned.text, made_from)
            self.report.warnings += planner.warnings
            self.phases.add(planner.seconds)

    def _planner(self, recovered: Verdict) -> LivePlanner:
        wire, reader, lock = self.sender.wire, self.sender.reader, self.lock
        request, backend = self.request, self.sender.settings.gpu_backend
        view, evictions = reader.view, request.options.allow_evictions
        assert view is not None  # recovery has read it
        unserved = rights.namespaces_without_start_rights(wire, view, self._classifier, backend)
        if unserved:
            self._warn(rights.left_out_warning(unserved))
        kept = rights.namespaces_without_eviction_rights(wire, view, backend) if evictions else ()
        notes, now = lock.notes, lock.now()
        planning = replace(
            request.planning,
            # A plan that stops or moves running gangs could not be applied completely.
            keep_running=not evictions,
            keep_in=frozenset(kept),
            avoid=tuple((one.gang, one.node) for one in notes.avoided(now)),
            held=tuple((one.gang, one.seen) for one in notes.held),
            evicted=with_lost_counted(replace(view, notes=notes, now=now)).evictions(now),
            promises=notes.promises,
        )
        if recovered.gangs:  # what was listed before is the past
            reader.store.listed.clear()
        skip = request.skip | (rights.REQUESTS if rights.unanswered(wire, view) else frozenset())
        leave = rights.waits_in(unserved, self._classifier) if unserved else None
        return LivePlanner(
            planning,
            self.wire,
            lambda: SnapshotRequest(skip=skip, starts=reader.records.starts, leave=leave),
            self.console,
            reader.store,
            self.clock,
            # Ages are computed with the server's clock: that of this host may be wrong.
            date=lock.now,
        )

    def _make_plan(self, planner: LivePlanner, before: Planned | None) -> Planned:
        """A plan of the cluster as it is, made while the lock is renewed."""
        lock, report = self.lock, self.report
        try:
            with lock.renewing(), interruptible():
                planned = planner.plan(before)
        except Interrupted as signal:
            self._record_signal(signal.exit_code)
            raise
        report.decided = planned.plan
        if (view := self.sender.reader.view) is not None:
            held = (key for key, pod in view.pods.items() if pod.held_at is not None)
            report.unbound = frozenset(held)
        lock.plan = report.plan = plan_id(planned.plan)
        self._note(planned.plan)
        if planned.signal_exit is not None:
            self._record_signal(planned.signal_exit)
        self.stop.check()
        if not lock.holds(LEAST_LOCK_S):
            what = f"the lock was lost while planning: {lock.lost or 'it could not be renewed'}"
            hint = "nothing of the plan was applied; the next run tries again"
            raise LockedError(Fault(what, hint))
        return planned

    def _note(self, plan: PlanDocument) -> None:
        """Note what is promised, and the gangs that cannot start by what they say themselves.

        Those that wait no longer are forgotten. Where that cannot be written, the next run notes it.
        """
        waiting = [one for one in plan.instance.gangs if not one.running_pods]
        holds = ((one.key, one.status.hold) for one in waiting)
        held = [key for key, hold in holds if hold is not None and hold.code != QUEUE_LIMIT]
        notes, lock = self.lock.notes, self.lock
        after = notes.with_held(held, (one.key for one in waiting), lock.now())
        after = replace(after, promises=promised_by(plan))
        if after != notes:
            lock.remember(after)

    def _apply(self, plan: VerifiedPlan) -> None:
        """Apply the plan, if it orders or reports anything, or a gang is half stopped.

        Raises StaleError before the first write. Where it was planned once more, gangs that changed again
        are left out: who makes his pods anew all the time stops nobody else.
        """
        report, sender, console = self.report, self.sender, self.console
        changes = any(gang.starts or gang.stops or gang.resizes for gang in plan.orders.gangs)
        view = sender.reader.view
        news = view is not None and has_news(view, plan.orders)
        if not (changes or news or self.lock.notes.stops):
            return
        options = self.request.options
        if options.max_evictions is not None:
            options = replace(options, max_evictions=max(0, options.max_evictions - report.evicted))
        progress = ApplyProgress(console, self.clock)

        def announce(view: ClusterView) -> None:
            found = announce_changes(console, plan.orders, view, evictions=options.allow_evictions)
            progress.pods = sum(len(change.starts) for change in found)

        with self.phases.phase("apply"):
            check_rights(plan, options, sender.wire, sender.read_view)
            verdict = check_and_apply(
                plan, options, sender, progress.on_event, announce, partly=report.replanned
            )
            console.clear_live()
        report.applied = verdict
        shown = report.recovered.gangs
        show_verdict(console, plan.orders.plan, verdict, self._undo_commands, shown)

    def _undo_commands(self, verdict: GangVerdict) -> list[str]:
        return undo_commands(verdict.undo, self.report.context, self.request.target.kubeconfig)

    def _judge(self) -> None:
        """Set status and exit code from the verdicts on all gangs."""
        report = self.report
        recovered, applied = report.recovered, report.applied
        # A gang whose record was removed is planned anew: that is no failure.
        withdrawn = {one.gang for one in recovered.gangs if one.outcome is Outcome.skipped} - {
            one.gang for one in applied.gangs
        }
        gangs = tuple(one for one in report.verdicts if one.gang not in withdrawn)
        verdict = Verdict(gangs, stop=applied.stop or recovered.stop)
        report.exit_code = exit_code(verdict, self.stop.exit_code)
        if report.exit_code > 128:
            report.status = "interrupted"
        elif report.exit_code:
            report.status = "stopped part-way"
        else:
            report.status = "applied" if report.writes else "unchanged"


MAX_WARNINGS = 4
"""Remarks of a reading that are shown: every run finds the same ones again."""

LEAST_TIME_S = 10
"""Least time limit of the second plan; otherwise it gets what the first left."""


class LivePlanner:
    """Makes plans of one cluster. ``clock``: monotonic; ``date``: seconds since the epoch.

    ``reading``: what to read of it, at each plan. ``store``: what was read of it before; what was
    listed a moment ago is not listed for the first plan.
    ``seconds``: of each phase, summed over plans. ``warnings``: those that were shown.
    """

    def __init__(
        self,
        request: PlanRequest,
        wire: Transport,
        reading: Callable[[], SnapshotRequest],
        console: Console,
        store: Store,
        clock: Callable[[], float],
        *,
        date: Callable[[], float] = time.time,
    ) -> None:
        self._request = request
        self._wire, self._reading = retry.RetryingTransport(wire), reading
        self._store = store
        self._console = console
        self._clock = clock
        self._date = date
        self._reported = False
        self.warnings: list[str] = []
        self._phases = Phases(clock)
        self.seconds = self._phases.seconds

    def plan(self, before: Planned | None = None) -> Planned:
        """Record the cluster as it is now and plan it. ``before``: the plan that became stale.

        Raises what reading the cluster and ``planning.plan`` raise.
        """
        created_at = planning.now(self._console.environ, self._date)
        request = replace(self._request, now=epoch_seconds(created_at))
        if before is not None:
            request = replace(request, time_limit_s=time_left(before))
            self._store.listed.clear()
        with self._phases.phase("snapshot"):
            lists = self._listed()
        planned = planning.plan(
            replace(request, gather=lists.gather),
            self._console,
            created_at=created_at,
            clock=self._clock,
            on_read=self._report_remarks,
        )
        self._phases.add(planned.seconds)
        return planned

    def _listed(self) -> LiveLists:
        """What planning needs of the cluster as it is now."""
        lists = LiveLists(self._store)
        recorded = read_lists(self._wire, lists, self._reading(), lambda *_: None)
        if recorded.forbidden and not self._reported:
            self._warn(f"not permitted, so not planned with: {'; '.join(recorded.forbidden)}")
            for line in recorded.consequences():
                self._warn(line)
        return lists

    def _report_remarks(self, built: LoadedInput) -> None:
        """Show the first remarks, once: the plan contains all of them."""
        if self._reported:
            return
        self._reported = True
        shown = shown_of(len(built.remarks), MAX_WARNINGS)
        for line in built.remarks[:shown]:
            self._warn(line)
        if rest := len(built.remarks) - shown:
            self._warn(f"and {rest:,} more, all in the plan: --out FILE")

    def _warn(self, line: str) -> None:
        self._console.warn(line)
        self.warnings.append(line)


def time_left(before: Planned) -> int:
    """Seconds of the time limit that a plan's search left, at least LEAST_TIME_S."""
    limit = before.plan.instance.policy.spec.solve.time_limit_s
    return min(limit, max(LEAST_TIME_S, limit - int(before.seconds.get("solve", 0.0))))
