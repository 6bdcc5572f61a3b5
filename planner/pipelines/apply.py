"""The pipeline of ``apply``: verify, connect, check, confirm, lock, read again, apply, release.

Runs no solver. Writes only after all checks have passed; a refusal carries the exit code of the contract. The
lock is released however it ends. ``run`` and ``status`` share its steps, which stand first.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

from models.apply.live_state import ClusterView
from models.apply.plan_actions import InapplicablePlanError, PlanActions, actions_of
from models.apply.requests import ApplyLimits, Outcome, Verdict
from models.apply.session import ApplySession
from models.apply.staleness import changes, has_started
from models.apply.state_machine import apply_plan, recover_gangs
from models.documents.plan import PlanDocument
from models.instance.policy import KubernetesPolicy, kubernetes_policy
from models.units import shown_of, time_text
from planner.cluster import lock as locking
from planner.cluster import proxy, request_sender, retry, rights
from planner.cluster.backends import backend_of
from planner.cluster.backends.base import Backend
from planner.cluster.live_view import ClusterReader
from planner.cluster.lock import Lock, read_lease
from planner.cluster.plan_status import is_to_recover
from planner.cluster.request_sender import OnEvent, RequestSender
from planner.cluster.rights import LOOK, RECORDS
from planner.cluster.start_records import StartRecords
from planner.cluster.transport import Transport, accepted
from planner.errors import Fault, GangplanError, InputError, StaleError
from planner.pipelines.plan import Phases, verify_file
from planner.read.inputs import read_policy
from planner.read.plan_files import read_bytes
from planner.show.apply import counts
from planner.show.console import Console
from planner.show.text import lasting
from planner.signals import Interrupted, Stop, stop_on_signal
from planner.untrusted_text import one_line

CLOCK_SKEW_S = 60
"""Tolerated difference between the clocks of the planning host and the API server."""

LOCK_NAMESPACE = "gangplan-system"

TICK_S = 1.0
"""Seconds between two readings while the apply machine waits."""

MAX_SHOWN = 20
"""Changes listed in one refusal."""

_INCOMPLETE = (Outcome.skipped, Outcome.partial, Outcome.halted, Outcome.withheld)


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """``wait_s``: for evicted pods to go and pinned pods to be bound. ``max_evictions``: None: unlimited."""

    lock_namespace: str = LOCK_NAMESPACE
    lock_wait_s: float = 0.0
    allow_evictions: bool = False
    max_evictions: int | None = None
    evict_partial: bool = False
    wait_s: float = 60.0

    @property
    def evicts(self) -> bool:
        return self.allow_evictions or self.evict_partial

    def limits(self, settings: KubernetesPolicy, *, dry: bool = False) -> ApplyLimits:
        """The limits of the apply machine."""
        return ApplyLimits(
            allow_evictions=self.allow_evictions,
            max_evictions=sys.maxsize if self.max_evictions is None else self.max_evictions,
            evict_partial=self.evict_partial,
            wait_rounds=math.ceil(self.wait_s / TICK_S),
            tick_s=TICK_S,
            gate=settings.scheduling_gate,
            backend=settings.gpu_backend,
            dry=dry,
            pending_limit_s=settings.pending_limit_s,
        )


@dataclass(frozen=True, slots=True)
class VerifiedPlan:
    """The orders of a plan that passed the verifier, and the Kubernetes settings of its Policy."""

    orders: PlanActions
    settings: KubernetesPolicy
    backend: Backend


def settings_to_run(paths: Sequence[str], policy: str | None) -> KubernetesPolicy:
    """Settings of the Policy of unattended runs. Raises InputError if it plans what cannot be applied."""
    settings = read_policy(paths, policy=policy).kubernetes
    if settings.plans_others:
        what = f"the Policy plans pods of other schedulers: {', '.join(settings.scheduler_names)}"
        hint = "run starts only gangplan's own: take kubernetes.schedulerNames out of its Policy"
        raise InputError(Fault(what, hint))
    return settings


def read_verified(path: str, stdin: IO[bytes] | None = None) -> VerifiedPlan:
    """Read and verify a plan file. Raises MissingPathError, InputError, RefusedPlanError."""
    return ordered(verify_file(read_bytes(path, stdin), path), path)


def ordered(plan: PlanDocument, file: str | None = None) -> VerifiedPlan:
    """The orders of a verified plan. ``file``: for messages. Raises InputError."""
    try:
        orders = actions_of(plan)
    except InapplicablePlanError as error:
        raise InputError(Fault(error.what, error.hint, file)) from None
    settings = kubernetes_policy(plan.instance.policy.spec.kubernetes)
    return VerifiedPlan(orders, settings, backend_of(orders.backend))


# ---- connecting


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """Which cluster to connect to. ``timeout_s``: of one request."""

    environ: Mapping[str, str]
    context: str | None = None
    kubeconfig: str | None = None
    timeout_s: float = 30.0

    def connect(self, accept: Iterable[str]) -> AbstractContextManager[proxy.ProxyTransport]:
        """A kubectl proxy that passes only these URL paths (regular expressions without commas)."""
        from planner.cluster import proxy

        return proxy.connect(
            self.environ,
            context=self.context,
            kubeconfig=self.kubeconfig,
            timeout_s=self.timeout_s,
            accept=tuple(accept),
        )


def run_paths(options: ApplyOptions, settings: KubernetesPolicy) -> tuple[str, ...]:
    """URL paths to apply whatever a plan may order."""
    backend = settings.gpu_backend
    work = rights.work_rights([None], evictions=options.evicts, backend=backend, resized=[None])
    return (
        *status_paths(options.lock_namespace),
        *accepted((*work, *rights.PLACING, rights.REVIEW, *backend_of(backend).asked)),
    )


def status_paths(lock_namespace: str) -> tuple[str, ...]:
    """URL paths to read the cluster and the lock."""
    return accepted((*rights.LOOK, *rights.lock_rights(lock_namespace)))


# ---- checks before the first write


def check_cluster(plan: VerifiedPlan, cluster: str) -> None:
    """``cluster``: uid of the live cluster. Raises InputError."""
    if plan.orders.cluster != cluster:
        what = (
            f"the plan is for the cluster with uid {one_line(plan.orders.cluster)}, "
            f"this cluster has {one_line(cluster) or 'none'}"
        )
        raise InputError(Fault(what, "select the plan's cluster: --context NAME"))


def check_age(plan: VerifiedPlan, max_age_s: int | None, now: float | None) -> None:
    """``now``: the server's clock in seconds since the epoch. Raises StaleError."""
    if max_age_s is None or now is None:
        return
    age = int(now) - plan.orders.created_at
    if age < -CLOCK_SKEW_S:
        what = f"the plan was made {lasting(-age)} in the future, by the API server's clock"
        raise StaleError(Fault(what, "set the clock of the planning host"))
    if age > max_age_s:
        what = f"the plan is {lasting(age)} old, --max-age is {lasting(max_age_s)}"
        raise StaleError(Fault(what, "plan again, or raise --max-age"))


