"""A plan in the format of ``-o``: table, wide, json, yaml or name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from planner.show.console import WIDTH
from planner.show.plan.gang_groups import Selection, Sharing
from planner.show.plan.short_names import shortener_of_plans
from planner.show.text import Format, yaml_text
from planner.untrusted_text import json_safe, safe

if TYPE_CHECKING:
    from models.documents.plan import PlanDocument
    from planner.show.console import Console
    from planner.show.table import Table


MAX_LINES = 78
"""Longest output with a row for each gang that starts or changes; two more lines are left to stderr."""


def show(
    console: Console,
    output: Format,
    plan: PlanDocument,
    text: Callable[[], str],
    only: Selection,
) -> None:
    """Print the plan. ``text`` gives the whole JSON document, which only json and yaml need.

    ``only``: the gangs to show in tables and names.
    """
    if output is Format.json:
        console.data(json_safe(text()))
    elif output is Format.yaml:
        console.data(yaml_text(json.loads(text())))
    elif output is Format.name:
        from models.instance.solution import STARTS

        every = only.gangs or only.decisions or only.everything
        listed = [g for g in plan.spec.gangs if only.takes(g) and (every or g.decision in STARTS)]
        console.data("".join(f"gang/{safe(g.namespace)}/{safe(g.name)}\n" for g in listed))
    else:
        if output is Format.table:
            console.shorten = shortener_of_plans(plan.instance)
        console.data(_text(console, plan, only, wide=output is Format.wide))


def _text(console: Console, plan: PlanDocument, only: Selection, *, wide: bool) -> str:
    """The tables, with a row for each gang that starts or changes if they are short, or if asked for."""
    every = wide or only.everything or only.filters
    width = None if every else console.width or WIDTH
    # only those that wait or stay can share a row
    alone = sum(gang.decision not in ("wait", "keep") for gang in plan.spec.gangs)
    if every or alone <= MAX_LINES:
        sections = [*_sections(plan, only, Sharing.none if every else Sharing.alike, wide=wide)]
        if every or console.sections(sections, width=width).count("\n") <= MAX_LINES:
            return console.sections(sections)
    return console.sections(_sections(plan, only, Sharing.decision, wide=wide), width=width)


def _sections(
    plan: PlanDocument, only: Selection, sharing: Sharing, *, wide: bool
) -> Iterator[Table | list[str]]:
    """Tables and lines, the summary last; those of the whole plan unless gangs are filtered."""
    from planner.show.plan import plan_tables

    if not only.filters:
        yield plan_tables.facts(plan)
    yield plan_tables.gangs(plan, wide=wide, sharing=sharing, only=only)
    if sharing != Sharing.decision:
        yield plan_tables.changes(plan, only)
        yield plan_tables.moves(plan, only)
    if wide:
        yield plan_tables.pods(plan, only)
    if not only.filters:
        yield plan_tables.queues(plan, wide=wide, every=not sharing)
        yield plan_tables.tiers(plan, wide=wide)
    yield [*plan_tables.besides(plan), *(f"note: {note}" for note in plan.status.notes)]
    yield plan_tables.results(plan)
