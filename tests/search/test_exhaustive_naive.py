"""The exhaustive planner against an enumeration whose only rule is the checker's word.

Two statements of one contract that share nothing: what the checker lets pass and how it values it, and what
the exhaustive planner knows may be done. On the smallest instances every plan is tried; on others the
checker is asked about random plans, none of which may be better.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count, islice

import pytest
from comparing import misjudged
from effort import examples, first_fast
from exhaustive import plan
from exhaustive_naive import Naive
from test_exhaustive_comparison import BUSY
from test_exhaustive_goodput import SPEEDS
from tiny_busy import busy
from tiny_queues import QUEUED
from tiny_speeds import busy_by_speed

EFFORT, FEWEST, MOST = 1000, 100, 1500
"""Plans to ask for, at about a millisecond each: of single gangs, and of all gangs together."""

RUNNING = BUSY | QUEUED

SERIES = {
    **{name: partial(busy, more=more) for name, more in RUNNING.items()},
    **{f"speeds: {name}": partial(busy_by_speed, more=more) for name, more in SPEEDS.items()},
}
"""Random instances by seed."""


def small(name: str, first: int) -> Iterator[Naive]:
    """Instances of a series, from a seed on, of which a few plans can be tried."""
    for seed in count(first):
        instance = SERIES[name](seed)
        if Naive.effort(instance) <= EFFORT:
            yield Naive(instance)


@pytest.mark.slow
@pytest.mark.parametrize("name", SERIES)
def test_no_plan_that_the_checker_lets_pass_is_better_and_one_is_as_good(name: str) -> None:
    naive = next(n for n in small(name, 3000) if FEWEST <= n.size <= MOST)
    assert naive.best() == plan(naive.instance).tiers


@pytest.mark.parametrize(
    "name",
    [*first_fast(BUSY, 3), *first_fast(QUEUED), *first_fast(list(SERIES)[len(RUNNING) :], 3)],
)
def test_no_random_plan_that_the_checker_lets_pass_is_better(name: str) -> None:
    feasible = 0
    able = (naive for naive in small(name, 4000) if naive.size > MOST)
    for seed, naive in enumerate(islice(able, examples(2, 1))):
        best = plan(naive.instance).tiers
        for tiers in naive.walked(seed, examples(300, 60)):
            feasible += 1
            assert not naive.beats(tiers, best)
    assert feasible > 0


@pytest.mark.parametrize("name", RUNNING)
def test_the_checker_lets_every_best_plan_pass_and_values_it_the_same(name: str) -> None:
    found = {
        seed: misjudged(busy(seed, more=RUNNING[name]))
        for seed in range(2000, 2000 + examples(30, 3))
    }
    assert {seed: what for seed, what in found.items() if what} == {}
