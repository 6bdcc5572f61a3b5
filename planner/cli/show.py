"""``gangplan show PLAN``: a saved plan as tables, names or the document itself."""

from __future__ import annotations

import shlex

from planner.cli.options import OutputOption, PlanArgument, verb
from planner.show.console import Console
from planner.show.text import Format


@verb
def show(
    console: Console,
    path: PlanArgument,
    *,
    output: OutputOption = Format.table,
) -> None:
    """Show a saved plan."""
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
