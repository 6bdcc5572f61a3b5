"""Tier by tier: the search over one program, exact as far as the budget goes.

Promises: every tier it passes is closed with a bound that holds for all plans keeping the earlier ones.
Works on the full formulation and on the admission program alike. Called by ``solve``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from models.program.linear_program import UNBOUNDED, Linear, Program
from models.solution import GangDecision
from models.tier_values import Tier
from planner.search.budget import Budget, Progress
from planner.search.engines.common import Answer, Goal, Status
from planner.search.engines.portfolio import CLOCK_SHARE, attack, beyond, glance
from planner.search.engines.relaxation import relax
from planner.search.fused_objectives import FUSED, Chunk, next_chunk
from planner.search.ledger import Ledger

ADMISSION_SHARE = 0.35
"""Part of the time and effort left that one goal about admission may take."""

STOPPING = ("disruption",)
"""Tiers in which a poor plan stops or moves gangs for nothing: they get as much."""

LEADING = (*STOPPING, "preference")
"""Tiers on which those of placement hang in turn: where pods are pooled they get as much too."""


class Problem(Protocol):
    """A program whose assignments stand for plans: for every plan where it is ``complete``.

    ``settles``: for every plan as far as it goes who runs.
    """

    program: Program
    complete: bool
    settles: bool

    def expression(self, tier: Tier) -> Linear: ...

    def decode(self, values: Sequence[int]) -> tuple[GangDecision, ...]: ...


class Search:
    """Searches the tiers of a ledger from its first open one to ``last`` (exclusive).

    ``glancing``: with little effort a tier, as the steps of an improvement search want it.
    ``relaxing``: bounds from the LP relaxation only, for a program too large to search.
    ``share``: part of the time left that HiGHS gets for a tier, and no other engine after it;
    ``branched``: families of tiers it gets at all, the others only have their LP solved.
    """

    def __init__(
        self,
        problem: Problem,
        ledger: Ledger,
        budget: Budget,
        progress: Progress,
        last: int,
        *,
        glancing: bool = False,
        relaxing: bool = False,
        share: float | None = None,
        branched: tuple[str, ...] | None = None,
    ) -> None:
        self._problem = problem
        self._ledger = ledger
        self._budget = budget
        self._progress = progress
        self._last = last
        self._glancing = glancing
        self._relaxing = relaxing
        self._given = share
        self._branched = branched
        tiers = ledger.tiers[:last]
        self._expressions = [problem.expression(tier) for tier in tiers]
        self._tops = [self._top(position) for position in range(last)]
        for position in range(ledger.closed, last):
            ledger.bound(position, self._tops[position], exact=True, always=True)

    def run(self) -> None:
        """Solve every tier within the budget."""
        ledger = self._ledger
        while ledger.closed < self._last:
            if ledger.proven(ledger.closed):
                self._close()
                continue
            chunk = next_chunk(
                self._problem.program,
                ledger.tiers[: self._last],
                self._expressions,
                ledger.closed,
                self._tops,
            )
            if not self._budget.exhausted():
                self._solve(chunk)
            for _ in chunk.members:
                self._close()

    def _top(self, position: int) -> int:
        """The best value the variables' bounds allow."""
        program, expression = self._problem.program, self._expressions[position]
        if self._ledger.tiers[position].sense == "max":
            return program.bound_above(expression)
        return max(0, program.bound_below(expression))

    def _close(self) -> None:
        position = self._ledger.closed
        value, bound = self._ledger.incumbent.values[position], self._ledger.bounds[position]
        self._ledger.close()
        self._progress.update(self._ledger.tiers[position].name, value, bound)

    def _keep(self, before: int) -> tuple[tuple[Linear, int, int], ...]:
        rows = []
        for position in range(before):
            expression, least = self._expressions[position], self._ledger.required(position)
            if not expression.terms:
                continue
            if self._ledger.tiers[position].sense == "max":
                rows.append((expression, least, UNBOUNDED))
            else:
                rows.append((expression, -UNBOUNDED, least))
        return tuple(rows)

    def _solve(self, chunk: Chunk) -> None:
        ledger = self._ledger
        goal = Goal(chunk.objective, chunk.maximize, self._keep(ledger.closed))
        name = ledger.tiers[chunk.members[0].position].name

        def improved(value: int, bound: int) -> None:
            if len(chunk.members) == 1:
                sign, shift = (-1 if chunk.maximize else 1), chunk.objective.constant
                top = self._tops[chunk.members[0].position]
                best = sign * max(sign * (sign * bound + shift), sign * top)
                self._progress.update(name, sign * value + shift, best)

        if self._glancing:
            self._glance(chunk, goal)
            return
        first = ledger.tiers[chunk.members[0].position].family
        if self._relaxing or (self._branched is not None and first not in self._branched):
            self._relax(ledger.closed)
            return
        answer = attack(
            self._problem.program,
            goal,
            self._budget,
            self._effort(chunk),
            incumbent=chunk.value([ledger.incumbent.values[m.position] for m in chunk.members]),
            share=self._share(chunk),
            second=self._given is None,
            hint=self._hint(),
            improved=improved,
        )
        self._take(chunk, answer)
        if answer.status not in (Status.OPTIMAL, Status.INFEASIBLE):
            self._budget.cut()

    def _glance(self, chunk: Chunk, goal: Goal) -> None:
        """Ask for something better than the incumbent only: mostly the LP says no at once."""
        value = chunk.value([self._ledger.incumbent.values[m.position] for m in chunk.members])
        self._take(chunk, glance(self._problem.program, beyond(goal, value), self._budget))

    def _relax(self, position: int) -> None:
        """The LP's bound for one tier, the earlier ones kept as they are."""
        goal = Goal(
            self._expressions[position],
            self._ledger.tiers[position].sense == "max",
            self._keep(position),
        )
        found = relax(
            self._problem.program, goal, self._budget, seconds=self._budget.seconds_left() / 3
        )
        if self._holds(position):
            self._ledger.bound(position, found.bound, exact=True)
        if not self._ledger.proven(position):
            self._budget.cut()

    def _holds(self, position: int) -> bool:
        """Whether the program's bounds of a tier hold for all plans; if not, the tier stays open."""
        if self._problem.complete:
            return True
        families = {tier.family for tier in self._ledger.tiers[: position + 1]}
        if self._problem.settles and families <= {*FUSED, *STOPPING}:
            return True
        self._budget.cut()
        return False

    def _take(self, chunk: Chunk, answer: Answer) -> None:
        if answer.values:
            self._ledger.offer(self._problem.decode(answer.values), answer.values)
        self._bound(chunk, answer)

    def _hint(self) -> tuple[int, ...]:
        assignment = self._ledger.incumbent.assignment
        return assignment if len(assignment) == len(self._problem.program.lower) else ()

    def _share(self, chunk: Chunk) -> float:
        """Which gangs start matters most, and everything after it hangs on it."""
        first = self._ledger.tiers[chunk.members[0].position]
        if self._given is not None and first.family not in LEADING:
            return self._given
        leads = self._given is not None or first.family in (*FUSED, *STOPPING)
        return ADMISSION_SHARE if leads else CLOCK_SHARE

    def _effort(self, chunk: Chunk) -> float:
        """The most a goal may spend: half of what is left, all of it for the last."""
        left = self._budget.effort_left()
        last = chunk.members[-1].position == len(self._ledger.tiers) - 1
        return left if last else left / 2

    def _bound(self, chunk: Chunk, answer: Answer) -> None:
        if not self._holds(chunk.members[0].position):
            return
        values = [self._ledger.incumbent.values[m.position] for m in chunk.members]
        # infeasible: rows that ask for better than the incumbent leave nothing
        nothing = answer.status is Status.INFEASIBLE
        bounds = values if nothing else chunk.bounds(answer.bound, values)
        for member, bound in zip(chunk.members, bounds, strict=True):
            self._ledger.bound(member.position, bound, exact=answer.exact)
