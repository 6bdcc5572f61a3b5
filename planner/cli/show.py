"""``gangplan show PLAN``: a saved plan as tables, names or the document itself.

Promises: reads that one file, loads no solver.
"""

from __future__ import annotations

import shlex

import typer

from planner.cli.console import Color, LogFormat
from planner.cli.options import (
    ColorOption,
    DebugOption,
    LogOption,
    OutputOption,
    PlanArgument,
    console_of,
)
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
    from planner.show import plan_file as formats
    from planner.show import plan_file as planfile
    from planner.show.remarks import warn_of

    content = planfile.read_bytes(path, console.stdin)
    view = planfile.view(content, path)
    formats.show(console, output, view, lambda: planfile.parse(content, path))
    if output in (Format.table, Format.wide):
        more = (
            None if output is Format.wide else f"{console.program} show {shlex.quote(path)} -o wide"
        )
        warn_of(console, view.status.remarks, all_with=more)
    if path != "-":
        console.next(f"{console.program} verify {shlex.quote(path)}")
