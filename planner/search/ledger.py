"""The incumbent plan and, tier by tier, what is proven about it.

Every plan is valued by ``models.values.tier_values``. Bounds only tighten. What later tiers must keep is
derived here.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from models.instance.disruption_budgets import beyond_budgets, leaving_early
from models.instance.instance import Instance
from models.instance.solution import GangDecision, Proof, TierResult
from models.program.base_state import base_decisions
from models.rules.giving_way import moves_beyond, unjustified_victims
from models.rules.registry import joint_rules
from models.rules.services import mixed
from models.tiers import larger_is_better, sign
from models.values.implied_bounds import ImpliedBounds
from models.values.tier_values import Evaluation, tiers_of
from planner.search.free_space import Decisions
from planner.search.improve.repair import back_in_place


@dataclass
class Incumbent:
    """The best plan so far, its tier values, and the values of the variables if a solver found it."""

    decisions: Decisions
    values: tuple[int, ...]
    assignment: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound of one tier. ``assumed``: values of earlier tiers that plans keep under which it holds.

    ``proof`` None: implied by the queue and the earlier tiers; no engine has found a better one yet.
    """

    value: int
    proof: Proof | None
    assumed: tuple[int, ...] = ()


class Ledger:
    """``closed``: number of tiers, from the first, that are solved and must be kept by later ones.

    ``best``: value of each tier when it was closed. ``tops``: bounds for every plan. ``bounds``: None
    where only implied bounds are known. ``searched``:
    tiers of the whole that an engine was asked about. ``answers``: of ``known``, until the incumbent or a
    bound changes. ``published``: a copy for other threads.
    """

    def __init__(self, instance: Instance, start: Sequence[GangDecision]) -> None:
        self.instance = instance
        self.tiers = tiers_of(instance)
        self.incumbent = Incumbent(tuple(start), self.evaluate(start).vector())
        self.unmoved = self.incumbent
        self.bounds: list[Bound | None] = [None] * len(self.tiers)
        self.tops: list[Bound | None] = [None] * len(self.tiers)
        self.searched: set[int] = set()
        self.closed = 0
        self.best: dict[int, int] = {}
        self._implied = instance.once(ImpliedBounds)
        self.answers: dict[int, Bound] = {}
        self._offered: tuple[object, Decisions | None, tuple[int, ...]]
        self._offered = None, None, ()
        self.published = self._copy()

    def _valid(self, decisions: Decisions) -> Decisions | None:
        """The plan without what a relaxed program may have admitted wrongly; None if no valid plan remains.

        Gangs below minBandwidthShare wait, and those of a service on several models; gangs stopped
        without need keep running, and so do those that budgets or run times do not let go, and those that
        move beyond the policy's limits. Of gangs that break a rule about several, the lowest go back.
        """
        beyond = [*self._bound_to_stay(decisions), *moves_beyond(self.instance, decisions)]
        if beyond:
            decisions = back_in_place(self.instance, decisions, beyond)
        victims = unjustified_victims(self.instance, decisions)
        if victims:
            decisions = back_in_place(self.instance, decisions, victims)
        plan = self.evaluate(decisions)
        unfit = self._unfit(plan)
        if unfit:
            if any(decisions[index].decision == "move" for index in unfit):
                return None
            base = base_decisions(self.instance)
            decisions = tuple(base[i] if i in unfit else d for i, d in enumerate(decisions))
            victims = unjustified_victims(self.instance, decisions)
            if victims:
                decisions = back_in_place(self.instance, decisions, victims)
            plan = self.evaluate(decisions)
            if victims and self._unfit(plan):
                return None
        rules = joint_rules()
        if any(rule.is_broken(plan) for rule in rules):
            decisions = back_in_place(self.instance, decisions, ())
            plan = self.evaluate(decisions)
            if any(rule.is_broken(plan) for rule in rules):
                return None
        broken = unjustified_victims(self.instance, decisions)
        if broken or self._bound_to_stay(decisions) or moves_beyond(self.instance, decisions):
            return None
        return decisions if plan.has_gpus_for_parts else None

    def _bound_to_stay(self, decisions: Decisions) -> list[int]:
        """Gangs that stop, shrink or move although they, budgets or run times do not allow it."""
        never = {
            index
            for index, (gang, one) in enumerate(zip(self.instance.gangs, decisions, strict=True))
            if (one.decision == "preempt" and not gang.preemptible)
            or (one.decision == "move" and not gang.movable)
        }
        early = leaving_early(self.instance, decisions)
        return sorted({*never, *early, *beyond_budgets(self.instance, decisions)})

    def keeps_rules(self, decisions: Decisions) -> bool:
        """Whether a plan that fits breaks no rule about gangs and needs no repair."""
        return self._valid(decisions) == decisions

    def _unfit(self, plan: Evaluation) -> set[int]:
        """Gangs below minBandwidthShare, and those of a service on several models."""
        below_share = {
            index
            for index, (decision, value) in enumerate(zip(plan.decisions, plan.values, strict=True))
            if decision.decision in ("place", "complete", "move")
            and value is not None
            and not value.meets_min_share
        }
        return below_share.union(mixed(self.instance, plan.decisions))

    def evaluate(self, decisions: Sequence[GangDecision]) -> Evaluation:
        return Evaluation(self.instance, decisions)

    def offer(self, decisions: Sequence[GangDecision], assignment: tuple[int, ...] = ()) -> bool:
        """Adopt a plan that keeps the closed tiers and is better in the open ones; returns whether it is."""
        if self._offered[0] != (asked := tuple(decisions)):  # most come several times in a row
            plan = self._valid(asked)
            self._offered = asked, plan, () if plan is None else self.evaluate(plan).vector()
        _, valid, values = self._offered
        if valid is None:
            return False
        for position in range(self.closed):
            factor = self._sign(position)
            if factor * values[position] < factor * self.required(position):
                return False
        old, new = self._open_values(self.incumbent.values), self._open_values(values)
        if new > old or (new == old and assignment and not self.incumbent.assignment):
            self.incumbent = Incumbent(valid, values, assignment)
            self.answers.clear()
        moves, worth = any(one.decision == "move" for one in valid), larger_is_better
        if not moves and worth(self.tiers, values) > worth(self.tiers, self.unmoved.values):
            self.unmoved = Incumbent(valid, values)
        if new > old:
            self.publish()
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
        factor = self._sign(position)
        if factor * bound < factor * self.incumbent.values[position]:
            return
        proof: Proof = "exact" if exact else "numerical"
        if always:
            top = self.tops[position]
            if top is None or factor * bound < factor * top.value:
                self.tops[position] = Bound(bound, proof)
                self.answers.clear()
        elif factor * bound < factor * self.known(position).value:
            kept = tuple(self.required(i) for i in range(position))
            self.bounds[position] = Bound(bound, proof, kept)
            self.answers.clear()
            self.publish()

    def known(self, position: int) -> Bound:
        """The tightest bound that holds for plans which keep the earlier tiers as the incumbent does.

        A plan that is better in an earlier tier may be worse in a later one, where a recorded bound
        asks for more: such a bound counts no longer.
        """
        if position not in self.answers:
            self.answers[position] = self._tightest(position)
        return self.answers[position]

    def _tightest(self, position: int) -> Bound:
        factor = self._sign(position)
        kept = [(self.tiers[i], self.required(i)) for i in range(position)]
        found = [Bound(self._implied.bound(self.tiers[position], kept), None)]
        top, own = self.tops[position], self.bounds[position]
        if top is not None:
            found.append(top)
        # later tiers must keep at least these values of a tier
        if own is not None and all(
            self._sign(i) * self.required(i) >= self._sign(i) * least
            for i, least in enumerate(own.assumed)
        ):
            found.append(own)
        best = min(found, key=lambda one: factor * one.value)
        value = self._reported(position)
        if factor * best.value < factor * value:  # the bound of a tier with a tolerance
            best = Bound(value, best.proof or "exact")
        if best.value == value and best.proof is None:
            best = Bound(value, "exact")
        return best

    def proven(self, position: int) -> bool:
        """Whether the incumbent's value equals the tier's bound."""
        return self.known(position).value == self.incumbent.values[position]

    def close(self) -> None:
        """Close the next tier: from now on it is kept, less its tolerance."""
        self.best[self.closed] = self.incumbent.values[self.closed]
        if self.tiers[self.closed].tolerance:
            self.answers.clear()
        self.closed += 1

    def close_all(self, last: int | None = None) -> None:
        """Close every open tier, or those before ``last``, with the bound it has."""
        while self.closed < (len(self.tiers) if last is None else last):
            self.close()

    def reopen(self) -> None:
        self.closed = 0

    def gap(self) -> int | None:
        """The first tier whose bound the incumbent does not meet; None if all are proven."""
        for position in range(len(self.tiers)):
            if self.known(position).value != self._reported(position):
                return position
        return None

    def required(self, position: int) -> int:
        """What later tiers must keep: ceil(v - t|v|), or floor(v + t|v|) for a tier that is minimised."""
        tier, best = self.tiers[position], self._reported(position)
        if not tier.tolerance:
            return best
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
        for at, (tier, value) in enumerate(zip(self.tiers, self.incumbent.values, strict=True)):
            known, best = self.known(at), self._reported(at)
            found.append(TierResult(tier.name, tier.sense, value, best, known.value, known.proof))
        return tuple(found)

    def publish(self) -> None:
        """Let other threads see what is known now."""
        self.published = self._copy()

    def _copy(self) -> Ledger:
        """A copy that does not change any more."""
        twin = copy.copy(self)
        twin.bounds, twin.tops, twin.best = list(self.bounds), list(self.tops), dict(self.best)
        twin.answers = dict(self.answers)
        twin.__dict__.pop("published", None)
        return twin
