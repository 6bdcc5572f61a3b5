"""The tables of a Comparison document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from models.documents.comparison import (
    ComparedQueue,
    ComparedTier,
    ComparedValue,
    ComparisonDocument,
    Effect,
    Side,
)
from models.results.comparison import equal
from models.units import first_of, plural
from planner.show.table import Cell, Table, columns_of, row_of
from planner.show.text import NO_BOUND, change, number, permille, whole_percent

MAX_GANGS = 40
"""Rows of gangs, unless all are asked for."""

MAX_NAMES = 6
"""Names in a sentence; the others are counted."""

ABSENT = "absent"


def _sides(found: ComparisonDocument) -> tuple[Side, Side]:
    """The base first, in whichever order they were named."""
    return ("second", "first") if found.status.base == "second" else ("first", "second")


def _title(found: ComparisonDocument, side: Side) -> str:
    if found.status.base is None:
        return side
    return "base" if side == found.status.base else "what if"


def sections(found: ComparisonDocument, *, wide: bool, every: bool) -> list[Table | list[str]]:
    """What is printed. ``every``: all gangs that differ, as if ``wide``."""
    tables = (
        facts(found),
        tiers(found, wide=wide),
        gangs(found, every=wide or every),
        queues(found),
    )
    return [*(one for one in tables if one.rows), ending(found)]


def facts(found: ComparisonDocument) -> Table:
    """The two plans; below them what they suppose."""
    plans = [(_title(found, side), getattr(found, side)) for side in _sides(found)]
    rows = tuple(
        row_of(
            Cell(title, "head"),
            plan.outcome,
            number(plan.nodes),
            number(plan.gangs),
            "-" if plan.effective_gpus is None else number(plan.effective_gpus),
            plan.file,
        )
        for title, plan in plans
    )
    below = {r: Cell(plan.what_if) for r, (_, plan) in enumerate(plans) if plan.what_if}
    columns = columns_of("PLAN|OUTCOME|>NODES?|>GANGS?|>EFFECTIVE GPUS|FILE~")
    return Table(columns, rows, below=below).without_empty_columns()


def tiers(found: ComparisonDocument, *, wide: bool) -> Table:
    """A row for each tier that differs, for every one if ``wide``; the first that differs decides."""
    shown = [tier for tier in found.status.tiers if wide or not equal(tier)]
    sides = _sides(found)
    values = "|".join(f">{_title(found, side).upper()}|>BOUND?" for side in sides)
    columns = columns_of(f"TIER|SENSE?|{values}" + "|BETTER" * found.status.input.same)
    rows = [
        row_of(
            Cell(tier.name, "head" if tier.name == found.status.decided_by else None),
            Cell(tier.sense, "dim"),
            *(cell for side in sides for cell in _value(getattr(tier, side))),
            *[_better(tier, found.status.decided_by)] * found.status.input.same,
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
    """A row for each gang that differs: ``base -> what if``, or once what is equal or of one plan alone."""
    differing = found.status.gangs
    shown = differing if every else differing[:MAX_GANGS]
    sides = _sides(found)
    rows = []
    for gang in shown:
        both = [getattr(gang, side) for side in sides]
        decisions = (ABSENT if one is None else one.decision for one in both)
        there = [one for one in both if one is not None]
        nodes = change(",".join(one.nodes) or "-" for one in there)
        cells = row_of(
            Cell(gang.gang, "head"),
            change(decisions),
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


EFFECTS: Mapping[Effect, tuple[str, str]] = {
    "runs": ("runs instead of waiting", "run instead of waiting"),
    "waits": ("waits instead of running", "wait instead of running"),
    "stops": ("is stopped", "are stopped"),
    "moves": ("moves", "move"),
    "elsewhere": ("is on other nodes", "are on other nodes"),
    "new": ("is new", "are new"),
    "gone": ("is not there", "are not there"),
    "other": ("has other GPUs, bandwidth or speed", "have other GPUs, bandwidth or speed"),
}
"""What happens to a gang, and to several."""


def ending(found: ComparisonDocument) -> list[str]:
    """What changes for whom, in sentences; the last says which plan is better, if they have one input."""
    status = found.status
    lines = [] if status.same else [*_given(found), *_effects(found)]
    lines += [f"note: {remark}" for remark in status.remarks]
    if status.same:
        lines.append("no difference")
    elif status.input.same and status.better is None:
        lines.append("neither plan is better: every tier that both have is equal")
    elif status.input.same:
        decided = f"{status.decided_by} is the first tier that differs"
        lines.append(f"the {status.better} plan is better: {decided}")
    elif status.base is None:
        lines.append("their inputs differ, so neither plan is called better")
    return lines


def _given(found: ComparisonDocument) -> Iterator[str]:
    """What differs in the input, besides what a what-if states."""
    given = found.status.input
    besides = "" if found.status.base is None else ", besides the what-if"
    first, second = (_title(found, side) for side in ("first", "second"))
    for what, names in (
        (f"nodes only in the {first} plan", given.first_nodes),
        (f"nodes only in the {second} plan", given.second_nodes),
        ("nodes that differ", given.changed_nodes),
        (f"gangs only in the {first} plan", given.first_gangs),
        (f"gangs only in the {second} plan", given.second_gangs),
        ("gangs whose requests or pods differ", given.changed_gangs),
        ("queues that differ", given.queues),
        ("fields of the Policy that differ", given.policy),
    ):
        if names:
            yield f"the inputs differ{besides}: {what}: {first_of(names, MAX_NAMES)}"


def _effects(found: ComparisonDocument) -> list[str]:
    """``with node a drained:``, and what happens to which gangs, a line each."""
    other = getattr(found, _sides(found)[1])
    lines = []
    for effect, words in EFFECTS.items():
        names = [one.gang for one in found.status.gangs if one.effect == effect]
        if names:
            count, what = plural(len(names), "gang"), words[len(names) > 1]
            lines.append(f"{count} {what}: {first_of(names, MAX_NAMES)}")
    before, after = (getattr(found, side).effective_gpus for side in _sides(found))
    if before is not None and after is not None and before != after:
        more = "+" if after > before else "-"
        by = number(round(abs(after - before), 3))
        lines.append(f"effective GPUs: {change(map(number, (before, after)))} ({more}{by})")
    if found.status.base is None:
        return ["in the second plan, compared with the first:"] * bool(lines) + lines
    return [f"{other.what_if}, compared with the base:"] * bool(lines) + lines
