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
from models.program.linear_program import UNBOUNDED
from models.program.packing import by_count
from models.solution import GangDecision, Solution
from models.tiers import Tier
from planner.search.budget import Budget, NullProgress, Progress
from planner.search.engines.interface import Goal
from planner.search.engines.portfolio import solve_briefly
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
"""With at least this many pairs, the full program is not built: bounds come from the aggregated model."""

PLACING_SHARE = 0.2
"""Share of the remaining time that one placement tier may take on the aggregated model."""

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

    def search_again(immovable: frozenset[int]) -> Solution:
        rest = replace(
            limits,
            budget=max(1, int(whole.effort_left() / 2)),
            time_limit_s=max(1, int(whole.seconds_left() / 2)),
        )
        found = _search(instance, Budget(rest, whole.stop), NullProgress(), size, immovable)
        whole.spend(found.effort)
        return found

    return keep_worthwhile(instance, first, search_again)


def _search(
    instance: Instance,
    budget: Budget,
    progress: Progress,
    size: int | None,
    immovable: frozenset[int],
    *,
    first: bool = False,
) -> Solution:
    """One search. ``immovable``: gangs that must not move. ``first``: if gangs move, others follow."""
    ledger = Ledger(instance, _start(instance, immovable))
    size = pairs(instance) if size is None else size
    aggregated, large = size >= AGGREGATED_FROM, size >= NEIGHBORHOODS_FROM
    if aggregated:
        model = AggregatedModel(instance, immovable)
        _search_admission(model, ledger, budget, progress, similar=not large)
    problem: Problem | None = None
    if large:
        problem = AggregatedModel(instance, immovable, shaped=True)
        _search_placement(problem, ledger, budget, progress)
    if first and any(decision.decision == "move" for decision in ledger.incumbent.decisions):
        budget.reserve(MOVES_RESERVE)
    bounds_only = large and (size >= BOUNDS_ONLY_FROM or _only_counts_matter(instance))
    if large:
        part = 1.0 if bounds_only else SHARE_OF_BUDGET
        improve(ledger, budget, progress, part=part, immovable=immovable)
    exact = True
    if problem is not None and bounds_only:
        if ledger.gap() is not None:
            budget.record_limit()
        ledger.close_all()
    else:
        ledger.drop_stale()
        problem = formulation = formulate(instance, immovable=immovable)
        exact = formulation.exact
        TierSearch(problem, ledger, budget, progress, len(ledger.tiers), lp_only=large).run()
    if aggregated and not large:
        _improve_unproven(ledger, budget, progress, immovable)
    stale = ledger.drop_stale()
    if stale is not None:
        ledger.reopen(stale)
        TierSearch(problem, ledger, budget, progress, len(ledger.tiers), lp_only=True).run()
    return _solution(ledger, budget, immovable, exact=exact)


def _solution(
    ledger: Ledger, budget: Budget, immovable: frozenset[int], *, exact: bool
) -> Solution:
    """The incumbent with its reasons, bounds and notes."""
    instance = ledger.instance
    decisions = with_reasons(
        instance, ledger.incumbent.decisions, budget, proven_priorities(ledger), immovable
    )
    return Solution(
        decisions,
        ledger.results(),
        budget.stopped_by,
        f"OR-Tools {version('ortools')} (CP-SAT, HiGHS, GLOP)",
        budget.effort,
        notes_of(instance, decisions, exact=exact),
    )


def _start(instance: Instance, immovable: frozenset[int]) -> tuple[GangDecision, ...]:
    """The first incumbent: greedy placement, reclaimed room, grown elastic gangs."""
    held = replace(
        instance,
        gangs=tuple(
            replace(gang, movable=gang.movable and index not in immovable)
            for index, gang in enumerate(instance.gangs)
        ),
    )
    first = greedy(instance, base_decisions(instance))
    return grow(instance, reclaim(held, first))


def _search_admission(
    model: AggregatedModel, ledger: Ledger, budget: Budget, progress: Progress, *, similar: bool
) -> None:
    """Solve and close the admission tiers on the aggregated model.

    ``similar``: then stay as similar as possible to the incumbent.
    """
    last = _admission_tiers(ledger.tiers)
    start = ledger.incumbent.decisions
    TierSearch(model, ledger, budget, progress, last).run()
    if budget.exhausted() or not similar:
        return
    rows = []
    for tier, value in zip(ledger.tiers[:last], ledger.incumbent.values, strict=False):
        expression = model.expression(tier)
        if expression.terms:
            rows.append((expression, value, UNBOUNDED))
    goal = Goal(model.similarity(start), maximize=True, keep=tuple(rows))
    answer = solve_briefly(model.program, goal, budget)
    if answer.values:
        ledger.offer(model.decode(answer.values))


def _search_placement(
    model: AggregatedModel, ledger: Ledger, budget: Budget, progress: Progress
) -> None:
    """Search the placement tiers with pooled pods and record their bounds. The tiers stay open."""
    first = ledger.closed
    last = len(ledger.tiers)
    TierSearch(model, ledger, budget, progress, last, share=PLACING_SHARE).run()
    ledger.reopen(first)


def _improve_unproven(
    ledger: Ledger, budget: Budget, progress: Progress, immovable: frozenset[int]
) -> None:
    """Use the rest of the budget to improve an unproven plan by neighbourhoods."""
    first = ledger.gap()
    if first is None or budget.exhausted() or any(tier.tolerance for tier in ledger.tiers):
        return
    ledger.reopen(max(first, _admission_tiers(ledger.tiers)))
    improve(ledger, budget, progress, part=1.0, immovable=immovable)
    ledger.close_all()


def proven_priorities(ledger: Ledger) -> tuple[int, ...]:
    """Priorities for which no plan that keeps the earlier tiers admits more."""
    return tuple(
        tier.priority
        for position, tier in enumerate(ledger.tiers)
        if tier.family == "admission" and tier.priority is not None and ledger.proven(position)
    )


def _only_counts_matter(instance: Instance) -> bool:
    """Whether the aggregated model is exact: only the number of GPUs on a server matters."""
    return all(
        node.model is None
        or (by_count(node.model, node.effective_nics) and node.model.nvlink_domain_nodes <= 1)
        for node in instance.cluster.nodes
    )


def _admission_tiers(tiers: tuple[Tier, ...]) -> int:
    """Number of tiers, from the first, that only decide which gangs start."""
    count = 0
    while count < len(tiers) and tiers[count].row.fused:
        count += 1
    return count
