"""``gangplan snapshot --out DIR``: a live cluster recorded through kubectl, for ``plan DIR``.

Promises: reads only; the folder is written whole or not at all, and holds no environment variables,
commands, volumes or secrets. The work is done in ``planner.cluster.recording``.
"""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.console import Color, Console, LogFormat
from planner.errors import Fault, UsageError
from planner.verbs.options import ColorOption, DebugOption, LogOption, console_of

if TYPE_CHECKING:
    from planner.cluster.recording import Recorded, Wish

_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def snapshot(
    context: typer.Context,
    *,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder to make, one file a kind.")
    ],
    kube_context: Annotated[
        str | None,
        typer.Option(
            "--context", metavar="NAME", help="The kubectl context; default: the current."
        ),
    ] = None,
    kubeconfig: Annotated[
        str | None,
        typer.Option("--kubeconfig", metavar="FILE", help="The kubeconfig file kubectl uses."),
    ] = None,
    namespaces: Annotated[
        list[str] | None,
        typer.Option(
            "-n",
            "--namespace",
            metavar="NAME",
            help="Only this namespace's pods and gangs; repeatable. Nodes are always read.",
        ),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(
            "--skip", metavar="RESOURCE", help="Leave this kind out, such as jobs.batch.volcano.sh."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the snapshot that is in the folder.")
    ] = False,
    timeout: Annotated[
        str, typer.Option("--request-timeout", metavar="DURATION", help="For one request.")
    ] = "60s",
    color: ColorOption = Color.auto,
    log_format: LogOption = LogFormat.text,
    debug: DebugOption = False,
) -> None:
    """Record a live cluster through kubectl: what planning needs of it, and nothing else."""
    console = console_of(context, color=color, log_format=log_format, debug=debug)
    from planner.cluster.kubectl import Kubectl
    from planner.cluster.recording import Wish, record

    wish = Wish(
        out=out,
        namespaces=_namespaces(namespaces or []),
        skip=_skipped(skip or []),
        force=force,
    )
    begun = time.monotonic()
    with Kubectl.find(
        console.environ,
        context=kube_context,
        kubeconfig=kubeconfig,
        timeout_s=_timeout(timeout),
    ) as door:
        recorded = record(door, wish, _Live(console))
        console.clear_live()
        _report(console, wish, recorded, door.context, door.retries, time.monotonic() - begun)


class _Live:
    """The one live line of a terminal; silent elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._on = console.is_terminal(console.stderr) and not console.json_log

    def __call__(self, resource: str, done: int, of: int) -> None:
        if self._on:
            self._console.live(f"recording {resource}: {done:,} of {of:,}")


def _report(
    console: Console,
    wish: Wish,
    recorded: Recorded,
    kube_context: str | None,
    retries: int,
    seconds: float,
) -> None:
    """What was recorded, what is not in it and why, what to do next."""
    counts = ", ".join(f"{count:,} {name}" for name, count in recorded.counts.items())
    source = "this pod's cluster" if kube_context is None else f"context {kube_context}"
    console.say(f"recorded {source}: {counts or 'nothing'}")
    absent = [kind.resource for kind in recorded.absent]
    if absent:
        console.say(f"not served by this cluster: {', '.join(absent)}")
    if recorded.forbidden:
        console.say(f"warning: not permitted, so left out: {'; '.join(recorded.forbidden)}")
    if recorded.cluster is None:
        console.say(
            "warning: without the uid of namespace kube-system no plan of it can be applied"
        )
    if wish.namespaces:
        named = ", ".join(wish.namespaces)
        console.say(f"warning: only pods of {named} are in it; what others hold looks free")
    again = [
        f"{count} {what}"
        for count, what in (
            (retries, "requests sent again"),
            (recorded.restarts, "lists begun again"),
        )
        if count
    ]
    if again:
        console.say(", ".join(again))
    place = shlex.quote(str(wish.out))
    console.say(f"saved {place} ({recorded.bytes / 1e6:.1f} MB in {seconds:.1f} s)")
    console.next(f"{console.program} plan {place}")
    console.event(
        "summary",
        verb="snapshot",
        status="recorded",
        exit_code=0,
        context=kube_context,
        cluster=recorded.cluster,
        counts={name: float(count) for name, count in recorded.counts.items()},
        absent=absent,
        forbidden=recorded.forbidden,
        retries=retries,
        restarts=recorded.restarts,
        bytes=recorded.bytes,
        seconds=round(seconds, 3),
    )


def _namespaces(names: list[str]) -> tuple[str, ...]:
    for name in names:
        if not _NAMESPACE.fullmatch(name):
            hint = "lower case letters, digits and dashes, at most 63"
            raise UsageError(Fault(f"--namespace {name!r} is no name of a namespace", hint))
    return tuple(dict.fromkeys(names))


def _skipped(resources: list[str]) -> frozenset[str]:
    from planner.cluster.kinds import OTHERS

    known = [kind.resource for kind in OTHERS]
    for resource in resources:
        if resource not in known:
            hint = f"kinds that can be left out: {', '.join(known)}"
            raise UsageError(Fault(f"--skip {resource!r} is no kind that is recorded", hint))
    return frozenset(resources)


def _timeout(text: str) -> float:
    from models.quantities import Refused, seconds

    try:
        limit = seconds(text)
    except Refused as refused:
        raise UsageError(Fault(f"--request-timeout: {refused.what}", refused.hint)) from None
    if limit < 1:
        raise UsageError(Fault("--request-timeout is below one second", "give it like 60s or 5m"))
    return float(limit)
