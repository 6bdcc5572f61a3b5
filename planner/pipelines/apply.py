"""The pipeline of ``apply``: verify, connect, check, confirm, lock, read again, apply, release.

Runs no solver. Writes only after all checks have passed. The lock is released however it ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from models.apply.live_state import ClusterView
from models.apply.requests import Verdict
from models.units import time_text
from planner.cluster import retry
from planner.cluster.live_view import ClusterReader
from planner.cluster.lock import Lock, read_lease
from planner.cluster.request_sender import OnEvent
from planner.cluster.rights import LOOK, RECORDS
from planner.cluster.start_records import StartRecords
from planner.cluster.transport import Transport, accepted
from planner.errors import GangplanError
from planner.pipelines.apply_steps import (
    ApplyOptions,
    ClusterTarget,
    VerifiedPlan,
    check_age,
    check_and_apply,
    check_cluster,
    check_rights,
    check_view,
    exit_code,
    read_verified,
    run_paths,
    sender_of,
    take_lock,
)
from planner.pipelines.plan import Phases
from planner.show.apply import counts
from planner.show.console import Console
from planner.signals import Interrupted, stop_on_signal


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

    Raises what the steps of ``apply_steps`` raise.
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
    """Apply the plan of a file. Raises what the steps of ``apply_steps`` raise, and LockedError.

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
