"""``gangplan explain PLAN GANG``: one gang of a saved plan in full. It solves nothing."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import Annotated

import typer

from planner.cli.options import PlanArgument, verb
from planner.cli.show import warn_if_changed
from planner.errors import Fault, UsageError
from planner.show.console import Console
from planner.untrusted_text import json_safe


class Format(StrEnum):
    """``-o`` of ``explain``."""

    table = "table"
    json = "json"


@verb
def explain(
    console: Console,
    path: PlanArgument,
    gang: Annotated[
        str, typer.Argument(metavar="GANG", help="The gang: [NAMESPACE/]NAME, as `show` lists it.")
    ],
    *,
    namespace: Annotated[
        str | None,
        typer.Option("-n", "--namespace", metavar="NAMESPACE", help="The namespace of the gang."),
    ] = None,
    output: Annotated[
        Format, typer.Option("-o", "--output", help="Format on stdout.")
    ] = Format.table,
) -> None:
    """Show one gang of a plan: needs, candidates, who holds them."""
    import json

    from planner.read import plan_files
    from planner.read.inputs import instance_from_document
    from planner.show import explanation_tables
    from planner.show.explanation import explanation
    from planner.show.selection import matching

    content = plan_files.read_bytes(path, console.stdin)
    plan = plan_files.read_plan(content, path)
    document = plan_files.parse(content, path)
    by_key = {one.key: one for one in plan.spec.gangs}
    keys = matching(gang, namespace, by_key, "GANG")
    if len(keys) > 1:
        meant = ", ".join("/".join(key) for key in keys[:5])
        raise UsageError(Fault(f"GANG {gang} is ambiguous", f"say which: {meant}"))
    stated = by_key[keys[0]]
    found = explanation(plan, instance_from_document(document["instance"]), stated.key)
    if output is Format.json:
        shown = explanation_tables.document(found, plan, stated)
        console.data(json_safe(json.dumps(shown, indent=2, ensure_ascii=False)) + "\n")
    else:
        tables = explanation_tables.tables(found, plan, stated)
        console.data("\n".join(console.drawn(table) for table in tables))
    warn_if_changed(console, document, plan, path)
    if path != "-":
        console.next(f"{console.program} verify {shlex.quote(path)}")
