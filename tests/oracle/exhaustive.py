"""The exhaustive planner: the best plan of a tiny instance, by trying every plan.

Promises: exact and deterministic; no solver, nothing of the formulation, of evaluating or of checking;
prunes only what cannot matter (``Sameness``, ``Choosing``, ``Footing``). Called by tests and by the sweep.

First it is chosen which standing pods stay exactly as they are, for all gangs at once: that settles which
GPUs and resources are there to be given, and what nobody knows about them. Then gangs are taken one
after another, highest priority first, so that those who may excuse a stop have come before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from exhaustive_footing import Footing, Step
from exhaustive_plans import decided
from exhaustive_reserving import Reserved, Reserving
from exhaustive_spreads import Spreading
from exhaustive_values import MINIMISED, Tiers, tier_values
from exhaustive_ways import Scale, Vector, Ways

from models.instance.instance import Instance
from models.instance.solution import GangDecision, MoveSet, Solution, TierResult


class NobodyAwayError(ValueError):
    """There is no plan in which all that are to be away are."""


@dataclass(frozen=True)
class Best:
    """``tiers``: the best values, in the order of the policy; ``decisions``: a plan that has them."""

    tiers: Tiers
    decisions: tuple[GangDecision, ...]

    def solution(self, moves: tuple[MoveSet, ...] = ()) -> Solution:
        """The plan in the form a search returns; ``moves``: what its moves bought."""
        return Solution(
            decisions=self.decisions,
            tiers=tuple(
                TierResult(name, "min" if name in MINIMISED else "max", v, v, v, "exact")
                for name, v in self.tiers
            ),
            stopped_by="proof",
            solver="exhaustive",
            moves=moves,
        )


def plan(
    instance: Instance,
    immovable: frozenset[int] = frozenset(),
    reserved: Sequence[Reserved] = (),
    away: frozenset[tuple[int, int, int]] = frozenset(),
) -> Best:
    """The lexicographically best plan in which the gangs ``immovable`` do not move.

    It keeps the reservations given. ``away``: (gang, role, node) of which no pod is there.

    Raises ValueError for what is no matter of one best plan: tolerances, and the least gain of moves.
    """
    if any(objective.tolerance for objective in instance.policy.objectives):
        raise ValueError("the exhaustive planner knows no tolerances")
    if instance.policy.moves is not None and instance.policy.moves.min_gain > 0:
        raise ValueError("the exhaustive planner knows no least gain of moves")
    scale, spreading = Scale(instance), Spreading(instance)
    ways = Ways(scale, spreading, immovable, Reserving(instance, reserved), away)
    best: tuple[Vector, Step | None, Footing] | None = None
    for bound, footing in _footings(ways):
        if best is not None and bound <= best[0]:
            break
        found = footing.best(best[0] if best else None)
        if found is not None:
            best = (*found, footing)
    if best is None and away:
        raise NobodyAwayError
    assert best is not None  # everything may stay as it is, unless that breaks a reservation
    value, last, footing = best
    decisions = decided(instance, footing.ground, last)
    tiers = tier_values(instance, decisions)
    assert ways.scale.vector(dict(tiers)) == value, (tiers, value)
    return Best(tiers, decisions)


def _footings(ways: Ways) -> list[tuple[Vector, Footing]]:
    """Every choice of the pods that stay, the most promising first."""
    choices = [list(of) for of in ways.of]
    found: list[tuple[Vector, Footing]] = []
    for stays in product(*choices):
        ways.effort.one()
        footing = Footing(ways, stays)
        found.append((footing.bound(), footing))
    return sorted(found, key=lambda one: one[0], reverse=True)
