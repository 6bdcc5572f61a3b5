"""HiGHS behind ``ortools.math_opt``: branch and bound over an LP. Its bounds are numerical.

Calls are limited by nodes (repeatable) and by the clock (a guard). Solutions are rounded and
checked against every row in integers. 10 to 100 times faster than CP-SAT on programs of 64 nodes or
more (benchmarks/README.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from models.program.linear_program import Program
from planner.search.budget import Budget
from planner.search.engines.interface import Answer, Goal, Status
from planner.search.engines.mathopt import add_goal, call_solver, program_proto, scaled_down

BOUND_SLACK = 1e-9
"""Relative slack added to a floating-point bound before it is rounded to the safe side."""


LARGE = 1e9
"""A row of an earlier tier with larger limits is loosened."""

LOOSENED = 1e-10
"""Relative; its unit is 10^-7 of its limit and more, so that hardly any solution is lost by it."""


def branch(
    program: Program,
    goal: Goal,
    budget: Budget,
    *,
    nodes: int,
    seconds: float,
    hint: Sequence[int] = (),
) -> Answer:
    """What HiGHS finds within a number of branch-and-bound nodes and seconds."""
    from ortools.math_opt import model_parameters_pb2

    start = model_parameters_pb2.ModelSolveParametersProto()
    # HiGHS may give up at once on one that breaks a row
    if hint and goal.satisfied(program, hint):
        values = start.solution_hints.add().variable_values
        values.ids.extend(range(len(hint)))
        values.values.extend(map(float, hint))
    model = program_proto(program, integer=True)
    add_goal(model, goal)
    factor = scaled_down(model.objective)
    _loosen(model.linear_constraints, len(program.rows))
    result = call_solver(
        budget,
        model,
        "HIGHS",
        seconds,
        parameters={
            "node_limit": nodes,
            "relative_gap_tolerance": 1e-9,
            "absolute_gap_tolerance": 0.5 / factor,
            "random_seed": budget.limits.seed % (1 << 31),
        },
        start=start,
    )
    if result is None:
        return Answer(Status.UNKNOWN, (), goal.trivial_bound(program), exact=False)
    budget.spend(_effort(program, result))
    return _answer(program, goal, result, factor)


def _loosen(rows: Any, first: int) -> None:
    """Loosen the rows of earlier tiers by what floating point does not tell apart at their size.

    Otherwise HiGHS finds no plan for sums of GPUs x speed x seconds. Solutions are checked as they should be.
    """
    for limits, sign in ((rows.lower_bounds, -1), (rows.upper_bounds, 1)):
        for at in range(first, len(limits)):
            if math.isfinite(limits[at]) and abs(limits[at]) > LARGE:
                limits[at] += sign * abs(limits[at]) * LOOSENED


def _effort(program: Program, result: Any) -> float:
    """Deterministic effort: nodes times program size, in units of about one second."""
    size = len(program.row_arrays().columns) + len(program.lower)
    return float((max(1, result.solve_stats.node_count) + 10) * size / 5e6)


def _answer(program: Program, goal: Goal, result: Any, factor: float) -> Answer:
    from ortools.math_opt import result_pb2, solution_pb2

    trivial = goal.trivial_bound(program)
    reason = result.termination.reason
    if reason == result_pb2.TERMINATION_REASON_INFEASIBLE:
        return Answer(Status.INFEASIBLE, (), trivial, exact=False)
    dual_bound = result.termination.objective_bounds.dual_bound * factor
    bound = safe_bound(dual_bound, trivial, maximize=goal.maximize)
    values: tuple[int, ...] = ()
    found = result.solutions[0].primal_solution if result.solutions else None
    if found is not None and found.feasibility_status == solution_pb2.SOLUTION_STATUS_FEASIBLE:
        values = tuple(map(round, found.variable_values.values))
        if not goal.satisfied(program, values):
            values = ()
    if not values:
        return Answer(Status.UNKNOWN, (), bound, exact=False)
    value = goal.objective.value(values)
    if reason == result_pb2.TERMINATION_REASON_OPTIMAL:
        bound = value  # proven within solver tolerance only
    return Answer(Status.OPTIMAL if value == bound else Status.FEASIBLE, values, bound, exact=False)


def safe_bound(bound: float, trivial: int, *, maximize: bool) -> int:
    """An integer bound that a floating-point bound implies within the slack."""
    if not math.isfinite(bound):
        return trivial
    slack = BOUND_SLACK * abs(bound) + 1e-6
    if maximize:
        return min(trivial, math.floor(bound + slack))
    return max(trivial, math.ceil(bound - slack))