def check_rights(
    plan: VerifiedPlan,
    options: ApplyOptions,
    wire: Transport,
    read_view: Callable[[], ClusterView],
) -> None:
    """Whether the back end can work, and every right that applying needs.

    Raises InputError, NotPermittedError.

    The rights in a namespace go with it: if it is gone, StaleError is raised instead, unless the plan has
    been applied in part; then the machine leaves out what is gone.
    """
    if (unserved := plan.backend.unserved(wire)) is not None:
        raise InputError(Fault(unserved, _CHOOSE))
    needed = rights.plan_rights(
        plan.orders,
        lock_namespace=options.lock_namespace,
        evictions=options.evicts,
        backend=plan.orders.backend,
        undoing=options.evict_partial,
    )
    missing = rights.missing_rights(wire, needed)
    spaces = {right.namespace for right in missing}
    if not missing or not spaces <= set(plan.orders.namespaces) - {options.lock_namespace}:
        left = missing
    else:
        view = read_view()
        used = {pod.namespace for pod in view.pods.values() if not pod.terminating}
        left = [right for right in missing if right.namespace in used]
        if not left and not has_started(plan.orders, view):
            found = [f"stale: namespace {name} is gone" for name in sorted(map(str, spaces))]
            raise StaleError(*_faults(found, "plan again"))
    if left:
        raise rights.not_permitted(left)


_CHOOSE = "kubernetes.gpuBackend of the Policy selects how nodes learn about GPUs"


def check_view(plan: VerifiedPlan, view: ClusterView, *, partly: bool = False) -> None:
    """Whether the facts the plan relied on still hold. Raises StaleError, or InputError of the back end.

    If the plan has been applied in part, the machine leaves out what no longer holds. ``partly``: likewise
    as long as there is anything else to do.
    """
    if not has_started(plan.orders, view):
        found = changes(plan.orders, view)
        left = {gang.key for gang in plan.orders.gangs}.difference(one.gang for one in found)
        if found and not (partly and (left or plan.orders.waiting)):
            hint = f"plan again: this plan was made at {time_text(plan.orders.created_at)}"
            raise StaleError(*_faults([f"stale: {one}" for one in found], hint))
    conflicts = plan.backend.check(plan.orders, view)
    if conflicts:
        raise InputError(*_faults(conflicts, _CHOOSE))


