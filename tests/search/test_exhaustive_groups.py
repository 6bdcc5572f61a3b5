"""Groups, patterns and ranks: search, judge and the reference that tries every dealing of ranks agree.

All three are written from the text by themselves. The search proves nothing of such gangs: its values are
never above those of the best plan, and its bounds never below.
"""

from __future__ import annotations

import pytest
from bounding import honest
from comparing import DAY, misjudged
from effort import examples
from exhaustive_groups import covered, has_groups
from exhaustive_values import shares
from tiny import tiny
from tiny_busy import busy
from tiny_groups import GROUPS
from tiny_speeds import busy_by_speed, tiny_by_speed

from models.instance.instance import Instance
from models.instance.solution import Solution
from models.program.base_state import base_decisions
from models.results.plan import compose
from models.verify.check import check, figures
from planner.search.start.greedy import greedy

DRAWS = (tiny, busy, tiny_by_speed, busy_by_speed)


def drawn(name: str, seed: int) -> Instance:
    """Never pods on more GPUs than their server has."""
    return DRAWS[seed % 4](seed, without=("overfull",), more=GROUPS[name])


@pytest.mark.parametrize("name", GROUPS)
def test_the_judge_takes_from_the_stated_ranks_what_the_best_dealing_is_worth(name: str) -> None:
    found = 0
    for seed in range(examples(400, 12)):
        instance = drawn(name, seed)
        decisions = tuple(greedy(instance, base_decisions(instance)))
        document = compose(
            instance,
            Solution(decisions, (), "budget", "greedy"),
            name="p",
            created_at=DAY,
            generator="test",
        )
        wrong = [one for one in check(document) if one.rule in ("ranks", "bandwidth", "share")]
        assert wrong == [], seed
        judged = figures(document)
        assert [judged[g.key].share for g in instance.gangs] == shares(instance, decisions), seed
        found += any("rank" in pod for g in document["spec"]["gangs"] for pod in g["pods"])
    assert found


@pytest.mark.parametrize("name", GROUPS)
def test_the_best_plan_passes_the_judge_and_the_search_claims_no_better_one(name: str) -> None:
    able = (one for one in (drawn(name, seed) for seed in range(examples(300, 12))) if covered(one))
    with_groups = [one for one in able if any(map(has_groups, one.gangs))]
    assert with_groups
    for instance in with_groups:
        assert misjudged(instance) == []
    assert [honest(instance) for instance in with_groups[:2]] == [[]] * len(with_groups[:2])
