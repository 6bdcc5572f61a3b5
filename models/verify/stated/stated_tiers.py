"""What a plan states of its tiers and of the search.

Values are recomputed. Bounds and proofs cannot be: a bound must be on the far side of best and value,
and gap and outcome must follow from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from models.documents.plan import PlanObjective
from models.verify.outcome import Outcome
from models.verify.tier_values import TierValue, required, tiers
from models.verify.violation import Violation, printable, quoted

GAP_PRECISION = Fraction(1, 10**6)
"""Relative precision of gaps, which are floating-point numbers in the document."""


def check(outcome: Outcome) -> Iterator[Violation]:
    status = outcome.case.status
    stated = status.objectives
    expected = outcome.once(tiers)
    if status.gpu_unit != outcome.facts.gpu_unit:
        what = f"status.gpuUnit: is {outcome.facts.gpu_unit}, not {status.gpu_unit}"
        yield Violation("tiers", None, what)
    yield from _list(stated, expected)
    by_name = {tier.name: tier for tier in expected}
    for tier in stated:
        if tier.name in by_name:
            yield from _tier(tier, by_name[tier.name])
    gaps = [tier.bound != tier.best for tier in stated]
    if status.outcome != ("feasible" if any(gaps) else "optimal"):
        what = f"says {status.outcome}, but {sum(gaps)} of {len(gaps)} tiers have a gap"
        yield Violation("outcome", None, what)
    if any(gaps) and status.search.stopped_by == "proof":
        what = (
            f"says that a proof ended the search, but {sum(gaps)} of {len(gaps)} tiers have a gap"
        )
        yield Violation("search", None, what)
    seed = outcome.facts.policy.solve.seed
    if status.search.seed != seed:
        what = f"says seed {quoted(status.search.seed)}, the policy says {seed}"
        yield Violation("search", None, what)


def _list(stated: Sequence[PlanObjective], expected: Sequence[TierValue]) -> Iterator[Violation]:
    names = [tier.name for tier in stated]
    wanted = [tier.name for tier in expected]
    if names == wanted:
        return
    missing = [name for name in wanted if name not in names]
    extra = [name for name in names if name not in wanted]
    if missing or extra or len(names) != len(wanted):
        what = [f"{name} is missing" for name in missing[:5]]
        what += [f"{quoted(name)} is not in the policy" for name in extra[:5]]
        yield Violation("tiers", None, "; ".join(what) or "a tier is stated twice")
    else:
        yield Violation("tiers", None, f"must be in the order {', '.join(wanted[:8])}")


def _tier(stated: PlanObjective, expected: TierValue) -> Iterator[Violation]:
    name = printable(stated.name)
    if stated.sense != expected.sense:
        yield Violation("tier-sense", None, f"{name}: says {stated.sense}, is {expected.sense}")
    if stated.value != expected.value:
        what = f"{name}: says {quoted(stated.value)}, is {quoted(expected.value)}"
        yield Violation("tier-value", None, what)
    sign, best = 1 if expected.sense == "max" else -1, quoted(stated.best)
    least = required(expected, stated.best)
    exact = not expected.tolerance * stated.best
    if sign * stated.value < sign * least or (exact and stated.value != stated.best):
        what = f"{name}: value {quoted(stated.value)} gives away more of best {best}"
        tolerance = f"{float(expected.tolerance):g}"
        yield Violation("tier-best", None, f"{what} than its tolerance {tolerance}")
    if sign * stated.bound < max(sign * stated.best, sign * stated.value):
        what = f"{name}: bound {quoted(stated.bound)} is beaten by {best} or {quoted(stated.value)}"
        yield Violation("BoundBeaten", None, what)
    if stated.bound == stated.best and stated.proof is None:
        what = f"{name}: bound {quoted(stated.bound)} equals best, but no proof is stated"
        yield Violation("proof", None, what)
    gap = Fraction(abs(stated.bound - stated.best), max(1, abs(stated.best)))
    stated_gap = Fraction(stated.gap)
    if (gap == 0) != (stated.gap == 0) or abs(stated_gap - gap) > GAP_PRECISION * max(
        gap, Fraction(1)
    ):
        yield Violation("tier-gap", None, f"{name}: says {_short(stated_gap)}, is {_short(gap)}")


def _short(number: Fraction) -> str:
    """A gap in a message, however large."""
    return f"{float(number):.6g}" if number < 10**300 else "more than 1e300"
