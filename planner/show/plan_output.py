"""A plan in the format of ``-o``: table, wide, json, yaml or name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from planner.show.text import Format
from planner.untrusted_text import document_safe, json_safe, safe

if TYPE_CHECKING:
    from models.documents.plan import PlanDocument
    from planner.show.console import Console


def show(
    console: Console, output: Format, plan: PlanDocument, document: Callable[[], dict[str, Any]]
) -> None:
    """Print the plan. ``document`` gives the whole JSON document, which only json and yaml need."""
    if output is Format.json:
        from models.plan import dumps

        console.data(json_safe(dumps(document())))
    elif output is Format.yaml:
        console.data(yaml_text(document()))
    elif output is Format.name:
        from models.solution import STARTS

        starting = [gang for gang in plan.spec.gangs if gang.decision in STARTS]
        console.data("".join(f"gang/{safe(g.namespace)}/{safe(g.name)}\n" for g in starting))
    else:
        _tables(console, plan, wide=output is Format.wide)


def _tables(console: Console, plan: PlanDocument, *, wide: bool) -> None:
    from planner.show import plan_tables, running_changes

    console.table(plan_tables.facts(plan))
    console.data("\n")
    console.table(plan_tables.gangs(plan, wide=wide))
    for table in (running_changes.changes(plan, wide=wide), running_changes.moves(plan)):
        if table.rows:
            console.data("\n")
            console.table(table)
    if wide:
        console.data("\n")
        console.table(plan_tables.pods(plan))
    console.data("\n")
    console.table(plan_tables.tiers(plan, wide=wide))
    console.data("\n" + "\n".join(safe(line) for line in plan_tables.ending(plan)) + "\n")


def yaml_text(document: dict[str, Any]) -> str:
    """The document as YAML, keys in document order, written by libyaml where it is built in."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    def dump(*, unicode: bool) -> str:
        return str(
            yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=unicode, width=10**6)
        )

    text = dump(unicode=True)
    return text if document_safe(text) else dump(unicode=False)
