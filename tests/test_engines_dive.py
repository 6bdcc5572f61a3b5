"""The dive from LP values to a plan: what it finds satisfies every row, and it frees what it must."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from models.documents.policy import SolveLimits
from models.program.linear_program import Linear, Program
from planner.search.budget import Budget
from planner.search.engines.interface import Goal, Status
from planner.search.engines.portfolio import dive
from planner.search.engines.relaxation import Relaxation


def plenty() -> Budget:
    return Budget(replace(SolveLimits(), budget=10**6, time_limit_s=10**6))


def assignment(draw: random.Random) -> tuple[Program, Goal]:
    """Jobs of random sizes and worth to machines of room 10; feasible: nothing need be placed."""
    program, worth = Program(), Linear()
    jobs = [(draw.randint(2, 6), draw.randint(1, 9)) for _ in range(12)]
    loads = [Linear() for _ in range(3)]
    for size, value in jobs:
        places = [program.boolean() for _ in loads]
        program.at_most(Linear().add_all(places), 1)
        for load, place in zip(loads, places, strict=True):
            load.add(place, size)
            worth.add(place, value)
    for load in loads:
        program.at_most(load, 10)
    return program, Goal(worth, maximize=True)


@pytest.mark.parametrize("seed", range(5))
def test_a_dive_finds_a_plan_close_to_the_bound(seed: int) -> None:
    program, goal = assignment(random.Random(seed))
    relaxed = Relaxation(program, plenty()).bound(goal, seconds=60)
    assert relaxed.values is not None
    answer = dive(program, goal, relaxed.values, plenty(), nodes=1000, seconds=60)
    assert answer.status is Status.FEASIBLE
    assert goal.satisfied(program, answer.values)
    # At most one job of worth 9 is lost for each of three machines.
    assert relaxed.bound - 27 <= goal.objective.value(answer.values) <= relaxed.bound


def test_a_dive_without_time_finds_nothing() -> None:
    program, goal = assignment(random.Random(1))
    values = [0.5] * len(program.lower)
    answer = dive(program, goal, values, plenty(), nodes=10, seconds=0)
    assert answer.values == ()
