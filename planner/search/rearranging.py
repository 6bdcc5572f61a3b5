"""Place the gangs that start once more, now that it is known which they are: small ones first.

The greedy start takes large gangs first, so that most GPUs are admitted; they leave small gangs no domain
of their own. The same gangs with the same pods are placed anew, and kept only if the plan is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from models.disruption_budgets import may_move
from models.instance import Instance
from models.program.base_state import base_decisions
from models.program.demand_builder import remaining_demand
from models.program.demands import Demand
from models.rates.speed import FULL_SPEED
from models.solution import STARTS, GangDecision
from models.tier_values import Evaluation, tiers_of
from models.tiers import larger_is_better
from planner.search.budget import Budget
from planner.search.free_space import FreeSpace, counts_of
from planner.search.greedy import admit, greedy, place
from planner.search.ledger import Ledger
from planner.search.repair import unjustified_victims


def rearrange(
    instance: Instance, decisions: Sequence[GangDecision], *, budget: Budget | None = None
) -> tuple[GangDecision, ...]:
    """The plan with its starting gangs placed anew if that is better and the budget lasts."""
    if budget is not None and budget.exhausted():
        return tuple(decisions)
    space = FreeSpace(instance, decisions)
    starting = [index for index, one in enumerate(decisions) if one.decision in STARTS]
    for index in starting:
        space.set(index, space.original[index])
    demands, mark = [starting_demand(space, decisions, index) for index in starting], space.mark()
    for small_first in (True, False):
        ordered = sorted(demands, key=partial(_order, instance, small_first))
        found = _placed(space, decisions, ordered, budget)
        if found is not None and _worth(instance, found) > _worth(instance, decisions):
            return found
        space.undo(mark)
    return tuple(decisions)


def afresh(instance: Instance, *, budget: Budget) -> tuple[GangDecision, ...] | None:
    """A plan in which all movable gangs are placed anew at their size, and then those that wait.

    None if one of them finds no place, a rule is broken, or the budget ends. Only worth it where restarts
    are free.
    """
    base = base_decisions(instance)
    running = [i for i, gang in enumerate(instance.gangs) if gang.running and may_move(instance, i)]
    if not running:
        return None
    away = list(base)
    for index in running:
        away[index] = GangDecision("preempt")
    space = FreeSpace(instance, away)
    counts = {index: counts_of(instance.gangs[index], base[index].pods) for index in running}
    demands = [remaining_demand(instance, index, counts[index], ()) for index in running]
    found = list(base)
    for demand in sorted(demands, key=partial(_fresh_order, instance)):
        pods = None
        if not budget.exhausted():
            pods = place(space, demand) if demand.possible else None
        if pods is None:
            return None
        space.set(demand.gang, pods)
        found[demand.gang] = space.decision(demand.gang)
    plan = greedy(instance, found, budget=budget)
    return plan if Ledger(instance, base).keeps_rules(plan) else None  # disruption budgets, queues


def _fresh_order(instance: Instance, demand: Demand) -> tuple[int, ...]:
    """High priorities first, then large pods, large gangs."""
    largest = max((role.gpus for role in demand.roles), default=0)
    return -instance.gangs[demand.gang].priority, -largest, -demand.gpus, demand.gang


def better(
    instance: Instance, one: tuple[GangDecision, ...], other: tuple[GangDecision, ...] | None
) -> tuple[GangDecision, ...]:
    """The better of two plans, the first where they are equal."""
    if other is None or _worth(instance, other) <= _worth(instance, one):
        return one
    return other


def hasten(
    instance: Instance, decisions: Sequence[GangDecision], *, budget: Budget
) -> tuple[GangDecision, ...]:
    """The plan with gangs that start slowly placed anew where they are faster, what is lost most first."""
    found, lines = list(decisions), Evaluation(instance, decisions).lines
    slow = [
        (-(FULL_SPEED - line.speed) * line.gang.weight_gpus, index)
        for index, line in enumerate(lines)
        if line.decision.decision in STARTS and line.speed is not None and line.speed < FULL_SPEED
    ]
    space = FreeSpace(instance, decisions) if slow else None
    for _, index in sorted(slow):
        if budget.exhausted():
            break
        assert space is not None
        mark, now = space.mark(), lines[index].speed or 0
        demand = starting_demand(space, decisions, index)
        space.set(index, space.original[index])
        if admit(space, demand, least_speed=now + 1):
            found[index] = space.decision(index)
        else:
            space.undo(mark)
    return tuple(found)


def _placed(
    space: FreeSpace,
    decisions: Sequence[GangDecision],
    demands: Sequence[Demand],
    budget: Budget | None,
) -> tuple[GangDecision, ...] | None:
    """The plan with these gangs placed in this order; None if one finds no place or the budget ends."""
    found = list(decisions)
    for demand in demands:
        exhausted = budget is not None and budget.exhausted()
        pods = None if exhausted else place(space, demand)
        if pods is None:
            return None
        space.set(demand.gang, (*space.pods[demand.gang], *pods))
        found[demand.gang] = space.decision(demand.gang)
    return tuple(found) if not unjustified_victims(space.instance, found) else None


def starting_demand(space: FreeSpace, decisions: Sequence[GangDecision], gang: int) -> Demand:
    """All pods that the plan adds for the gang."""
    counts = counts_of(space.instance.gangs[gang], decisions[gang].pods)
    return remaining_demand(space.instance, gang, counts, space.original[gang])


def _order(instance: Instance, small_first: bool, demand: Demand) -> tuple[int, ...]:  # noqa: FBT001
    """Large pods first, for which room is scarce; then narrow required levels, then small gangs.

    Not ``small_first``: then gangs that prefer narrow levels, then large ones.
    """
    gang = instance.gangs[demand.gang]
    largest = max((role.gpus for role in demand.roles), default=0)
    required = -1 if gang.required is None else gang.required
    preferred = max(
        -1 if level is None else level
        for level in (gang.preferred, *(r.preferred for r in gang.roles))
    )
    rest = (demand.gpus,) if small_first else (-preferred, -demand.gpus)
    return -largest, -required, *rest, demand.gang


def _worth(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[int, ...]:
    """Values of all tiers, larger is better."""
    return larger_is_better(tiers_of(instance), Evaluation(instance, decisions).vector())
