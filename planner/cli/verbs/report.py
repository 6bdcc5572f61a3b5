"""``gangplan report PLAN|JOURNAL --out FILE``: one HTML page of a saved plan or of a journal."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli.options import verb
from planner.cli.verbs.show import changed_digest
from planner.errors import Fault, InputError, UsageError
from planner.show.console import Console
from planner.show.text import Format

if TYPE_CHECKING:
    from models.documents.answers import CapacityDocument
    from models.documents.plan import PlanDocument
    from planner.show.report.page import Page


@verb
def report(
    console: Console,
    path: str | None = None,
    *,
    out: Path | None = None,
    output: Format | None = None,
) -> None:
    """Write one HTML page of a plan or of a journal."""
    if path is not None and path != "-" and Path(path).is_dir():
        _week(console, path, out, output)
        return
    if out is None or output is not None:
        hint = "--out FILE; `gangplan show` prints a plan; a journal is a folder"
        raise UsageError(Fault("the report of a plan is a page", hint))
    from planner.atomic_files import check_target
    from planner.cli.shown_plan import shown_plan
    from planner.read.plan_files import parse, read_plan
    from planner.show.report.plan_page import plan_page

    check_target(out, [] if path is None else [path])
    chosen = shown_plan(console, path)
    plan = read_plan(chosen.content, chosen.path)
    changed = changed_digest(parse(chosen.content, chosen.path), plan) is not None
    _save(
        console, plan_page(plan, _capacity(plan, chosen.content, chosen.path), changed=changed), out
    )


def _week(console: Console, path: str, out: Path | None, output: Format | None) -> None:
    """Print the week of a journal, or save its page, or both."""
    from planner import __version__
    from planner.atomic_files import check_target
    from planner.pipelines.plan import now
    from planner.week import pages
    from planner.week.week import week_of

    if out is not None:
        check_target(out)
    console.doing("replaying the journal")
    week = week_of(path)
    console.clear_live()
    if output is not None or out is None:
        pages.show(console, output or Format.table, week)
    if out is not None:
        _save(
            console, pages.page(week, f"made {now(console.environ)} by gangplan {__version__}"), out
        )


def _save(console: Console, page: Page, out: Path) -> None:
    from planner.atomic_files import save
    from planner.show.report.page import html

    text = html(page)
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
