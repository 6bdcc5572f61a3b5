"""The LP relaxation: a bound for every plan, made exact from rounded duals.

For any multipliers y of the rows lo <= Ax <= hi, every feasible x of a maximisation has
c x <= sum over rows of (y > 0 ? y hi : y lo) + sum over j of max over x_j of (c - yA)_j x_j.
The duals of HiGHS are rounded and the sum is computed in integers, so solver tolerances do not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from models.program.linear_program import (
    UNBOUNDED,
    Exact,
    Program,
    dot,
    integers,
    scattered_products,
)
from planner.search.budget import Budget
from planner.search.engines.highs import call
from planner.search.engines.interface import Goal

SCALE = 1 << 36
"""Denominator of the rounded duals: rows of earlier tiers have coefficients of 10^7 and more."""


@dataclass(frozen=True, slots=True)
class RelaxedAnswer:
    """``bound``: proven in integers. ``values``: one per variable of the LP's solution, if it has one.

    ``proof``: what it rests on, None for a bound that the ranges of the variables imply.
    """

    bound: int
    values: tuple[float, ...] | None
    proof: DualProof | None = None


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
    objective and one row, and their optima in few pivots. The program may grow in between. ``solved``:
    whether there was an LP yet.
    """

    def __init__(self, program: Program, budget: Budget) -> None:
        self._program = program
        self._budget = budget
        self.solved = False

    def bound(self, goal: Goal, *, seconds: float) -> RelaxedAnswer:
        """The bound that the duals prove, however far HiGHS came, and the solution."""
        program = self._program
        trivial = goal.trivial_bound(program)
        result = call(program, goal, self._budget, seconds)
        if result is None:
            return RelaxedAnswer(trivial, None)
        self._budget.spend((result.effort + 10) * (len(program.rows) + len(goal.keep)) / 1e8)
        self.solved = True
        bound, proof = trivial, None
        if len(result.duals):
            proof = dual_proof(program, goal, result.duals)
            bound = min(trivial, proof.bound) if goal.maximize else max(trivial, proof.bound)
        values = tuple(result.values.tolist()) or None
        return RelaxedAnswer(bound, values, proof)


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
