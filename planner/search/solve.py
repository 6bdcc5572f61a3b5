"""The search's front door: an Instance in, a Solution out, always within its budget.

Promises: a valid plan whatever happens after the start; ``stop`` ends it early with the best one.
Called by ``planner.pipelines.plan``, tests and benchmarks.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from importlib.metadata import version

from models.instance import Instance
from models.program.aggregated.model import AdmissionProgram
from models.program.base_state import base_decisions
from models.program.formulation import formulate, pairs
from models.program.packing import by_count
from models.solution import GangDecision, Solution
from models.tier_values import Tier
from planner.search.aggregated_search import admit, place
from planner.search.budget import Budget, Progress, Silent
from planner.search.fused_objectives import FUSED
from planner.search.greedy import greedy
from planner.search.growth import grow
from planner.search.large_neighborhood import SHARE_OF_BUDGET, improve
from planner.search.ledger import Ledger
from planner.search.moves import worthwhile
from planner.search.notes import notes_of
from planner.search.reasons import with_reasons
from planner.search.reclaim import reclaim
from planner.search.tier_search import Problem, Search

POOLED = 300
"""From so many (gang, region) pairs on, admission is decided on the admission program."""

IMPROVED = 4000
"""From so many pairs on the rest is improved by neighbourhoods and bounded by the LP."""

BOUNDED = 80_000
"""From so many pairs on the full program is never built: bounds come from the admission program."""


FOR_MOVES = 0.4
"""Part of the budget left, once it is known that gangs move, for the plans in which they do not."""


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
    limits = instance.policy.solve
    whole = Budget(limits, stop or threading.Event())
    tell = progress or Silent()
    first = _planned(instance, Budget(limits, whole.stop), tell, size, frozenset(), first=True)
    whole.spend(first.effort)

    def again(still: frozenset[int]) -> Solution:
        left = replace(
            limits,
            budget=max(1, int(whole.effort_left() / 2)),
            time_limit_s=max(1, int(whole.seconds_left() / 2)),
        )
        found = _planned(instance, Budget(left, whole.stop), Silent(), size, still)
        whole.spend(found.effort)
        return found

    return worthwhile(instance, first, again)


def _planned(
    instance: Instance,
    budget: Budget,
    tell: Progress,
    size: int | None,
    still: frozenset[int],
    *,
    first: bool = False,
) -> Solution:
    """One search. ``still``: gangs that must not move.

    ``first``: others follow if gangs move in it, to find what the moves buy.
    """
    ledger = Ledger(instance, _start(instance, still))
    size = pairs(instance) if size is None else size
    pooled = AdmissionProgram(instance, still) if size >= POOLED else None
    if pooled is not None:
        near = size < IMPROVED
        admit(pooled, ledger, budget, tell, admission_tiers(ledger.tiers), near=near)
    told = size >= BOUNDED or counted(instance)
    problem: Problem | None = None
    if size >= IMPROVED:
        problem = AdmissionProgram(instance, still, shaped=True)
        place(problem, ledger, budget, tell)
    if first and any(decision.decision == "move" for decision in ledger.incumbent.decisions):
        budget.hold_back(FOR_MOVES)
    exact = True
    if size >= IMPROVED:
        improve(ledger, budget, tell, part=1.0 if told else SHARE_OF_BUDGET, still=still)
    if problem is not None and told:
        _close(ledger, budget)
    else:
        ledger.drop_stale()
        problem = formulation = formulate(instance, still=still)
        exact = formulation.exact
        Search(
            formulation, ledger, budget, tell, len(ledger.tiers), relaxing=size >= IMPROVED
        ).run()
    if pooled is not None and size < IMPROVED:
        _second_look(ledger, budget, tell, still)
    stale = ledger.drop_stale()
    if stale is not None:
        ledger.reopen(stale)
        Search(problem, ledger, budget, tell, len(ledger.tiers), relaxing=True).run()
    decisions = with_reasons(instance, ledger.incumbent.decisions, budget, proven(ledger), still)
    return Solution(
        decisions,
        ledger.results(),
        budget.stopped_by,
        f"OR-Tools {version('ortools')} (CP-SAT, HiGHS, GLOP)",
        budget.effort,
        notes_of(instance, decisions, exact=exact),
    )


def proven(ledger: Ledger) -> tuple[int, ...]:
    """Priorities of which no plan that keeps the tiers before admits more."""
    return tuple(
        tier.priority
        for position, tier in enumerate(ledger.tiers)
        if tier.family == "admission" and tier.priority is not None and ledger.proven(position)
    )


def counted(instance: Instance) -> bool:
    """Whether pooled pods tell all there is to know: only the number of GPUs on a server counts."""
    return all(
        node.model is None
        or (by_count(node.model, node.effective_nics) and node.model.nvlink_domain_nodes <= 1)
        for node in instance.cluster.nodes
    )


def _close(ledger: Ledger, budget: Budget) -> None:
    """Leave every tier with the bound it has."""
    if ledger.gap() is not None:
        budget.cut()
    while ledger.closed < len(ledger.tiers):
        ledger.close()


def _start(instance: Instance, still: frozenset[int]) -> tuple[GangDecision, ...]:
    """A valid plan to begin with: one gang at a time, room taken back, elastic gangs grown."""
    held = replace(
        instance,
        gangs=tuple(
            replace(gang, movable=gang.movable and index not in still)
            for index, gang in enumerate(instance.gangs)
        ),
    )
    first = greedy(instance, base_decisions(instance))
    return grow(instance, reclaim(held, first))


def _second_look(ledger: Ledger, budget: Budget, progress: Progress, still: frozenset[int]) -> None:
    """Where the search left gaps, spend what is left of the budget on neighbourhoods."""
    first = ledger.gap()
    if first is None or budget.exhausted() or any(tier.tolerance for tier in ledger.tiers):
        return
    ledger.reopen(max(first, admission_tiers(ledger.tiers)))
    improve(ledger, budget, progress, part=1.0, still=still)
    while ledger.closed < len(ledger.tiers):
        ledger.close()


def admission_tiers(tiers: tuple[Tier, ...]) -> int:
    """How many tiers, from the first, only ask which gangs start."""
    count = 0
    while count < len(tiers) and tiers[count].family in FUSED:
        count += 1
    return count
