"""A plan that need not be the best one, held against the best: values, bounds, and the checker's view.

Promises: returns sentences, one a fault, none where the plan is honest; raises nothing of its own.
Called by the tests of the paths for large instances.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from comparing import DAY
from exhaustive import plan
from exhaustive_rates import covered
from exhaustive_values import Tiers, tier_values

from models.instance.instance import Instance
from models.instance.solution import Solution, TierResult
from models.results.plan import compose
from models.verify.check import check
from planner.search.solve import solve


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
    """What is wrong with the plan of a small instance."""
    return faults(instance, solve(instance), met=met)


def faults(
    instance: Instance, solution: Solution, *, met: tuple[str, ...] = (), best: Tiers | None = None
) -> list[str]:
    """What is wrong with a plan; ``met``: families that must have their best value; ``best``: all values."""
    known = plan(instance).tiers if best is None else best
    return [*_beaten(known, solution.tiers, met), *dishonest(instance, solution)]


def dishonest(instance: Instance, solution: Solution) -> list[str]:
    """What the plan states and is not worth, and what the checker refuses."""
    stated = tuple((tier.name, tier.value) for tier in solution.tiers)
    worth = tier_values(instance, solution.decisions)
    document = compose(instance, solution, name="tiny", created_at=DAY, generator="gangplan test")
    return [
        *([] if stated == worth else [f"stated {stated}, worth {worth}"]),
        *(f"{v.rule} {v.gang}: {v.message}" for v in check(document)),
    ]


def _beaten(best: Tiers, tiers: tuple[TierResult, ...], met: tuple[str, ...]) -> Iterator[str]:
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
