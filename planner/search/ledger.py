"""The incumbent plan and, tier by tier, what is proven about it.

Every plan is valued by ``models.tier_values``. Bounds only tighten. What later tiers must keep is
derived here.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from models.instance import Instance
from models.program.base_state import base_decisions
from models.solution import GangDecision, Proof, TierResult
from models.tier_values import Evaluation, ValueCache, tiers_of
from models.tiers import larger_is_better, sign
from planner.search.preemption_rule import restore_unjustified, unjustified_victims


@dataclass
class Incumbent:
    """The best plan so far, its tier values, and the values of the variables if a solver found it."""

    decisions: tuple[GangDecision, ...]
    values: tuple[int, ...]
    assignment: tuple[int, ...] = ()


class Ledger:
    """``closed``: number of tiers, from the first, that are solved and must be kept by later ones.

    ``best``: value of each tier when it was closed. ``tops``: bounds for every plan. ``assumed``: the
    values of earlier tiers under which a tier's bound holds. ``cache``: values of gangs, shared
    between plans.
    """

    def __init__(self, instance: Instance, start: Sequence[GangDecision]) -> None:
        self.instance = instance
        self.tiers = tiers_of(instance)
        self.cache: ValueCache = {}
        self.incumbent = Incumbent(tuple(start), self.evaluate(start).vector())
        self.bounds: list[int | None] = [None] * len(self.tiers)
        self.exact = [True] * len(self.tiers)
        self.tops: list[int | None] = [None] * len(self.tiers)
        self.assumed: list[tuple[int, ...]] = [()] * len(self.tiers)
        self.closed = 0
        self.best: dict[int, int] = {}

    def _valid(self, decisions: tuple[GangDecision, ...]) -> tuple[GangDecision, ...] | None:
        """The plan without what a relaxed program may have admitted wrongly; None if no valid plan remains.

        Gangs below minBandwidthShare wait; gangs stopped without need keep running.
        """
        decisions = restore_unjustified(self.instance, decisions)
        values = self.evaluate(decisions).values
        below_share = {
            index
            for index, (decision, value) in enumerate(zip(decisions, values, strict=True))
            if decision.decision in ("place", "complete", "move")
            and value is not None
            and not value.meets_min_share
        }
        if below_share:
            if any(decisions[index].decision == "move" for index in below_share):
                return None
            base = base_decisions(self.instance)
            decisions = tuple(base[i] if i in below_share else d for i, d in enumerate(decisions))
        return None if unjustified_victims(self.instance, decisions) else decisions

    def evaluate(self, decisions: Sequence[GangDecision]) -> Evaluation:
        """All values of a plan; values of unchanged gangs come from the cache."""
        return Evaluation(self.instance, decisions, self.cache)

    def trial(self) -> Ledger:
        """A copy that starts from this state, its open tiers without bounds."""
        twin = copy.copy(self)
        twin.incumbent = Incumbent(self.incumbent.decisions, self.incumbent.values)
        twin.bounds = [
            bound if position < self.closed else None for position, bound in enumerate(self.bounds)
        ]
        twin.exact = list(self.exact)
        twin.tops = list(self.tops)
        twin.assumed = list(self.assumed)
        twin.best = dict(self.best)
        return twin

    def offer(self, decisions: Sequence[GangDecision], assignment: tuple[int, ...] = ()) -> bool:
        """Adopt a plan that keeps the closed tiers and is better in the open ones; returns whether it is."""
        valid = self._valid(tuple(decisions))
        if valid is None:
            return False
        decisions = valid
        values = self.evaluate(decisions).vector()
        for position in range(self.closed):
            factor = self._sign(position)
            if factor * values[position] < factor * self.required(position):
                return False
        old, new = self._open_values(self.incumbent.values), self._open_values(values)
        if new > old or (new == old and assignment and not self.incumbent.assignment):
            self.incumbent = Incumbent(tuple(decisions), values, assignment)
        return new > old

    def _open_values(self, values: Sequence[int]) -> tuple[int, ...]:
        """Values of the open tiers, larger is better."""
        return larger_is_better(self.tiers[self.closed :], values[self.closed :])

    def _sign(self, position: int) -> int:
        return sign(self.tiers[position].sense)

    def bound(self, position: int, bound: int, *, exact: bool, always: bool = False) -> None:
        """Record a bound of one tier if it is tighter than the known one.

        A bound that the incumbent already beats is an engine's error and is ignored. The bound
        holds for plans that keep the earlier tiers as the incumbent does now, or, with ``always``,
        for every plan.
        """
        known = self.bounds[position]
        factor = self._sign(position)
        if factor * bound < factor * self.incumbent.values[position]:
            return
        if always and (
            self.tops[position] is None or factor * bound < factor * self._top(position)
        ):
            self.tops[position] = bound
        if known is None or factor * bound < factor * known:
            self.bounds[position] = bound
            self.exact[position] = exact
            kept = () if always else tuple(self.required(i) for i in range(position))
            self.assumed[position] = kept

    def _top(self, position: int) -> int:
        top = self.tops[position]
        assert top is not None, "the first bound of a tier is one for every plan"
        return top

    def drop_stale(self) -> int | None:
        """Drop bounds that assumed less of an earlier tier than now; returns the first such tier.

        A plan that is better in an earlier tier may be worse in a later one, where the recorded
        bound asks for more.
        """
        first = None
        for position, assumed in enumerate(self.assumed):
            if all(self._keeps(i, least) for i, least in enumerate(assumed)):
                continue
            self.bounds[position], self.exact[position] = self._top(position), True
            self.assumed[position] = ()
            first = position if first is None else first
        return first

    def _keeps(self, position: int, least: int) -> bool:
        """Whether later tiers must keep at least this value of a tier."""
        factor = self._sign(position)
        return factor * self.required(position) >= factor * least

    def proven(self, position: int) -> bool:
        """Whether the incumbent's value equals the tier's bound."""
        return self.bounds[position] == self.incumbent.values[position]

    def close(self) -> None:
        """Close the next tier: from now on it is kept, less its tolerance."""
        self.best[self.closed] = self.incumbent.values[self.closed]
        self.closed += 1

    def close_all(self) -> None:
        """Close every open tier with the bound it has."""
        while self.closed < len(self.tiers):
            self.close()

    def reopen(self, first: int) -> None:
        """Reopen the tiers from ``first`` to improve the plan. Their bounds stay until ``drop_stale``."""
        self.closed = min(self.closed, first)

    def gap(self) -> int | None:
        """The first tier whose bound the incumbent does not meet; None if all are proven."""
        for position in range(len(self.tiers)):
            if self.bounds[position] != self._reported(position):
                return position
        return None

    def required(self, position: int) -> int:
        """What later tiers must keep: ceil(v - t|v|), or floor(v + t|v|) for a tier that is minimised."""
        tier, best = self.tiers[position], self._reported(position)
        slack = tier.tolerance * abs(best)
        if tier.sense == "max":
            return -int((slack - best) // 1)
        return int((best + slack) // 1)

    def _reported(self, position: int) -> int:
        """With a tolerance the value when the tier was closed, otherwise the incumbent's value."""
        value = self.incumbent.values[position]
        return self.best.get(position, value) if self.tiers[position].tolerance else value

    def results(self) -> tuple[TierResult, ...]:
        """The results that the plan states, one per tier."""
        found = []
        for position, tier in enumerate(self.tiers):
            best, bound = self._reported(position), self.bounds[position]
            value = self.incumbent.values[position]
            proof: Proof = "exact" if self.exact[position] else "numerical"
            factor = self._sign(position)
            if bound is None or factor * bound < max(factor * best, factor * value):
                message = f"no valid bound for tier {tier.name}"
                raise AssertionError(message)
            found.append(TierResult(tier.name, tier.sense, value, best, bound, proof))
        return tuple(found)
