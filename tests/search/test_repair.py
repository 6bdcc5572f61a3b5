"""Gangs of random tiny plans go back to where they run; every plan is judged by the checker."""

from __future__ import annotations

from random import Random

from by_steps import faults
from effort import examples
from exhaustive import plan
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_busy import busy

from models.instance.instance import Instance
from models.instance.solution import GangDecision
from models.rules.giving_way import unjustified_victims
from planner.search.improve.repair import back_in_place

some = settings(max_examples=examples(100, 40))
seeds = st.integers(0, 10**6)


def without_reasons(instance: Instance, decisions: tuple[GangDecision, ...]) -> list[str]:
    """What the checker says of a plan of which nobody explained who waits."""
    return [found for found in faults(instance, decisions) if not found.startswith("reason ")]


@some
@given(seeds, st.integers(0, 10**6))
def test_gangs_go_back_to_where_they_run_and_the_plan_stays_valid(seed: int, choice: int) -> None:
    instance, r = busy(seed), Random(choice)
    decisions = plan(instance).decisions
    changed = [
        index
        for index, (before, one) in enumerate(zip(instance.standing, decisions, strict=True))
        if before and one.pods != before
    ]
    back = [index for index in changed if r.random() < 0.6]
    found = back_in_place(instance, decisions, back)
    assert without_reasons(instance, found) == []
    assert unjustified_victims(instance, found) == []
    for index in back:
        assert found[index].pods == instance.standing[index], index
    assert back or found == decisions
