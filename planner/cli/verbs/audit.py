"""``gangplan audit PATH...``: what the present placement costs. It reads only, and changes nothing."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import (
    MetricsOption,
    NowOption,
    PathsArgument,
    PolicyOption,
    schedulers_of,
    timeout_of,
    verb,
)
from planner.errors import Fault, UsageError
from planner.show.console import Console
from planner.show.text import AuditFormat

if TYPE_CHECKING:
    from planner.pipelines.audit import Audited


@verb
def audit(
    console: Console,
    paths: PathsArgument,
    *,
    queue: Annotated[
        str,
        typer.Option(
            "--queue",
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
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Save the audit here (JSON).")
    ] = None,
    out_plan: Annotated[
        Path | None,
        typer.Option("--out-plan", metavar="FILE", help="Save the re-plan here (JSON)."),
    ] = None,
    metrics_file: MetricsOption = None,
    drawn: Annotated[
        bool,
        typer.Option(
            "--map", help="Also draw the cluster: who holds which GPUs, now and in the re-plan."
        ),
    ] = False,
    output: Annotated[
        AuditFormat,
        typer.Option("-o", "--output", help="Format on stdout: wide lists every running gang."),
    ] = AuditFormat.table,
) -> None:
    """State what the placement costs, and which moves would help."""
    from planner.cli.verbs.plan import time_of
    from planner.pipelines import audit as auditing
    from planner.pipelines import plan as planning
    from planner.show import terminal_map
    from planner.show.audit import show
    from planner.show.metrics import write_audit
    from planner.show.plan.selection import Selection
    from planner.show.plan.short_names import shortener_of_plans

    if drawn and output not in (AuditFormat.table, AuditFormat.wide):
        what = f"--map with -o {output.value}"
        raise UsageError(Fault(what, "leave out one of them: the map is text"))
    created_at = planning.now(console.environ)
    request = auditing.AuditRequest(
        paths=tuple(paths),
        out=out,
        out_plan=out_plan,
        policy=policy,
        queue=schedulers_of(queue),
        time_limit_s=None if time_limit is None else int(timeout_of(time_limit, "--time-limit")),
        now=None if now is None else time_of(now, created_at),
        metrics=metrics_file,
    )
    audited = auditing.audit(request, console, created_at=created_at, stdin=console.stdin)
    if output is AuditFormat.table:
        console.shorten = shortener_of_plans(audited.plan.instance)
    show(console, output, audited.audit, audited.document)
    if drawn:
        replanned = ("now", "re-planned")
        console.data("\n" + terminal_map.drawn(console, audited.plan, Selection(), replanned))
    if metrics_file is not None:
        write_audit(metrics_file, audited.audit)
    _report(console, audited, out, out_plan)
    if audited.signal_exit is not None:
        raise typer.Exit(audited.signal_exit)


def _report(console: Console, audited: Audited, out: Path | None, out_plan: Path | None) -> None:
    """Say what was saved, and the next command."""
    if audited.signal_exit is not None:
        console.say("interrupted: this is what was found so far; the loss may be larger")
    for path in (out, out_plan):
        if path is not None:
            console.say(f"saved {shlex.quote(str(path))}")
    status = audited.audit.status
    console.event(
        "summary",
        verb="audit",
        exit_code=audited.signal_exit or 0,
        lost_gpus=status.lost.gpus,
        lost_at_most=status.lost.at_most,
        stranded_gpus=status.gpus.stranded,
        moves=len(status.moves),
        seconds=audited.seconds,
    )
