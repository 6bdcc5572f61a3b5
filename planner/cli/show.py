"""``gangplan show PLAN``: a saved plan as tables, names or the document itself."""

from __future__ import annotations

import shlex

import typer

from planner.cli.options import (
    ColorOption,
    DebugOption,
    LogOption,
    OutputOption,
    PlanArgument,
    console_of,
)
from planner.show.console import Color, LogFormat
from planner.show.text import Format


def show(
    context: typer.Context,
    path: PlanArgument,
    *,
    output: OutputOption = Format.table,
    color: ColorOption = Color.auto,
    log_format: LogOption = LogFormat.text,
    debug: DebugOption = False,
) -> None:
    """Show a saved plan."""
    console = console_of(context, color=color, log_format=log_format, debug=debug)
    from planner.read import plan_files
    from planner.show import plan_output

    content = plan_files.read_bytes(path, console.stdin)
    plan = plan_files.read_plan(content, path)
    plan_output.show(console, output, plan, lambda: plan_files.parse(content, path))
    if output in (Format.table, Format.wide):
        more = (
            None if output is Format.wide else f"{console.program} show {shlex.quote(path)} -o wide"
        )
        console.remarks(plan.status.remarks, all_with=more)
    if path != "-":
        console.next(f"{console.program} verify {shlex.quote(path)}")
