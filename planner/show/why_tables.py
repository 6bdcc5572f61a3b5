"""Why a gang waits, what makes it start, and why its place is its place, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.documents.explanation import (
    OtherPlace,
    PlaceReasons,
    Why,
    WhyCause,
    WhyPod,
    WhyRemedy,
    WhyTier,
)
from models.units import first_of, plural
from planner.show.table import Cell, Column, Table
from planner.show.text import nodes_and_gpus, number, ranges

MAX_GANGS = 6
"""Gangs listed among the causes; the others are counted."""

MAX_FIRST = 3
"""Gangs named that would take the room first."""

PROVEN = {
    "irreducible": "proven: these alone keep it waiting; if all others go and one of these, too, it starts",
    "enough": "proven: these alone keep it waiting; perhaps fewer would: the time was up",
}


def headline(gang: str, why: Why) -> Table:
    """Why it waits and what to do, in two lines."""
    rows = [(Cell("why", "dim"), Cell(why.said, "bad" if why.causes else "warn"))]
    do = _first_step(why)
    if do:
        rows.append((Cell("do", "dim"), Cell(do, "good")))
    return Table(
        (Column("what"), Column("how", fold=True)),
        ((Cell("gang", "dim"), Cell(gang, "head")), *rows),
        headless=True,
    )


def _first_step(why: Why) -> str:
    if why.standing == "fits":
        return _of_one_that_fits(why)
    if why.remedies:
        best = next((one for one in why.remedies if not one.first), why.remedies[0])
        rest = len(why.remedies) - 1
        more = f" ({plural(rest, 'other way')} below)" if rest else ""
        return f"{best.do}{more}"
    if why.standing == "unknown":
        return f"ask with more time, such as --time-limit {10 * max(1, why.limit_seconds)}s"
    if why.causes and why.causes[0].type in ("hold", "size"):
        return why.causes[0].relaxing
    return "no single change that was tried makes it start" if why.complete else ""


def _of_one_that_fits(why: Why) -> str:
    if why.tier is None:
        return "plan again with more time: nothing in the tiers speaks against it"
    if why.tier.better:
        return f"plan again with more time: {_tier(why.tier)} would be better with it"
    return (
        f"nothing, if the order of the tiers is meant so: with it, {_tier(why.tier)} would be worse"
    )


def _tier(tier: WhyTier) -> str:
    return f"the tier {tier.name} ({tier.there:,} in the place of {tier.here:,})"


def tables(why: Why) -> list[Table]:
    """The causes, and the ways to make it start."""
    parts = [_causes(why), _remedies(why)]
    return [part for part in parts if part.rows]


def _causes(why: Why) -> Table:
    gangs = [one for one in why.causes if one.type == "gang"]
    shown = [*(one for one in why.causes if one.type != "gang"), *gangs[:MAX_GANGS]]
    rows = [
        (Cell(_name(one)), Cell(one.what), Cell(number(one.gpus)), Cell(one.relaxing))
        for one in shown
    ]
    rest = gangs[MAX_GANGS:]
    notes = []
    if rest:
        gpus = plural(sum(one.gpus or 0 for one in rest), "GPU")
        notes.append(f"and {plural(len(rest), 'more gang')}, with {gpus}; -o json lists all")
    if why.standing in PROVEN:
        notes.append(PROVEN[why.standing])
    columns = (
        Column("WHAT KEEPS IT WAITING"),
        Column("WHAT IT DOES", fold=True),
        Column("GPUS", right=True, droppable=True),
        Column("UNTIL", fold=True, droppable=True),
    )
    return Table(columns, tuple(rows), tuple(notes))


def _name(one: WhyCause) -> str:
    if one.type in ("gang", "node"):
        return one.name
    return f"{one.type} {one.name}" if one.name != one.type else one.name


def _remedies(why: Why) -> Table:
    rows = tuple((Cell(one.do), Cell(_where(one.pods)), Cell(_but(one))) for one in why.remedies)
    notes = ["each was tried: with everything else as planned, a place for all its pods was found"]
    if not why.complete:
        notes.append(f"more may help: the time limit of {why.limit_seconds} s ended the search")
    columns = (
        Column("WHAT MAKES IT START", fold=True),
        Column("ON", fold=True, droppable=True),
        Column("BUT", fold=True),
    )
    some = any(row[-1].text for row in rows)
    table = Table(columns, rows, tuple(notes))
    return table if some else table.of_columns([0, 1])


def _but(one: WhyRemedy) -> str:
    if not one.first:
        return ""
    return f"{first_of(one.first, MAX_FIRST, 'other gang')} would start there first"


def _where(pods: Sequence[WhyPod]) -> str:
    """The nodes; new ones are not named."""
    there: dict[str, list[int]] = {}
    for pod in pods:
        there.setdefault(pod.node, []).extend(pod.gpus or ())
    old = {node: ranges(gpus) for node, gpus in there.items() if not node.startswith("~new-")}
    new = len(there) - len(old)
    parts = [nodes_and_gpus(old)] if old else []
    return ", ".join([*parts, *([plural(new, "new node")] if new else [])])


def place(reasons: PlaceReasons) -> Table:
    """The other domains, the best first; those that are not possible for one reason share a row."""
    alike: dict[tuple[object, ...], list[OtherPlace]] = {}
    for one in reasons.others:
        alike.setdefault((one.why,) if not one.possible else (one.why, one.domain), []).append(one)
    rows = tuple(
        (Cell(first_of([one.domain for one in ones], 1, "other")), *_compared(ones[0]))
        for ones in alike.values()
    )
    columns = (
        Column(f"IN THE PLACE OF {reasons.level} {reasons.domain}", fold=True),
        Column("WOULD BE"),
        Column("FIRST TIER THAT DIFFERS", fold=True),
        Column("HERE", right=True, droppable=True),
        Column("THERE", right=True, droppable=True),
    )
    return Table(columns, rows, tuple(_notes(reasons)))


def _notes(reasons: PlaceReasons) -> Iterator[str]:
    if reasons.tried > len(reasons.others):
        what = f"the best {len(reasons.others)} of {reasons.tried:,} that were tried"
        yield f"{what}, with everything else as planned"
    elif reasons.others:
        yield "with everything else as planned, the best place that was found in each"


def _compared(one: OtherPlace) -> tuple[Cell, ...]:
    blank = Cell("-")
    if not one.possible:
        return (Cell("not possible", "dim"), Cell(one.why), blank, blank)
    if one.tier is None:
        return (Cell("as good"), blank, blank, blank)
    better = one.tier.better
    word = Cell("better", "warn") if better else Cell("worse", "good")
    return (word, Cell(one.tier.name), Cell(number(one.tier.here)), Cell(number(one.tier.there)))


def summary(reasons: PlaceReasons) -> str:
    """Why it is there, in a sentence."""
    where = f"{reasons.level} {reasons.domain}"
    if not reasons.others:
        return f"no other {reasons.level} was tried" if not reasons.tried else where
    best = reasons.others[0]
    if not best.possible:
        return f"no other {reasons.level} of those tried has a place for it"
    if best.tier is None:
        return f"{best.domain} would be as good in every tier: one of equals"
    if best.tier.better:
        return f"{best.domain} would be better in the tier {best.tier.name}: the search did not find it"
    return f"the next best, {best.domain}, would be worse in the tier {best.tier.name}"
