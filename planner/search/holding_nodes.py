"""From a plan without reservations to a start for the search that keeps them.

Who starts on nodes that are to be reserved waits, and who can start there right now starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from models.disruption_budgets import guards
from models.instance import Instance
from models.reservations import trespassing, yields
from models.solution import GangDecision, Reserved, Solution
from planner.search.budget import Budget
from planner.search.free_space import FreeSpace
from planner.search.greedy import greedy
from planner.search.growth import grow
from planner.search.ledger import Ledger
from planner.search.repair import back_in_place
from planner.search.reservations import first_come

MAX_ROUNDS = 3
"""Times that reservations are given without the gangs that something else than room keeps waiting."""


def hold_nodes(
    instance: Instance, decisions: tuple[GangDecision, ...], budget: Budget
) -> tuple[Instance, tuple[GangDecision, ...]]:
    """The instance with what is held for gangs that wait, and a plan that keeps it: the same if it does.

    A gang that could start right now but for rules or tiers that are not about room gets nothing.
    """
    position = {gang.key: i for i, gang in enumerate(instance.gangs)}
    barred = set[int]()
    for number in range(MAX_ROUNDS):
        if number and budget.seconds_left() <= 0:
            break
        held = replace(instance, reserved=first_come(instance, decisions, budget, barred))
        plan = _keeping(held, decisions)
        waiting = {position[one.gang] for one in _due(held)}
        waiting = {i for i in waiting if not plan[i].pods}
        if not waiting:
            return held, plan
        barred |= waiting
    return instance, decisions


def _due(instance: Instance) -> Iterator[Reserved]:
    return (one for one in instance.reserved if one.start <= instance.now)


def _keeping(instance: Instance, decisions: tuple[GangDecision, ...]) -> tuple[GangDecision, ...]:
    """The plan without pods on nodes that are held for others, and with the gangs that can start there."""
    due = list(_due(instance))
    if not due and not trespassing(instance, [one.pods for one in decisions]):
        return decisions
    plan = greedy(instance, back_in_place(instance, decisions, ()))
    ledger = Ledger(instance, grow(instance, plan))
    position = {gang.key: i for i, gang in enumerate(instance.gangs)}
    for one in due:
        index = position[one.gang]
        if not ledger.incumbent.decisions[index].pods:
            started = _started(instance, ledger.incumbent.decisions, index, one)
            if started is not None:
                ledger.offer(started)
    return ledger.incumbent.decisions


def _started(
    instance: Instance, decisions: Sequence[GangDecision], index: int, one: Reserved
) -> tuple[GangDecision, ...] | None:
    """The plan in which the gang starts and those on its nodes stop that may; None if that is not enough."""
    space, fixed = FreeSpace(instance, decisions), guards(instance).fixed
    space.set(index, one.pods)
    for n in one.nodes:
        while not space.is_valid(n) or space.stale_indices(n):
            gangs = {gang for gang, _, _ in space.by_node[n].tenants}
            lower = [g for g in gangs - fixed if yields(instance.gangs[g], one.place)]
            if not lower:
                return None
            space.set(min(lower, key=lambda g: (instance.gangs[g].priority, -g)), ())
    return tuple(
        decision if space.pods[i] == decision.pods else space.decision(i)
        for i, decision in enumerate(decisions)
    )


def with_proofs_of(ledger: Ledger | None, instance: Instance, plan: Solution) -> Solution:
    """The solution with what is known of plans that keep other reservations than it kept.

    ``ledger``: what was proven without any, if anything was.
    """
    unreserved = ledger or Ledger(instance, plan.decisions)
    known = unreserved.continued(instance, plan.decisions)
    known.best = {position: tier.best for position, tier in enumerate(plan.tiers)}
    stopped_by = "budget" if plan.stopped_by == "proof" else plan.stopped_by
    return replace(plan, tiers=known.results(), stopped_by=stopped_by)
