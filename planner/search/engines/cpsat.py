"""CP-SAT: exact integer arithmetic, so its bounds are proofs.

Every call has a deterministic limit and a clock limit. The same program, seed and effort give the
same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from models.program.linear_program import Program
from planner.search.budget import Budget
from planner.search.engines.interface import Answer, Goal, Status, interruptible

CLOCK_PER_EFFORT = 10.0
"""Seconds per unit of effort after which the clock ends a call. About one second is usual."""

NEARLY = 0.99
"""A call that used less of its effort than this was ended by the clock."""


def solve_exactly(
    program: Program,
    goal: Goal,
    budget: Budget,
    effort: float,
    *,
    hint: Sequence[int] = (),
) -> Answer:
    """Solve with at most ``effort`` units."""
    # Not cp_model: that loads pandas, which takes longer than most searches.
    from ortools.sat.python import cp_model_helper as cp_sat

    proto, parameters = cp_sat.CpModelProto(), cp_sat.SatParameters()
    export(proto, program, goal, hint)
    # Several repeat themselves only if they interleave, and then CP-SAT 9.15 may abort the process.
    parameters.num_workers = 1
    # CP-SAT would handle SIGINT itself and restore the default handler afterwards.
    parameters.catch_sigint_signal = False
    parameters.random_seed = budget.limits.seed % (1 << 31)
    parameters.max_deterministic_time = effort
    most = min(budget.seconds_left(), CLOCK_PER_EFFORT * effort)
    parameters.max_time_in_seconds = max(0.05, most)
    solver: Any = cp_sat.SolveWrapper()
    solver.set_parameters(parameters)
    response = interruptible(budget, lambda: solver.solve(proto), solver.stop_search)
    if response is None:
        return Answer(Status.UNKNOWN, (), goal.trivial_bound(program), exact=True)
    budget.spend(response.deterministic_time)
    known = cp_sat.CpSolverStatus
    short = response.deterministic_time < effort * NEARLY
    budget.clocked |= response.status in (known.FEASIBLE, known.UNKNOWN) and short
    return _answer(known, response, program, goal)


def export(proto: Any, program: Program, goal: Goal, hint: Sequence[int]) -> None:
    for low, high in zip(program.lower, program.upper, strict=True):
        proto.variables.add().domain.extend((low, high))
    for row in chain(program.rows, goal.kept_rows()):
        linear = proto.constraints.add().linear
        linear.vars.extend(row.variables)
        linear.coeffs.extend(row.coefficients)
        linear.domain.extend((row.low, row.high))
    sign = -1 if goal.maximize else 1
    for variable, coefficient in goal.objective.terms.items():
        if coefficient:
            proto.objective.vars.append(variable)
            proto.objective.coeffs.append(sign * coefficient)
    proto.solution_hint.vars.extend(range(len(hint)))
    proto.solution_hint.values.extend(hint)


def _answer(known: Any, response: Any, program: Program, goal: Goal) -> Answer:
    trivial, status = goal.trivial_bound(program), response.status
    if status == known.INFEASIBLE:
        return Answer(Status.INFEASIBLE, (), trivial, exact=True)
    if status == known.MODEL_INVALID:
        message = "the program handed to CP-SAT is invalid"
        raise AssertionError(message)
    if status not in (known.OPTIMAL, known.FEASIBLE):
        # Without a solution the bound in the response may be the field's default, which proves nothing.
        return Answer(Status.UNKNOWN, (), trivial, exact=True)
    values = tuple(response.solution)
    if status == known.OPTIMAL:
        return Answer(Status.OPTIMAL, values, goal.objective.value(values), exact=True)
    lower = response.inner_objective_lower_bound
    if goal.maximize:
        bound = min(trivial, goal.objective.constant - lower)
    else:
        bound = max(trivial, goal.objective.constant + lower)
    return Answer(Status.FEASIBLE, values, bound, exact=True)
