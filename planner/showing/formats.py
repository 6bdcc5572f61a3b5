"""A plan in the format asked for: table, wide, json, yaml, name.

Promises: everything goes to stdout through the console; json and yaml hold the whole document.
Called by the verbs ``plan`` and ``show``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from planner.showing.text import document_safe, json_safe, safe

if TYPE_CHECKING:
    from planner.console import Console
    from planner.showing.planview import PlanView


class Format(StrEnum):
    """``-o``: how a plan is printed."""

    table = "table"
    wide = "wide"
    json = "json"
    yaml = "yaml"
    name = "name"


STARTS = ("place", "complete")
"""Decisions that start pods: what ``-o name`` lists."""


def show(
    console: Console, output: Format, view: PlanView, document: Callable[[], dict[str, Any]]
) -> None:
    """Print the plan. ``document`` is asked only by json and yaml, which need the whole of it."""
    if output is Format.json:
        from models.plan import dumps

        console.data(json_safe(dumps(document())))
    elif output is Format.yaml:
        console.data(yaml_text(document()))
    elif output is Format.name:
        starting = [gang for gang in view.spec.gangs if gang.decision in STARTS]
        console.data("".join(f"gang/{safe(g.namespace)}/{safe(g.name)}\n" for g in starting))
    else:
        _tables(console, view, wide=output is Format.wide)


def _tables(console: Console, view: PlanView, *, wide: bool) -> None:
    from planner.showing import changes, plantables, tiertable

    console.table(plantables.facts(view))
    console.data("\n")
    console.table(plantables.gangs(view, wide=wide))
    for table in (changes.changes(view, wide=wide), changes.moves(view)):
        if table.rows:
            console.data("\n")
            console.table(table)
    if wide:
        console.data("\n")
        console.table(plantables.pods(view))
    console.data("\n")
    console.table(tiertable.tiers(view, wide=wide))
    console.data("\n" + "\n".join(safe(line) for line in plantables.ending(view)) + "\n")


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
