"""Place the gangs that start once more, now that it is known which they are: small ones first.

The greedy start takes large gangs first, so that most GPUs are admitted; they leave small gangs no domain
of their own. The same gangs with the same pods are placed anew, and kept only if the plan is better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from models.instance import Instance
from models.program.demand_builder import remaining_demand
from models.program.demands import Demand
from models.solution import STARTS, GangDecision
from models.tier_values import Evaluation, tiers_of
from models.tiers import larger_is_better
from planner.search.budget import Budget
from planner.search.free_space import FreeSpace, counts_of
from planner.search.greedy import place
from planner.search.preemption_rule import is_justified


def rearrange(
    instance: Instance, decisions: Sequence[GangDecision], *, budget: Budget | None = None
) -> tuple[GangDecision, ...]:
    """The plan with its starting gangs placed anew if that is better and the budget lasts."""
    space = FreeSpace(instance, decisions)
    starting = [index for index, one in enumerate(decisions) if one.decision in STARTS]
    found = list(decisions)
    for index in starting:
        space.set(index, space.original[index])
    for demand in sorted((_demand(space, decisions, i) for i in starting), key=_order(instance)):
        exhausted = budget is not None and budget.exhausted()
        pods = None if exhausted else place(space, demand)
        if pods is None:
            return tuple(decisions)
        space.set(demand.gang, (*space.pods[demand.gang], *pods))
        found[demand.gang] = space.decision(demand.gang)
    better = is_justified(space) and _worth(instance, found) > _worth(instance, decisions)
    return tuple(found if better else decisions)


def _demand(space: FreeSpace, decisions: Sequence[GangDecision], gang: int) -> Demand:
    """All pods that the plan adds for the gang."""
    counts = counts_of(space.instance.gangs[gang], decisions[gang].pods)
    return remaining_demand(space.instance, gang, counts, space.original[gang])


def _order(instance: Instance) -> Callable[[Demand], tuple[int, ...]]:
    """Large pods first, for which room is scarce; then narrow required levels, and then small gangs."""

    def key(demand: Demand) -> tuple[int, ...]:
        required = instance.gangs[demand.gang].required
        largest = max((role.gpus for role in demand.roles), default=0)
        level = 0 if required is None else required + 1
        return -largest, -level, demand.gpus, demand.gang

    return key


def _worth(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[int, ...]:
    """Values of all tiers, larger is better."""
    return larger_is_better(tiers_of(instance), Evaluation(instance, decisions).vector())
