"""``gangplan audit PATH...``: what the present placement costs. It changes nothing."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from planner.cli.options import (
    NO_NAMES,
    NowOption,
    PathsArgument,
    PolicyOption,
    SaveOption,
    output_option,
    schedulers_of,
    seconds_of,
    verb,
)
from planner.show.console import Console
from planner.show.text import Format


@verb
def audit(
    console: Console,
    paths: PathsArgument,
    *,
    scheduler: Annotated[
        str,
        typer.Option(
            "--scheduler",
            metavar="mine|all|NAME,...",
            help="Whose waiting pods count: gangplan's, every scheduler's, or gangplan's and those of the "
            "named schedulers.",
        ),
    ] = "all",
    policy: PolicyOption = None,
    time_limit: Annotated[
        str | None,
        typer.Option(
            "--time-limit",
            metavar="DURATION",
            help="Limit on the time after reading, such as 90s; default: the policy's, at most 45s.",
        ),
    ] = None,
    now: NowOption = None,
    out: SaveOption = None,
    output: Annotated[
        Format, output_option(": wide names every gang that waits", *NO_NAMES)
    ] = Format.table,
) -> None:
    """State what the placement costs, and which moves would help."""
    from planner.cli.verbs.plan import time_of
    from planner.pipelines import audit as auditing
    from planner.pipelines import plan as planning
    from planner.show.audit import show
    from planner.show.plan.short_names import shortener_of_plans

    created_at = planning.now(console.environ)
    request = auditing.AuditRequest(
        paths=tuple(paths),
        out=out,
        policy=policy,
        schedulers=schedulers_of(scheduler),
        time_limit_s=None if time_limit is None else seconds_of("--time-limit", time_limit),
        now=None if now is None else time_of(now, created_at),
    )
    audited = auditing.audit(request, console, created_at=created_at, stdin=console.stdin)
    if output is Format.table:
        console.shorten = shortener_of_plans(audited.plan.instance)
    show(console, output, audited.audit)
    if audited.signal_exit is not None:
        console.say("interrupted: this is what was found so far; the loss may be larger")
    if out is not None:
        console.say(f"saved {shlex.quote(str(out))}")
    effective = audited.audit.effective
    console.event(
        "summary",
        verb="audit",
        exit_code=audited.signal_exit or 0,
        effective_gpus=effective.now,
        replanned_gpus=effective.replanned,
        stranded_gpus=audited.audit.gpus.stranded,
        steps=len(audited.audit.steps),
        seconds=audited.seconds,
    )
    if audited.signal_exit is not None:
        raise typer.Exit(audited.signal_exit)
