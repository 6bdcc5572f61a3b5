"""What the search starts from where gangs hold reservations: who starts in turn does, who waits has nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from models.instance.instance import Instance
from models.instance.solution import Solution
from models.queues.reservations import left_waiting
from models.queues.reserved_quotas import crowding
from planner.search.budget import Budget
from planner.search.free_space import Decisions
from planner.search.improve.growth import grow
from planner.search.improve.rearranging import better
from planner.search.improve.repair import back_in_place
from planner.search.ledger import Ledger
from planner.search.promises.reservations import in_turn


def hold_nodes(instance: Instance, base: Decisions, budget: Budget) -> tuple[Instance, Decisions]:
    """The instance with what is held for gangs that wait, and the plan in which those start that have to.

    ``base``: the plan that changes nothing. Nobody has to start if that plan breaks a rule.
    """
    reserved, plan = in_turn(instance, base, budget)
    if not reserved:
        return instance, base
    held = instance.with_reserved(reserved)
    if Ledger(held, base).keeps_rules(plan):
        return held, plan
    later = tuple(one for one in reserved if one.start > instance.now)
    return instance.with_reserved(later), base


def plan_in_turn(
    instance: Instance, plan: Decisions, base: Decisions, filled: Callable[[Decisions], Decisions]
) -> Decisions:
    """A plan that takes gangs in turn, in which those start that have to, as they do in ``plan``.

    If those start that have to, also without regard to them. ``filled``: a plan with what fits beside it.
    """
    found = _uncrowded(instance, grow(instance, filled(plan)))
    if plan == base:
        return found
    freely = _uncrowded(instance, grow(instance, filled(base)))
    return better(instance, found, in_due_time(instance, freely))


def _uncrowded(instance: Instance, plan: Decisions) -> Decisions:
    """The plan without gangs that fit one by one, but together leave a holder too little in its queues."""
    crowds = crowding(instance, [one.pods for one in plan])
    return back_in_place(instance, plan, crowds) if crowds else plan


def in_due_time(instance: Instance, plan: Decisions | None) -> Decisions | None:
    """The plan, if all gangs start that have to."""
    if plan is None or left_waiting(instance, [one.pods for one in plan]):
        return None
    return plan


def with_proofs_of(instance: Instance, plan: Solution) -> Solution:
    """The solution with what is known of plans that keep other reservations than it kept."""
    known = Ledger(instance, plan.decisions)
    known.best = {position: tier.best for position, tier in enumerate(plan.tiers)}
    stopped_by = "budget" if plan.stopped_by == "proof" else plan.stopped_by
    return replace(plan, tiers=known.results(), stopped_by=stopped_by)
