"""Which engine solves which program, and when a numerical answer becomes exact.

Small programs go to CP-SAT, whose proofs are exact; what it leaves open, and larger ones, to HiGHS. The
optimum of HiGHS becomes exact when the integer LP bound confirms it or when CP-SAT refutes anything better
within a small effort. Otherwise it is numerical.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from models.program.linear_program import Linear, Program
from planner.search.budget import Budget
from planner.search.engines.cpsat import solve_exactly
from planner.search.engines.highs import branch
from planner.search.engines.interface import Answer, Goal, Status

SMALL = 400
"""Programs with at most this many variables go to CP-SAT first."""

QUICK_EFFORT = 1.0
"""Effort of the first CP-SAT call on a small program."""

CONFIRM_EFFORT = 0.3
"""Effort for CP-SAT to refute anything better than a numerical optimum."""

LARGEST_CONFIRMED = 1200
"""Programs with more variables are not given to CP-SAT for that: its presolve alone takes seconds."""

CLOCK_SHARE = 0.15
"""Default share of the remaining time and effort that each engine may spend on one goal."""

NODES = 20000
"""Branch-and-bound nodes HiGHS gets for one goal."""


def solve_goal(
    program: Program,
    budget: Budget,
    *,
    goal: Goal,
    effort: float,
    incumbent: int,
    relaxed: int,
    share: float = CLOCK_SHARE,
    hint: Sequence[int] = (),
    exact: bool = True,
    heuristics: bool = True,
) -> Answer:
    """A solution better than ``incumbent``, the current objective value, or the proof that none exists.

    Status INFEASIBLE means that nothing better exists. ``relaxed``: the bound of the LP.
    ``exact``: whether CP-SAT may be asked.
    ``heuristics``: see ``branch``.
    """
    sign = 1 if goal.maximize else -1
    answer = Answer(Status.UNKNOWN, (), relaxed, exact=True)
    if len(program.lower) <= SMALL:
        quick = min(effort, QUICK_EFFORT)
        answer = solve_exactly(program, goal, budget, quick, hint=hint)
        if answer.status in (Status.OPTIMAL, Status.INFEASIBLE) or budget.exhausted():
            return answer
    if sign * relaxed <= sign * incumbent:
        return Answer(Status.INFEASIBLE, (), incumbent, exact=True)
    seconds, known = budget.seconds_left() * share, answer.values or hint
    found = branch(
        program, goal, budget, nodes=NODES, seconds=seconds, hint=known, heuristics=heuristics
    )
    if found.status is Status.OPTIMAL:
        return confirm(program, goal, budget, found, relaxed, incumbent, exact=exact)
    if found.status is Status.INFEASIBLE:
        most = min(effort, budget.effort_left() * share, seconds)
        small = exact and len(program.lower) <= LARGEST_CONFIRMED and not budget.exhausted()
        if small:  # HiGHS finds no plan, though the incumbent has all that is asked for
            answer = solve_exactly(program, goal.better_than(incumbent), budget, most)
            nothing = answer.status is Status.INFEASIBLE
            answer = replace(answer, bound=incumbent) if nothing else answer
    elif found.values or not answer.values:
        answer = found
    if sign * answer.bound > sign * relaxed:
        answer = replace(answer, bound=relaxed, exact=True)
    return answer


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


INTEGRAL = 1e-6
"""Distance from an integer within which a value of the LP counts as integral."""
