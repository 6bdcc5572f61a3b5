"""``solve``: an Instance in, a Solution out, within the budget.

After the start there is always a valid plan; ``stop`` ends the search early with the best one.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from importlib.metadata import version

from models.instance import Instance
from models.program.aggregated.model import AggregatedModel
from models.program.base_state import base_decisions
from models.program.formulation import formulate, pairs
from models.program.packing import by_count
from models.solution import GangDecision, Solution
from models.tiers import Tier
from planner.search.aggregated_search import admit, place
from planner.search.budget import Budget, NullProgress, Progress
from planner.search.greedy import greedy
from planner.search.growth import grow
from planner.search.large_neighborhood import SHARE_OF_BUDGET, improve
from planner.search.ledger import Ledger
from planner.search.moves import keep_worthwhile
from planner.search.notes import notes_of
from planner.search.reasons import with_reasons
from planner.search.reclaim import reclaim
from planner.search.tier_search import Problem, TierSearch

AGGREGATED_FROM = 300
"""With at least this many (gang, region) pairs, admission is solved on the aggregated model."""

NEIGHBORHOODS_FROM = 4000
"""With at least this many pairs, placement is improved by neighbourhoods and bounded by the LP."""

BOUNDS_ONLY_FROM = 80_000
"""With at least this many pairs, the full program is never built: bounds come from the aggregated model."""


MOVES_RESERVE = 0.4
"""Share of the remaining budget reserved for the plans without moves, once gangs move."""


def solve(
    instance: Instance,
    *,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
    size: int | None = None,
) -> Solution:
    """The best plan found within the policy's budget, with a bound for every tier.

    ``size`` replaces the number of (gang, region) pairs that selects the method (tests only).
    """
    limits = instance.policy.solve
    whole = Budget(limits, stop or threading.Event())
    progress = progress or NullProgress()
    first = _search(instance, Budget(limits, whole.stop), progress, size, frozenset(), first=True)
    whole.spend(first.effort)

    def must_restart(still: frozenset[int]) -> Solution:
        left = replace(
            limits,
            budget=max(1, int(whole.effort_left() / 2)),
            time_limit_s=max(1, int(whole.seconds_left() / 2)),
        )
        found = _search(instance, Budget(left, whole.stop), NullProgress(), size, still)
        whole.spend(found.effort)
        return found

    return keep_worthwhile(instance, first, must_restart)


def _search(
    instance: Instance,
    budget: Budget,
    progress: Progress,
    size: int | None,
    still: frozenset[int],
    *,
    first: bool = False,
) -> Solution:
    """One search. ``still``: gangs that must not move. ``first``: if gangs move, further searches follow."""
    ledger = Ledger(instance, _start(instance, still))
    size = pairs(instance) if size is None else size
    pooled = AggregatedModel(instance, still) if size >= AGGREGATED_FROM else None
    if pooled is not None:
        near = size < NEIGHBORHOODS_FROM
        admit(pooled, ledger, budget, progress, admission_tiers(ledger.tiers), near=near)
    told = size >= BOUNDS_ONLY_FROM or plural(instance)
    problem: Problem | None = None
    if size >= NEIGHBORHOODS_FROM:
        problem = AggregatedModel(instance, still, shaped=True)
        place(problem, ledger, budget, progress)
    if first and any(decision.decision == "move" for decision in ledger.incumbent.decisions):
        budget.reserve(MOVES_RESERVE)
    exact = True
    if size >= NEIGHBORHOODS_FROM:
        improve(ledger, budget, progress, part=1.0 if told else SHARE_OF_BUDGET, still=still)
    if problem is not None and told:
        _close(ledger, budget)
    else:
        ledger.drop_stale()
        problem = formulation = formulate(instance, still=still)
        exact = formulation.exact
        TierSearch(
            formulation,
            ledger,
            budget,
            progress,
            len(ledger.tiers),
            lp_only=size >= NEIGHBORHOODS_FROM,
        ).run()
    if pooled is not None and size < NEIGHBORHOODS_FROM:
        _second_look(ledger, budget, progress, still)
    stale = ledger.drop_stale()
    if stale is not None:
        ledger.reopen(stale)
        TierSearch(problem, ledger, budget, progress, len(ledger.tiers), lp_only=True).run()
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
    """Priorities for which no plan that keeps the earlier tiers admits more."""
    return tuple(
        tier.priority
        for position, tier in enumerate(ledger.tiers)
        if tier.family == "admission" and tier.priority is not None and ledger.proven(position)
    )


def plural(instance: Instance) -> bool:
    """Whether the aggregated model is exact: only the number of GPUs on a server matters."""
    return all(
        node.model is None
        or (by_count(node.model, node.effective_nics) and node.model.nvlink_domain_nodes <= 1)
        for node in instance.cluster.nodes
    )


def _close(ledger: Ledger, budget: Budget) -> None:
    """Close every tier with the bound it has."""
    if ledger.gap() is not None:
        budget.record_limit()
    while ledger.closed < len(ledger.tiers):
        ledger.close()


def _start(instance: Instance, still: frozenset[int]) -> tuple[GangDecision, ...]:
    """The first incumbent: greedy placement, reclaimed room, grown elastic gangs."""
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
    """Use the rest of the budget to improve an unproven plan by neighbourhoods."""
    first = ledger.gap()
    if first is None or budget.exhausted() or any(tier.tolerance for tier in ledger.tiers):
        return
    ledger.reopen(max(first, admission_tiers(ledger.tiers)))
    improve(ledger, budget, progress, part=1.0, still=still)
    while ledger.closed < len(ledger.tiers):
        ledger.close()


def admission_tiers(tiers: tuple[Tier, ...]) -> int:
    """Number of tiers, from the first, that only decide which gangs start."""
    count = 0
    while count < len(tiers) and tiers[count].row.fused:
        count += 1
    return count
