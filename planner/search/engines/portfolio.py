"""Which engine solves which program, and when a numerical answer becomes exact.

Small programs go to CP-SAT, whose proofs are exact. Larger ones go to HiGHS. Its optimum becomes
exact when the integer LP bound confirms it or when CP-SAT refutes anything better within a small
effort. Otherwise it is numerical.

A plan near the LP optimum comes of a dive: the optimum of a large program has a few hundred fractional
variables. Free are those and what shares a row with them, HiGHS decides these; if no plan has all others as
they are there, more is freed, step by step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from models.program.arrays import Integers, Rows, integers, row_sums
from models.program.linear_program import UNBOUNDED, Linear, Program, Row
from planner.search.budget import Budget
from planner.search.engines.cpsat import solve_exactly
from planner.search.engines.highs import branch
from planner.search.engines.interface import Answer, Goal, Status
from planner.search.engines.relaxation import RelaxedAnswer

SMALL = 400
"""Programs with at most this many variables go to CP-SAT first."""

QUICK_EFFORT = 1.0
"""Effort of the first CP-SAT call on a small program."""

CONFIRM_EFFORT = 0.3
"""Effort for CP-SAT to refute anything better than a numerical optimum."""

LARGEST_CONFIRMED = 1200
"""Programs with more variables are not given to CP-SAT for that: its presolve alone takes seconds."""

DIVE_NODES = 200
"""Branch-and-bound nodes of one step of a dive."""

BRANCHING_LPS = 15
"""Branching is tried where at least so many LPs like the first one fit into its time."""

CLOCK_SHARE = 0.15
"""Default share of the remaining time and effort that each engine may spend on one goal."""

NODES = 20000
"""Branch-and-bound nodes HiGHS gets for one goal."""


def solve_goal(
    program: Program,
    goal: Goal,
    budget: Budget,
    effort: float,
    *,
    incumbent: int,
    relaxed_to: RelaxedAnswer,
    share: float = CLOCK_SHARE,
    hint: Sequence[int] = (),
    start: Sequence[int] = (),
    improved: Callable[[int, int], None] | None = None,
    second: bool = True,
    lps: int = BRANCHING_LPS,
) -> Answer:
    """A solution better than ``incumbent``, the current objective value, or the proof that none exists.

    Status INFEASIBLE means that nothing better exists. ``relaxed_to``: the LP relaxation's answer.
    ``start``: a solution of an earlier goal, for dives. ``second``: whether CP-SAT runs when HiGHS ends
    without a proof. ``lps``: branching is tried where so many LPs fit into its time.
    """
    if len(program.lower) <= SMALL:
        quick = min(effort, QUICK_EFFORT)
        answer = solve_exactly(program, goal, budget, quick, hint=hint, improved=improved)
        if answer.status in (Status.OPTIMAL, Status.INFEASIBLE) or budget.exhausted():
            return answer
    relaxed = relaxed_to.bound
    sign = 1 if goal.maximize else -1
    if sign * relaxed <= sign * incumbent:
        return Answer(Status.INFEASIBLE, (), incumbent, exact=True)
    seconds = budget.seconds_left() * share
    answer = Answer(Status.UNKNOWN, (), relaxed, exact=True)
    if len(program.lower) > SMALL and can_branch(budget, relaxed_to.effort, share, lps):
        answer = branch(program, goal, budget, nodes=NODES, seconds=seconds, hint=hint)
        if answer.status is Status.OPTIMAL:
            return confirm(program, goal, budget, answer, relaxed, incumbent, exact=second)
        if answer.status is Status.INFEASIBLE:
            # The goal asks for nothing that the incumbent lacks: the engine's word proves nothing.
            answer = Answer(Status.UNKNOWN, (), relaxed, exact=True)
    if not answer.values:
        dived = _dive(program, goal, budget, relaxed_to, seconds / 2, start)
        answer = _better(goal, dived, answer)
    if budget.exhausted() or not second:
        return answer
    exact = solve_exactly(
        program,
        goal.better_than(incumbent),
        budget,
        min(effort, budget.effort_left() * share),
        hint=answer.values or hint,
        improved=improved,
        seconds=seconds,
    )
    if exact.status is Status.INFEASIBLE:
        return replace(answer, status=exact.status, bound=incumbent, exact=True)
    return _better(goal, answer, exact)


def can_branch(budget: Budget, effort: float, share: float, lps: int) -> bool:
    """Whether enough LPs of this effort fit into a share of what is left for branching to get anywhere."""
    capacity = min(budget.effort_left(), budget.seconds_left()) * share
    return capacity >= lps * effort


def _dive(
    program: Program,
    goal: Goal,
    budget: Budget,
    relaxed_to: RelaxedAnswer,
    seconds: float,
    start: Sequence[int],
) -> Answer:
    """A plan near the LP optimum, with the LP's bound."""
    none = Answer(Status.UNKNOWN, (), relaxed_to.bound, exact=True)
    if relaxed_to.values is None:
        return none
    found = dive(
        program, goal, relaxed_to.values, budget, nodes=DIVE_NODES, seconds=seconds, start=start
    )
    best = bool(found.values) and goal.objective.value(found.values) == relaxed_to.bound
    return replace(none, status=Status.OPTIMAL if best else found.status, values=found.values)


def confirm(
    program: Program,
    goal: Goal,
    budget: Budget,
    answer: Answer,
    relaxed: int,
    incumbent: int,
    *,
    exact: bool,
) -> Answer:
    """Make a numerical answer exact where that is cheap. ``exact``: whether CP-SAT may be asked."""
    best = answer.bound if answer.values else incumbent
    if answer.values and relaxed == best:
        return replace(answer, exact=True)
    effort = min(CONFIRM_EFFORT, budget.effort_left())
    large = len(program.lower) > LARGEST_CONFIRMED
    if not exact or large or effort <= 0 or budget.exhausted():
        return answer
    better = replace(goal.better_than(best), objective=Linear())
    refuted = solve_exactly(program, better, budget, effort)
    if refuted.status is Status.INFEASIBLE:
        return replace(answer, exact=True)
    if refuted.values:
        # HiGHS was wrong: CP-SAT found something better, so the numerical bound is void.
        return Answer(Status.FEASIBLE, refuted.values, relaxed, exact=True)
    return answer


def _better(goal: Goal, first: Answer, second: Answer) -> Answer:
    """The better solution with the tighter bound; exact if the tighter bound is exact."""
    sign = 1 if goal.maximize else -1
    owner = first if sign * first.bound < sign * second.bound else second
    candidates = [answer for answer in (first, second) if answer.values]
    if not candidates:
        status = second.status if second.status is Status.INFEASIBLE else Status.UNKNOWN
        return Answer(status, (), owner.bound, owner.exact)
    best = max(candidates, key=lambda answer: sign * goal.objective.value(answer.values))
    done = goal.objective.value(best.values) == owner.bound
    return Answer(
        Status.OPTIMAL if done else Status.FEASIBLE, best.values, owner.bound, owner.exact
    )


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
            decided = branch(
                rest.program, rest.goal, budget, nodes=nodes, seconds=left, once=True
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
