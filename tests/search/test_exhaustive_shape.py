"""Shapes and wishes of gangs (``SERIES``): search, judge and trying every plan agree.

Both state the rules by themselves. Every best plan passes the judge with the same values, and of random plans
that pass none is better; on the smallest instances the best that passes is the best plan.
``exhaustive_sweep.py --more near,preferred_groups --seeds N:N+1 --narrow`` narrows a failing seed.
"""

from __future__ import annotations

from itertools import count, islice

import pytest
from bounding import alone, bounded
from comparing import differences, misjudged, wrong
from effort import examples, first_fast
from exhaustive import plan
from exhaustive_naive import Naive
from tiny import tiny
from tiny_beside import BESIDE
from tiny_busy import busy
from tiny_shape import SHAPES

from models.instance.instance import Instance
from planner.search.solve import WHOLE_BELOW

EFFORT, MOST = 1000, 1500

SERIES = SHAPES | BESIDE


def drawn(name: str, seed: int) -> Instance:
    return (busy if seed % 2 else tiny)(seed, more=SERIES[name])


@pytest.mark.parametrize("name", SERIES)
def test_the_judge_lets_every_best_plan_pass_and_values_it_the_same(name: str) -> None:
    assert wrong(range(examples(100, 10)), lambda seed: misjudged(drawn(name, seed))) == {}


@pytest.mark.parametrize("name", SERIES)
def test_the_search_equals_trying_every_plan(name: str) -> None:
    seeds = range(1000, 1000 + examples(60, 3))
    assert wrong(seeds, lambda seed: differences(drawn(name, seed))) == {}


@pytest.mark.parametrize("size", [None, WHOLE_BELOW])
@pytest.mark.parametrize("name", BESIDE)
def test_bounds_hold_for_all_plans_on_the_paths_for_large_instances(
    name: str, size: int | None
) -> None:
    seeds = range(2000, 2000 + examples(30, 3))
    assert wrong(seeds, lambda seed: bounded(drawn(name, seed), size)) == {}


@pytest.mark.parametrize("name", BESIDE)
def test_bounds_of_the_full_program_hold(name: str) -> None:
    seeds = range(3000, 3000 + examples(30, 3))
    assert wrong(seeds, lambda seed: alone(drawn(name, seed))) == {}


@pytest.mark.parametrize("name", [*first_fast(SHAPES, 2), *first_fast(BESIDE)])
def test_no_random_plan_that_the_judge_lets_pass_is_better(name: str) -> None:
    able = (seed for seed in count(500) if Naive.effort(drawn(name, seed)) <= EFFORT)
    feasible = 0
    for seed in islice(able, examples(4, 2)):
        naive = Naive(drawn(name, seed))
        best = plan(naive.instance).tiers
        for tiers in naive.walked(seed, examples(300, 60)):
            feasible += 1
            assert not naive.beats(tiers, best), seed
    assert feasible > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_the_best_that_the_judge_lets_pass_is_the_best_plan(name: str) -> None:
    able = (seed for seed in count(900) if Naive.effort(drawn(name, seed)) <= EFFORT)
    small = (one for one in (Naive(drawn(name, seed)) for seed in able) if 50 <= one.size <= MOST)
    for naive in islice(small, 3):
        assert naive.best() == plan(naive.instance).tiers
