"""Moves: what each set bought, and which are left out; searches are made up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from building import build, gang, mask, role
from moves_made import decide, small, solved

from models.instance.instance import Instance
from models.instance.policy import Moves
from models.instance.solution import MoveSet, Solution
from planner.search.improve.moves import keep_worthwhile


def with_least(instance: Instance, gain: str) -> Instance:
    return replace(instance, policy=replace(instance.policy, moves=Moves(min_gain=Fraction(gain))))


class Runs:
    """A search that knows its answers: by the names of the movable gangs that may still move."""

    def __init__(self, instance: Instance, plans: Mapping[str, Solution]) -> None:
        self.instance = instance
        self.plans = plans
        self.asked: list[str] = []

    def __call__(self, immovable: frozenset[int]) -> Solution:
        free = [
            one.name
            for i, one in enumerate(self.instance.gangs)
            if one.movable and one.running and i not in immovable
        ]
        self.asked.append(" ".join(free))
        return self.plans[self.asked[-1]]


def never(immovable: frozenset[int]) -> Solution:
    raise AssertionError(f"nothing moves, yet a search without {sorted(immovable)} is asked for")


def crowded(least: str | None = None) -> tuple[Instance, dict[str, Solution]]:
    """Two independent moves: a (1 GPU) leaves n01 to big (8 GPUs), c (4 GPUs) leaves n03 to new (1 GPU).

    n01 to n04 of 8 GPUs each: 7 free on n01, 4 taken by a fixed gang on n03 and 3 on n04.
    """
    instance = build(
        nodes_per_rack=4,
        gangs=[
            small("a", 0, mask(0)),
            gang("big", 1, 8),
            small("c", 2, mask(0, 1, 2, 3)),
            gang("fix", 1, 4, stands=[(0, 0, 2, mask(4, 5, 6, 7))]),
            gang("fox", 1, 2, stands=[(0, 0, 3, mask(4, 5))]),
            gang("full", 1, 8, stands=[(0, 0, 1, mask(*range(8)))]),
            gang("new", roles=[role("w", 1, 1, requests={})]),
        ],
    )
    if least is not None:
        instance = with_least(instance, least)
    a, c = [(3, mask(6))], [(3, mask(0, 1, 2, 3))]
    big, new = [(0, mask(*range(8)))], [(2, mask(0))]
    plans = {
        "a c": decide(instance, a=a, big=big, c=c, new=new),
        "a": decide(instance, a=a, big=big),
        "c": decide(instance, c=c, new=new),
        "": decide(instance),
    }
    return instance, {name: solved(instance, plan) for name, plan in plans.items()}


def test_each_set_is_told_by_the_plan_in_which_only_the_others_move() -> None:
    instance, plans = crowded()
    runs = Runs(instance, plans)
    found = keep_worthwhile(instance, plans["a c"], runs)
    assert runs.asked == ["c", "a"]
    assert found.decisions == plans["a c"].decisions
    # a bought big, 8 GPUs at their best, for 1 GPU: 16. c bought new, 1 GPU, for 4: 0.25.
    assert found.moves == (
        MoveSet((0,), 1, (1,), 8, 8000, 0, 0, 16000),
        MoveSet((2,), 4, (6,), 1, 0, 0, 0, 250),
    )
    assert found.notes == ()


def test_a_set_below_the_least_gain_is_left_out_and_named() -> None:
    instance, plans = crowded("0.5")
    runs = Runs(instance, plans)
    found = keep_worthwhile(instance, plans["a c"], runs)
    # Judged: c alone and a alone; then solved again without c: the same plan as a alone; then a judged.
    assert runs.asked == ["c", "a", ""]
    assert found.decisions == plans["a"].decisions
    assert found.tiers == plans["a"].tiers
    assert found.moves == (MoveSet((0,), 1, (1,), 8, 8000, 0, 0, 16000),)
    (note,) = found.notes
    page = (Path(__file__).parents[2] / "docs" / "plan.md").read_text(encoding="utf-8")
    assert f"\nnote: {note}\n" in page
    assert note == (
        "not moved: default/c (4 GPUs); that would gain +1 GPU admitted (default/new): a gain of 0.250, "
        "below minGain 0.5; bounds apply to plans without this move"
    )


def test_a_plan_that_is_as_good_without_a_set_takes_its_place() -> None:
    # A search that was cut: its plan with a and c moving lacks new, so that c moves for nothing.
    instance, plans = crowded()
    cut = decide(instance, a=[(3, mask(6))], big=[(0, mask(*range(8)))], c=[(3, mask(0, 1, 2, 3))])
    first = solved(instance, cut, slack=5)
    runs = Runs(instance, plans)
    found = keep_worthwhile(instance, first, runs)
    # "c" lacks big and is no better; "a" is as good in all tiers and less disruptive; then a is judged.
    assert runs.asked == ["c", "a", ""]
    assert found.decisions == plans["a"].decisions
    assert [move.gangs for move in found.moves] == [(0,)]
    # What was proven of the first plan is proven of this one, not what holds while c stays.
    bounds = {tier.name: (tier.value, tier.bound) for tier in found.tiers}
    assert bounds["admission/0"] == (27, 32)  # 1 + 8 + 4 + 4 + 2 + 8 GPUs
    assert bounds["disruption"] == (1, 0)  # 5 with c's move
    assert found.stopped_by == "budget"
    assert found.notes == ()
