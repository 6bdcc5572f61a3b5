"""Reservations: the judge and trying every plan that keeps them agree.

Reservations are drawn, with places that are free when they begin if nobody starts. Of the best plan that
keeps them the judge finds nothing, no random plan that passes is better, and the best that passes is as good.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import pytest
from effort import examples
from exhaustive import plan
from exhaustive_moves import moves_of
from exhaustive_naive import Naive
from exhaustive_reserving import Reserved, stated
from plan_documents import Doc, sealed
from tiny_reserving import reserved, timed, written

from models.documents.stated import unchecked
from models.instance.instance import Instance
from models.results.plan import compose
from models.verify.check import check, derive
from planner.search.solve import solve

EFFORT, MOST = 1000, 1500
MORE = ("running", "priorities", "preemptible", "movable", "elastic", "incomplete")


def cases(first: int) -> Iterator[tuple[int, Instance, tuple[Reserved, ...]]]:
    """Instances with reservations, by seed."""
    for seed in count(first):
        instance = timed(seed, MORE if seed % 3 else ())
        found = reserved(seed, instance)
        if found:
            yield seed, instance, found


def best(
    instance: Instance, found: tuple[Reserved, ...]
) -> tuple[Doc, tuple[tuple[str, int], ...]]:
    """The best plan that keeps the reservations, as a document that states them; and its tiers."""
    one = plan(instance, reserved=found)
    solution = one.solution(moves_of(instance, one))
    document = compose(
        instance, solution, name="p", created_at="2026-11-21T00:00:00Z", generator="test"
    )
    for own in found:
        document["spec"]["gangs"][own.holder]["reserved"] = written(instance, own)
    marks = ({"field": m.field, "codes": list(m.codes), "why": m.why} for m in unchecked(document))
    document["status"]["unchecked"] = [{k: v for k, v in mark.items() if v} for mark in marks]
    return sealed(document), one.tiers


def naive(instance: Instance, found: tuple[Reserved, ...]) -> Naive:
    keys = [instance.gangs[own.holder].key for own in found]
    said = {key: {"reserved": written(instance, own)} for key, own in zip(keys, found, strict=True)}
    return Naive(instance, said)


def test_the_judge_lets_every_best_plan_pass_and_values_it_the_same() -> None:
    bound = 0
    for seed, instance, found in islice(cases(0), examples(300, 20)):
        document, tiers = best(instance, found)
        assert stated(instance, document) == found
        assert check(document) == [], seed
        assert tuple(derive(document).items()) == tiers, seed
        bound += tiers != plan(instance).tiers
    assert bound > 0


@pytest.mark.parametrize("more", [(), ("queues",)], ids=["no queues", "queues"])
def test_the_search_finds_the_best_plan_that_keeps_what_it_reserves(more: tuple[str, ...]) -> None:
    held = turns = 0
    for seed in range(200, 200 + examples(200, 12)):
        instance = timed(seed, (*more, *(MORE if seed % 3 else ())))
        solution = solve(instance)
        document = compose(
            instance, solution, name="p", created_at="2026-11-21T00:00:00Z", generator="test"
        )
        found = stated(instance, document)
        assert check(document) == [], seed
        values = tuple((tier.name, tier.value) for tier in solution.tiers)
        assert values == plan(instance, reserved=found).tiers, seed
        held += any(own.pods for own in found)
        turns += any(not own.pods for own in found)
    assert held > 2
    assert turns > 2


def test_no_random_plan_that_the_judge_lets_pass_is_better() -> None:
    feasible = 0
    able = (case for case in cases(700) if Naive.effort(case[1]) <= EFFORT)
    for seed, instance, found in islice(able, examples(20, 3)):
        tiers, every = plan(instance, reserved=found).tiers, naive(instance, found)
        for other in every.walked(seed, examples(300, 60)):
            feasible += 1
            assert not every.beats(other, tiers), seed
    assert feasible > 0


@pytest.mark.slow
def test_the_best_that_the_judge_lets_pass_is_the_best_plan() -> None:
    able = (case for case in cases(1500) if Naive.effort(case[1]) <= EFFORT)
    small = ((case, naive(*case[1:])) for case in able)
    for (seed, instance, found), every in islice(
        (one for one in small if 50 <= one[1].size <= MOST), 15
    ):
        assert every.best() == plan(instance, reserved=found).tiers, seed
