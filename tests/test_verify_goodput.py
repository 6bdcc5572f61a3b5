"""Tiers of a policy that lists goodput, worked out by hand: GPUs times speed, and what still counts GPUs."""

from __future__ import annotations

import pytest
from plan_documents import (
    Doc,
    cluster,
    decided,
    dgx,
    entry,
    gang,
    made,
    mesh,
    node,
    objective,
    policy,
    restated,
    role,
    sealed,
    standing,
    stopped,
)

from models.verify.check import check, derive


def rules_broken(plan: Doc) -> set[str]:
    return {violation.rule for violation in check(plan)}


def at(hour: int) -> str:
    return f"2026-11-20T{hour:02}:00:00Z"


def _cluster() -> Doc:
    h100, a100 = dgx(relativeSpeed=100), dgx("DGX A100", gpu="A100", relativeSpeed=50)
    servers = {"h": "DGX H100", "m1": "DGX-1 V100", "m2": "DGX-1 V100", "s": "DGX A100"}
    nodes = [node(name, model) for name, model in servers.items()]
    return cluster([h100, a100, mesh() | {"relativeSpeed": 40}], nodes)


def _gangs() -> list[Doc]:
    running = (standing("old", "m1", [0]), standing("old", "m1", [5], 1))
    part = (standing("part", "s", [4, 5]),)
    return [
        gang("aged", role("worker", 1, 2), submittedAt=at(0)),
        gang("big", role("worker", 2, 8), submittedAt=at(0), priority=5),
        gang("cpu", role("worker", 1, 0), submittedAt=at(10)),
        gang("gone", preemptible=True, pods=(standing("gone", "h", [7]),)),
        gang("late", role("worker", 1, 4), submittedAt=at(9)),
        gang("old", role("worker", 2, 1), movable=True, preemptible=True, pods=running),
        gang("part", role("worker", 2, 2), preemptible=True, pods=part),
        gang("top", role("worker", 1, 8), priority=5, submittedAt=at(9)),
    ]


def _decisions() -> list[Doc]:
    return [
        decided("aged", "place", ("m2", [0, 1])),
        decided("big", "wait", why="NoRoom") | {"aged": True},
        decided("cpu", "place", ("s", [])),
        stopped("gone", "top"),
        decided("late", "place", ("s", [0, 1, 2, 3])),
        decided("old", "move", ("m2", [2]), ("m2", [3])),
        decided("part", "keep", ("s", [4, 5]), why="Incomplete"),
        decided("top", "place", ("h", list(range(8)))),
    ]


SPEEDS = {
    "aged": 320,  # r = 40 of 100, one link of two: 400,000 / (750 + 500)
    "big": None,
    "cpu": 1000,  # no GPUs
    "gone": None,
    "late": 500,  # r = 50 of 100
    "old": 200,  # from GPUs 0 and 5, share 200: 400,000 / (750 + 1250); 400 after
    "part": 500,  # what stands of it
    "top": 1000,
}

GOODPUT = {
    "aged/5": 0,  # big waits
    "aged-waiting/5": 0,
    "goodput/5": 8000,  # top 8 x 1000
    "waiting/5": 28800,  # top 8 x 3600 s: T is 10:00, of cpu
    "kept/0": 4,  # old 2, part 2
    "aged/0": 640,  # aged 2 x 320
    "aged-waiting/0": 23_040_000,  # 640 x 36,000 s
    "goodput/0": 4040,  # aged 640, cpu 1000, late 4 x 500, old 2 x 200; part is not admitted
    "waiting/0": 86400,  # aged 2 x 36,000, late 4 x 3600; old runs
    "bandwidth": 15000,  # 1000 x (late 4 + old 2 + top 8) + 500 x aged 2
}

ADMISSION = {
    "aged/5": 0,
    "aged-waiting/5": 0,
    "admission/5": 8,
    "waiting/5": 28800,
    "kept/0": 4,
    "aged/0": 2,
    "aged-waiting/0": 72000,  # 2 x 36,000 s
    "admission/0": 9,  # aged 2, cpu 1, late 4, old 2
    "waiting/0": 86400,
    "bandwidth": 15000,
}


