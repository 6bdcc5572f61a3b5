"""``gangplan report PLAN --out FILE``: one HTML page of a saved plan, complete in itself."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import LastPlanArgument, verb
from planner.cli.verbs.show import changed_digest
from planner.errors import InputError
from planner.show.console import Console

if TYPE_CHECKING:
    from models.documents.answers import CapacityDocument
    from models.documents.plan import PlanDocument


@verb
def report(
    console: Console,
    path: LastPlanArgument = None,
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Write the page here (HTML).")],
) -> None:
    """Write one HTML page of a plan."""
    from planner.atomic_files import check_target, save
    from planner.cli.shown_plan import shown_plan
    from planner.read.plan_files import parse, read_plan
    from planner.show.report.page import html
    from planner.show.report.plan_page import plan_page

    check_target(out, [] if path is None else [path])
    chosen = shown_plan(console, path)
    plan = read_plan(chosen.content, chosen.path)
    changed = changed_digest(parse(chosen.content, chosen.path), plan) is not None
    text = html(plan_page(plan, _capacity(plan, chosen.content, chosen.path), changed=changed))
    save(out, text)
    size = f"{len(text.encode()) / 1e6:,.2f} MB"
    console.say(f"saved {shlex.quote(str(out))} ({size}): open it in a browser")


def _capacity(plan: PlanDocument, content: bytes, path: str) -> CapacityDocument | str:
    """What else could start, or why that is not known: `show` shows a damaged plan, too."""
    from models.units import time_text
    from planner.pipelines.capacity import capacity_of_plan

    try:
        return capacity_of_plan(content, path, time_text(plan.metadata.created_at))
    except InputError as error:
        return error.faults[0].what
