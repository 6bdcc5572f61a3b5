"""A plan near the LP optimum: most variables that are integral there are fixed, HiGHS decides the rest.

The optimum of a large program has a few hundred fractional variables. Free are those and what shares
a row with them; if no plan has all others as they are there, more is freed, step by step.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from models.program.arrays import Integers, Rows, integers, row_sums
from models.program.linear_program import UNBOUNDED, Linear, Program, Row
from planner.search.budget import Budget
from planner.search.engines.highs import solve_by_branching
from planner.search.engines.interface import Answer, Goal, Status

INTEGRAL = 1e-6
"""Distance from an integer within which a value of the LP counts as integral."""

LOCAL = 64
"""Entries of a row up to which its variables count as neighbours."""

Mask = npt.NDArray[np.bool_]


def dive(
    program: Program,
    goal: Goal,
    values: Sequence[float],
    budget: Budget,
    *,
    nodes: int,
    seconds: float,
    start: Sequence[int] = (),
) -> Answer:
    """A solution close to ``values``, one per variable, if one is found; the bound is the trivial one.

    ``nodes`` limits each step, ``seconds`` all of them. ``start``: a solution of an earlier goal; if it
    satisfies this one, what differs from ``values`` is decided anew, so that something is always found.
    """
    deadline = time.monotonic() + seconds
    trivial = goal.trivial_bound(program)
    relaxed = np.fromiter(values, np.float64, len(values))
    nearest = np.clip(np.rint(relaxed), integers(program.lower), integers(program.upper))
    fixed = nearest.astype(np.int64)
    rows = goal.rows(program)
    fractional = np.abs(relaxed - nearest) > INTEGRAL
    if len(start) == len(relaxed) and goal.satisfied(program, start):
        fixed = integers(start)
        fractional |= np.abs(relaxed - fixed) > INTEGRAL
    for free in _steps(program, rows, fixed, fractional):
        left = deadline - time.monotonic()
        if left <= 0 or budget.exhausted():
            break
        rest = _Rest(program, goal, rows, fixed, free)
        if rest.impossible:
            continue
        decided: tuple[int, ...] = ()
        if free.any():
            decided = solve_by_branching(
                rest.program, rest.goal, budget, nodes=nodes, seconds=left
            ).values
        if len(decided) == len(rest.program.lower):
            found = rest.whole(decided)
            assert goal.satisfied(program, found)
            return Answer(Status.FEASIBLE, found, trivial, exact=False)
    return Answer(Status.UNKNOWN, (), trivial, exact=False)


def _steps(program: Program, rows: Rows, fixed: Integers, fractional: Mask) -> Iterator[Mask]:
    """The variables that are free in each step, always more.

    Long rows and those of the goal connect everything, so that neighbours are those in short rows.
    """
    lengths = np.bincount(rows.numbers, minlength=len(rows.low))
    own = (rows.numbers < len(program.rows)) & (lengths[rows.numbers] <= LOCAL)
    near = _with_neighbours(rows, own, fractional)
    yield near
    nonzero = fixed != integers(program.lower)
    yield near | nonzero
    around = _with_neighbours(rows, own, near)
    yield around | nonzero
    yield _with_neighbours(rows, own, around) | nonzero


def _with_neighbours(rows: Rows, own: Mask, free: Mask) -> Mask:
    """These variables and those that share a row with one of them."""
    touched = np.zeros(len(rows.low), dtype=np.bool_)
    touched[rows.numbers[own & free[rows.columns]]] = True
    wider = free.copy()
    wider[rows.columns[own & touched[rows.numbers]]] = True
    return wider


class _Rest:
    """What is left of a program once some variables are fixed.

    ``impossible``: a row without free variables does not hold.
    """

    def __init__(
        self, program: Program, goal: Goal, rows: Rows, fixed: Integers, free: Mask
    ) -> None:
        self._fixed = fixed
        self._free = np.flatnonzero(free)
        self.program = Program()
        self.program.lower = integers(program.lower)[self._free].tolist()
        self.program.upper = integers(program.upper)[self._free].tolist()
        numbers = np.cumsum(free) - 1
        self.impossible = self._add_rows(rows, free, numbers)
        objective = Linear(constant=goal.objective.constant)
        for variable, coefficient in goal.objective.terms.items():
            if free[variable]:
                objective.add(int(numbers[variable]), coefficient)
            else:
                objective.constant += coefficient * int(fixed[variable])
        self.goal = Goal(objective, goal.maximize)

    def _add_rows(self, rows: Rows, free: Mask, numbers: Integers) -> bool:
        """Add the rows with free variables; whether another row does not hold."""
        settled = row_sums(rows, np.where(free, 0, self._fixed))
        low = np.where(rows.low <= -UNBOUNDED, rows.low, rows.low - settled)
        high = np.where(rows.high >= UNBOUNDED, rows.high, rows.high - settled)
        kept = free[rows.columns]
        owners = rows.numbers[kept]
        open_rows, starts = np.unique(owners, return_index=True)
        ends = np.append(starts, len(owners))[1:].tolist()
        variables = numbers[rows.columns[kept]].tolist()
        coefficients = rows.coefficients[kept].tolist()
        for number, start, end in zip(open_rows.tolist(), starts.tolist(), ends, strict=True):
            self.program.rows.append(
                Row(
                    variables[start:end],
                    coefficients[start:end],
                    int(low[number]),
                    int(high[number]),
                )
            )
        closed = np.ones(len(rows.low), dtype=np.bool_)
        closed[open_rows] = False
        return bool((closed & ((low > 0) | (high < 0))).any())

    def whole(self, values: Sequence[int]) -> tuple[int, ...]:
        """The assignment of all variables from that of the free ones."""
        assigned = self._fixed.copy()
        assigned[self._free] = integers(values)
        return tuple(assigned.tolist())
