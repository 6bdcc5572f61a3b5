"""Programs as MathOpt protos, and calls of MathOpt's solvers on them.

The protos go to the solver directly: MathOpt's Python classes for models and results cost more than
many solves.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from models.program.arrays import Integers, Rows
from models.program.linear_program import UNBOUNDED, Program, rows_of
from planner.search.budget import Budget
from planner.search.engines.interface import Goal, interruptible
from planner.search.engines.mathopt_process import SolverProcess

SHORTEST_S = 0.05
"""No engine is started for a shorter time."""

LARGEST_IN_THREAD = 20_000
"""Entries of the largest matrix that is solved in a thread of the planner.

HiGHS then ends within a second of its limit, and no solver was seen to die: GLOP did, with a
segmentation fault, on matrices a hundred times larger. Its own process costs no more than that call.
"""

LARGEST = 1 << 24
"""Largest coefficient of an objective that a solver is given."""

Call = tuple[Callable[[], Any], Callable[[], None]]
"""A call that returns a result proto or None, and what ends it early."""


def program_proto(program: Program, *, integer: bool) -> Any:
    """The model without an objective. ``integer`` False gives the LP relaxation."""
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


def scaled_down(objective: Any) -> float:
    """Divide the objective by a power of two, so that its coefficients stay below LARGEST; that power.

    GLOP calls optima of objectives with coefficients of 10^10 imprecise, and gives none.
    """
    values = objective.linear_coefficients.values
    largest = max(map(abs, values), default=0.0)
    factor = 2.0 ** max(0, math.frexp(largest / LARGEST)[1])
    if factor > 1:
        scaled = [value / factor for value in values]
        del values[:]
        values.extend(scaled)
        objective.offset /= factor
    return factor


def _limits(bounds: Integers) -> list[float]:
    limits = bounds.astype(np.float64)
    limits[bounds >= UNBOUNDED] = math.inf
    limits[bounds <= -UNBOUNDED] = -math.inf
    return list(limits.tolist())


def call_solver(
    budget: Budget,
    model: Any,
    engine: str,
    seconds: float,
    *,
    parameters: dict[str, Any],
    start: Any,
) -> Any:
    """The result proto of a solver of MathOpt; None if it had to be abandoned, or died.

    ``start``: ModelSolveParametersProto with a hint or a basis. A call that the clock ended is
    recorded in the budget.
    """
    from ortools.math_opt import result_pb2
    from ortools.math_opt.python import mathopt

    seconds = max(SHORTEST_S, min(seconds, budget.seconds_left()))
    limited = mathopt.SolveParameters(time_limit=dt.timedelta(seconds=seconds), **parameters)
    large = len(model.linear_constraint_matrix.row_ids) > LARGEST_IN_THREAD
    prepare = _in_process if large else _in_thread
    call, on_stop = prepare(mathopt.SolverType[engine].value, model, limited.to_proto(), start)
    result = interruptible(budget, call, on_stop, seconds=seconds)
    # GLOP does not say which limit it met; it has no other than the clock and the stop.
    clock = (result_pb2.LIMIT_TIME, result_pb2.LIMIT_UNDETERMINED)
    timed_out = result is None or result.termination.limit in clock
    budget.clocked |= timed_out and not budget.stop.is_set()
    return result


def _in_thread(solver_type: int, model: Any, parameters: Any, start: Any) -> Call:
    from ortools.math_opt import callback_pb2, parameters_pb2
    from ortools.math_opt.core.python import solver
    from ortools.util.python.solve_interrupter import SolveInterrupter
    from pybind11_abseil.status import StatusNotOk

    interrupter = SolveInterrupter()  # HiGHS ignores it
    initializer = parameters_pb2.SolverInitializerProto()
    registration = callback_pb2.CallbackRegistrationProto()

    def call() -> Any:
        try:
            return solver.solve(
                model,
                solver_type,
                initializer,
                parameters,
                start,
                None,
                registration,
                None,
                interrupter.pybind_interrupter,
            )
        except StatusNotOk as failed:  # HiGHS gives up on a few programs: no answer
            logging.getLogger(__name__).info("no answer of the solver: %s", failed)
            return None

    return call, interrupter.interrupt


def _in_process(solver_type: int, model: Any, parameters: Any, start: Any) -> Call:
    process = SolverProcess.take()
    kill = partial(process.kill, process.turn)
    return lambda: process.solve(solver_type, model, parameters, start), kill
