"""``gangplan unlock ID``: release the lock of a run that died; a run that is alive starts no further gang."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import Connection, LockNamespaceOption, verb
from planner.errors import Fault, UsageError
from planner.show.console import Console

if TYPE_CHECKING:
    from planner.cluster.lease import Holder


@verb
def unlock(
    console: Console,
    identity: Annotated[
        str,
        typer.Argument(metavar="ID", help="ID of the lock, shown by `status` and by refused runs."),
    ],
    *,
    connection: Connection,
    lock_namespace: LockNamespaceOption = "gangplan-system",
) -> None:
    """Release the lock of a run that died. It expires a minute after the last renewal."""
    from planner.cluster.lease import lock_paths
    from planner.cluster.lock import unlock as unlock_lease
    from planner.cluster.retry import RetryingTransport

    if not identity:
        raise UsageError(Fault("the ID of the lock is empty", "gangplan status shows it"))
    with connection.target(console).connect(lock_paths(lock_namespace)) as transport:
        holder = unlock_lease(
            RetryingTransport(transport),
            namespace=lock_namespace,
            identity=identity,
            command=(*console.program.split(), "unlock"),
        )
        named = transport.context
    _report(console, holder, lock_namespace, named)


def _report(console: Console, holder: Holder | None, namespace: str, context: str | None) -> None:
    if holder is None:
        console.say(f"the lock in namespace {namespace} is free; nothing was changed")
    else:
        console.say(f"unlocked in namespace {namespace}: {holder.describe()}")
        if holder.left_s is not None and holder.left_s > 0:
            console.warn(
                "it was renewed within the last minute: if that run is alive, it stops within seconds"
                " and starts no further gang"
            )
        console.next(f"{console.program} status")
    console.event(
        "summary",
        verb="unlock",
        status="free" if holder is None else "unlocked",
        exit_code=0,
        context=context,
        namespace=namespace,
        lock=None if holder is None else holder.id,
    )
