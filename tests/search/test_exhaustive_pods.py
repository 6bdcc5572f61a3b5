"""Rules about pods in the exhaustive planner, with the checker as the only rule."""

from __future__ import annotations

import pytest
from building import LEVELS
from effort import first_fast
from exhaustive import plan
from exhaustive_naive import Naive
from test_exhaustive import SMALL, unpruned
from tiny import tiny
from tiny_busy import busy
from tiny_pods import POD_RULES

RACK, NODE = LEVELS.index("rack"), LEVELS.index("node")


@pytest.mark.parametrize("seed", first_fast([1, 9, 4, 12], 2))
def test_what_is_pruned_changes_no_value(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = tiny(seed, without=SMALL, more=POD_RULES)
    pruned = plan(instance)
    unpruned(monkeypatch)
    assert plan(instance).tiers == pruned.tiers


@pytest.mark.parametrize("seed", first_fast([9, 21, 33, 13, 18, 38], 3))
def test_no_plan_that_the_checker_lets_pass_is_better_and_one_is_as_good(seed: int) -> None:
    naive = Naive(busy(seed, more=POD_RULES))
    assert 20 < naive.size < 3000  # at about a millisecond each
    assert naive.best() == plan(naive.instance).tiers
