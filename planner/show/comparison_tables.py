"""The tables of a Comparison document."""

from __future__ import annotations

from collections.abc import Mapping

from models.documents.answers import ComparedQueue, ComparisonDocument, Effect, Side
from models.results.comparison import equal
from models.units import first_of, plural
from planner.show.table import Cell, Table, columns_of, row_of
from planner.show.text import change, number, permille, whole_percent

MAX_GANGS = 40
"""Rows of gangs, unless all are asked for."""

MAX_NAMES = 6
"""Names in a sentence; the others are counted."""

ABSENT = "absent"


def _sides(found: ComparisonDocument) -> dict[Side, str]:
    """The sides with their titles, the base first, in whichever order they were named."""
    base = found.status.base
    if base is None:
        return {"first": "first", "second": "second"}
    return {base: "base", "first" if base == "second" else "second": "what if"}


def sections(found: ComparisonDocument, *, wide: bool, every: bool) -> list[Table | list[str]]:
    """What is printed. ``every``: all gangs that differ, as if ``wide``."""
    changed = gangs(found, every=wide or every)
    tables = (facts(found), tiers(found, wide=wide), changed, queues(found))
    return [*(one for one in tables if one.rows), ending(found)]


def facts(found: ComparisonDocument) -> Table:
    """The two plans; below them what they suppose."""
    plans = [(title, getattr(found, side)) for side, title in _sides(found).items()]
    rows = tuple(
        row_of(
            Cell(title, "head"),
            plan.outcome,
            number(plan.nodes),
            number(plan.gangs),
            plan.file,
        )
        for title, plan in plans
    )
    below = {r: Cell(plan.what_if) for r, (_, plan) in enumerate(plans) if plan.what_if}
    columns = columns_of("PLAN|OUTCOME|>NODES?|>GANGS?|FILE~")
    return Table(columns, rows, below=below).without_empty_columns()


def tiers(found: ComparisonDocument, *, wide: bool) -> Table:
    """A row for each tier that differs, for every one if ``wide``."""
    shown = [tier for tier in found.status.tiers if wide or not equal(tier)]
    sides = _sides(found)
    rows = []
    for tier in shown:
        both = [getattr(tier, side) for side in sides]
        values = (ABSENT if one is None else number(one.value) for one in both)
        rows.append(row_of(Cell(tier.name, "head"), Cell(tier.sense, "dim"), *values))
    rest = len(found.status.tiers) - len(shown)
    notes = (f"{plural(rest, 'tier')} with equal values (-o wide lists all)",) if rest else ()
    titles = "|".join(f">{title.upper()}" for title in sides.values())
    return Table(columns_of(f"TIER|SENSE?|{titles}"), tuple(rows), notes)


def gangs(found: ComparisonDocument, *, every: bool) -> Table:
    """A row for each gang that differs: ``base -> what if``, or once what is equal or of one plan alone."""
    differing = found.status.gangs
    shown = differing if every else differing[:MAX_GANGS]
    rows = []
    for gang in shown:
        both = [getattr(gang, side) for side in _sides(found)]
        there = [one for one in both if one is not None]
        nodes = change(",".join(one.nodes) or "-" for one in there)
        cells = row_of(
            Cell(gang.gang, "head"),
            change(ABSENT if one is None else one.decision for one in both),
            change(number(one.gpus) if one.pods else "-" for one in there),
            change(permille(one.share) for one in there),
            change(whole_percent(one.speed) for one in there),
            nodes + " (other GPUs)" * ("gpus" in gang.changed),
        )
        rows.append(cells)
    rest = len(differing) - len(shown)
    notes = (f"{plural(rest, 'more gang')} (-o wide lists all)",) if rest else ()
    return Table(columns_of("GANG|DECISION|>GPUS|>SHARE?|>SPEED?|NODES~"), tuple(rows), notes)


def queues(found: ComparisonDocument) -> Table:
    """A row for each queue that differs."""

    def amounts(queue: ComparedQueue, what: str) -> str:
        both = (getattr(queue, f"{side}{what}") for side in _sides(found))
        return change(ABSENT if one is None else number(one) for one in both)

    rows = tuple(
        row_of(Cell(one.queue, "head"), amounts(one, ""), amounts(one, "_waiting"))
        for one in found.status.queues
    )
    return Table(columns_of("QUEUE|>HOLDS|>WAITS FOR"), rows)


def ending(found: ComparisonDocument) -> list[str]:
    """What changes for whom, in sentences; the last says which plan is better, if they have one input."""
    status = found.status
    lines = [] if status.same else _differences(found)
    lines += [f"note: {remark}" for remark in status.remarks]
    if status.same:
        lines.append("no difference")
    elif status.better is not None:
        decided = f"{status.decided_by} is the first tier that differs"
        lines.append(f"the {status.better} plan is better: {decided}")
    elif status.input.same:
        lines.append("neither plan is better: every tier that both have is equal")
    elif status.base is None:
        lines.append("their inputs differ, so neither plan is called better")
    return lines


GIVEN: Mapping[str, str] = {
    "first_nodes": "nodes only in the {first} plan",
    "second_nodes": "nodes only in the {second} plan",
    "changed_nodes": "nodes that differ",
    "first_gangs": "gangs only in the {first} plan",
    "second_gangs": "gangs only in the {second} plan",
    "changed_gangs": "gangs whose requests or pods differ",
    "queues": "queues that differ",
    "policy": "fields of the Policy that differ",
}
"""What can differ in the inputs, by its field."""

EFFECTS: Mapping[Effect, str] = {
    "runs": "run instead of waiting",
    "waits": "wait instead of running",
    "stops": "are stopped",
    "moves": "move",
    "elsewhere": "are on other nodes",
    "new": "are new",
    "gone": "are not there",
    "other": "have other GPUs, bandwidth or speed",
}
"""What happens to gangs."""


def _differences(found: ComparisonDocument) -> list[str]:
    """What differs in the input besides what a what-if states, and what happens to which gangs."""
    besides = "" if found.status.base is None else ", besides the what-if"
    given = []
    for field, what in GIVEN.items():
        if names := getattr(found.status.input, field):
            said = what.format(**_sides(found))
            given.append(f"the inputs differ{besides}: {said}: {first_of(names, MAX_NAMES)}")
    lines = []
    for effect, what in EFFECTS.items():
        if names := [one.gang for one in found.status.gangs if one.effect == effect]:
            lines.append(f"gangs that {what}: {first_of(names, MAX_NAMES)}")
    before, after = (getattr(found, side) for side in _sides(found))
    gpus = [one.effective_gpus for one in (before, after) if one.effective_gpus is not None]
    if len(gpus) > 1:
        lines.append(f"effective GPUs: {change(map(number, gpus))}")
    which = f"{after.what_if}, compared with the base:"
    if found.status.base is None:
        which = "in the second plan, compared with the first:"
    return [*given, *([which, *lines] if lines else [])]
