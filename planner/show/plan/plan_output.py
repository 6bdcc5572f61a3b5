"""A plan in the format of ``-o``: table, wide, json, yaml or name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from planner.show.console import WIDTH
from planner.show.plan.gang_groups import Sharing
from planner.show.plan.short_names import shortener_of_plans
from planner.show.text import Format, yaml_text
from planner.untrusted_text import json_safe, safe

if TYPE_CHECKING:
    from models.documents.plan import PlanDocument
    from planner.show.console import Console
    from planner.show.plan.selection import Selection
    from planner.show.table import Table


MAX_LINES = 78
"""Longest output without more gangs in a row than before; two more lines are left to stderr."""


FORMS = (
    (Sharing.alike, True),
    (Sharing.alike, False),
    (Sharing.folded, False),
    (Sharing.size, False),
    (Sharing.priority, False),
    (Sharing.decision, False),
    (Sharing.ranges, False),
)
"""Which gangs share a row, and whether other tables are full: the first that fits MAX_LINES is printed."""


def show(
    console: Console,
    output: Format,
    plan: PlanDocument,
    document: Callable[[], dict[str, Any]],
    only: Selection,
) -> None:
    """Print the plan. ``document`` gives the whole JSON document, which only json and yaml need.

    ``only``: the gangs to show in tables and names.
    """
    if output is Format.json:
        from models.results.plan import dumps

        console.data(json_safe(dumps(document())))
    elif output is Format.yaml:
        console.data(yaml_text(document()))
    elif output is Format.name:
        from models.instance.solution import STARTS

        wanted = (only.gangs or only.decisions or only.everything) and only.takes
        listed = filter(
            wanted or (lambda gang: gang.decision in STARTS and only.takes(gang)), plan.spec.gangs
        )
        console.data("".join(f"gang/{safe(g.namespace)}/{safe(g.name)}\n" for g in listed))
    else:
        if output is Format.table:
            console.shorten = shortener_of_plans(plan.instance)
        console.data(_text(console, plan, only, wide=output is Format.wide))


def _text(console: Console, plan: PlanDocument, only: Selection, *, wide: bool) -> str:
    """The tables: with a row for each gang if it was asked for, or in the first form that is short."""
    from planner.show.plan import plan_tables

    facts = [] if only.filters else [plan_tables.facts(plan)]
    ending = plan_tables.ending(plan)
    if wide or only.everything or only.filters:
        sections = _sections(plan, only, Sharing.none, wide=wide)
        return _laid_out(console, [*facts, *sections, ending])
    for sharing, full in FORMS:
        sections = [*facts, *_sections(plan, only, sharing, wide=False, full=full), ending]
        drawn = _laid_out(console, sections, width=console.width or WIDTH)
        if drawn.count("\n") <= MAX_LINES:
            break
    return drawn if sharing.compact else _laid_out(console, sections)


def _sections(
    plan: PlanDocument, only: Selection, sharing: Sharing, *, wide: bool, full: bool = True
) -> list[Table | list[str]]:
    """Tables and lines between facts and ending; those of the whole plan unless gangs are filtered.

    ``full``: with what changes for running gangs, and every tier with a gap.
    """
    from planner.show.plan import plan_tables, queue_table, running_changes

    sections: list[Table | list[str]] = [
        plan_tables.gangs(plan, wide=wide, sharing=sharing, only=only)
    ]
    if full:
        sections.append(running_changes.changes(plan, wide=wide, only=only))
        sections.append(running_changes.moves(plan, only))
    if wide:
        sections.append(plan_tables.pods(plan, only))
    if not only.filters:
        sections.append(queue_table.queues(plan, wide=wide, every=not sharing))
        sections.append(plan_tables.tiers(plan, wide=wide, apart=full))
    return sections


def _laid_out(
    console: Console, sections: Iterable[Table | list[str]], *, width: int | None = None
) -> str:
    """The sections, a blank line between two; fitted to the console's width, or to this one."""
    parts = []
    for section in sections:
        if isinstance(section, list):
            parts.append(console.lines(section, width=width))
        elif section.rows or section.notes:
            parts.append(console.drawn(section, width=width))
    return "\n".join(parts)
