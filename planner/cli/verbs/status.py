"""``gangplan status``: the lock, the last run, and gangs that are not whole.

It reads only; ``--release`` frees the lock of a run that died.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import Connection, LockNamespaceOption, SettingsOption, output_option, verb
from planner.errors import Fault, UsageError
from planner.show.console import Console
from planner.show.text import Format

if TYPE_CHECKING:
    from models.instance.policy import KubernetesPolicy
    from planner.cluster.plan_status import GangStatus
    from planner.pipelines.apply_steps import ClusterTarget
    from planner.show.status import Status, Undo


@verb
def status(
    console: Console,
    *,
    release: Annotated[
        str | None,
        typer.Option(
            "--release",
            metavar="ID",
            help="Release the lock with this ID, of a run that died, and show nothing else.",
        ),
    ] = None,
    policy: SettingsOption = None,
    connection: Connection,
    lock_namespace: LockNamespaceOption = "gangplan-system",
    output: Annotated[
        Format, output_option("", Format.table, Format.json, Format.yaml)
    ] = Format.table,
) -> None:
    """Show the lock, the last run, and incomplete gangs."""
    from planner.read.inputs import read_policy
    from planner.show.apply import undo_commands

    if release is not None:
        _release(console, connection.target(console), lock_namespace, release)
        return
    if policy == "-":
        raise UsageError(Fault("status does not read stdin", "pass the Policy as a file"))
    found = _read(
        connection.target(console), lock_namespace, read_policy([], policy=policy).kubernetes
    )

    def undo(gang: GangStatus) -> list[str]:
        return undo_commands(gang.left, found.context, connection.kubeconfig)

    if output is not Format.table:
        from planner.show import status as statuses

        console.document(statuses.document(found, undo), output)
    else:
        _tables(console, found, undo)
    console.event(
        "summary",
        verb="status",
        status="read",
        exit_code=0,
        context=found.context,
        cluster=found.cluster,
        locked=found.lease.holder is not None and not found.lease.holder.expired,
        half_there=len(found.partial),
        pending=len(found.pins),
    )


def _release(console: Console, target: ClusterTarget, namespace: str, identity: str) -> None:
    """Free the lock; a run that holds it and is alive starts no further gang."""
    from planner.cluster.lease import lock_paths
    from planner.cluster.lock import unlock
    from planner.cluster.retry import RetryingTransport

    if not identity:
        raise UsageError(Fault("the ID of the lock is empty", "gangplan status shows it"))
    with target.connect(lock_paths(namespace)) as transport:
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
            console.warn(
                "it was renewed within the last minute: if that run is alive, it stops within seconds"
                " and starts no further gang"
            )
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


def _read(target: ClusterTarget, lock_namespace: str, settings: KubernetesPolicy) -> Status:
    from models.apply.live_state import PodClassifier, forged
    from planner.cluster.lease import notes_of, seal_key_of
    from planner.cluster.live_view import read_cluster
    from planner.cluster.lock import read_lease
    from planner.cluster.plan_status import gang_statuses, pending_pods
    from planner.cluster.retry import RetryingTransport
    from planner.pipelines.apply_steps import status_paths
    from planner.show.status import Status

    with target.connect(status_paths(lock_namespace)) as proxy:
        wire = RetryingTransport(proxy)
        lease = read_lease(wire, lock_namespace)
        view = read_cluster(wire, settings, seal_key_of(lease.tree))
        now = None if lease.now is None else int(lease.now)
        view = replace(view, notes=notes_of(lease.tree), now=now)
        context = proxy.context
    classifier = PodClassifier(settings.scheduling_gate)
    gangs = gang_statuses(view, classifier, settings.pending_limit_s)
    pins, alien = (
        pending_pods(view, classifier),
        tuple(pod.key for pod in forged(view.pods.values())),
    )
    return Status(context, view.cluster, lease, gangs, pins, alien)


def _tables(console: Console, found: Status, undo: Undo) -> None:
    from planner.show import status as statuses
    from planner.untrusted_text import safe

    console.table(statuses.facts(found, console.program))
    for table in (statuses.unsettled(found), statuses.pins(found)):
        if table.rows:
            console.data("\n")
            console.table(table)
    lines = list(statuses.undoing(found, undo))
    if lines:
        console.data("\n" + "".join(f"{safe(line)}\n" for line in lines))
