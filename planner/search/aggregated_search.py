"""Search on the aggregated model, for instances too large for the full formulation."""

from __future__ import annotations

from models.program.aggregated.model import AggregatedModel
from models.program.linear_program import UNBOUNDED
from planner.search.budget import Budget, Progress
from planner.search.engines.common import Goal
from planner.search.engines.portfolio import solve_briefly
from planner.search.ledger import Ledger
from planner.search.tier_search import TierSearch


def admit(
    program: AggregatedModel,
    ledger: Ledger,
    budget: Budget,
    progress: Progress,
    last: int,
    *,
    near: bool,
) -> None:
    """Solve and close the first ``last`` tiers.

    ``near``: then stay as similar as possible to the incumbent.
    """
    liked = ledger.incumbent.decisions
    TierSearch(program, ledger, budget, progress, last).run()
    if budget.exhausted() or not near:
        return
    keep = []
    for position in range(last):
        expression = program.expression(ledger.tiers[position])
        if expression.terms:
            keep.append((expression, ledger.incumbent.values[position], UNBOUNDED))
    goal = Goal(program.similarity(liked), maximize=True, keep=tuple(keep))
    answer = solve_briefly(program.program, goal, budget)
    if answer.values:
        ledger.offer(program.decode(answer.values))


PLACING_SHARE = 0.2
"""Share of the remaining time that one placement tier may take on the aggregated model."""


def place(program: AggregatedModel, ledger: Ledger, budget: Budget, progress: Progress) -> None:
    """Search the placement tiers with pooled pods and record their bounds. The tiers stay open."""
    first = ledger.closed
    last = len(ledger.tiers)
    TierSearch(program, ledger, budget, progress, last, share=PLACING_SHARE).run()
    ledger.reopen(first)
