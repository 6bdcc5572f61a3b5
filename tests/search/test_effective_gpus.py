"""Effective GPUs of a plan and of what runs before it, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from building import build, gang, mask
from interactive import ROOT
from moves_made import decide, solved

from models.documents.plan import PlanDocument
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.results.plan import compose
from models.values.effective_gpus import effective_after, effective_before
from models.values.tier_values import Evaluation
from models.verify.check import check
from planner.search.solve import solve
from planner.show.plan.plan_tables import effective_gpus
from planner.show.plan.proofs import bought

WHOLE = mask(*range(8))
PRESETS = pytest.mark.parametrize("main", ["goodput", "admission"])


def four_racks(main: str) -> Instance:
    """Four servers in four racks behind an oversubscription of 4: on two of them, share 250 and speed 560.

    apart runs on n01 and n02, half with one of its two pods on n03.
    """
    return build(
        racks=4,
        oversubscription=(1, 4),
        objectives=[main, "disruption"],
        gangs=[
            gang("apart", 2, 8, stands=[(0, 0, 0, WHOLE), (0, 1, 1, WHOLE)], movable=True),
            gang("half", 2, 4, stands=[(0, 0, 2, mask(0, 1, 2, 3))]),
            gang("new", 1, 2),
        ],
    )


@PRESETS
def test_gangs_that_run_whole_count_their_gpus_times_their_speed(main: str) -> None:
    instance = four_racks(main)
    assert effective_before(instance) == 16 * 560  # half does not run whole
    assert effective_after(Evaluation(instance, decide(instance))) == 16 * 560
    new = decide(instance, new=[(3, mask(0, 1))])
    assert effective_after(Evaluation(instance, new)) == 16 * 560 + 2 * 1000


def test_a_gang_that_moves_counts_the_smaller_of_its_speeds() -> None:
    # Two gangs of four GPUs on an NVSwitch; after the plan both are spread over two racks.
    whole = [(0, 0, 0, mask(0, 1)), (0, 1, 0, mask(2, 3))]
    instance = build(
        racks=2, oversubscription=(1, 4), gangs=[gang("a", 2, 2, stands=whole, movable=True)]
    )
    apart = decide(instance, a=[(0, mask(0, 1)), (1, mask(0, 1))])
    assert effective_before(instance) == 4000
    spread = effective_after(Evaluation(instance, apart))
    assert 0 < spread < 4000
    pods = [(0, 0, 0, mask(0, 1)), (0, 1, 1, mask(0, 1))]
    back = replace(instance, gangs=(gang("a", 2, 2, stands=pods, movable=True),))
    assert effective_before(back) == spread
    together = decide(back, a=[(0, mask(0, 1)), (0, mask(2, 3))])
    assert effective_after(Evaluation(back, together)) == spread


@PRESETS
def test_the_plan_states_what_is_effective_before_and_after_it(main: str) -> None:
    instance = four_racks(main)
    plan = solved(instance, decide(instance, new=[(3, mask(0, 1))]))
    stated = {"name": "p", "created_at": "2026-11-20T10:00:00Z", "generator": "test"}
    document = compose(instance, replace(plan, one_at_a_time=((0, 10960),)), **stated)
    assert document["status"]["effectiveGpus"] == {
        "before": 8.96,
        "after": 10.96,
        "oneAtATime": 10.96,
    }
    fewer = compose(instance, replace(plan, one_at_a_time=((7, 1), (0, 10960))), **stated)
    assert fewer["status"]["effectiveGpus"] == {
        "before": 8.96,
        "after": 10.96,
        "oneAtATime": 10.961,
        "byPriority": [
            {"priority": 7, "after": 0, "oneAtATime": 0.001},
            {"priority": 0, "after": 10.96, "oneAtATime": 10.96},
        ],
    }
    unknown = compose(instance, plan, **stated)
    assert unknown["status"]["effectiveGpus"] == {"before": 8.96, "after": 10.96}


def crossed() -> Instance:
    """Two racks of two servers; small comes first by age and name, wide wants a rack of its own."""
    return build(
        racks=2,
        nodes_per_rack=2,
        oversubscription=(1, 4),
        objectives=["goodput"],
        gangs=[gang("a-new", 1, 8), gang("b-new", 2, 8), gang("c-new", 1, 8)],
    )


def displaced(*more: Gang) -> Instance:
    """low holds both servers with 16 GPUs; high and mid want half a server each, and low may be stopped."""
    low = gang("low", 2, 8, stands=[(0, 0, 0, WHOLE), (0, 1, 1, WHOLE)], preemptible=True)
    high, mid = gang("high", 1, 4, priority=100), gang("mid", 1, 4, priority=50)
    return build(nodes_per_rack=2, objectives=["goodput"], gangs=[low, high, mid, *more])


def test_a_plan_with_fewer_than_one_gang_after_another_says_what_it_has_for_them() -> None:
    # One after another nobody is stopped: 16. The plan stops low for 4 + 4.
    instance = displaced()
    found = solve(instance)
    assert found.one_at_a_time == ((0, 16000),)
    stated = {"name": "p", "created_at": "2026-11-20T10:00:00Z", "generator": "test"}
    document = compose(instance, found, **stated)
    assert document["status"]["effectiveGpus"] == {
        "before": 16,
        "after": 8,
        "oneAtATime": 16,
        "byPriority": [
            {"priority": 100, "after": 4, "oneAtATime": 0},
            {"priority": 50, "after": 4, "oneAtATime": 0},
            {"priority": 0, "after": 0, "oneAtATime": 16},
        ],
    }
    assert check(document) == []
    says = (
        "8 fewer than one after another: +4 at priority 100, +4 at priority 50, -16 at priority 0"
    )
    plan = PlanDocument.model_validate(document)
    assert bought(plan) == says
    page = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    assert "\n".join(effective_gpus(plan)) in page