def _faults(found: list[str], hint: str) -> list[Fault]:
    """One fault each, at most MAX_SHOWN; the hint once, at the end."""
    shown = [one_line(one) for one in found[: shown_of(len(found), MAX_SHOWN)]]
    if rest := len(found) - len(shown):
        shown[-1] = f"{shown[-1]} (and {rest:,} more)"
    return [Fault(one, hint if one is shown[-1] else None) for one in shown]


# ---- applying under the lock


def take_lock(
    wire: Transport,
    console: Console,
    stop: Stop,
    options: ApplyOptions,
    *,
    operation: str,
    plan: str | None = None,
) -> locking.Lock:
    """Raises LockedError with the holder, NotPermittedError, Interrupted if a signal comes meanwhile."""

    def pause(seconds: float) -> None:
        stop.event.wait(seconds)
        stop.check()

    return locking.acquire(
        wire,
        locking.this_run(console.environ, operation, plan),
        namespace=options.lock_namespace,
        wait_s=options.lock_wait_s,
        sleep=pause,
        on_wait=lambda holder: console.say(f"waiting: {holder.describe()}"),
        program=console.program,
    )


def sender_of(
    wire: Transport,
    lock: locking.Lock | None,
    stop: Stop,
    settings: KubernetesPolicy,
    options: ApplyOptions,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> RequestSender:
    """Sends what the machine asks for under that lock; without one every write is a dry run."""
    sleep = stop.event.wait
    sender = request_sender.RequestSender(
        wire=retry.RetryingTransport(wire, sleep=sleep, lock=lock),
        settings=settings,
        backend=backend_of(settings.gpu_backend),
        lock=lock,
        stop=stop.event,
        namespace=options.lock_namespace,
        clock=clock,
        sleep=sleep,
        dry=lock is None,
    )
    sender.reader.evicting = options.evicts
    return sender


def recover(
    view: ClusterView,
    options: ApplyOptions,
    sender: RequestSender,
    warn: Callable[[str], None],
    on_event: OnEvent = lambda *_: None,
) -> Verdict | None:
    """Complete, withdraw or report what earlier runs left incomplete; None if that is nothing.

    What the account may not write is said of the gang alone: tenants choose who may write in a namespace.
    """
    limits = options.limits(sender.settings)
    if unread := sender.reader.records.unread:
        warn(f"ignored: no records of starts: configmaps {', '.join(unread[:5])}")
    if unanswered := rights.unanswered(sender.wire, view):
        warn(rights.unanswered_warning(unanswered))
    if not is_to_recover(ApplySession(view, limits), answers=not unanswered):
        return None
    return request_sender.run_machine(recover_gangs(view, limits), sender, on_event)


def check_and_apply(
    plan: VerifiedPlan,
    options: ApplyOptions,
    sender: RequestSender,
    on_event: OnEvent,
    on_checked: Callable[[ClusterView], None] = lambda _: None,
    *,
    partly: bool = False,
) -> Verdict:
    """Read and check again, then apply. ``on_checked``: receives the view. ``partly``: see ``check_view``.

    Raises StaleError, InputError and UnavailableError before the first write, nothing after it.
    """
    view = sender.read_view()
    check_cluster(plan, view.cluster)
    check_view(plan, view, partly=partly)
    on_checked(view)
    limits = options.limits(plan.settings, dry=sender.dry)
    return request_sender.run_machine(apply_plan(plan.orders, view, limits), sender, on_event)


def exit_code(verdict: Verdict, signal_exit: int | None) -> int:
    """0 if complete, pending or advised; 7 if not complete; 129, 130 or 143 after a signal."""
    if verdict.stop is not None:
        return 7 if signal_exit is None else signal_exit
    return 7 if any(gang.outcome in _INCOMPLETE for gang in verdict.gangs) else 0


# ---- the pipeline


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """Arguments of ``apply``. ``path``: the plan file, - for stdin.

    ``max_age_s``: None for any age. ``dry``: server-side dry run. ``yes``: do not ask.
    """

    path: str
    target: ClusterTarget
    options: ApplyOptions = field(default_factory=ApplyOptions)
    max_age_s: int | None = None
    dry: bool = False
    yes: bool = False


@dataclass(frozen=True, slots=True)
class Preview:
    """A plan beside what it would change. ``context``: of kubectl; None inside a pod."""

    plan: VerifiedPlan
    view: ClusterView
    context: str | None


def preview(request: ApplyRequest, console: Console) -> Preview:
    """The cluster before an apply. Takes no lock, and needs no right to write.

    Raises what the steps above raise.
    """
    plan = read_verified(request.path, console.stdin)
    console.event("verify_done", violations=0)
    with request.target.connect(accepted((*LOOK, RECORDS))) as wire:
        reader = _reader(request, plan, retry.RetryingTransport(wire), optional=True)
        reader.evicting = True
        view = reader.read_view()
        check_view(plan, view)
        return Preview(plan, view, wire.context)


def _reader(
    request: ApplyRequest, plan: VerifiedPlan, wire: Transport, *, optional: bool = False
) -> ClusterReader:
    """Reads the cluster, which is that of the plan. ``optional``: records of starts need not be readable.

    Raises InputError for another cluster, StaleError for a plan that is too old.
    """
    records = StartRecords(wire, request.options.lock_namespace, optional=optional)
    reader = ClusterReader(wire, plan.settings, records, evicting=request.options.evicts)
    check_cluster(plan, reader.identity())
    check_age(plan, request.max_age_s, time.time() if reader.date is None else reader.date)
    return reader


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """``verdict``: None if the user declined. ``seconds``: of each phase."""

    plan: VerifiedPlan
    verdict: Verdict | None
    exit_code: int
    context: str | None
    seconds: dict[str, float]


def apply(
    request: ApplyRequest,
    console: Console,
    announce: Callable[[VerifiedPlan, ClusterView], None],
    confirm: Callable[[VerifiedPlan, ClusterView, str | None], bool],
    on_event: OnEvent,
) -> ApplyResult:
    """Apply the plan of a file. Raises what the steps above raise, and LockedError.

    ``announce``: shows what will change. ``confirm``: asks the user; the last argument is the context of
    kubectl, None inside a pod.
    """
    phases = Phases(time.monotonic)
    with phases.phase("verify"):
        plan = read_verified(request.path, console.stdin)
    console.event("verify_done", violations=0)
    options, asks = request.options, not (request.yes or request.dry)
    target = request.target
    with target.connect(run_paths(options, plan.settings)) as wire:
        transport = retry.RetryingTransport(wire)
        with phases.phase("check"):
            reader = _reader(request, plan, transport)
            check_rights(plan, options, transport, reader.read_view)
            if asks or request.dry:
                reader.notes = read_lease(transport, options.lock_namespace).notes
        if asks:
            with phases.phase("read"):
                view = reader.read_view()
            check_view(plan, view)
            announce(plan, view)
            if not confirm(plan, view, wire.context):
                return ApplyResult(plan, None, 130, wire.context, phases.seconds)
        with stop_on_signal() as stop:
            lock = None
            with phases.phase("lock"):
                if not request.dry:
                    lock = take_lock(
                        wire, console, stop, options, operation="apply", plan=plan.orders.plan
                    )
            with phases.phase("apply"):
                sender = sender_of(wire, lock, stop, plan.settings, options)
                sender.reader.notes = reader.notes
                with _released(lock, plan.orders.plan, console) as last_run:
                    verdict = check_and_apply(
                        plan,
                        options,
                        sender,
                        on_event,
                        lambda view: None if asks else announce(plan, view),
                    )
                    code = exit_code(verdict, stop.exit_code)
                    counted = {**counts(verdict.gangs), "evicted": verdict.evicted}
                    last_run |= {
                        "status": status_of(verdict, code),
                        "exit_code": code,
                        "counts": counted,
                    }
        return ApplyResult(plan, verdict, code, wire.context, phases.seconds)


def status_of(verdict: Verdict, code: int, *, dry: bool = False) -> str:
    """How an apply ended, in a word."""
    if verdict.stop is not None:
        return "stopped"
    if code:
        return "part-way"
    return "dry-run" if dry else "applied" if verdict.writes else "unchanged"


@contextmanager
def _released(lock: Lock | None, plan: str, console: Console) -> Iterator[dict[str, Any]]:
    """Release the lock at the end, with a note about this run."""
    last_run: dict[str, Any] = {"status": "failed", "exit_code": 1, "plan": plan}
    try:
        yield last_run
    except (GangplanError, Interrupted) as error:
        last_run["exit_code"] = error.exit_code
        raise
    finally:
        if lock is not None:
            last_run["finished"] = time_text(int(time.time()))
            if not lock.release(last_run):
                console.warn("the lock was not released; it expires within a minute")
