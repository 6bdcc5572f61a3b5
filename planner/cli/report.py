"""``gangplan report PLAN --out FILE``: one HTML page of a saved document, complete in itself."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import PlanArgument, verb
from planner.cli.show import changed_digest
from planner.show.console import Console


@verb
def report(
    console: Console,
    path: PlanArgument,
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Write the page here.")],
) -> None:
    """Write one HTML page of a plan: map, reasons, proofs."""
    from planner.atomic_files import check_target, save
    from planner.read import plan_files
    from planner.show.report.page import html
    from planner.show.report.plan_page import plan_page

    check_target(out)
    content = plan_files.read_bytes(path, console.stdin)
    plan = plan_files.read_plan(content, path)
    changed = changed_digest(plan_files.parse(content, path), plan)
    text = html(plan_page(plan, changed=changed is not None))
    save(out, text)
    saved = shlex.quote(str(out))
    console.say(f"saved {saved} ({len(text.encode()) / 1e6:,.2f} MB): open it in a browser")
