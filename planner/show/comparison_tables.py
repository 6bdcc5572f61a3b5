"""The tables of a Comparison document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from models.comparison import equal
from models.documents.comparison import (
    ComparedDecision,
    ComparedGang,
    ComparedPlan,
    ComparedTier,
    ComparedValue,
    ComparisonDocument,
)
from models.units import plural
from planner.show.table import Cell, Column, Table
from planner.show.text import NO_BOUND, gpu_amount, number, permille, whole_percent

MAX_GANGS = 40
"""Rows of gangs, unless all are asked for."""

ABSENT = "absent"


def facts(found: ComparisonDocument) -> Table:
    """The two plans."""
    rows = [_plan("first", found.first), _plan("second", found.second)]
    columns = ("PLAN", "FILE", "OUTCOME", "NODES", "GANGS", "EFFECTIVE GPUS", "WHAT IF")
    titled = tuple(
        Column(title, right=title in ("NODES", "GANGS", "EFFECTIVE GPUS"), fold=title == "WHAT IF")
        for title in columns
    )
    return Table(titled, tuple(rows)).without_empty_columns()


def _plan(side: str, plan: ComparedPlan) -> tuple[Cell, ...]:
    effective = "-" if plan.effective_gpus is None else gpu_amount(plan.effective_gpus)
    return (
        Cell(side, "head"),
        Cell(plan.file),
        Cell(plan.outcome),
        Cell(number(plan.nodes)),
        Cell(number(plan.gangs)),
        Cell(effective),
        Cell(plan.what_if or "-"),
    )


def tiers(found: ComparisonDocument, *, wide: bool) -> Table:
    """A row for each tier that differs, for every one if ``wide``; the first that differs decides."""
    shown = [tier for tier in found.status.tiers if wide or not equal(tier)]
    columns = (
        Column("TIER", fold=True),
        Column("SENSE", droppable=True),
        Column("FIRST", right=True),
        Column("BOUND", right=True, droppable=True),
        Column("SECOND", right=True),
        Column("BOUND", right=True, droppable=True),
        Column("BETTER"),
    )
    rows = [
        (
            Cell(tier.name, "head" if tier.name == found.status.decided_by else None),
            Cell(tier.sense, "dim"),
            *_value(tier.first),
            *_value(tier.second),
            Cell(_better(tier, found.status.decided_by)),
        )
        for tier in shown
    ]
    rest = len(found.status.tiers) - len(shown)
    notes = (f"{plural(rest, 'tier')} with equal values (-o wide lists all)",) if rest else ()
    return Table(columns, tuple(rows), notes)


def _value(value: ComparedValue | None) -> tuple[Cell, Cell]:
    if value is None:
        return Cell(ABSENT, "dim"), Cell("")
    bound = NO_BOUND if value.bound is None else number(value.bound)
    return Cell(number(value.value)), Cell(bound, "good" if value.proven else "warn")


def _better(tier: ComparedTier, decided_by: str | None) -> str:
    if tier.better is None:
        return "equal" if equal(tier) else "-"
    return f"{tier.better}, which decides" if tier.name == decided_by else tier.better


def gangs(found: ComparisonDocument, *, every: bool) -> Table:
    """A row for each gang that differs: ``first -> second``, or once what is equal or of one plan alone."""
    differing = found.status.gangs
    shown = differing if every else differing[:MAX_GANGS]
    columns = (
        Column("GANG", fold=True),
        Column("DECISION"),
        Column("GPUS", right=True),
        Column("SHARE", right=True, droppable=True),
        Column("SPEED", right=True, droppable=True),
        Column("NODES", fold=True),
    )
    rows = [
        (
            Cell(gang.gang, "head"),
            Cell(_decision(gang)),
            Cell(_both(gang, lambda one: number(one.gpus) if one.pods else "-")),
            Cell(_both(gang, lambda one: permille(one.share))),
            Cell(_both(gang, lambda one: whole_percent(one.speed))),
            Cell(_nodes(gang)),
        )
        for gang in shown
    ]
    rest = len(differing) - len(shown)
    notes = (f"{plural(rest, 'more gang')} (-o wide lists all)",) if rest else ()
    return Table(columns, tuple(rows), notes)


def _decision(gang: ComparedGang) -> str:
    if gang.first is not None and gang.second is not None:
        return _both(gang, lambda one: one.decision)
    first, second = (ABSENT if one is None else one.decision for one in (gang.first, gang.second))
    return f"{first} -> {second}"


def _both(gang: ComparedGang, text: Callable[[ComparedDecision], str]) -> str:
    texts = dict.fromkeys(text(one) or "-" for one in (gang.first, gang.second) if one is not None)
    return " -> ".join(texts)


def _nodes(gang: ComparedGang) -> str:
    text = _both(gang, lambda one: ",".join(one.nodes))
    return f"{text} (other GPUs)" if "gpus" in gang.changed else text


def queues(found: ComparisonDocument) -> Table:
    """A row for each queue that differs."""

    def cell(first: int | None, second: int | None) -> Cell:
        texts = [ABSENT if one is None else number(one) for one in (first, second)]
        return Cell(texts[0] if first == second else " -> ".join(texts))

    columns = (Column("QUEUE"), Column("HOLDS", right=True), Column("WAITS FOR", right=True))
    rows = [
        (
            Cell(one.queue, "head"),
            cell(one.first, one.second),
            cell(one.first_waiting, one.second_waiting),
        )
        for one in found.status.queues
    ]
    return Table(columns, tuple(rows))


def ending(found: ComparisonDocument) -> list[str]:
    """What differs, in sentences; the last says which plan is better."""
    status = found.status
    lines = [
        f"nodes {what}: {', '.join(names)}"
        for what, names in (
            ("of the first plan alone", status.nodes.first),
            ("of the second plan alone", status.nodes.second),
            ("that differ", status.nodes.changed),
        )
        if names
    ]
    if status.gangs:
        lines.append(f"{plural(len(status.gangs), 'gang')} differ: {_counted(status.gangs)}")
    lines += [f"note: {remark}" for remark in status.remarks]
    if status.same:
        return [*lines, "no difference"]
    if status.better is None:
        return [*lines, "neither is better: no tier of both differs"]
    return [*lines, f"the {status.better} plan is better: it wins at {status.decided_by}"]


def _counted(gangs: Sequence[ComparedGang]) -> str:
    """``3 in decision, 2 in nodes``."""
    counts = Counter(change for gang in gangs for change in gang.changed)
    return ", ".join(f"{count:,} in {change}" for change, count in counts.items())
