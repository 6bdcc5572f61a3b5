"""Which gangs start, decided on the admission program, at sizes where the full formulation is too much.

Promises: the admission and waiting tiers are closed with their bounds; the plan handed on has the best
admissions found and otherwise stays as close to the greedy plan as the admission program allows.
Called by ``solve``.
"""

from __future__ import annotations

from models.program.aggregated.model import AdmissionProgram
from models.program.linear_program import UNBOUNDED
from planner.search.budget import Budget, Progress
from planner.search.engines.common import Goal
from planner.search.engines.portfolio import glance
from planner.search.fused_objectives import FUSED
from planner.search.ledger import Ledger
from planner.search.tier_search import Search


def admit(
    program: AdmissionProgram,
    ledger: Ledger,
    budget: Budget,
    progress: Progress,
    last: int,
    *,
    near: bool,
) -> None:
    """Close the first ``last`` tiers of the ledger. ``near``: and stay close to the plan it had."""
    liked = ledger.incumbent.decisions
    Search(program, ledger, budget, progress, last).run()
    if budget.exhausted() or not near:
        return
    keep = []
    for position in range(last):
        expression = program.expression(ledger.tiers[position])
        if expression.terms:
            keep.append((expression, ledger.incumbent.values[position], UNBOUNDED))
    goal = Goal(program.likeness(liked), maximize=True, keep=tuple(keep))
    answer = glance(program.program, goal, budget)
    if answer.values:
        ledger.offer(program.decode(answer.values))


PLACING_SHARE = 0.2
"""Part of the time left that one tier of placement may take on the pooled program."""

BRANCHED = (*FUSED, "disruption", "defragment", "preference", "bandwidth", "growth")
"""Tiers whose best plans the pooled program finds; of the others it knows too little."""


def place(program: AdmissionProgram, ledger: Ledger, budget: Budget, progress: Progress) -> None:
    """Search the tiers of placement with pooled pods, and note their bounds; they stay open."""
    first = ledger.closed
    last = len(ledger.tiers)
    Search(program, ledger, budget, progress, last, share=PLACING_SHARE, branched=BRANCHED).run()
    ledger.reopen(first)
