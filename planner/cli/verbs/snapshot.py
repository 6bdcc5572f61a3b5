"""``gangplan snapshot --out DIR``: record a live cluster through kubectl, for ``plan DIR``.

Reads only. The folder holds no environment variables, commands, volumes or secrets.
"""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

from models.units import plural
from planner.cli.options import namespace_of, seconds_of, verb
from planner.errors import Fault, UsageError
from planner.show.console import Console

if TYPE_CHECKING:
    from planner.cluster.snapshot import Recorded


@verb
def snapshot(
    console: Console,
    *,
    out: Path,
    context_: str | None = None,
    kubeconfig: str | None = None,
    namespace: list[str] | None = None,
    skip: list[str] | None = None,
    force: bool = False,
    request_timeout: str = "60s",
) -> None:
    """Record what planning needs of a cluster, through kubectl."""
    from planner.cluster.proxy import connect
    from planner.cluster.retry import RetryingTransport
    from planner.cluster.snapshot import ACCEPT, SnapshotFolder, SnapshotRequest, record
    from planner.pipelines.apply import LOCK_NAMESPACE

    request = SnapshotRequest(
        tuple(dict.fromkeys(map(namespace_of, namespace or []))),
        skipped(skip or []),
        lock_namespace=LOCK_NAMESPACE,
    )
    timeout_s = seconds_of("--request-timeout", request_timeout)
    begun = time.monotonic()
    with (
        SnapshotFolder(out, force=force) as folder,
        connect(
            console.environ,
            context=context_,
            kubeconfig=kubeconfig,
            timeout_s=timeout_s,
            accept=ACCEPT,
        ) as proxy,
    ):
        transport = RetryingTransport(proxy)

        def on_progress(resource: str, done: int, of: int) -> None:
            console.doing(f"recording {resource}: {done:,} of {of:,}")

        recorded = record(transport, folder, request, on_progress)
    console.clear_live()
    seconds = time.monotonic() - begun
    counts = ", ".join(f"{count:,} {name}" for name, count in recorded.counts.items())
    source = "this pod's cluster" if proxy.context is None else f"context {proxy.context}"
    console.say(f"recorded {source}: {counts or 'nothing'}")
    absent = _grouped(recorded)
    if absent:
        kinds = "other kinds or groups" if len(absent) > 1 else "other kind"
        console.say(f"not served by this cluster: {len(absent)} {kinds} that planning knows")
    if recorded.forbidden:
        console.warn(f"not permitted, so left out: {'; '.join(recorded.forbidden)}")
        for line in recorded.consequences():
            console.warn(line)
    if recorded.cluster is None:
        console.warn(
            "without the uid of namespace kube-system, plans of this snapshot cannot be applied"
        )
    if request.namespaces:
        names = ", ".join(request.namespaces)
        console.warn(f"only pods of {names} are recorded; GPUs held by others look free")
    if transport.retries:
        console.say(f"{plural(transport.retries, 'request')} sent again")
    if recorded.restarts:
        console.say(f"{plural(recorded.restarts, 'list')} restarted")
    place = shlex.quote(str(out))
    console.say(f"saved {place} ({recorded.bytes / 1e6:.1f} MB in {seconds:.1f} s)")
    console.next(f"{console.program} plan {place}")
    console.event(
        "summary",
        verb="snapshot",
        status="recorded",
        exit_code=0,
        context=proxy.context,
        cluster=recorded.cluster,
        counts={name: float(count) for name, count in recorded.counts.items()},
        absent=absent,
        forbidden=list(recorded.forbidden),
        retries=transport.retries,
        restarts=recorded.restarts,
        bytes=recorded.bytes,
        seconds=round(seconds, 3),
    )


def _grouped(recorded: Recorded) -> list[str]:
    """What is not served: a whole API group by its name, else the resources."""
    from planner.read.kube.kinds import OTHERS

    gone = {kind.resource for kind in recorded.absent}
    groups: dict[str, list[str]] = {}
    for kind in OTHERS:
        groups.setdefault(kind.group, []).append(kind.resource)
    return [
        name
        for group, resources in groups.items()
        for name in (
            [group]
            if group and gone.issuperset(resources)
            else [one for one in resources if one in gone]
        )
    ]


def skipped(resources: list[str]) -> frozenset[str]:
    """The resources of ``--skip``. Raises UsageError for one that is not recorded, or is required."""
    from planner.read.kube.kinds import OTHERS

    known = [kind.resource for kind in OTHERS]
    for resource in resources:
        if resource not in known:
            hint = f"kinds that can be left out: {', '.join(known)}"
            raise UsageError(Fault(f"--skip {resource!r} is not a recorded kind", hint))
    return frozenset(resources)
