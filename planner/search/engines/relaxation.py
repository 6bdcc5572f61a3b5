"""The LP relaxation: a bound for every plan, made exact from rounded duals.

For any multipliers y of the rows lo <= Ax <= hi, every feasible x of a maximisation has
c x <= sum over rows of (y > 0 ? y hi : y lo) + sum over j of max over x_j of (c - yA)_j x_j.
GLOP's duals are rounded and the sum is computed in integers, so solver tolerances do not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.program.arrays import Exact, dot, integers, scattered_products
from models.program.linear_program import UNBOUNDED, Program
from planner.search.budget import Budget
from planner.search.engines.interface import Goal
from planner.search.engines.mathopt import add_goal, call_solver, program_proto, scaled_down

SCALE = 1 << 36
"""Denominator of the rounded duals: rows of earlier tiers have coefficients of 10^7 and more."""


@dataclass(frozen=True, slots=True)
class RelaxedAnswer:
    """``bound``: proven in integers. ``values``: one per variable of the LP's solution, if it has one.

    ``proof``: what it rests on, None for a bound that the ranges of the variables imply. ``effort``: of
    the hardest LP of the program so far.
    """

    bound: int
    values: tuple[float, ...] | None
    proof: DualProof | None = None
    effort: float = 0.0


@dataclass(frozen=True, slots=True)
class DualProof:
    """sign x objective <= constant + (sum of reduced cost x variable, at most ``total``) / SCALE."""

    sign: int
    constant: int
    total: int
    reduced: Exact

    @property
    def bound(self) -> int:
        return self.constant + self.sign * (self.total // SCALE)

    def tighten(self, program: Program, value: int) -> None:
        """Narrow the ranges of the variables to what an objective at least as good as ``value`` allows."""
        slack = self.total - self.sign * (value - self.constant) * SCALE
        if slack < 0:
            return  # the value is of a plan that the program does not have
        for variable in np.flatnonzero(self.reduced):
            cost = int(self.reduced[variable])
            most = slack // abs(cost)
            low, high = program.lower[variable], program.upper[variable]
            if most < high - low:
                if cost > 0:
                    program.lower[variable] = high - most
                else:
                    program.upper[variable] = low + most


class Relaxation:
    """The LP relaxation of a program, solved for one goal after another.

    Each solve starts from the basis of the one before: goals of consecutive tiers differ in the
    objective and one row, and their optima in few pivots. The program may grow in between.
    """

    def __init__(self, program: Program, budget: Budget) -> None:
        self._program = program
        self._budget = budget
        self._basis: Any = None
        self._rows = 0
        self._model: Any = None
        self._effort = 0.0

    @property
    def hardest(self) -> float | None:
        """Effort of the hardest LP so far, None before the first."""
        return self._effort or None

    def bound(self, goal: Goal, *, seconds: float) -> RelaxedAnswer:
        """The bound that the duals prove, however far GLOP came, and the solution."""
        program = self._program
        model = self._exported(goal)
        factor = scaled_down(model.objective)
        result = call_solver(
            self._budget,
            model,
            "GLOP",
            seconds,
            parameters=self._parameters(),
            start=self._start(len(goal.keep)),
        )
        trivial = goal.trivial_bound(program)
        if result is None:
            return RelaxedAnswer(trivial, None)
        pivots = result.solve_stats.simplex_iterations
        effort = (pivots + 10) * len(model.linear_constraints.ids) / 1e8
        self._budget.spend(effort)
        self._effort = max(self._effort, effort)
        if not result.solutions:
            return RelaxedAnswer(trivial, None)
        solution = result.solutions[0]
        if solution.HasField("basis"):
            self._basis, self._rows = solution.basis, len(program.rows)
        bound, proof = trivial, None
        if solution.HasField("dual_solution"):
            scaled = solution.dual_solution.dual_values.values
            proof = dual_proof(program, goal, (factor * dual for dual in scaled))
            bound = min(trivial, proof.bound) if goal.maximize else max(trivial, proof.bound)
        values = None
        if solution.HasField("primal_solution"):
            values = tuple(solution.primal_solution.variable_values.values)
        return RelaxedAnswer(bound, values, proof, self._effort)

    def _exported(self, goal: Goal) -> Any:
        """The model of a goal; the part that is the same for all goals is exported once."""
        from ortools.math_opt import model_pb2

        program = self._program
        state = (program.lower, program.upper, len(program.rows))
        if self._model is None or self._model[1] != state:
            copied = (list(program.lower), list(program.upper), len(program.rows))
            self._model = program_proto(program, integer=False), copied
        model = model_pb2.ModelProto()
        model.CopyFrom(self._model[0])
        add_goal(model, goal)
        return model

    def _parameters(self) -> dict[str, Any]:
        """The primal simplex keeps feasible what was: a new objective, and a row that the optimum meets."""
        from ortools.math_opt.python import mathopt

        if self._basis is None:
            return {}
        return {
            "presolve": mathopt.Emphasis.OFF,
            "lp_algorithm": mathopt.LPAlgorithm.PRIMAL_SIMPLEX,
        }

    def _start(self, kept: int) -> Any:
        """The last basis; what is new since then is slack or at its lower bound."""
        from ortools.math_opt import model_parameters_pb2, solution_pb2

        start = model_parameters_pb2.ModelSolveParametersProto()
        if self._basis is None:
            return start
        basis, slack = start.initial_basis, solution_pb2.BASIS_STATUS_BASIC
        known = list(self._basis.constraint_status.values)
        own, goals = known[: self._rows], known[self._rows :][:kept]
        _set(
            basis.constraint_status,
            own + [slack] * (len(self._program.rows) - len(own)),
            goals + [slack] * (kept - len(goals)),
        )
        variables = list(self._basis.variable_status.values)
        new = len(self._program.lower) - len(variables)
        _set(basis.variable_status, variables, [solution_pb2.BASIS_STATUS_AT_LOWER_BOUND] * new)
        return start


def _set(statuses: Any, *parts: list[int]) -> None:
    for part in parts:
        statuses.values.extend(part)
    statuses.ids.extend(range(len(statuses.values)))


def range_proof(program: Program, goal: Goal) -> DualProof:
    """The bound that the ranges of the variables imply: that of multipliers of 0."""
    sign, objective = (1 if goal.maximize else -1), goal.objective
    reduced = np.zeros(len(program.lower), dtype=np.object_)
    for variable, coefficient in objective.terms.items():
        reduced[variable] = sign * SCALE * coefficient
    total = sign * SCALE * (goal.trivial_bound(program) - objective.constant)
    return DualProof(sign, objective.constant, total, reduced)


def dual_proof(program: Program, goal: Goal, multipliers: Iterable[float]) -> DualProof:
    """The bound that the rounded multipliers of the rows prove, in integer arithmetic."""
    sign = 1 if goal.maximize else -1
    rows = goal.rows(program)
    rounded = _rounded(sign, multipliers)
    limits = np.where(rounded > 0, rows.high, rows.low)
    rounded[np.abs(limits) >= UNBOUNDED] = 0
    terms = goal.objective.terms
    variables, costs = integers(terms.keys()), integers(terms.values())
    # The objective counts as one more row, with the opposite multiplier.
    factors: Exact = np.concatenate((-rounded[rows.numbers], np.full(len(terms), sign * SCALE)))
    reduced = scattered_products(
        len(program.lower),
        np.concatenate((rows.columns, variables)),
        np.concatenate((rows.coefficients, costs)),
        factors,
    )
    lower, upper = integers(program.lower), integers(program.upper)
    total = dot(rounded, limits) + dot(reduced, np.where(reduced > 0, upper, lower))
    return DualProof(sign, goal.objective.constant, total, reduced)


def _rounded(sign: int, multipliers: Iterable[float]) -> Exact:
    """The multipliers as multiples of 1 / SCALE; those that are no numbers count as 0."""
    scaled = np.nan_to_num(np.fromiter(multipliers, np.float64), posinf=0, neginf=0) * SCALE
    whole = np.rint(sign * scaled)
    if len(whole) and float(np.abs(whole).max()) >= float(1 << 62):
        return np.array([int(value) for value in whole], dtype=np.object_)
    return whole.astype(np.int64)
