"""``gangplan compare PLAN PLAN``: two plans tier by tier and gang by gang. It solves and checks nothing."""

from __future__ import annotations

from planner.cli.options import verb
from planner.errors import Fault, UsageError
from planner.show.console import Console
from planner.show.text import Format

DIFFERENT = 2


@verb
def compare(
    console: Console,
    first: str,
    second: str | None = None,
    *,
    detailed_exitcode: bool = False,
    all_: bool = False,
    output: Format = Format.table,
) -> int:
    """Compare two plans tier by tier and gang by gang."""
    from models.results.comparison import compare as compared
    from planner import __version__
    from planner.cli.shown_plan import shown_plan
    from planner.pipelines.plan import now
    from planner.read import plan_files
    from planner.show import comparison_tables as tables
    from planner.show.plan.short_names import shortener_of_plans
    from planner.untrusted_text import safe

    if first == second == "-":
        raise UsageError(Fault("both plans read stdin", "name a file"))
    other = shown_plan(console, second)
    before = plan_files.load(first, console.stdin)
    after = plan_files.read_plan(other.content, other.path)
    found = compared(
        before,
        after,
        (first, second or "the last plan"),
        created_at=now(console.environ),
        generator=f"gangplan {__version__}",
    )
    if output in (Format.json, Format.yaml):
        console.document(found.to_json(), output)
    elif output is Format.name:
        console.data("".join(f"gang/{safe(one.gang)}\n" for one in found.status.gangs))
    else:
        wide = output is Format.wide
        if not wide:
            console.shorten = shortener_of_plans(before.instance, after.instance)
        console.data(console.sections(tables.sections(found, wide=wide, every=all_)))
    code = DIFFERENT if detailed_exitcode and not found.status.same else 0
    console.event(
        "summary",
        verb="compare",
        status="same" if found.status.same else "different",
        exit_code=code,
        better=found.status.better,
        decided_by=found.status.decided_by,
        gangs=len(found.status.gangs),
    )
    return code
