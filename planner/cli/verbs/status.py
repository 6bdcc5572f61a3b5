"""``gangplan status``: the lock, the last run, and gangs that are not whole.

It reads only; ``--release`` frees the lock of a run that died, ``--give-back-after`` lets pods go.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from planner.cli.options import Connection, seconds_of, verb
from planner.errors import Fault, UsageError
from planner.show.console import Console
from planner.show.text import Format
from planner.untrusted_text import safe

if TYPE_CHECKING:
    from models.instance.policy import KubernetesPolicy
    from planner.pipelines.apply import ClusterTarget
    from planner.show.status import Status


@verb
def status(
    console: Console,
    *,
    release: str | None = None,
    give_back_after: str | None = None,
    policy: str | None = None,
    connection: Connection,
    output: Format = Format.table,
) -> int:
    """Show the lock, the last run, and incomplete gangs."""
    from planner.cluster.plan_status import GangPhase
    from planner.read.inputs import read_policy
    from planner.show import status as statuses

    target, lock_namespace = connection.target(console), connection.lock_namespace
    if release is not None:
        return _release(console, target, lock_namespace, release)
    if policy == "-":
        raise UsageError(Fault("status does not read stdin", "pass the Policy as a file"))
    settings = read_policy([], policy=policy).kubernetes
    if give_back_after is not None:
        return _give_back(console, target, lock_namespace, settings, give_back_after)
    found = _read(target, lock_namespace, settings)
    half_there = (GangPhase.partial, GangPhase.cut, GangPhase.late)
    if output is not Format.table:
        console.document(statuses.document(found), output)
    else:
        console.data(console.sections(statuses.tables(found, console.program)))
        console.data("".join(f"{safe(line)}\n" for line in statuses.undoing(found)))
    console.event(
        "summary",
        verb="status",
        status="read",
        exit_code=0,
        context=found.context,
        cluster=found.cluster,
        locked=found.lease.holder is not None and not found.lease.holder.expired,
        half_there=sum(gang.state in half_there for gang in found.gangs),
        pending=len(found.pins),
    )
    return 0


LEAST_QUIET_S = 30 * 60
"""A run that takes its time is not away."""


def _give_back(
    console: Console, target: ClusterTarget, namespace: str, settings: KubernetesPolicy, after: str
) -> int:
    """Give pods back if gangplan is away; exit code 7 if some could not be."""
    from planner.pipelines.give_back import GiveBackRequest, give_back
    from planner.show.give_back import show_given_back
    from planner.signals import stop_on_signal

    after_s = seconds_of("--give-back-after", after)
    if after_s < LEAST_QUIET_S:
        hint = "a value well above the time between two runs, such as 2h"
        raise UsageError(Fault("--give-back-after is below 30m", hint))
    with stop_on_signal() as stop:
        request = GiveBackRequest(target, settings, namespace, after_s)
        found = give_back(request, console, stop)
    show_given_back(console, found, after_s)
    code = 7 if found.failed or found.closed else 0
    counts = {"given_back": len(found.pods), "left": len(found.left), "failed": len(found.failed)}
    status = "part-way" if code else "given back" if found.pods else "unchanged"
    console.event("summary", verb="status", status=status, exit_code=code, **counts)
    return code


def _release(console: Console, target: ClusterTarget, namespace: str, identity: str) -> int:
    """Free the lock; a run that holds it and is alive starts no further gang."""
    from planner.cluster.lock import unlock
    from planner.cluster.retry import RetryingTransport
    from planner.cluster.rights import lock_rights
    from planner.cluster.transport import accepted

    if not identity:
        raise UsageError(Fault("the ID of the lock is empty", "gangplan status shows it"))
    with target.connect(accepted(lock_rights(namespace))) as transport:
        holder = unlock(
            RetryingTransport(transport),
            namespace=namespace,
            identity=identity,
            program=console.program,
        )
        context = transport.context
    if holder is None:
        console.say(f"the lock in namespace {namespace} is free; nothing was changed")
    else:
        console.say(f"released in namespace {namespace}: {holder.describe()}")
        if holder.left_s is not None and holder.left_s > 0:
            console.warn("if that run is alive, it stops within seconds and starts no further gang")
        console.next(f"{console.program} status")
    console.event(
        "summary",
        verb="status",
        status="free" if holder is None else "released",
        exit_code=0,
        context=context,
        namespace=namespace,
        lock=None if holder is None else holder.id,
    )
    return 0


def _read(target: ClusterTarget, lock_namespace: str, settings: KubernetesPolicy) -> Status:
    from models.apply.requests import ApplyLimits
    from models.apply.session import ApplySession
    from planner.cluster.live_view import ClusterReader
    from planner.cluster.lock import read_lease
    from planner.cluster.plan_status import gang_statuses, pending_pods
    from planner.cluster.retry import RetryingTransport
    from planner.cluster.start_records import StartRecords
    from planner.pipelines.apply import status_paths
    from planner.show.status import Status

    with target.connect(status_paths(lock_namespace)) as proxy:
        wire = RetryingTransport(proxy)
        lease = read_lease(wire, lock_namespace)
        records = StartRecords(wire, lock_namespace)
        view = ClusterReader(wire, settings, records).read_view()
        view = replace(view, notes=lease.notes, now=None if lease.now is None else int(lease.now))
        context = proxy.context
    gate, limit_s = settings.scheduling_gate, settings.pending_limit_s
    session = ApplySession(view, ApplyLimits(gate=gate, pending_limit_s=limit_s))
    gangs, pins = gang_statuses(session), pending_pods(session)
    return Status(context, target.kubeconfig, view.cluster, lease, gangs, pins, records.unread)
