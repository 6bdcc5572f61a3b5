"""Three readings of one contract: the exhaustive planner's best plans, composed, are judged.

The exhaustive planner values its plans itself; ``models.results.plan`` states the figures by the
planner's own formulas; the judge shares neither. What differs in any of them shows here.
"""

from __future__ import annotations

import exhaustive
import pytest
from effort import first_fast
from tiny import tiny

from models.results.plan import compose
from models.verify.check import check, derive


@pytest.mark.parametrize("seed", first_fast(range(60), 12))
def test_the_judge_agrees_with_the_exhaustive_planner(seed: int) -> None:
    instance = tiny(seed)
    best = exhaustive.plan(instance)
    plan = compose(
        instance, best.solution(), name="tiny", created_at="2026-11-20T10:00:00Z", generator="test"
    )
    assert check(plan) == []
    assert tuple(derive(plan).items()) == best.tiers
