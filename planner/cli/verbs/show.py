"""``gangplan show [PLAN]``: a saved plan, or the last one, as tables, names or the document itself."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from planner.cli.options import verb
from planner.errors import Fault, UsageError
from planner.show.console import Console
from planner.show.text import Format

if TYPE_CHECKING:
    from models.documents.plan import PlanDocument
    from planner.cli.shown_plan import ShownPlan


@verb
def show(
    console: Console,
    path: str | None = None,
    *,
    gang: list[str] | None = None,
    namespace: str | None = None,
    decision: list[str] | None = None,
    all_: bool = False,
    map_: bool = False,
    output: Format = Format.table,
) -> None:
    """Show a plan: a saved one, or the last one."""
    from models.results.plan import dumps
    from planner.cli.shown_plan import shown_plan
    from planner.read import plan_files
    from planner.show import terminal_map
    from planner.show.plan import plan_output
    from planner.show.plan.gang_groups import Selection
    from planner.show.plan.short_names import shortener_of_plans

    only = Selection(tuple(gang or ()), namespace, tuple(decision or ()), all_)
    only.check_options(output)
    if map_ and output is not Format.table:
        what = f"--map with -o {output.value}"
        raise UsageError(Fault(what, "leave out one of them: the map is text"))

    chosen = shown_plan(console, path)
    plan = plan_files.read_plan(chosen.content, chosen.path)
    document = plan_files.parse(chosen.content, chosen.path)
    only.check({gang.key for gang in plan.spec.gangs})
    if map_:
        console.shorten = shortener_of_plans(plan.instance)
        console.data(terminal_map.drawn(console, plan, only))
    else:
        plan_output.show(console, output, plan, lambda: dumps(document), only)
    warn_if_changed(console, document, plan, chosen)
    if output in (Format.table, Format.wide) and not map_:
        wide = output is Format.wide
        more = (
            None
            if wide or chosen.file == "-"
            else chosen.command(console.program, "show", "-o wide")
        )
        console.remarks(plan.status.remarks, all_with=more)
    if chosen.file is None:
        console.next(explain_next(console, plan) or f"{console.program} show -o wide")
    else:
        console.next(chosen.command(console.program, "verify"))


def explain_next(console: Console, plan: PlanDocument) -> str | None:
    """The command that says why a gang waits; None if none waits.

    Of those that are not held, the one of highest priority: who holds the others knows why they wait.
    """
    waits = {gang.key for gang in plan.spec.gangs if gang.decision == "wait"}
    gangs = [gang for gang in plan.instance.gangs if gang.key in waits]
    if not gangs:
        return None
    first = min(
        gangs, key=lambda gang: (gang.status.hold is not None, -gang.spec.priority, gang.key)
    ).key
    return f"{console.program} explain {shlex.quote('/'.join(first))}   (why it waits)"


def warn_if_changed(
    console: Console, document: dict[str, Any], plan: PlanDocument, chosen: ShownPlan
) -> None:
    """Warn that a digest does not match."""
    if changed := changed_digest(document, plan):
        what = f"{changed} does not match: the plan was changed after it was saved"
        check = chosen.command(console.program, "verify")
        console.remarks([what if chosen.file is None else f"{what}; {check} lists why"])


def changed_digest(document: dict[str, Any], plan: PlanDocument) -> str | None:
    """The first digest that the document does not have. Nothing else is checked: that is verify's."""
    from models.documents.base import digest

    stated = plan.status.digests
    for part, value in (("instance", stated.instance), ("spec", stated.spec)):
        if digest(document[part]) != value:
            return f"status.digests.{part}"
    return None
