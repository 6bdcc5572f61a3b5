"""Tiers of a policy that lists goodput, worked out by hand: GPUs times speed, and what still counts GPUs."""

from __future__ import annotations

import pytest
from plan_documents import (
    decided,
    entry,
    gang,
    made,
    off,
    policy,
    role,
    rules_broken,
    sealed,
)
from plan_goodput import GOODPUT, SPEEDS, generations, goodput_plan

from models.verify.check import check, derive


@pytest.mark.parametrize("main", ["goodput", "admission"])
def test_the_speeds_worked_out_by_hand_are_those_derived(main: str) -> None:
    plan = goodput_plan(main)
    assert {one["name"]: one["speed"] for one in plan["spec"]["gangs"]} == SPEEDS
    assert check(plan) == []


def test_goodput_counts_gpus_times_speed_and_its_tiers_stand_in_order() -> None:
    assert list(derive(goodput_plan("goodput")).items()) == list(GOODPUT.items())


@pytest.mark.parametrize("name", GOODPUT)
@pytest.mark.parametrize("by", [-20, -1, 1, 20])
def test_a_value_that_is_off_is_found(name: str, by: int) -> None:
    plan = goodput_plan("goodput")
    off(plan, name, by)
    assert rules_broken(plan) == {"tier-value"}


def test_a_plan_of_one_main_objective_does_not_pass_for_one_of_the_other() -> None:
    plan, other = goodput_plan("goodput"), goodput_plan("admission")
    plan["status"]["objectives"] = other["status"]["objectives"]
    assert rules_broken(plan) == {"tiers", "tier-value"}  # of the aged ones


def test_a_speed_stated_wrong_does_not_change_what_the_tiers_must_be() -> None:
    plan = goodput_plan("goodput")
    entry(plan, "late")["speed"] = 520
    assert rules_broken(sealed(plan)) == {"speed"}
    off(plan, "goodput/0", 4120 - GOODPUT["goodput/0"])
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
        generations(),
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
