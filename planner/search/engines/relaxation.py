"""The LP relaxation: a bound for every plan, made exact from rounded duals.

For any multipliers y of the rows lo <= Ax <= hi, every feasible x of a maximisation has
c x <= sum over rows of (y > 0 ? y hi : y lo) + sum over j of max over x_j of (c - yA)_j x_j.
GLOP's duals are rounded and the sum is computed in integers, so solver tolerances do not matter.
"""

from __future__ import annotations

import datetime as dt

from models.program.linear_program import UNBOUNDED, Program, Row
from planner.search.budget import Budget
from planner.search.engines.highs import model_proto
from planner.search.engines.interface import Goal, run_interruptible

SCALE = 1 << 24
"""Denominator of the rounded duals."""


def relax(program: Program, goal: Goal, budget: Budget, *, seconds: float) -> int:
    """The exact bound that the duals of the LP relaxation, solved with GLOP, prove."""
    from ortools.math_opt.python import mathopt

    model = mathopt.Model.from_model_proto(model_proto(program, goal, integer=False))
    limit = dt.timedelta(seconds=max(0.05, min(seconds, budget.seconds_left())))
    result = run_interruptible(
        budget,
        lambda: mathopt.solve(
            model, mathopt.SolverType.GLOP, params=mathopt.SolveParameters(time_limit=limit)
        ),
    )
    if result is None or not result.has_dual_feasible_solution():
        return goal.trivial_bound(program)
    budget.clocked |= result.termination.limit == mathopt.Limit.TIME
    rows = goal.rows(program)
    budget.spend((result.solve_stats.simplex_iterations + 10) * len(rows) / 5e7)
    duals = result.dual_values()
    multipliers = [duals[constraint] for constraint in model.linear_constraints()]
    return proven_bound(program, goal, rows, multipliers)


def proven_bound(program: Program, goal: Goal, rows: list[Row], multipliers: list[float]) -> int:
    """The bound that the rounded multipliers prove, in integer arithmetic."""
    sign = 1 if goal.maximize else -1
    reduced = [0] * len(program.lower)
    for variable, coefficient in goal.objective.terms.items():
        reduced[variable] += sign * coefficient * SCALE
    total = 0
    for row, multiplier in zip(rows, multipliers, strict=True):
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
