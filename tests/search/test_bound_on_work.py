"""How far a plan is from the best: the bound on the work done comes before gaps of other tiers."""

from __future__ import annotations

import copy
from typing import Any

import handmade
import pytest

from models.documents.plan import PlanDocument
from models.results.plan_gpus import most_effective_gpus
from planner.show.plan.proofs import outcome

TIER = handmade.tier


def plan(after: float | None, *tiers: dict[str, Any]) -> PlanDocument:
    """The plan by hand: priorities 10 (pair 4, whole 16 GPUs), 5 (big 72) and 0 (old 2); 31 healthy GPUs."""
    document = handmade.plan()
    document["status"]["objectives"] = list(tiers)
    if after is not None:
        document["status"]["effectiveGpus"] = {"before": 2.0, "after": after}
    return PlanDocument.model_validate(document)


def test_a_gap_of_a_late_tier_is_no_gap_of_the_work_done() -> None:
    proven = [TIER("goodput/10", "max", 20_000), TIER("goodput/5", "max", 0)]
    found = plan(22.0, *proven, TIER("goodput/0", "max", 2000), TIER("stranded", "min", 500, 70))
    # the gap of stranded is 430 of 500
    assert outcome(found) == (
        "feasible: no better plan does more work; 3 of 4 tiers proven best;"
        " the search was ended by the budget"
    )


def test_bounds_count_up_to_the_tier_after_the_first_gap() -> None:
    """A better plan may have more of goodput/10 and in turn less of waiting/10 and of all that follows."""
    first = TIER("goodput/10", "max", 19_600, 19_800)
    rest = [TIER("goodput/5", "max", 0), TIER("goodput/0", "max", 2000)]
    # goodput/5 is the tier after the first gap; of priority 0, old asks for 2 GPUs: 19.8 + 0 + 2
    found = plan(21.6, first, *rest)
    assert most_effective_gpus(found) == 21.8
    assert "at most 0.93 % more work; 2 of 3 tiers" in outcome(found)  # 21.8 / 21.6
    # with a tier between them, the 72 GPUs of priority 5 count, and the 31 healthy ones are the most
    found = plan(21.6, first, TIER("waiting/10", "max", 0), *rest)
    assert most_effective_gpus(found) == 31.0
    assert "at most 43.52 % more work; 3 of 4 tiers" in outcome(found)  # 31 / 21.6


def test_a_tier_of_gpus_bounds_effective_gpus_at_full_speed() -> None:
    tiers = [
        TIER("admission/10", "max", 20),
        TIER("admission/5", "max", 0),
        TIER("admission/0", "max", 2),
    ]
    found = plan(21.6, *tiers, TIER("span", "min", 3, 0))
    assert most_effective_gpus(found) == 22.0  # 20 + 0 + 2, at 100 %
    found = plan(21.6, *tiers, TIER("span", "min", 3))  # no plan is better at all
    assert most_effective_gpus(found) == 21.6


@pytest.mark.parametrize(("preemptible", "most"), [(False, 21.0), (True, 22.0)])
def test_gangs_without_gpus_are_no_work(preemptible: bool, most: float) -> None:
    """goodput/0 is 1 for the 2 GPUs of old at 50 %, and 1 for the launcher, which holds none.

    If the launcher may stop, a better plan could have 2 of old in place of both.
    """
    document = handmade.plan()
    old = next(gang for gang in document["instance"]["gangs"] if gang["metadata"]["name"] == "old")
    launcher = copy.deepcopy(old)
    launcher["metadata"]["name"] = "launcher"
    launcher["spec"].update(
        preemptible=preemptible, roles=[{"name": "worker", "replicas": 1, "gpus": 0}]
    )
    document["instance"]["gangs"].append(launcher)
    decided = next(gang for gang in document["spec"]["gangs"] if gang["name"] == "old")
    document["spec"]["gangs"].append({**decided, "name": "launcher"})
    tiers = [TIER("goodput/10", "max", 20_000), TIER("goodput/5", "max", 0)]
    tiers += [TIER("goodput/0", "max", 2000), TIER("span", "min", 3, 0)]
    document["status"]["objectives"] = tiers
    document["status"]["effectiveGpus"] = {"before": 1.0, "after": 21.0}
    assert most_effective_gpus(PlanDocument.model_validate(document)) == most
