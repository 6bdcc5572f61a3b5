"""A plan that need not be the best one, held against the best: values, bounds, and the checker's view.

Promises: returns sentences, one a fault, none where the plan is honest; raises nothing of its own.
Called by the tests of the full program alone and of the paths for large instances.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from comparing import DAY
from exhaustive import plan
from exhaustive_groups import covered
from exhaustive_values import tier_values

from models.instance.instance import Instance
from models.instance.solution import Solution, TierResult
from models.program.base_state import base_decisions
from models.program.formulation import formulate
from models.results.plan import compose
from models.verify.check import check
from planner.search.bound.tier_search import TierSearch
from planner.search.budget import Budget, NullProgress
from planner.search.explain.reasons import with_reasons
from planner.search.ledger import Ledger
from planner.search.solve import solve
from planner.search.start.greedy import greedy


def searched(instance: Instance) -> Solution:
    """The full formulation searched alone."""
    ledger = Ledger(instance, greedy(instance, base_decisions(instance)))
    budget = Budget(instance.policy.solve)
    formulation = formulate(instance)
    TierSearch(formulation, ledger, budget, NullProgress(), len(ledger.tiers)).run()
    decisions = with_reasons(instance, ledger.incumbent.decisions, budget)
    return Solution(decisions, ledger.results(), budget.stopped_by, "search alone")


def honest(instance: Instance) -> list[str]:
    """What is wrong with the plan of an instance with groups, of which nothing is proven.

    The budget is small: without a proof the search uses all of it.
    """
    limits = replace(instance.policy.solve, budget=1)
    instance = replace(instance, policy=replace(instance.policy, solve=limits))
    return faults(instance, solve(instance)) if covered(instance) else []


def bounded(instance: Instance, size: int | None) -> list[str]:
    """What is wrong with the plan of an instance taken for so large: (option, server) pairs."""
    return faults(instance, solve(instance, size=size))


def alone(instance: Instance, *, met: tuple[str, ...] = ()) -> list[str]:
    """What is wrong with the plan of the full formulation.

    What its moves bought is not asked: that is found by searching again without them.
    """
    found = faults(instance, searched(instance), met=met)
    return [fault for fault in found if not fault.startswith("bought ")]


def faults(instance: Instance, solution: Solution, *, met: tuple[str, ...] = ()) -> list[str]:
    """What is wrong with a plan of a tiny instance; ``met``: families that must have their best value."""
    return [
        *_beaten(plan(instance).tiers, solution.tiers, met),
        *dishonest(instance, solution),
    ]


def dishonest(instance: Instance, solution: Solution) -> list[str]:
    """What the plan states and is not worth, and what the checker refuses."""
    stated = tuple((tier.name, tier.value) for tier in solution.tiers)
    worth = tier_values(instance, solution.decisions)
    document = compose(instance, solution, name="tiny", created_at=DAY, generator="gangplan test")
    return [
        *([] if stated == worth else [f"stated {stated}, worth {worth}"]),
        *(f"{v.rule} {v.gang}: {v.message}" for v in check(document)),
    ]


def _beaten(
    best: tuple[tuple[str, int], ...], tiers: tuple[TierResult, ...], met: tuple[str, ...]
) -> Iterator[str]:
    """Compares as far as earlier tiers are equal: a bound speaks of plans that keep those."""
    for (name, most), tier in zip(best, tiers, strict=True):
        sign = 1 if tier.sense == "max" else -1
        if name != tier.name:
            yield f"tier {tier.name} instead of {name}"
        if sign * tier.bound < sign * most:
            yield f"{name}: bound {tier.bound}, and a plan has {most}"
        if sign * tier.value > sign * most:
            yield f"{name}: value {tier.value}, and the best plan has {most}"
        if tier.value != most:
            if name.split("/")[0] in met:
                yield f"{name}: value {tier.value}, and a plan has {most}"
            return
