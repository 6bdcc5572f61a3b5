"""Bounds and plans from counting slots, before any larger program is built: every tier is looked at.

The LP of the slots takes milliseconds at any size. Its bounds often prove the tiers of high priorities; where
one does not, a plan that follows its solution shows who should start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from models.program.base_state import PlacementRequests
from models.program.interruption import Interrupted
from models.program.linear_program import UNBOUNDED, Linear
from models.program.slots import SlotModel
from models.solution import GangDecision
from planner.search.budget import Budget, NullProgress, Progress
from planner.search.engines.interface import Goal
from planner.search.engines.relaxation import Relaxation
from planner.search.guided import follow
from planner.search.ledger import Ledger

FOLLOWING_SHARE = 0.25
"""Share of what is left of the budget for plans that follow a solution."""

Decisions = Sequence[GangDecision]


class SlotBounds:
    """The bounds of one ledger, whose instance they count; the program is built once.

    Without a program, because the budget ended while it was built, nothing is bounded.
    """

    def __init__(self, ledger: Ledger, budget: Budget, immovable: frozenset[int]) -> None:
        self._ledger = ledger
        self._budget = budget
        self._model: SlotModel | None = None
        with suppress(Interrupted):
            self._model = SlotModel(
                ledger.instance, immovable, cache=ledger.cache, interrupted=budget.exhausted
            )

    def follow(self, progress: Progress, improved: Callable[[Decisions], Decisions]) -> None:
        """Bound all tiers, and offer plans that follow the solutions.

        ``improved``: a better plan near one, for the first open tier of the ledger.
        """
        ledger, budget, model = self._ledger, self._budget, self._model
        late = budget.used(FOLLOWING_SHARE)
        followed: set[int | None] = set()
        for position, values in self.bounds(progress):
            priority = ledger.tiers[position].priority
            if model is None or late() or priority in followed:
                continue
            followed.add(priority)
            ledger.close_all(position)
            requests, admits, shares = _by_option(model, values)
            ledger.offer(improved(follow(ledger.instance, requests, admits, shares, budget)))
        ledger.reopen()

    def bounds(self, progress: Progress) -> Iterator[tuple[int, Sequence[float]]]:
        """Bound one tier after the other; yields the open ones about who runs, with the LP's solution."""
        ledger, budget, model = self._ledger, self._budget, self._model
        if model is None:
            return
        relaxation, kept = Relaxation(model.program, budget), list[tuple[Linear, int, int]]()
        for position, tier in enumerate(ledger.tiers):
            expression = model.expression(tier)
            if expression is None or not expression.terms:
                continue
            if budget.exhausted():
                return
            upward = tier.sense == "max"
            if not ledger.proven(position):
                goal = Goal(expression, upward, tuple(kept))
                answer = relaxation.bound(goal, seconds=budget.seconds_left())
                ledger.searched.add(position)
                if model.complete:
                    ledger.bound(position, answer.bound, exact=True)
                progress.update(
                    tier.name, ledger.incumbent.values[position], ledger.known(position).value
                )
                open_still = tier.row.subject == "admission" and not ledger.proven(position)
                if answer.values is not None and open_still:
                    yield position, answer.values
            least = ledger.required(position)
            kept.append(
                (expression, least, UNBOUNDED) if upward else (expression, -UNBOUNDED, least)
            )

    def renew(self) -> None:
        """Bound all tiers again: a bound holds only for plans that keep the earlier tiers."""
        for _ in self.bounds(NullProgress()):
            pass


def _by_option(
    model: SlotModel, values: Sequence[float]
) -> tuple[PlacementRequests, list[list[int]], list[float]]:
    """The requests, a variable for each option, and how much of the option the solution takes."""
    taken: dict[int, float] = {}
    for mode in model.modes:
        taken[id(mode.option)] = taken.get(id(mode.option), 0.0) + values[mode.variable]
    shares, admits = list[float](), list[list[int]]()
    for choice in model.requests.choices:
        admits.append([])
        for option in choice.options:
            admits[-1].append(len(shares))
            shares.append(taken.get(id(option), 0.0))
    return model.requests, admits, shares
