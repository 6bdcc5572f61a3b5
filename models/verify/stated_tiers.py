"""What is stated of the tiers and of the search against what follows from the plan.

Promises: values recomputed; bounds and proofs cannot be, so they are held to what they must be at least:
on the far side of best and value, gaps and outcome as the formulas give them. Called by ``judging``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from models.verify.form import shown
from models.verify.outcome import Outlook
from models.verify.statement import StatedTier
from models.verify.tier_values import Tier, tiers
from models.verify.violation import Violation

GAP_PRECISION = Fraction(1, 10**6)
"""Gaps are floating-point numbers in the document: so close they must come, relatively."""


def check(outlook: Outlook) -> Iterator[Violation]:
    stated = outlook.case.status.tiers
    expected = tuple(tiers(outlook))
    yield from _list(stated, expected)
    by_name = {tier.name: tier for tier in expected}
    for tier in stated:
        if tier.name in by_name:
            yield from _tier(tier, by_name[tier.name])
    gaps = [tier.bound != tier.best for tier in stated]
    outcome = "feasible" if any(gaps) else "optimal"
    if outlook.case.status.outcome != outcome:
        yield Violation(
            "outcome",
            None,
            f"says {outlook.case.status.outcome}, but {sum(gaps)} of {len(gaps)} tiers have a gap",
        )
    if outlook.case.status.seed != outlook.facts.policy.seed:
        yield Violation(
            "search",
            None,
            f"says seed {outlook.case.status.seed}, the policy says {outlook.facts.policy.seed}",
        )


def _list(stated: Sequence[StatedTier], expected: Sequence[Tier]) -> Iterator[Violation]:
    names = [tier.name for tier in stated]
    wanted = [tier.name for tier in expected]
    if names == wanted:
        return
    missing = [name for name in wanted if name not in names]
    extra = [name for name in names if name not in wanted]
    if missing or extra or len(names) != len(wanted):
        what = [f"{name} is missing" for name in missing[:5]]
        what += [f"{shown(name)} is not asked for" for name in extra[:5]]
        yield Violation("tiers", None, "; ".join(what) or "a tier is stated twice")
    else:
        yield Violation("tiers", None, f"must be in the order {', '.join(wanted[:8])}")


def _tier(stated: StatedTier, expected: Tier) -> Iterator[Violation]:
    name = stated.name
    if stated.sense != expected.sense:
        yield Violation("tier-sense", None, f"{name}: says {stated.sense}, is {expected.sense}")
    if stated.value != expected.value:
        yield Violation(
            "tier-value", None, f"{name}: says {shown(stated.value)}, is {shown(expected.value)}"
        )
    if not _within_tolerance(stated, expected):
        yield Violation(
            "tier-best",
            None,
            f"{name}: value {shown(stated.value)} gives away more of best {shown(stated.best)} "
            f"than its tolerance {float(expected.tolerance):g}",
        )
    beaten = (stated.best, stated.value)
    if expected.sense == "max":
        far = all(stated.bound >= amount for amount in beaten)
    else:
        far = all(stated.bound <= amount for amount in beaten)
    if not far:
        yield Violation(
            "tier-bound",
            None,
            f"{name}: bound {shown(stated.bound)} is beaten by {shown(stated.best)} "
            f"or {shown(stated.value)}",
        )
    gap = Fraction(abs(stated.bound - stated.best), max(1, abs(stated.best)))
    if (gap == 0) != (stated.gap == 0) or abs(stated.gap - gap) > GAP_PRECISION * max(
        gap, Fraction(1)
    ):
        yield Violation("tier-gap", None, f"{name}: says {_short(stated.gap)}, is {_short(gap)}")


def _within_tolerance(stated: StatedTier, expected: Tier) -> bool:
    """value = best without tolerance; with t, value >= ceil(best - t|best|), or <= floor(best + ...)."""
    slack = expected.tolerance * abs(stated.best)
    if slack == 0:
        return stated.value == stated.best
    if expected.sense == "max":
        return stated.value >= math.ceil(stated.best - slack)
    return stated.value <= math.floor(stated.best + slack)


def _short(number: Fraction) -> str:
    """A gap fit to print, however large."""
    return f"{float(number):.6g}" if number < 10**300 else "more than 1e300"
