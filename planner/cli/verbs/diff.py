"""``gangplan diff PLAN``: the fields of live objects that applying a plan would change. Reads only."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from models.units import plural, shortened, shown_of
from planner.cli.options import Connection, PlanArgument, verb
from planner.show.console import Console
from planner.show.table import Cell, Table, columns_of, row_of
from planner.show.text import Format
from planner.untrusted_text import one_line, safe

if TYPE_CHECKING:
    from models.apply.live_state import ClusterView
    from planner.cluster.plan_diff import Difference, Value
    from planner.pipelines.apply_steps import VerifiedPlan

CHANGES = 2
MAX_WARNINGS = 8


@verb
def diff(
    console: Console,
    path: PlanArgument,
    *,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit 2 if anything differs.")
    ] = False,
    connection: Connection,
    output: Annotated[
        Format, typer.Option("-o", "--output", help="Format on stdout: name lists the objects.")
    ] = Format.table,
) -> None:
    """Show what applying a plan would change. Reads the live cluster and changes nothing."""
    from models.apply.staleness import changes
    from planner.cluster.api_paths import look_paths
    from planner.cluster.live_view import ClusterReader
    from planner.cluster.plan_diff import differences
    from planner.cluster.retry import RetryingTransport
    from planner.pipelines.apply_steps import check_cluster, read_verified

    plan = read_verified(path, console.stdin)
    console.event("verify_done", violations=0)
    target = connection.target(console)
    with target.connect(look_paths()) as wire:
        reader = ClusterReader(RetryingTransport(wire), plan.settings, evicting=True)
        check_cluster(plan, reader.identity())
        view = reader.read_view()
    console.event("read", nodes=len(view.nodes), pods=len(view.pods))
    found = differences(plan.orders, view, reader, plan.backend)
    if output in (Format.json, Format.yaml):
        fields = ("object", "field", "before", "after")
        data = [{name: getattr(one, name) for name in fields} for one in found]
        console.document(data, output)
    elif output is Format.name:
        console.data("".join(f"{safe(name)}\n" for name in _objects_of(found)))
    elif found:
        console.table(_table(found))
    stale = [f"stale: {one}" for one in changes(plan.orders, view)]
    moved = _warn(console, plan, view, stale)
    code = CHANGES if found and detailed_exitcode else 0
    pods = _talk(
        console, path, connection.kube_context, connection.kubeconfig, found, stale=bool(stale)
    )
    console.event(
        "summary",
        verb="diff",
        status="different" if found else "same",
        exit_code=code,
        plan=plan.orders.plan,
        cluster=plan.orders.cluster,
        objects=pods,
        fields=len(found),
        moved=moved,
    )
    if code:
        raise typer.Exit(code)


def _warn(console: Console, plan: VerifiedPlan, view: ClusterView, stale: list[str]) -> int:
    """Warn about gangs that budgets withhold, and changed facts of the plan; how many of these."""
    from models.apply.evictions import withheld_by_budgets

    for gang, why in withheld_by_budgets(plan.orders, view).items():
        console.warn(one_line(f"withheld: gang {'/'.join(gang)}: {why}"))

    found = [*stale, *plan.backend.check(plan.orders, view)]
    shown = shown_of(len(found), MAX_WARNINGS)
    for warning in found[:shown]:
        console.warn(one_line(warning))
    if rest := len(found) - shown:
        console.warn(f"and {rest:,} more")
    return len(found)


def _talk(
    console: Console,
    path: str,
    context: str | None,
    kubeconfig: str | None,
    found: list[Difference],
    *,
    stale: bool,
) -> int:
    """Print the summary and the next command; how many objects differ."""
    count = len(_objects_of(found))
    if not found:
        console.say("no changes: the cluster matches the plan")
        return 0
    console.say(f"{plural(count, 'object')} would change")
    leaving = sum(one.field == "spec.nodeName" and one.before is not None for one in found)
    if leaving:
        console.say(f"{plural(leaving, 'pod')} would be evicted, which needs --allow-evictions")
    if stale:
        console.next(f"{console.program} snapshot --out DIR   (the changes need a new plan)")
    elif path != "-":
        options = [f"--context={context}"] if context is not None else []
        options += [f"--kubeconfig={kubeconfig}"] if kubeconfig is not None else []
        options += ["--allow-evictions"] if leaving else []
        words = [*options, *(["--"] if path.startswith("-") else []), path]
        console.next(f"{console.program} apply {shlex.join(words)}")
    return count


_LONGEST = 160
"""Most characters of a value in the table."""


def _table(found: Sequence[Difference]) -> Table:
    """One row per object, with a row per field below it."""
    rows = []
    last = None
    for one in found:
        if one.object != last:
            rows.append(row_of(Cell(one.object, "head"), ""))
        rows.append((Cell(f"  {one.field}"), _change(one)))
        last = one.object
    return Table(columns_of("OBJECT, FIELD|CHANGE~"), tuple(rows))


def _change(one: Difference) -> Cell:
    """``+ new``, ``- old`` or ``old -> new``."""
    if one.before is None:
        return Cell(f"+ {_shown(one.after)}", "good")
    if one.after is None or one.after == []:
        return Cell(f"- {_shown(one.before)}", "bad")
    return Cell(f"{_shown(one.before)} -> {_shown(one.after)}", "warn")


def _shown(value: Value) -> str:
    """Text as it is, lists with commas, other values as JSON; ``-`` for None."""
    if value is None:
        return "-"
    if isinstance(value, list):
        text = ", ".join(value)
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(text, _LONGEST)


def _objects_of(found: Sequence[Difference]) -> list[str]:
    """Every object that differs, once."""
    return list(dict.fromkeys(one.object for one in found))
