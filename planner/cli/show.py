"""``gangplan show PLAN``: a saved plan as tables, names or the document itself."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from planner.cli.options import (
    AllOption,
    DecisionFilter,
    GangFilter,
    NamespaceFilter,
    OutputOption,
    PlanArgument,
    verb,
)
from planner.show.console import Console
from planner.show.text import Format

if TYPE_CHECKING:
    from models.documents.plan import PlanDocument


@verb
def show(
    console: Console,
    path: PlanArgument,
    *,
    gang: GangFilter = None,
    namespace: NamespaceFilter = None,
    decision: DecisionFilter = None,
    everything: AllOption = False,
    output: OutputOption = Format.table,
) -> None:
    """Show a saved plan."""
    from planner.read import plan_files
    from planner.show import plan_output
    from planner.show.selection import Selection

    only = Selection(tuple(gang or ()), namespace, tuple(decision or ()), everything)
    only.check_options(output)

    content = plan_files.read_bytes(path, console.stdin)
    plan = plan_files.read_plan(content, path)
    document = plan_files.parse(content, path)
    only.check({gang.key for gang in plan.spec.gangs})
    plan_output.show(console, output, plan, lambda: document, only)
    warn_if_changed(console, document, plan, path)
    if output in (Format.table, Format.wide):
        more = (
            None if output is Format.wide else f"{console.program} show {shlex.quote(path)} -o wide"
        )
        console.remarks(plan.status.remarks, all_with=more)
    if path != "-":
        console.next(f"{console.program} verify {shlex.quote(path)}")


def warn_if_changed(
    console: Console, document: dict[str, Any], plan: PlanDocument, path: str
) -> None:
    """Warn that a digest does not match."""
    if changed := changed_part(document, plan):
        check = f"{console.program} verify {shlex.quote(path)}"
        what = "does not match: the plan was changed after it was saved"
        console.remarks([f"{changed} {what}; {check} lists why"])


def changed_part(document: dict[str, Any], plan: PlanDocument) -> str | None:
    """The first digest that the document does not have. Nothing else is checked: that is verify's."""
    from models.canonical import digest

    stated = plan.status.digests
    for part, value in (("instance", stated.instance), ("spec", stated.spec)):
        if digest(document[part]) != value:
            return f"status.digests.{part}"
    return None
