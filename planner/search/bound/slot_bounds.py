"""Plans and bounds from counting slots: every tier is looked at before any larger program is built.

The program is small at any size. Solved for several tiers at once it says who should run and in which
domains, and a plan follows that; solved tier by tier it proves how far the plan is from the best one.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass, field

from models.program.linear_program import Interrupted
from models.program.slots.slot_program import SlotModel
from planner.search.bound.chain import LAST, Chain, SlotProblem
from planner.search.bound.tier_search import SHARE, Improvement, Narrowed, OpenGoals, TierSearch
from planner.search.budget import Budget, NullProgress, Progress
from planner.search.engines.interface import Goal, Kept, kept
from planner.search.engines.relaxation import Relaxation
from planner.search.ledger import Ledger

SHORT_OF = 50
"""Plans follow the program if in no tier about who runs they have a 50th less than it promised."""


@dataclass
class SlotSearch:
    """The search with the slots of one ledger's instance, once they are built.

    ``improved``: a plan that is better where nothing else can be. ``follows``: whether plans follow the
    program: where rules that it leaves out decide who runs, they do not. Without a program, because it
    was not asked for or the budget ended meanwhile, nothing is found.
    """

    ledger: Ledger
    budget: Budget
    immovable: frozenset[int]
    _improved: Improvement
    progress: Progress = field(default_factory=NullProgress)
    _problem: SlotProblem | None = None
    _narrowed: dict[int, Narrowed] = field(default_factory=dict)
    follows: bool = False

    def build(self) -> None:
        ledger, budget = self.ledger, self.budget
        with suppress(Interrupted):
            model = SlotModel(ledger.instance, self.immovable, interrupted=budget.exhausted)
            self._problem = SlotProblem(model, budget)

    def run(self) -> None:
        """Solve one tier after the other: for each a bound, and a plan of the solution.

        LPs of all come first, so that every tier is looked at, and what they leave open is answered beside
        them; what is nearly proven comes last.
        """
        if self._problem is None:
            return
        ledger, problem, tiers = self.ledger, self._problem, self.ledger.tiers
        last = next((p for p, tier in enumerate(tiers) if tier.family in LAST), len(tiers))
        with closing(OpenGoals(self.budget)) as goals:
            self._prove(problem, last, rough=True, aside=goals)
            ledger.reopen()
            self.renew(last)
            stayed = goals.conclude()
        ledger.reopen()
        if not stayed:
            self._prove(problem, last, rough=True)
            ledger.reopen()
        if last < len(tiers) and not self.budget.exhausted():
            with suppress(Interrupted):
                problem.tell_apart()
                if not problem.in_parts:  # their geometry decides, everywhere at once
                    self._prove(problem, len(tiers), rough=True)
                    ledger.reopen()
        self._prove(problem, len(tiers))
        ledger.reopen()

    def run_once(self) -> None:
        """Solve one tier after the other, and leave them closed: so tolerances are granted once."""
        if self._problem is not None:
            self._prove(self._problem, len(self.ledger.tiers))

    def begin(self, fill: Improvement) -> None:
        """Solve one tier after the other as long as plans, filled up, reach the bounds."""
        ledger = self.ledger
        for position in range(len(ledger.tiers)):
            if self._problem is None or self.budget.exhausted():
                break
            self._prove(self._problem, position + 1, fill)
            if not ledger.proven(position):
                break
        ledger.reopen()

    def _prove(
        self,
        problem: SlotProblem,
        last: int,
        fill: Improvement | None = None,
        *,
        rough: bool = False,
        aside: OpenGoals | None = None,
    ) -> None:
        TierSearch(
            problem,
            self.ledger,
            self.budget,
            self.progress,
            last,
            fill or self._improved,
            rough=rough,
            aside=aside,
            start=problem.latest,
            narrowed=self._narrowed,
        ).run()

    def aim(self) -> None:
        """Offer the plan of the chain; see whether it has what was promised about who runs."""
        ledger, problem = self.ledger, self._problem
        if problem is None:
            return
        stated = [
            (position, tier, expression)
            for position, tier in enumerate(ledger.tiers)
            if (expression := problem.expression(tier)) is not None
        ]
        chain = Chain(problem, stated, self.budget)
        if all(ledger.proven(position) for group in chain.groups for position, _, _ in group):
            self.follows = True
            return
        solution = chain.solution()
        if not solution:
            return
        plan = problem.decode(solution)
        ledger.offer(plan)
        ledger.offer(self._improved(plan))
        promised = [(p, one.value(solution)) for p, _, one in chain.running]
        values = ledger.incumbent.values
        self.follows = all(SHORT_OF * values[p] >= (SHORT_OF - 1) * best for p, best in promised)

    def renew(self, first: int = 0) -> None:
        """Bound the tiers from this one on by LPs, for plans that keep the earlier ones as they are."""
        ledger, budget, problem = self.ledger, self.budget, self._problem
        if problem is None or not problem.complete:
            return
        relaxation, rows = Relaxation(problem.program, budget), list[Kept]()
        for position, tier in enumerate(ledger.tiers):
            expression = problem.expression(tier)
            if expression is None or not expression.terms:
                continue
            if budget.exhausted():
                return
            maximize = tier.sense == "max"
            if position >= first and not ledger.proven(position):
                goal = Goal(expression, maximize, tuple(rows))
                seconds = budget.seconds_left() * SHARE
                answer = relaxation.bound(goal, seconds=seconds)
                ledger.searched.add(position)
                ledger.bound(position, answer.bound, exact=True)
            rows.append(kept(expression, ledger.required(position), maximize=maximize))
