"""CP-SAT under assumptions: which of them a program cannot satisfy together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.program.linear_program import Linear, Program
from planner.search.budget import Budget
from planner.search.engines.cpsat import export, run
from planner.search.engines.interface import Goal, Status


@dataclass(frozen=True, slots=True)
class Assumed:
    """``core``: of an infeasible program, assumptions that suffice for that."""

    status: Status
    core: tuple[int, ...] = ()


class AssumptionSolver:
    """Solves one program under changing assumptions. The same calls give the same answers."""

    def __init__(self, program: Program, budget: Budget, effort: float) -> None:
        from ortools.sat.python import cp_model

        self._budget = budget
        self._effort = effort
        self._model = cp_model.CpModel()
        export(self._model.proto, program, Goal(Linear(), maximize=True), ())

    def solve(self, assumed: Sequence[int]) -> Assumed:
        """Whether the program has a solution in which these variables, all 0 or 1, are 1."""
        from ortools.sat.python import cp_model

        proto = self._model.proto
        proto.assumptions.clear()
        proto.assumptions.extend(assumed)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1  # several give no core
        solver.parameters.catch_sigint_signal = False
        solver.parameters.random_seed = 0
        solver.parameters.max_deterministic_time = self._effort
        solver.parameters.max_time_in_seconds = max(0.05, self._budget.seconds_left())
        status = run(solver, self._model, self._budget, None)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Assumed(Status.FEASIBLE)
        if status == cp_model.INFEASIBLE:
            core = tuple(solver.response_proto.sufficient_assumptions_for_infeasibility)
            return Assumed(Status.INFEASIBLE, tuple(sorted(set(core))))
        if status == cp_model.MODEL_INVALID:
            message = "the program handed to CP-SAT is invalid"
            raise AssertionError(message)
        return Assumed(Status.UNKNOWN)