def plan_for(main: str) -> Doc:
    listed = [{"name": name, "tolerance": 0} for name in (main, "waiting", "bandwidth")]
    limits = policy(objectives=listed, starvation={"after": "12h"}, now=at(14))
    decisions = _decisions()
    decisions[0]["aged"] = True
    return made(_cluster(), _gangs(), decisions, limits)


@pytest.mark.parametrize("main", ["goodput", "admission"])
def test_the_speeds_worked_out_by_hand_are_those_derived(main: str) -> None:
    plan = plan_for(main)
    assert {one["name"]: one["speed"] for one in plan["spec"]["gangs"]} == SPEEDS
    assert check(plan) == []


def test_goodput_counts_gpus_times_speed_and_its_tiers_stand_in_order() -> None:
    assert list(derive(plan_for("goodput")).items()) == list(GOODPUT.items())


def test_with_admission_every_tier_counts_gpus_alone() -> None:
    assert list(derive(plan_for("admission")).items()) == list(ADMISSION.items())


@pytest.mark.parametrize("name", GOODPUT)
@pytest.mark.parametrize("by", [-20, -1, 1, 20])
def test_a_value_that_is_off_is_found(name: str, by: int) -> None:
    plan = plan_for("goodput")
    value = GOODPUT[name] + by
    objective(plan, name).update(value=value, best=value, bound=value)
    assert rules_broken(plan) == {"tier-value"}


def test_a_plan_of_one_main_objective_does_not_pass_for_one_of_the_other() -> None:
    plan, other = plan_for("goodput"), plan_for("admission")
    plan["status"]["objectives"] = other["status"]["objectives"]
    assert rules_broken(plan) == {"tiers", "tier-value"}  # of the aged ones


def test_a_speed_stated_wrong_does_not_change_what_the_tiers_must_be() -> None:
    plan = plan_for("goodput")
    entry(plan, "late")["speed"] = 520
    assert rules_broken(sealed(plan)) == {"speed"}
    objective(plan, "goodput/0").update(value=4120, best=4120, bound=4120)
    assert rules_broken(plan) == {"speed", "tier-value"}


def test_elastic_gangs_count_their_gpus_at_min_times_the_speed_of_all() -> None:
    size = {"min": 2, "max": 4, "step": 2}
    gangs = [
        gang("a", role("worker", size, 1)),
        gang("b", role("worker", 1, 8), priority=1),
        gang("c", priority=2),
        gang("d", priority=3),
    ]
    plan = made(
        _cluster(),
        gangs,
        [
            decided("a", "place", *(("m1", [gpu]) for gpu in range(4))),
            decided("b", "place", ("h", list(range(8)))),
            decided("c", "place", ("m2", [0])),
            decided("d", "place", ("s", [0])),
        ],
        policy(objectives=[{"name": "goodput", "tolerance": 0}]),
    )
    assert check(plan) == []
    # d: 1 x 500, c: 1 x 400, b: 8 x 1000, a: 2 x 400 although it runs four
    assert list(derive(plan).values()) == [500, 400, 8000, 800]


@pytest.mark.parametrize(
    "changes",
    [
        {"objectives": [{"name": name, "tolerance": 0} for name in ("goodput", "admission")]},
        {"preset": "goodput"},
        {"preset": "admission", "objectives": None},
    ],
)
def test_an_instance_names_one_main_objective_and_no_preset(changes: Doc) -> None:
    plan = plan_for("goodput")
    plan["instance"]["policy"]["spec"].update(changes)
    assert rules_broken(sealed(plan)) == {"form"}


def test_a_policy_without_either_has_no_goodput() -> None:
    plan = plan_for("goodput")
    plan["instance"]["policy"]["spec"]["objectives"] = [{"name": "bandwidth", "tolerance": 0}]
    assert check(restated(plan)) == []
    assert derive(plan) == {"bandwidth": 15000}
