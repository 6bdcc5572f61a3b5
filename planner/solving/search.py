"""Tier by tier: the exact search over one formulation.

Promises: the incumbent is always a plan that was decoded and valued; each tier ends with a value, a
bound that holds for every plan keeping the earlier tiers, and who proved it. Called by ``solve``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from models.evaluating import Evaluation, Tier, tiers_of
from models.instance import Instance
from models.placement.formulation import Formulation
from models.placement.program import UNBOUNDED, Linear
from models.solution import GangDecision, Proof, TierResult
from planner.solving.budget import Budget
from planner.solving.chunks import Chunk, next_chunk
from planner.solving.engines.common import Answer, Goal, Status
from planner.solving.engines.portfolio import attack
from planner.solving.progress import Progress


@dataclass
class Incumbent:
    """The best plan so far, its tier values, and the variables' values where a solver found it."""

    decisions: tuple[GangDecision, ...]
    values: tuple[int, ...]
    assignment: tuple[int, ...] = ()


class Search:
    """Lexicographic search; ``results`` and ``incumbent`` are the outcome at any moment."""

    def __init__(
        self, instance: Instance, formulation: Formulation, start: Sequence[GangDecision],
        budget: Budget, progress: Progress,
    ) -> None:
        self._instance = instance
        self._formulation = formulation
        self._budget = budget
        self._progress = progress
        self.tiers = tiers_of(instance)
        self._expressions = [formulation.expression(tier) for tier in self.tiers]
        self._tops = [self._top(position) for position in range(len(self.tiers))]
        self.bounds = list(self._tops)
        self.exact = [True] * len(self.tiers)
        self._best: dict[int, int] = {}
        self._kept: list[tuple[int, int]] = []
        self.incumbent = Incumbent(tuple(start), Evaluation(instance, start).vector())

    def run(self) -> None:
        """Solve every tier within the budget."""
        position = 0
        while position < len(self.tiers):
            if self._done(position):
                self._close(position)
                position += 1
                continue
            chunk = next_chunk(
                self._formulation.program, self.tiers, self._expressions, position, self._tops
            )
            self._solve(chunk)
            for member in chunk.members:
                self._close(member.position)
            position += len(chunk.members)

    def results(self) -> tuple[TierResult, ...]:
        """What the plan states of every tier."""
        found = []
        for position, tier in enumerate(self.tiers):
            value = self.incumbent.values[position]
            best = value if not tier.tolerance else self._best.get(position, value)
            bound = self.bounds[position]
            bound = max(bound, best) if tier.sense == "max" else min(bound, best)
            proof: Proof = "exact" if self.exact[position] else "numerical"
            found.append(TierResult(tier.name, tier.sense, value, best, bound, proof))
        return tuple(found)

    def _top(self, position: int) -> int:
        """The best value the variables' bounds allow."""
        program, expression = self._formulation.program, self._expressions[position]
        if self.tiers[position].sense == "max":
            return program.bound_above(expression)
        return max(0, program.bound_below(expression))

    def _done(self, position: int) -> bool:
        return self.incumbent.values[position] == self.bounds[position]

    def _close(self, position: int) -> None:
        """From here on later tiers keep this one, less its tolerance."""
        tier, value = self.tiers[position], self.incumbent.values[position]
        self._best[position] = value
        self._kept.append((position, required(tier, value)))
        self._progress.update(tier.name, value, self.bounds[position])

    def _keep(self) -> tuple[tuple[Linear, int, int], ...]:
        rows = []
        for position, least in self._kept:
            expression = self._expressions[position]
            if self.tiers[position].sense == "max":
                rows.append((expression, least, UNBOUNDED))
            else:
                rows.append((expression, -UNBOUNDED, least))
        return tuple(row for row in rows if row[0].terms)

    def _solve(self, chunk: Chunk) -> None:
        if self._budget.exhausted():
            return
        goal = Goal(chunk.objective, chunk.maximize, self._keep())
        effort = self._effort(chunk)
        name = self.tiers[chunk.members[0].position].name

        def improved(value: int, bound: int) -> None:
            sign = -1 if chunk.maximize else 1
            if len(chunk.members) == 1:
                shift = chunk.objective.constant
                self._progress.update(name, sign * value + shift, sign * bound + shift)
            else:
                self._progress.update(name, None, None)

        answer = attack(
            self._formulation.program, goal, self._budget, effort,
            hint=self.incumbent.assignment, improved=improved,
        )
        self._take(answer)
        self._bound(chunk, answer)
        if answer.status is not Status.OPTIMAL:
            self._budget.cut()

    def _effort(self, chunk: Chunk) -> float:
        """Half of what is left for each solve but the last."""
        left = self._budget.effort_left()
        last = chunk.members[-1].position == len(self.tiers) - 1
        return left if last else left / 2

    def _take(self, answer: Answer) -> None:
        """Adopt the answer's plan if, decoded and valued, it is better than the incumbent."""
        if not answer.values:
            return
        decisions = self._formulation.decode(answer.values)
        values = Evaluation(self._instance, decisions).vector()
        if self._better(values):
            self.incumbent = Incumbent(decisions, values, answer.values)
        elif values == self.incumbent.values and not self.incumbent.assignment:
            self.incumbent = Incumbent(decisions, values, answer.values)

    def _better(self, values: tuple[int, ...]) -> bool:
        for position, least in self._kept:
            worse = values[position] < least
            if worse if self.tiers[position].sense == "max" else values[position] > least:
                return False
        first = len(self._kept)
        return self._signed(values, first) > self._signed(self.incumbent.values, first)

    def _signed(self, values: tuple[int, ...], first: int) -> tuple[int, ...]:
        return tuple(
            v if tier.sense == "max" else -v
            for tier, v in zip(self.tiers[first:], values[first:], strict=True)
        )

    def _bound(self, chunk: Chunk, answer: Answer) -> None:
        values = [self.incumbent.values[m.position] for m in chunk.members]
        if answer.status is Status.INFEASIBLE:
            # nothing keeps the earlier tiers better than the incumbent already does
            bounds = values
        else:
            bounds = chunk.bounds(answer.bound, values)
        for member, bound in zip(chunk.members, bounds, strict=True):
            known = self.bounds[member.position]
            sign = 1 if self.tiers[member.position].sense == "max" else -1
            if sign * bound < sign * known:
                self.bounds[member.position] = bound
                self.exact[member.position] = answer.exact


def required(tier: Tier, value: int) -> int:
    """What later tiers must keep of a value: ceil(v - t|v|), or floor(v + t|v|) where less is better."""
    slack = tier.tolerance * abs(value)
    if tier.sense == "max":
        return _ceil(value - slack)
    return int((value + slack) // 1)


def _ceil(number: Fraction) -> int:
    return int(-((-number) // 1))
