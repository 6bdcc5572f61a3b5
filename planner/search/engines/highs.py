"""HiGHS behind ``ortools.math_opt``: branch and bound over an LP. Its bounds are numerical.

Calls are limited by nodes (repeatable) and by the clock (a guard). Solutions are rounded and
checked against every row in integers. 10 to 100 times faster than CP-SAT on programs of 64 nodes or
more (benchmarks/README.md).
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from typing import Any

from models.program.linear_program import UNBOUNDED, Program
from planner.search.budget import Budget
from planner.search.engines.interface import Answer, Goal, Status, run_interruptible

BOUND_SLACK = 1e-9
"""Relative slack added to a floating-point bound before it is rounded to the safe side."""


def solve_by_branching(
    program: Program,
    goal: Goal,
    budget: Budget,
    *,
    nodes: int,
    seconds: float,
    hint: Sequence[int] = (),
) -> Answer:
    """Solve within a number of branch-and-bound nodes and seconds."""
    from ortools.math_opt.python import mathopt

    model = mathopt.Model.from_model_proto(model_proto(program, goal, integer=True))
    parameters = mathopt.SolveParameters(
        time_limit=dt.timedelta(seconds=max(0.05, min(seconds, budget.seconds_left()))),
        node_limit=nodes,
        relative_gap_tolerance=1e-9,
        absolute_gap_tolerance=0.5,
        random_seed=budget.limits.seed % (1 << 31),
    )
    extra = mathopt.ModelSolveParameters()
    if hint:
        values = dict(zip(model.variables(), map(float, hint), strict=True))
        extra.solution_hints.append(mathopt.SolutionHint(variable_values=values))
    result = run_interruptible(
        budget,
        lambda: mathopt.solve(
            model, mathopt.SolverType.HIGHS, params=parameters, model_params=extra
        ),
    )
    if result is None:
        return Answer(Status.UNKNOWN, (), goal.trivial_bound(program), exact=False)
    budget.spend(_effort(program, result))
    budget.clocked |= result.termination.limit == mathopt.Limit.TIME
    return _answer(mathopt, program, goal, model, result)


def _effort(program: Program, result: Any) -> float:
    """Deterministic effort: nodes times program size, in units of about one second."""
    size = sum(len(row.variables) for row in program.rows) + len(program.lower)
    return float((max(1, result.solve_stats.node_count) + 10) * size / 5e6)


def _answer(mathopt: Any, program: Program, goal: Goal, model: Any, result: Any) -> Answer:
    trivial = goal.trivial_bound(program)
    reason = result.termination.reason
    if reason == mathopt.TerminationReason.INFEASIBLE:
        return Answer(Status.INFEASIBLE, (), trivial, exact=False)
    bound = safe_bound(result.dual_bound(), trivial, maximize=goal.maximize)
    values: tuple[int, ...] = ()
    if result.has_primal_feasible_solution():
        found = result.variable_values()
        values = tuple(round(found[variable]) for variable in model.variables())
        if not _feasible(program, goal, values):
            values = ()
    if not values:
        return Answer(Status.UNKNOWN, (), bound, exact=False)
    value = goal.objective.value(values)
    if reason == mathopt.TerminationReason.OPTIMAL:
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


def _feasible(program: Program, goal: Goal, values: Sequence[int]) -> bool:
    """Whether rounded values satisfy every bound and row exactly."""
    if any(
        not low <= value <= high
        for value, low, high in zip(values, program.lower, program.upper, strict=True)
    ):
        return False
    for row in program.rows:
        total = sum(c * values[v] for v, c in zip(row.variables, row.coefficients, strict=True))
        if not row.low <= total <= row.high:
            return False
    return all(low <= expression.value(values) <= high for expression, low, high in goal.keep)


def model_proto(program: Program, goal: Goal, *, integer: bool) -> Any:
    """The MathOpt model of a program and goal. ``integer`` False gives the LP relaxation."""
    from ortools.math_opt import model_pb2

    proto = model_pb2.ModelProto()
    count = len(program.lower)
    proto.variables.ids.extend(range(count))
    proto.variables.lower_bounds.extend(map(float, program.lower))
    proto.variables.upper_bounds.extend(map(float, program.upper))
    proto.variables.integers.extend([integer] * count)
    rows = goal.rows(program)
    proto.linear_constraints.ids.extend(range(len(rows)))
    proto.linear_constraints.lower_bounds.extend(
        -math.inf if row.low <= -UNBOUNDED else float(row.low) for row in rows
    )
    proto.linear_constraints.upper_bounds.extend(
        math.inf if row.high >= UNBOUNDED else float(row.high) for row in rows
    )
    matrix = proto.linear_constraint_matrix
    for number, row in enumerate(rows):
        for variable, coefficient in sorted(zip(row.variables, row.coefficients, strict=True)):
            matrix.row_ids.append(number)
            matrix.column_ids.append(variable)
            matrix.coefficients.append(float(coefficient))
    terms = sorted((v, c) for v, c in goal.objective.terms.items() if c)
    proto.objective.maximize = goal.maximize
    proto.objective.offset = float(goal.objective.constant)
    proto.objective.linear_coefficients.ids.extend(v for v, _ in terms)
    proto.objective.linear_coefficients.values.extend(float(c) for _, c in terms)
    return proto
