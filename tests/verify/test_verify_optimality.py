"""What the judge says of plans that break no rule: better plans that it builds.

Sabotage of plans by hand, and of plans that the search made: claims of proof that do not hold are refused.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from effort import examples
from plan_documents import (
    Doc,
    best_is,
    closed,
    cluster,
    decided,
    dgx,
    gang,
    made,
    node,
    objective,
    restated,
    role,
    sealed,
    standing,
)
from tiny import tiny
from tiny_busy import busy
from tiny_speeds import tiny_by_speed

from models.instance.instance import Instance
from models.results.plan import compose
from models.verify.bounds import refutation
from models.verify.check import Judge, check
from planner.search.solve import solve

ALL = list(range(8))


def servers(count: int, **more: object) -> Doc:
    nodes = [node(f"h{i}", "DGX H100", f"b1/r{i // 2}", **more) for i in range(count)]
    return cluster([dgx()], nodes)


def refused(plan: Doc) -> list[tuple[str, str | None, str]]:
    """(rule, gang, tier) of every violation of the plan that calls every tier proven."""
    found = Judge().check(closed(plan)).violations
    return [(v.rule, v.gang, v.message.partition(":")[0]) for v in found]


def one_waits() -> Doc:
    gangs = [gang("a", role("worker", 1, 8)), gang("b", role("worker", 1, 8))]
    stated = [decided("a", "place", ("h0", ALL)), decided("b", "wait", why="Unknown")]
    return made(servers(2), gangs, stated)


def test_a_gang_that_waits_and_fits_is_a_violation_where_its_tier_is_called_proven() -> None:
    assert refused(one_waits()) == [("NotMaximal", "default/b", "admission/0")]


def test_it_is_a_remark_where_nothing_is_proven() -> None:
    verdict = Judge().check(one_waits())
    assert verdict.violations == []
    assert list(verdict.remarks) == [
        "default/b: admission/0: 8 is not the best: starting beside the others gives 16"
    ]


def test_a_bound_that_a_better_plan_beats_is_a_violation_without_a_proof() -> None:
    plan = one_waits()
    objective(plan, "admission/0").update(bound=15, gap=7 / 8)
    assert [v.rule for v in check(plan)] == ["BoundBeaten"]
    objective(plan, "admission/0").update(bound=16, gap=1.0)
    assert check(plan) == []


def test_a_tolerance_allows_a_later_tier_to_give_away_that_much_and_no_more() -> None:
    plan = one_waits()
    plan["instance"]["policy"]["spec"]["objectives"][0]["tolerance"] = 0.5
    # best 16 keeps 8; the plan has 8, and 16 is not better than best
    objective(plan, "admission/0").update(best_is(16))
    assert Judge().check(sealed(plan)).violations == []


@pytest.mark.parametrize(
    "fault",
    [{"unschedulable": True}, {"ready": False}, {"unhealthyGpus": [0]}, {"unknownUnhealthy": 1}],
)
def test_a_gang_that_does_not_fit_is_no_violation(fault: Doc) -> None:
    plan = one_waits()
    plan["instance"]["cluster"]["spec"]["nodes"][1].update(fault)
    assert refused(restated(plan)) == []


def test_a_smaller_gang_in_the_room_of_a_larger_one_is_not_best() -> None:
    gangs = [gang("a", role("worker", 1, 8)), gang("b", role("worker", 1, 4))]
    stated = [decided("a", "wait", why="Unknown"), decided("b", "place", ("h0", [0, 1, 2, 3]))]
    assert refused(made(servers(1), gangs, stated)) == [("NotMaximal", "default/a", "admission/0")]


def test_a_gang_of_higher_priority_takes_the_room_of_one_that_may_stop() -> None:
    low = gang("low", role("worker", 1, 8), preemptible=True, pods=(standing("low", "h0", ALL),))
    gangs = [gang("high", role("worker", 1, 8), priority=1), low]
    stated = [decided("high", "wait", why="Unknown"), decided("low", "keep", ("h0", ALL))]
    assert refused(made(servers(1), gangs, stated)) == [
        ("NotMaximal", "default/high", "admission/1")
    ]
    gangs[1]["spec"]["preemptible"] = False
    assert refused(made(servers(1), gangs, stated)) == []


def test_slices_and_required_levels_hold_in_the_plans_that_are_built() -> None:
    """Two racks of two servers; one server of each is full: no rack has room for a slice of 16 GPUs."""
    full = [
        gang(f"f{i}", role("worker", 1, 8), pods=(standing(f"f{i}", f"h{i}", ALL),)) for i in (0, 2)
    ]
    kept = [decided(f"f{i}", "keep", (f"h{i}", ALL)) for i in (0, 2)]
    free = gang("a", role("worker", 2, 8))
    stated = [decided("a", "wait", why="Unknown"), *kept]
    assert len(refused(made(servers(4), [free, *full], stated))) == 1
    sliced = gang("a", role("worker", 2, 8, slice={"size": 2, "required": "rack"}))
    assert refused(made(servers(4), [sliced, *full], stated)) == []
    whole = gang("a", role("worker", 2, 8))
    whole["spec"]["topology"]["required"] = "rack"
    assert refused(made(servers(4), [whole, *full], stated)) == []


def test_resources_hold_in_the_plans_that_are_built() -> None:
    gangs = [gang("a", role("worker", 1, 4, requests={"cpu": "10"}))]
    stated = [decided("a", "wait", why="Unknown")]
    assert refused(made(servers(1, allocatable={"cpu": "9"}), gangs, stated)) == []
    assert len(refused(made(servers(1, allocatable={"cpu": "10"}), gangs, stated))) == 1


def test_the_work_is_bounded_by_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refutation, "WORK", 0)
    assert Judge().check(closed(one_waits())).violations == []


def test_checking_by_every_rule_is_bounded_by_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refutation, "CERTIFIED_WORK", 0)
    assert Judge().check(closed(one_waits())).violations == []


# Plans that the search made


def planned(instance: Instance) -> Doc:
    limited = replace(
        instance,
        policy=replace(instance.policy, solve=replace(instance.policy.solve, time_limit_s=20)),
    )
    made_at = {"name": "p", "created_at": "2026-11-21T00:00:00Z", "generator": "g"}
    document: Doc = json.loads(json.dumps(compose(limited, solve(limited), **made_at)))
    return document


DRAWN = [
    pytest.param(draw, seed, id=f"{draw.__name__}-{seed}")
    for draw in (tiny, busy, tiny_by_speed)
    for seed in range(2000, 2000 + examples(60, 6))
]


@pytest.mark.parametrize(("draw", "seed"), DRAWN)
def test_sabotaged_proofs_are_refused_and_honest_ones_are_not(
    draw: Callable[[int], Instance], seed: int
) -> None:
    plan = planned(draw(seed))
    assert check(plan) == []
    for i, stated in enumerate(plan["status"]["objectives"]):
        turned = copy.deepcopy(plan)
        one = turned["status"]["objectives"][i]
        one["proof"] = None
        assert broken(turned) == ["proof"] * (one["bound"] == one["best"])
        if stated["value"] and stated["bound"] == stated["best"]:
            by = -1 if stated["sense"] == "max" else 1
            one.update(bound=stated["bound"] + by, gap=1 / abs(stated["best"]), proof="exact")
            turned["status"].update(outcome="feasible")
            turned["status"]["search"]["stoppedBy"] = "budget"
            assert broken(turned) == ["BoundBeaten"]


def broken(plan: Doc) -> list[str]:
    """Rules that are broken, without reasons: those that rest on a proof are no longer backed by it."""
    return [v.rule for v in check(plan) if v.rule != "reason"]


@pytest.mark.parametrize(("draw", "seed"), DRAWN)
def test_a_plan_that_starts_nothing_and_calls_it_best_is_refused(
    draw: Callable[[int], Instance], seed: int
) -> None:
    plan = planned(draw(seed))
    starting = [g for g in plan["spec"]["gangs"] if g["decision"] == "place"]
    for one in starting:
        reason = {"code": "Unknown", "message": "not now"}
        one.update(decision="wait", pods=[], reason=reason)
    before = [(one["name"], one["value"]) for one in plan["status"]["objectives"]]
    closed(restated(plan))
    if before != [(one["name"], one["value"]) for one in plan["status"]["objectives"]]:
        assert check(plan) != []
