"""``gangplan run``: plan the live cluster and apply the plan, unattended."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli.options import (
    Applying,
    Connection,
    Locking,
    MetricsOption,
    PolicyOption,
    SaveOption,
    SkipOption,
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
    applying: Applying,
    skip: SkipOption = None,
    connection: Connection,
    lock: Locking,
    metrics_file: MetricsOption = None,
) -> None:
    """Plan the live cluster and apply the plan: for a cron job."""
    from planner.cli.verbs.snapshot import skipped
    from planner.pipelines import run as pipeline
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
        # An open node in one tenant's pool must not block the gangs of the others.
        options=applying.options(lock, one_by_one=True),
        target=connection.target(console),
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
