"""What is proven in integers: LP bounds from any multipliers, and rows that an assignment satisfies."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from models.documents.policy import SolveLimits
from models.program.linear_program import UNBOUNDED, Linear, Program
from planner.search.budget import Budget
from planner.search.engines.interface import Goal
from planner.search.engines.relaxation import SCALE, Relaxation, dual_proof


def random_program(draw: random.Random, largest: int) -> Program:
    program = Program()
    for _ in range(draw.randint(1, 12)):
        low = draw.randint(-3, 3)
        program.integer(low, low + draw.randint(0, 4))
    add_rows(program, draw, largest, draw.randint(0, 8))
    return program


def add_rows(program: Program, draw: random.Random, largest: int, count: int) -> None:
    for _ in range(count):
        add = draw.choice([program.at_most, program.at_least, program.equal])
        add(random_expression(program, draw, largest), draw.randint(-largest, largest))


def random_expression(program: Program, draw: random.Random, largest: int) -> Linear:
    expression = Linear(constant=draw.randint(-largest, largest))
    for variable in range(len(program.lower)):
        if draw.random() < 0.5:
            expression.add(variable, draw.randint(-largest, largest))
    return expression


def random_goal(program: Program, draw: random.Random, largest: int) -> Goal:
    keep = tuple(
        (random_expression(program, draw, largest), *limits)
        for limits in draw.choices([(-UNBOUNDED, 7), (-7, UNBOUNDED), (0, 0)], k=2)
    )
    maximize = draw.random() < 0.5
    return Goal(random_expression(program, draw, largest), maximize, keep[: draw.randint(0, 2)])


def bound_by_hand(program: Program, goal: Goal, multipliers: Sequence[float]) -> int:
    """The formula of ``relaxation.py`` in Python integers, term by term."""
    sign = 1 if goal.maximize else -1
    reduced = [0] * len(program.lower)
    for variable, coefficient in goal.objective.terms.items():
        reduced[variable] += sign * coefficient * SCALE
    total = 0
    for row, multiplier in zip([*program.rows, *goal.kept_rows()], multipliers, strict=True):
        y = sign * round(multiplier * SCALE)
        limit = row.high if y > 0 else row.low
        if y == 0 or abs(limit) >= UNBOUNDED:
            continue
        total += y * limit
        for variable, coefficient in zip(row.variables, row.coefficients, strict=True):
            reduced[variable] -= y * coefficient
    for rest, low, high in zip(reduced, program.lower, program.upper, strict=True):
        total += rest * (high if rest > 0 else low)
    return goal.objective.constant + sign * (total // SCALE)


def satisfied_by_hand(program: Program, goal: Goal, values: Sequence[int]) -> bool:
    ranges = zip(values, program.lower, program.upper, strict=True)
    return all(low <= value <= high for value, low, high in ranges) and all(
        row.low
        <= sum(c * values[v] for v, c in zip(row.variables, row.coefficients, strict=True))
        <= row.high
        for row in [*program.rows, *goal.kept_rows()]
    )


# Up to 10^15: products with multipliers leave 64 bits.
@pytest.mark.parametrize("largest", [1, 9, 10**6, 10**15])
def test_a_bound_is_the_same_as_in_python_integers(largest: int) -> None:
    draw = random.Random(largest)
    for _ in range(200):
        program = random_program(draw, largest)
        goal = random_goal(program, draw, largest)
        size = len(program.rows) + len(goal.keep)
        spread = draw.choice([1e-9, 1.0, 1e6, 1e15])
        multipliers = [draw.choice([0.0, draw.uniform(-spread, spread)]) for _ in range(size)]
        assert dual_proof(program, goal, multipliers).bound == bound_by_hand(
            program, goal, multipliers
        )


@pytest.mark.parametrize("largest", [1, 2, 10**15])
def test_rows_hold_as_in_python_integers(largest: int) -> None:
    draw = random.Random(largest)
    seen = set()
    for _ in range(500):
        program = random_program(draw, largest)
        goal = random_goal(program, draw, largest)
        values = [
            draw.randint(low, high) if draw.random() < 0.98 else high + 1
            for low, high in zip(program.lower, program.upper, strict=True)
        ]
        holds = satisfied_by_hand(program, goal, values)
        assert goal.satisfied(program, values) == holds
        seen.add(holds)
    assert seen == {True, False}


def test_a_relaxation_that_the_clock_ends_says_so_in_the_budget() -> None:
    draw = random.Random(1)
    program = Program()
    items = [program.boolean() for _ in range(3000)]
    for _ in range(3000):
        program.at_most(Linear().add_all(draw.sample(items, 5)), 2)
    budget = Budget(SolveLimits())
    goal = Goal(Linear().add_all(items), maximize=True)
    # The LP of this size takes ten times the shortest time.
    assert Relaxation(program, budget).bound(goal, seconds=0.0).bound <= 3000
    assert budget.clocked
