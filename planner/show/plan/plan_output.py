"""A plan in the format of ``-o``: table, wide, json, yaml or name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

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


class Form(NamedTuple):
    """Which gangs share a row, whether changes of running gangs are listed, most rows of gangs that wait."""

    sharing: Sharing
    changes: bool = False
    most: int | None = None


FORMS = (
    Form(Sharing.alike, changes=True),
    Form(Sharing.alike),
    Form(Sharing.alike, most=10),
    Form(Sharing.decision, most=4),
)
"""The first that fits MAX_LINES is printed."""


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
    every = wide or only.everything or only.filters
    for form in (Form(Sharing.none, changes=True),) if every else FORMS:
        sections = [*_sections(plan, only, form, wide=wide)]
        drawn = console.sections(sections, width=console.width or WIDTH)
        if drawn.count("\n") <= MAX_LINES:
            break
    fitted = console.width is not None or form.sharing == Sharing.decision
    return drawn if fitted else console.sections(sections)


def _sections(
    plan: PlanDocument, only: Selection, form: Form, *, wide: bool
) -> Iterator[Table | list[str]]:
    """Tables and lines, the summary last; those of the whole plan unless gangs are filtered."""
    from planner.show.plan import plan_tables, queue_table, running_changes

    if not only.filters:
        yield plan_tables.facts(plan)
    yield plan_tables.gangs(plan, wide=wide, sharing=form.sharing, only=only, most=form.most)
    if form.changes:
        yield running_changes.changes(plan, wide=wide, only=only)
        yield running_changes.moves(plan, only)
    if wide:
        yield plan_tables.pods(plan, only)
    if not only.filters:
        yield queue_table.queues(plan, wide=wide, every=not form.sharing)
        yield plan_tables.tiers(plan, wide=wide)
    yield [*plan_tables.besides(plan), *(f"note: {note}" for note in plan.status.notes)]
    yield plan_tables.results(plan)
