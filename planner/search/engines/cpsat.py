"""CP-SAT: exact integer arithmetic, so its bounds are proofs.

Every call has a deterministic limit and a clock limit. The same program, seed and effort give the
same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from models.program.linear_program import Program
from planner.search.budget import Budget
from planner.search.engines.interface import Answer, Goal, Status, interruptible

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


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
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    export(model.proto, program, goal, hint)
    solver = cp_model.CpSolver()
    # Several repeat themselves only if they interleave, and then CP-SAT 9.15 may abort the process.
    solver.parameters.num_workers = 1
    # CP-SAT would handle SIGINT itself and restore the default handler afterwards.
    solver.parameters.catch_sigint_signal = False
    solver.parameters.random_seed = budget.limits.seed % (1 << 31)
    solver.parameters.max_deterministic_time = effort
    solver.parameters.max_time_in_seconds = max(
        0.05, min(budget.seconds_left(), CLOCK_PER_EFFORT * effort)
    )
    status = interruptible(budget, lambda: solver.solve(model), solver.stop_search)
    if status is None:
        return Answer(Status.UNKNOWN, (), goal.trivial_bound(program), exact=True)
    budget.spend(solver.response_proto.deterministic_time)
    short = solver.response_proto.deterministic_time < effort * NEARLY
    budget.clocked |= status in (cp_model.FEASIBLE, cp_model.UNKNOWN) and short
    return _answer(cp_model, solver, status, program, goal)


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


def _answer(
    cp_model: Any, solver: cp_model.CpSolver, status: Any, program: Program, goal: Goal
) -> Answer:
    trivial = goal.trivial_bound(program)
    if status == cp_model.INFEASIBLE:
        return Answer(Status.INFEASIBLE, (), trivial, exact=True)
    if status == cp_model.MODEL_INVALID:
        message = "the program handed to CP-SAT is invalid"
        raise AssertionError(message)
    response = solver.response_proto
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        # Without a solution the bound in the response may be the field's default, which proves nothing.
        return Answer(Status.UNKNOWN, (), trivial, exact=True)
    values = tuple(response.solution)
    if status == cp_model.OPTIMAL:
        return Answer(Status.OPTIMAL, values, goal.objective.value(values), exact=True)
    lower = response.inner_objective_lower_bound
    if goal.maximize:
        bound = min(trivial, goal.objective.constant - lower)
    else:
        bound = max(trivial, goal.objective.constant + lower)
    return Answer(Status.FEASIBLE, values, bound, exact=True)
