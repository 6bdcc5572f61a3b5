"""Consecutive tiers fused into one objective, where that is exact.

With integer tiers v1, v2, ... of ranges r1, r2, ..., maximising v1 x (r2+1)(r3+1)... + v2 x
(r3+1)... + ... orders plans as comparing the tiers one after another does. Admission and waiting of
many priorities, and growth of all, are fused in this way while the product stays small enough for the
solver's arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

from models.program.linear_program import Linear, Program
from models.tiers import Tier

LARGEST_PRODUCT = 1 << 26
"""Largest value of a fused objective: floating-point engines still separate its units."""


@dataclass(frozen=True, slots=True)
class Member:
    """One tier of a fused objective: expression = low + unit x scaled, scaled in 0..span, times weight.

    Weight 0: the tier before it decides this one too (admission and waiting of a single gang).
    """

    position: int
    expression: Linear
    low: int
    unit: int
    span: int
    weight: int


@dataclass(frozen=True, slots=True)
class FusedObjective:
    """Tiers solved together. The objective of several tiers is always maximised."""

    members: tuple[Member, ...]
    objective: Linear
    maximize: bool

    def bounds(self, total: int, values: Sequence[int]) -> list[int]:
        """Bound of each member from a bound of the objective and the members' values in a plan.

        The bound of a later member holds for plans that keep the earlier members at those values.
        """
        if len(self.members) == 1:
            return [total]
        left = total
        bounds: list[int] = []
        for member, value in zip(self.members, values, strict=True):
            if not member.weight:
                decided = bounds[-1] == values[len(bounds) - 1]
                bounds.append(value if decided else member.low + member.unit * member.span)
                continue
            scaled = min(member.span, left // member.weight)
            bounds.append(member.low + member.unit * scaled)
            left -= self._scaled(member, value) * member.weight
        return bounds

    def value(self, values: Sequence[int]) -> int:
        """The objective's value in a plan with these members' values."""
        if len(self.members) == 1:
            return values[0]
        return sum(
            self._scaled(member, value) * member.weight
            for member, value in zip(self.members, values, strict=True)
        )

    @staticmethod
    def _scaled(member: Member, value: int) -> int:
        return (value - member.low) // member.unit


def next_objective(
    program: Program,
    tiers: Sequence[Tier],
    expressions: Sequence[Linear],
    first: int,
    tops: Sequence[int],
) -> FusedObjective:
    """The fused objective that starts at tier ``first``. ``tops``: the best possible value of each tier."""
    own = tiers[first].row
    if not own.per_priority or tiers[first].tolerance:
        return _single(tiers[first], first, expressions[first])
    chosen: list[Member] = []
    product = 1
    for position in range(first, len(tiers)):
        row = tiers[position].row
        if not own.fuses_with(row) or tiers[position].tolerance:
            break  # guarantees and who runs besides are proven faster one after the other
        expression = expressions[position]
        low = program.bound_below(expression)
        unit = gcd(*(c for c in expression.terms.values()), expression.constant - low) or 1
        span = (tops[position] - low) // unit
        if chosen and _decided(expressions[position - 1], expression):
            chosen.append(Member(position, expression, low, unit, span, 0))
            continue
        if chosen and product * (span + 1) > LARGEST_PRODUCT:
            break
        product *= span + 1
        chosen.append(Member(position, expression, low, unit, span, 1))
    if len(chosen) == 1:
        return _single(tiers[first], first, expressions[first])
    return _fuse(chosen)


def _single(tier: Tier, position: int, expression: Linear) -> FusedObjective:
    member = Member(position, expression, 0, 1, 0, 1)
    return FusedObjective((member,), expression, tier.sense == "max")


def _decided(before: Linear, after: Linear) -> bool:
    """Whether one variable decides both tiers, in the same direction."""
    if len(before.terms) != 1 or before.terms.keys() != after.terms.keys():
        return not after.terms
    return all(c * after.terms[v] >= 0 for v, c in before.terms.items())


def _fuse(chosen: Sequence[Member]) -> FusedObjective:
    """The objective of these members, their weights set; a weight of 0 stays."""
    members: list[Member] = []
    product = 1
    for member in reversed(chosen):
        members.insert(0, replace(member, weight=member.weight * product))
        product *= member.span + 1 if member.weight else 1
    objective = Linear()
    for member in members:
        expression, unit, weight = member.expression, member.unit, member.weight
        for variable, coefficient in expression.terms.items():
            objective.add(variable, coefficient // unit * weight)
        objective.constant += (expression.constant - member.low) // unit * weight
    return FusedObjective(tuple(members), objective, maximize=True)
