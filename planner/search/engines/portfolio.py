"""Which engine takes which program, and how its word becomes a proof.

Small programs go to CP-SAT, whose proofs are exact. Larger ones go to HiGHS; its optimum is confirmed
by the LP bound in integers, or by CP-SAT refuting anything better, as far as a little effort goes;
otherwise the proof stays numerical. Measured in benchmarks/README.md. Called by ``search``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from models.program.linear_program import UNBOUNDED, Linear, Program
from planner.search.budget import Budget
from planner.search.engines.common import Answer, Goal, Status
from planner.search.engines.cpsat import solve_exactly
from planner.search.engines.highs import solve_by_branching
from planner.search.engines.relaxation import relax

SMALL = 400
"""Programs of at most so many variables go to CP-SAT first."""

QUICK_EFFORT = 1.0
"""Effort CP-SAT gets first on a small program."""

CONFIRM_EFFORT = 0.3
"""Effort CP-SAT gets to refute anything better than a numerical optimum."""

GLANCE_NODES = 40
"""Nodes of a glance; ``GLANCE_S`` is a guard that a quiet machine never meets."""

GLANCE_S = 20.0

CLOCK_SHARE = 0.15
"""Part of the time (and of the effort) left that each engine may spend on one goal, unless told."""

NODES = 20000
"""Branch-and-bound nodes HiGHS gets for one goal."""


def attack(
    program: Program,
    goal: Goal,
    budget: Budget,
    effort: float,
    *,
    incumbent: int,
    share: float = CLOCK_SHARE,
    hint: Sequence[int] = (),
    improved: Callable[[int, int], None] | None = None,
    second: bool = True,
) -> Answer:
    """Something better than ``incumbent``, the objective's value so far, or the word that there is none.

    Status INFEASIBLE says that nothing better exists. ``second``: whether CP-SAT tries where HiGHS ended
    without a proof.
    """
    if len(program.lower) <= SMALL:
        quick = min(effort, QUICK_EFFORT)
        answer = solve_exactly(program, goal, budget, quick, hint=hint, improved=improved)
        if answer.status in (Status.OPTIMAL, Status.INFEASIBLE) or budget.exhausted():
            return answer
    relaxed = relax(program, goal, budget, seconds=budget.seconds_left() * share)
    sign = 1 if goal.maximize else -1
    if sign * relaxed.bound <= sign * incumbent:
        return Answer(Status.INFEASIBLE, (), incumbent, exact=True)
    better = beyond(goal, incumbent)
    answer = solve_by_branching(
        program, better, budget, nodes=NODES, seconds=budget.seconds_left() * share, hint=hint
    )
    if answer.status in (Status.OPTIMAL, Status.INFEASIBLE):
        return confirm(program, goal, budget, answer, relaxed.bound, incumbent)
    answer = replace(answer, bound=sign * min(sign * answer.bound, sign * relaxed.bound))
    if budget.exhausted() or not second:
        return answer
    exact = solve_exactly(
        program,
        better,
        budget,
        min(effort, budget.effort_left() * share),
        hint=answer.values or hint,
        improved=improved,
    )
    return _better(goal, answer, exact)


def beyond(goal: Goal, value: int) -> Goal:
    """The goal with a row that asks for better than ``value``."""
    limits = (value + 1, UNBOUNDED) if goal.maximize else (-UNBOUNDED, value - 1)
    return replace(goal, keep=(*goal.keep, (goal.objective, *limits)))


def glance(program: Program, goal: Goal, budget: Budget) -> Answer:
    """A short look with HiGHS alone: for the many small programs of an improvement search."""
    return solve_by_branching(program, goal, budget, nodes=GLANCE_NODES, seconds=GLANCE_S)


def confirm(
    program: Program, goal: Goal, budget: Budget, answer: Answer, relaxed: int, incumbent: int
) -> Answer:
    """Turn a numerical optimum, or a numerical "nothing better", into an exact one where that is cheap."""
    best = answer.bound if answer.values else incumbent
    if answer.values and relaxed == best:
        return replace(answer, exact=True)
    effort = min(CONFIRM_EFFORT, budget.effort_left())
    if effort <= 0 or budget.exhausted():
        return answer
    better = replace(beyond(goal, best), objective=Linear())
    refuted = solve_exactly(program, better, budget, effort)
    if refuted.status is Status.INFEASIBLE:
        return replace(answer, exact=True)
    if refuted.values:
        # the floating-point engine was wrong: what CP-SAT found is better, and its bound is void
        return Answer(Status.FEASIBLE, refuted.values, relaxed, exact=True)
    return answer


def _better(goal: Goal, first: Answer, second: Answer) -> Answer:
    """The better solution with the tighter bound; exact if the bound's owner is."""
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
