"""A plan that follows an LP solution: who gives way as the LP says, the others start greedily in its order.

An LP admits some gangs in part; rounded to plans its solutions are close to its bound at any size, and
cheap. Nothing is proven here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from models.instance.instance import Instance
from models.instance.solution import GangDecision, placed
from models.program.base_state import PlacementRequests, base_decisions
from models.program.options import Option
from models.rules.demands import Demand
from planner.search.budget import Budget
from planner.search.free_space import FreeSpace
from planner.search.improve.repair import back_in_place, moves_beyond
from planner.search.start.greedy import admit, place, queue, queue_key

STEPS = 10
"""Gangs are ordered by tenths of what the LP admits of them."""


def follow(
    instance: Instance,
    requests: PlacementRequests,
    admits: Sequence[Sequence[int]],
    values: Sequence[float],
    budget: Budget,
) -> tuple[GangDecision, ...]:
    """``admits[c][o]``: the variable of option o of choice c; ``values``: one a variable."""
    decisions = list(base_decisions(instance))
    movers: list[Option] = []
    worth: dict[int, float] = {}
    for choice, variables in zip(requests.choices, admits, strict=True):
        shares = [values[variable] for variable in variables]
        gang = choice.gang
        if not instance.gangs[gang].running:
            worth[gang] = sum(shares)
        elif shares:
            best = max(range(len(shares)), key=lambda o: shares[o])
            option = choice.options[best]
            if not choice.must and 1 - sum(shares) > shares[best]:
                decisions[gang] = GangDecision("preempt")
            elif option.effect.moved:
                decisions[gang] = GangDecision("preempt")
                movers.append(option)
    space = FreeSpace(instance, decisions)
    homeless = _resettle(space, movers, budget)
    start(space, worth, budget)
    found = [
        one if space.pods[i] == one.pods and i not in homeless else space.decision(i)
        for i, one in enumerate(decisions)
    ]
    return back_in_place(instance, found, [*homeless, *moves_beyond(instance, found)])


def _resettle(space: FreeSpace, movers: Sequence[Option], budget: Budget) -> list[int]:
    """Place what moves where it fits most tightly, large gangs first; returns those without a place."""
    homeless, gangs = [], space.instance.gangs
    for option in movers:  # what stays holds its room before anything comes
        space.set(option.demand.gang, placed(gangs[option.demand.gang], option.demand.stays))
    for option in sorted(movers, key=lambda o: (-o.demand.gpus, o.demand.gang)):
        demand = option.demand
        pods = None if budget.exhausted() else place(space, demand)
        if pods is None:
            homeless.append(demand.gang)
            space.set(demand.gang, ())
        else:
            space.set(demand.gang, sorted((*space.pods[demand.gang], *pods)))
    return homeless


def start(space: FreeSpace, worth: Mapping[int, float], budget: Budget) -> None:
    """Start gangs: within guarantees first, by priority, then what the LP admits most of.

    Then as the greedy start orders them.
    """

    def order(demand: Demand) -> tuple[object, ...]:
        share, key = round(STEPS * worth.get(demand.gang, 0.0)), queue_key(space.instance, demand)
        return *key[:2], -share, key

    for demand in sorted(queue(space), key=order):
        if budget.exhausted():
            return
        admit(space, demand)
