"""Balance, exclusive domains, spares, shares of a node, patience: search, judge and trying every plan agree.

Both state the rules by themselves. Every best plan passes the judge with the same values, and of random plans
that pass none is better; on the smallest instances the best that passes is the best plan.
"""

from __future__ import annotations

from itertools import count, islice

import pytest
from comparing import differences, misjudged
from effort import examples, first_fast
from exhaustive import plan
from exhaustive_naive import Naive
from tiny import tiny
from tiny_busy import busy
from tiny_shape import SHAPES

from models.instance.instance import Instance

EFFORT, MOST = 1000, 1500


def drawn(name: str, seed: int) -> Instance:
    return (busy if seed % 2 else tiny)(seed, more=SHAPES[name])


@pytest.mark.parametrize("name", SHAPES)
def test_the_judge_lets_every_best_plan_pass_and_values_it_the_same(name: str) -> None:
    found = {seed: misjudged(drawn(name, seed)) for seed in range(examples(100, 10))}
    assert {seed: what for seed, what in found.items() if what} == {}


@pytest.mark.parametrize("name", SHAPES)
def test_the_search_equals_trying_every_plan(name: str) -> None:
    found = {seed: differences(drawn(name, seed)) for seed in range(1000, 1000 + examples(30, 2))}
    assert {seed: what for seed, what in found.items() if what} == {}


@pytest.mark.parametrize("name", first_fast(SHAPES, 2))
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
