"""The search's front door: an Instance in, a Solution out, always within its budget.

Promises: a valid plan whatever happens after the start; ``stop`` ends it early with the best one.
Called by ``planner.planning``, tests and benchmarks.
"""

from __future__ import annotations

import threading
from importlib.metadata import version

from models.evaluating import Tier
from models.instance import Instance
from models.placement.formulation import base_decisions, formulate, pairs
from models.placement.pooled import AdmissionProgram
from models.solution import Solution
from planner.solving.admitting import admit
from planner.solving.budget import Budget
from planner.solving.chunks import FUSED
from planner.solving.greedy import greedy
from planner.solving.improving import improve
from planner.solving.ledger import Ledger
from planner.solving.notes import notes_of
from planner.solving.progress import Progress, Silent
from planner.solving.reasons import with_reasons
from planner.solving.search import Search

POOLED = 300
"""From so many (gang, region) pairs on, admission is decided on the admission program."""

IMPROVED = 4000
"""From so many pairs on the rest is improved by neighbourhoods and bounded by the LP."""

BOUNDED = 80_000
"""From so many pairs on the full program is not built: bounds come from the admission program."""


def solve(
    instance: Instance,
    *,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
    size: int | None = None,
) -> Solution:
    """The best plan found within the policy's budget, with a bound for every tier.

    ``size`` stands in for the number of (gang, region) pairs that chooses the method (tests only).
    """
    tell = progress or Silent()
    budget = Budget(instance.policy.solve, stop or threading.Event())
    ledger = Ledger(instance, greedy(instance, base_decisions(instance)))
    size = pairs(instance) if size is None else size
    pooled = AdmissionProgram(instance) if size >= POOLED else None
    if pooled is not None:
        admit(pooled, ledger, budget, tell, admission_tiers(ledger.tiers))
    if size >= IMPROVED:
        improve(ledger, budget, tell)
    exact = True
    if pooled is not None and size >= BOUNDED:
        Search(pooled, ledger, budget, tell, len(ledger.tiers), relaxing=True).run()
    else:
        formulation = formulate(instance)
        exact = formulation.exact
        Search(
            formulation, ledger, budget, tell, len(ledger.tiers), relaxing=size >= IMPROVED
        ).run()
    if pooled is not None and size < IMPROVED:
        _second_look(ledger, budget, tell)
    decisions = with_reasons(instance, ledger.incumbent.decisions, budget)
    return Solution(
        decisions,
        ledger.results(),
        budget.stopped_by,
        f"OR-Tools {version('ortools')} (CP-SAT, HiGHS, GLOP)",
        budget.effort,
        notes_of(instance, decisions, exact=exact),
    )


def _second_look(ledger: Ledger, budget: Budget, progress: Progress) -> None:
    """Where the search left gaps, spend what is left of the budget on neighbourhoods."""
    first = ledger.gap()
    if first is None or budget.exhausted() or any(tier.tolerance for tier in ledger.tiers):
        return
    ledger.reopen(max(first, admission_tiers(ledger.tiers)))
    improve(ledger, budget, progress, part=1.0)
    while ledger.closed < len(ledger.tiers):
        ledger.close()


def admission_tiers(tiers: tuple[Tier, ...]) -> int:
    """How many tiers, from the first, only ask which gangs start."""
    count = 0
    while count < len(tiers) and tiers[count].family in FUSED:
        count += 1
    return count
