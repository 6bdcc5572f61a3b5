"""Why a gang waits, what makes it start, and why its place is its place, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from models.documents.explanation import OtherPlace, PlaceReasons, Why, WhyPod, WhyTier
from models.units import first_of, plural
from planner.show.explain import why_words
from planner.show.table import Cell, Column, Table, columns_of, pairs, row_of
from planner.show.text import domain_text, nodes_and_gpus, number, ranges

MAX_FIRST = 3
"""Gangs named that would take the room first."""


def headline(gang: str, reason: str, why: Why, hold: str) -> Table:
    """Why it waits, and what to do about it first. ``hold``: what lets a held gang go on."""
    rows = [("why", Cell(reason or "no reason is stated", "bad"))]
    do = hold or _first_step(why)
    return pairs([("gang", Cell(gang, "head")), *rows, *([("do", Cell(do, "good"))] if do else [])])


def _first_step(why: Why) -> str:
    if why.fits:
        return _of_one_that_fits(why.tier)
    if why.remedies:
        first, *others = map(why_words.do, why.remedies)
        more = f" ({plural(len(others), 'other way')} below)" if others else ""
        return f"{first}, or {others[0]}" if len(others) == 1 else f"{first}{more}"
    if not why.complete:
        return f"ask with more time, such as --time-limit {10 * max(1, why.limit_seconds)}s"
    return "no single change that was tried makes it start"


def _of_one_that_fits(tier: WhyTier | None) -> str:
    if tier is None:
        return "plan again with more time: no tier would be worse with it"
    there = f"the tier {tier.name} ({tier.there:,} instead of {tier.here:,})"
    if tier.better:
        return f"plan again with more time: {there} would be better with it"
    return f"change the order of the tiers, if it should start: with it, {there} would be worse"


def remedies(why: Why) -> Table:
    """The ways to make it start."""
    rows = tuple(
        row_of(
            why_words.who(one),
            _where(one.pods),
            why_words.do(one),
        )
        for one in why.remedies
    )
    before = {r: one.first for r, one in enumerate(why.remedies) if one.first}
    below = {
        r: Cell(f"but {first_of(gangs, MAX_FIRST, 'other gang')} would start there first")
        for r, gangs in before.items()
    }
    notes = [
        "each was tried: a new plan with that change starts it"
        if all(one.replanned for one in why.remedies)
        else "each was tried: with everything else as planned, a place for all its pods was found"
    ]
    if not why.complete:
        notes.append(f"more may help: the time limit of {why.limit_seconds} s ended the search")
    return Table(columns_of("WHO?|ON?|WHAT MAKES IT START~"), rows, tuple(notes), below=below)


def document(why: Why) -> dict[str, Any]:
    """The same as one JSON object, with the words of each remedy."""
    found = why.to_json()
    for stated, remedy in zip(found["remedies"], why.remedies, strict=True):
        stated |= {"do": why_words.do(remedy), "who": why_words.who(remedy)}
    return found


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
        row_of(first_of([domain_text(one.domain) for one in ones], 1, "other"), *_compared(ones[0]))
        for ones in alike.values()
    )
    columns = (
        Column(f"OTHER {reasons.level.upper()}"),
        *columns_of("WOULD BE|>HERE?|>THERE?|TIER, OR WHY NOT~"),
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
        return (Cell("not possible", "dim"), blank, blank, Cell(one.why))
    if one.tier is None:
        return (Cell("as good"), blank, blank, blank)
    better = one.tier.better
    word = Cell("better", "warn") if better else Cell("worse", "good")
    return (word, Cell(number(one.tier.here)), Cell(number(one.tier.there)), Cell(one.tier.name))


def summary(reasons: PlaceReasons) -> str:
    """Why it is there, in a sentence."""
    where = f"{reasons.level} {domain_text(reasons.domain)}"
    if not reasons.others:
        return f"no other {reasons.level} was tried" if not reasons.tried else where
    best = reasons.others[0]
    if not best.possible:
        return f"no other {reasons.level} of those tried has a place for it"
    other = domain_text(best.domain)
    if best.tier is None:
        return f"{other} would be as good in every tier: one of equals"
    if best.tier.better:
        return f"{other} would be better in the tier {best.tier.name}: the search did not find it"
    return f"the next best, {other}, would be worse in the tier {best.tier.name}"
