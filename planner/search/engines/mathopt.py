"""Programs as MathOpt protos, and calls of MathOpt's solvers on them.

The protos go to the solver directly: MathOpt's Python classes for models and results cost more than
many solves.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np

from models.program.arrays import Integers, Rows, rows_of
from models.program.linear_program import UNBOUNDED, Program
from planner.search.budget import Budget
from planner.search.engines.interface import Goal, run_interruptible

SHORTEST_S = 0.05
"""No engine is started for a shorter time."""


def model_proto(program: Program, goal: Goal, *, integer: bool) -> Any:
    """The MathOpt model of a program and goal. ``integer`` False gives the LP relaxation."""
    proto = program_proto(program, integer=integer)
    add_goal(proto, goal)
    return proto


def program_proto(program: Program, *, integer: bool) -> Any:
    """The model without an objective."""
    from ortools.math_opt import model_pb2

    proto = model_pb2.ModelProto()
    count = len(program.lower)
    proto.variables.ids.extend(range(count))
    proto.variables.lower_bounds.extend(program.lower)
    proto.variables.upper_bounds.extend(program.upper)
    proto.variables.integers.extend([integer] * count)
    _add_rows(proto, program.row_arrays())
    return proto


def add_goal(proto: Any, goal: Goal) -> None:
    """Add the rows and the objective of a goal to a model without one."""
    _add_rows(proto, rows_of(goal.kept_rows()))
    terms = sorted((v, c) for v, c in goal.objective.terms.items() if c)
    proto.objective.maximize = goal.maximize
    proto.objective.offset = float(goal.objective.constant)
    proto.objective.linear_coefficients.ids.extend(v for v, _ in terms)
    proto.objective.linear_coefficients.values.extend(float(c) for _, c in terms)


def _add_rows(proto: Any, rows: Rows) -> None:
    first = len(proto.linear_constraints.ids)
    proto.linear_constraints.ids.extend(range(first, first + len(rows.low)))
    proto.linear_constraints.lower_bounds.extend(_limits(rows.low))
    proto.linear_constraints.upper_bounds.extend(_limits(rows.high))
    matrix = proto.linear_constraint_matrix
    matrix.row_ids.extend((rows.numbers + first).tolist())
    matrix.column_ids.extend(rows.columns.tolist())
    matrix.coefficients.extend(rows.coefficients.tolist())


def _limits(bounds: Integers) -> list[float]:
    limits = bounds.astype(np.float64)
    limits[bounds >= UNBOUNDED] = math.inf
    limits[bounds <= -UNBOUNDED] = -math.inf
    return list(limits.tolist())


def run_solver(
    budget: Budget,
    model: Any,
    engine: str,
    seconds: float,
    *,
    parameters: dict[str, Any],
    start: Any = None,
) -> Any:
    """The result proto of a solver of MathOpt; None if it had to be abandoned.

    ``start``: ModelSolveParametersProto with a hint or a basis. A call that the clock ended is
    recorded in the budget.
    """
    from ortools.math_opt import (
        callback_pb2,
        model_parameters_pb2,
        parameters_pb2,
        result_pb2,
    )
    from ortools.math_opt.core.python import solver
    from ortools.math_opt.python import mathopt
    from ortools.util.python.solve_interrupter import SolveInterrupter

    seconds = max(SHORTEST_S, min(seconds, budget.seconds_left()))
    limited = mathopt.SolveParameters(time_limit=dt.timedelta(seconds=seconds), **parameters)
    # HiGHS takes no interrupter: it is abandoned at a stop.
    interrupter = SolveInterrupter() if engine != "HIGHS" else None
    result = run_interruptible(
        budget,
        lambda: solver.solve(
            model,
            mathopt.SolverType[engine].value,
            parameters_pb2.SolverInitializerProto(),
            limited.to_proto(),
            start or model_parameters_pb2.ModelSolveParametersProto(),
            None,
            callback_pb2.CallbackRegistrationProto(),
            None,
            interrupter.pybind_interrupter if interrupter else None,
        ),
        interrupter.interrupt if interrupter else None,
        seconds=seconds,
    )
    timed_out = result is None or result.termination.limit == result_pb2.LIMIT_TIME
    budget.clocked |= timed_out and not budget.stop.is_set()
    return result
