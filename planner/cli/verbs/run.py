"""``gangplan run``: plan the live cluster and apply the plan, unattended."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli.options import (
    AllowEvictionsOption,
    EvictPartialOption,
    KubeconfigOption,
    KubeContextOption,
    LockNamespaceOption,
    LockTimeoutOption,
    MaxEvictionsOption,
    MetricsOption,
    PolicyOption,
    RequestTimeoutOption,
    SaveOption,
    SharedNodesOption,
    SkipOption,
    WaitOption,
    verb,
)
from planner.errors import Fault, UsageError
from planner.show.console import Console


@verb
def run(
    console: Console,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH",
            help="Files and folders that go with the cluster, such as a Policy or levels.",
        ),
    ] = None,
    *,
    policy: PolicyOption = None,
    out: SaveOption = None,
    budget: Annotated[
        int | None,
        typer.Option("--budget", min=1, max=1_000_000, metavar="N", help="Search effort."),
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(
            "--time-limit", metavar="DURATION", help="Limit on the time to plan, such as 90s."
        ),
    ] = None,
    allow_evictions: AllowEvictionsOption = False,
    max_evictions: MaxEvictionsOption = None,
    evict_partial: EvictPartialOption = False,
    allow_shared_nodes: SharedNodesOption = False,
    wait: WaitOption = "60s",
    skip: SkipOption = None,
    kube_context: KubeContextOption = None,
    kubeconfig: KubeconfigOption = None,
    request_timeout: RequestTimeoutOption = "30s",
    lock_namespace: LockNamespaceOption = "gangplan-system",
    lock_timeout: LockTimeoutOption = "0s",
    metrics_file: MetricsOption = None,
) -> None:
    """Plan the live cluster and apply the plan: for a cron job."""
    from planner.cli.options import seconds_of, timeout_of
    from planner.cli.verbs.snapshot import skipped
    from planner.pipelines import run as pipeline
    from planner.pipelines.apply_steps import ApplyOptions
    from planner.pipelines.plan import PlanRequest

    if str(out) == "-":
        raise UsageError(Fault("--out takes a file", "the plan does not go to stdout here"))
    request = pipeline.RunRequest(
        planning=PlanRequest(
            paths=_paths(paths or [], policy),
            out=out,
            policy=policy,
            budget=budget,
            time_limit_s=None if time_limit is None else _time_limit(time_limit),
        ),
        options=ApplyOptions(
            lock_namespace=lock_namespace,
            lock_wait_s=seconds_of("--lock-timeout", lock_timeout),
            allow_evictions=allow_evictions,
            max_evictions=max_evictions,
            evict_partial=evict_partial,
            shared_nodes=allow_shared_nodes,
            # An open node in one tenant's pool must not block the gangs of the others.
            one_by_one=True,
            wait_s=seconds_of("--wait", wait),
        ),
        context=kube_context,
        kubeconfig=kubeconfig,
        timeout_s=timeout_of(request_timeout),
        skip=skipped(skip or []),
        metrics=metrics_file,
    )
    code = pipeline.run(request, console)
    if code:
        raise typer.Exit(code)


def _paths(paths: list[str], policy: str | None) -> tuple[str, ...]:
    """Raises UsageError for stdin: it could be read only once."""
    if "-" in (*paths, policy):
        raise UsageError(Fault("run does not read stdin", "pass a file"))
    return tuple(paths)


def _time_limit(text: str) -> int:
    from planner.cli.options import timeout_of

    return int(timeout_of(text, "--time-limit"))
