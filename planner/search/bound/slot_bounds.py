"""Plans and bounds from counting slots: every tier is looked at before any larger program is built.

The program is small at any size. Solved for several tiers at once it says who should run and in which
domains, and a plan follows that; solved tier by tier it proves how far the plan is from the best one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from models.program.linear_program import Interrupted
from models.program.slots.slot_program import SlotModel
from models.program.tier_expressions import FREE_SPACE
from planner.search.bound.slot_chain import NODES, Chain, SlotProblem
from planner.search.bound.tier_search import (
    LP_SHARE,
    SHARE,
    Improvement,
    Narrowed,
    OpenGoals,
    TierSearch,
)
from planner.search.budget import Budget, NullProgress, Progress
from planner.search.engines.highs import branch
from planner.search.engines.interface import Goal, Kept, Status, kept
from planner.search.engines.relaxation import Relaxation
from planner.search.ledger import Ledger

LAST = {"span", *FREE_SPACE}
"""Tiers for which more is told apart, once those before them are solved."""

ROUGH = 0.05
"""Relative gap that is enough for ``span`` where all of the last solution is held."""

SHORT_OF = 50
"""Plans follow the program if in no tier about who runs they have a 50th less than it promised."""


@dataclass
class SlotSearch:
    """The search with the slots of one ledger's instance, once they are built.

    ``improved``: a plan that is better where nothing else can be. Without a program, because it was not
    asked for or the budget ended meanwhile, nothing is found.
    """

    ledger: Ledger
    budget: Budget
    immovable: frozenset[int]
    _improved: Improvement
    progress: Progress = field(default_factory=NullProgress)
    _problem: SlotProblem | None = None
    _narrowed: dict[int, Narrowed] = field(default_factory=dict)
    _answered: dict[int, tuple[tuple[int, ...], bool]] = field(default_factory=dict)

    def build(self) -> None:
        ledger, budget = self.ledger, self.budget
        with suppress(Interrupted):
            model = SlotModel(ledger.instance, self.immovable, interrupted=budget.exhausted)
            self._problem = SlotProblem(model, budget)

    def run(self) -> None:
        """Solve one tier after the other: for each a bound, and a plan of the solution.

        LPs of all come first, so that every tier is looked at, and what they leave open is answered beside
        them, and beside tiers in LAST where the plan will most likely stay: in no tier about who runs it is a
        50th below its LP. What is nearly proven comes next where that took little, or else last.
        """
        ledger, problem, tiers = self.ledger, self._problem, self.ledger.tiers
        if problem is None:
            return
        later = {"growth", *LAST} if problem.large else LAST  # its LPs take the time of span
        last = next((p for p, tier in enumerate(tiers) if tier.family in later), len(tiers))
        late = self.budget.used(SHARE)
        half = self.budget.used(LP_SHARE) if problem.large else self.budget.exhausted
        with closing(OpenGoals(self.budget, half)) as goals:
            self._prove(problem, last, rough=True, aside=goals)
            ledger.reopen()
            apart = (
                "waiting" if problem.large else None
            )  # of two such plans there is no time for both
            rows = ((p, tiers[p].row) for p in range(last))
            running = (p for p, row in rows if row.fused and row.objective != apart)
            gaps = ((ledger.known(p).value, ledger.incumbent.values[p]) for p in running)
            near = all(SHORT_OF * abs(bound - value) <= abs(value) for bound, value in gaps)
            begun = near and goals.beside > 0 and (problem.large or self._settle(problem, last))
            if begun:
                self._solve_last(problem, last)
            stayed = goals.conclude()
        ledger.reopen()
        if not stayed:
            self._answered.clear()  # of equal solutions plans follow one better than another
            self._prove(problem, last, rough=True)
            ledger.reopen()
        if not late():
            self._prove(problem, last)
            ledger.reopen()
        if not (begun and stayed):
            self._settle(problem, last)
            self._solve_last(problem, last)
        with self._held(problem, last, len(tiers)) as known:
            self.renew(last, exact=known is None or not known.settled)
        self._prove(problem, len(tiers))
        ledger.reopen()

    @contextmanager
    def _held(self, problem: SlotProblem, last: int, upto: int) -> Iterator[Narrowed | None]:
        """What is known of plans that have in the tiers before ``last`` what the incumbent has."""
        known = self._narrowed.get(last)
        if known is not None and known.values != self.ledger.incumbent.values[:last]:
            known = None
        for tier in self.ledger.tiers[:upto]:
            problem.expression(tier)  # its variables are for all plans
        with problem.fixed() as program:
            if known is not None:
                known.hold(program)
            yield known

    def _solve_last(self, problem: SlotProblem, last: int) -> None:
        """Tell apart what the last tiers count, one after the other, and solve them.

        Where it is open who may run, and for what is left, gangs have what they have in the last solution.
        """
        ledger = self.ledger
        for position in range(last, len(ledger.tiers)):
            family = ledger.tiers[position].family
            with suppress(Interrupted):
                if family not in LAST:
                    if not problem.large:
                        self._prove(problem, position + 1, rough=True)
                        ledger.reopen()
                    continue
                fixed = problem.small or bool(problem.model.parts) or family != "span"
                for _ in range(2):  # the second time each gang is counted where it is by then
                    problem.tell_apart(family)
                    with self._held(problem, last, position + 1):
                        self._follow_on(problem, position, range(len(problem.latest)))
                        if problem.large and not fixed:
                            self._follow_on(problem, position, [*problem.of_others()])
                        if fixed or self._follow_on(problem, position) or problem.large:
                            break

    def _settle(self, problem: SlotProblem, last: int) -> bool:
        """Find out who may do something else in plans as good in the tiers before ``last``.

        It is known from then on what all others do. Small programs are proven in integers without.
        """
        late, rows = self.budget.used(SHARE), self._kept(problem, last)
        with self._held(problem, last, last) as known:
            if known is None or not problem.latest or problem.large or problem.small:
                return False
            doings, free = problem.doings(problem.latest), set[int]()
            while not late():
                goal = Goal(problem.others(doings, free), maximize=True, keep=rows)
                asked, hint = (problem.program, goal, self.budget), problem.latest
                seconds = self.budget.seconds_left() * SHARE
                found = branch(*asked, nodes=NODES, seconds=seconds, hint=hint, heuristics=False)
                if found.bound <= 0:
                    self._narrowed[last] = problem.settled_on(free, known)
                    return True
                if found.status is not Status.OPTIMAL:
                    break
                other = problem.doings(found.values)
                free |= problem.alike(g for g in doings | other if doings.get(g) != other.get(g))
        return False

    def _follow_on(self, problem: SlotProblem, position: int, held: Sequence[int] = ()) -> bool:
        """Solve a tier with these variables as they are in the last solution; if none, there is a bound.

        Returns False if no plan has what is the best of all. What is held is solved roughly for ``span``.
        """
        ledger, tier, known = self.ledger, self.ledger.tiers[position], problem.latest
        expression = problem.expression(tier)
        if not known or expression is None or self.budget.exhausted():
            return True
        goal = Goal(expression, tier.sense == "max", self._kept(problem, position, known))
        seconds = self.budget.seconds_left() * (SHARE if held else LP_SHARE)
        ask = partial(branch, problem.program, goal, self.budget, nodes=NODES, seconds=seconds)
        with problem.fixed(held, known):
            gap = ROUGH if held and tier.family == "span" else 0.0
            found = ask(hint=known, heuristics=bool(held) or not problem.large, gap=gap)
        if not held and problem.complete and found.bound != goal.trivial_bound(problem.program):
            ledger.searched.add(position)
            ledger.bound(position, found.bound, exact=False)
        if found.values:
            plan = problem.decode(found.values)
            better = ledger.offer(plan, found.values), ledger.offer(self._improved(plan))
            if not any(better):
                problem.latest = known
        best = expression.value(found.values) if found.status is Status.OPTIMAL else None
        return best in (None, ledger.incumbent.values[position])

    def run_once(self) -> None:
        """Solve one tier after the other, and leave them closed: so tolerances are granted once."""
        if self._problem is not None:
            self._prove(self._problem, len(self.ledger.tiers))

    def _prove(
        self,
        problem: SlotProblem,
        last: int,
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
            self._improved,
            rough=rough,
            aside=aside,
            start=problem.latest,
            narrowed=self._narrowed,
            answered=self._answered,
        ).run()

    def aim(self) -> None:
        """Offer the plan of the chain."""
        ledger, problem = self.ledger, self._problem
        if problem is None:
            return
        stated = [
            (position, tier, expression)
            for position, tier in enumerate(ledger.tiers)
            if tier.family not in LAST and (expression := problem.expression(tier)) is not None
        ]
        chain = Chain(problem, stated, self.budget)
        if all(ledger.proven(position) for group in chain.groups for position, _, _ in group):
            return
        if solution := chain.solution():
            plan = problem.decode(solution)
            ledger.offer(plan)
            ledger.offer(self._improved(plan))

    def renew(self, first: int = 0, *, exact: bool = True) -> None:
        """Bound the tiers from this one on by LPs, for plans that keep the earlier ones as they are.

        The last ones come first: of those nothing else has a bound.
        """
        ledger, budget, problem = self.ledger, self.budget, self._problem
        if problem is None or not problem.complete:
            return
        relaxation = Relaxation(problem.program, budget)
        for position in range(len(ledger.tiers) - 1, first - 1, -1):
            tier = ledger.tiers[position]
            expression = problem.expression(tier)
            known = ledger.proven(position) or ledger.known(position) is ledger.bounds[position]
            if expression is None or not expression.terms or known or budget.exhausted():
                continue
            before = first if first and problem.large else position  # an LP that ends in time
            goal = Goal(expression, tier.sense == "max", self._kept(problem, before))
            answer = relaxation.bound(goal, seconds=budget.seconds_left() * LP_SHARE)
            ledger.searched.add(position)
            ledger.bound(position, answer.bound, exact=exact)

    def _kept(
        self, problem: SlotProblem, position: int, known: Sequence[int] = ()
    ) -> tuple[Kept, ...]:
        """Rows that keep the tiers before one as the plan has them; a solution may have less of them."""
        tiers, rows = self.ledger.tiers[:position], list[Kept]()
        expressions = list(map(problem.expression, tiers))
        values = [*known, *[0] * len(problem.program.lower)]
        for p, (tier, one) in enumerate(zip(tiers, expressions, strict=True)):
            if one is not None and one.terms:
                least, largest = self.ledger.required(p), tier.sense == "max"
                if known:
                    least = (min if largest else max)(least, one.value(values))
                rows.append(kept(one, least, maximize=largest))
        return tuple(rows)
