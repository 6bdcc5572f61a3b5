"""``gangplan verify PLAN``: check everything a plan states, from its document alone."""

from __future__ import annotations

import shlex

import typer

from planner.cli.options import ColorOption, DebugOption, LogOption, PlanArgument, console_of
from planner.show.console import Color, LogFormat


def verify(
    context: typer.Context,
    path: PlanArgument,
    *,
    color: ColorOption = Color.auto,
    log_format: LogOption = LogFormat.text,
    debug: DebugOption = False,
) -> None:
    """Check a saved plan by every rule and formula, without a solver."""
    console = console_of(context, color=color, log_format=log_format, debug=debug)
    from models.units import plural
    from planner.pipelines.plan import verify_file
    from planner.read import plan_files

    plan = verify_file(plan_files.read_bytes(path, console.stdin), path)
    console.event("verify_done", violations=0)
    gangs = plural(len(plan.spec.gangs), "gang")
    tiers = plural(len(plan.status.objectives), "tier")
    console.data(f"verified: {gangs} and {tiers} hold\n")
    if path != "-":
        console.next(f"{console.program} show {shlex.quote(path)}")
