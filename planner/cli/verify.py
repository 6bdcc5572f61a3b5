"""``gangplan verify PLAN``: re-derive everything the plan claims, from its document alone.

Promises: no solver, no other file; any difference is exit 5.
"""

from __future__ import annotations

import shlex

import typer

from planner.cli.console import Color, LogFormat
from planner.cli.options import ColorOption, DebugOption, LogOption, PlanArgument, console_of
from planner.errors import RefusedPlanError


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
    from models.verify.check import check
    from planner.pipelines.plan import refusals
    from planner.show import plan_file as planfile
    from planner.show.text import plural

    document = planfile.parse(planfile.read_bytes(path, console.stdin), path)
    violations = check(document)
    console.event("verify_done", violations=len(violations))
    if violations:
        raise RefusedPlanError(*refusals(violations, path))
    gangs = plural(len(document["spec"]["gangs"]), "gang")
    tiers = plural(len(document["status"]["objectives"]), "tier")
    console.data(f"verified: {gangs} and {tiers} hold\n")
    if path != "-":
        console.next(f"{console.program} show {shlex.quote(path)}")
