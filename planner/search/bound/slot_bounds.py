"""Plans and bounds from counting slots: every tier is looked at before any larger program is built.

The program is small at any size. Solved for several tiers at once it says who should run and in which
domains, and a plan follows that; solved tier by tier it proves how far the plan is from the best one.

A chain is one solution, decided priority by priority from above. For each priority the ways that its gangs
may have are whole, all else is continuous, and its tiers are one weighted objective. Then it is fixed who of
them runs, and how fast: not in which way, since counts that are not whole yet may leave no room for that one.
At the end all is whole, for the tiers about placements.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from math import ceil

import numpy as np

from models.instance.solution import GangDecision
from models.program.linear_program import Interrupted, Linear, Program
from models.program.slots.slot_program import SlotModel
from models.program.slots.slot_rooms import Mode
from models.program.tier_expressions import FREE_SPACE
from models.queues.queue_shares import within_guarantee
from models.queues.reservations import due
from models.tiers import Tier
from planner.search.bound.tier_search import (
    NEAR,
    SHARE,
    Improvement,
    Narrowed,
    OpenGoals,
    TierSearch,
)
from planner.search.budget import Budget, NullProgress, Progress
from planner.search.engines.highs import branch, branch_on
from planner.search.engines.interface import Goal, Kept, kept
from planner.search.engines.portfolio import INTEGRAL
from planner.search.engines.relaxation import DualProof, Relaxation, RelaxedAnswer
from planner.search.improve.exchange import justified
from planner.search.improve.repair import back_in_place, needless_undone
from planner.search.ledger import Ledger
from planner.search.start.homes import settle_in

LAST = {"span", *FREE_SPACE}
"""Tiers for which more is told apart, once those before them are solved."""

BITS = 8
"""A tier weighs that many times two more than the next one of a weighted objective."""

RESOLUTION = 60
"""Bits of the weight of the first tier: coefficients of the last ones must not become 0."""

NODES = 2000
"""Branch-and-bound nodes for one: where it stops short, the tiers are still solved one by one."""

Stated = tuple[int, Tier, Linear]
"""Position, tier and expression."""

SHORT_OF = 50
"""Plans follow the program if in no tier about who runs they have a 50th less than it promised."""


class SlotProblem:
    """The slots as a program whose assignments are followed by plans; see ``tier_search.Problem``.

    ``latest``: the last assignment that a plan followed.
    """

    def __init__(self, model: SlotModel, budget: Budget) -> None:
        self.program: Program = model.program
        self.complete = model.complete
        self.covers_admission = model.covers_admission
        self.model = model
        self._budget = budget
        self._expressions: dict[str, Linear | None] = {}
        self.latest: tuple[int, ...] = ()
        self._followed: tuple[object, tuple[GangDecision, ...]] = (None, ())

    def expression(self, tier: Tier) -> Linear | None:
        if tier.name not in self._expressions:
            self._expressions[tier.name] = self.model.expression(tier)
        return self._expressions[tier.name]

    @contextmanager
    def without(self, closed: Callable[[Mode], bool]) -> Iterator[None]:
        """No gang has a mode of which this is so, or stops for an idle node."""
        with self._own_ranges():
            gone = [mode.variable for mode in self.model.modes if closed(mode)]
            for variable in (*gone, *self.model.spares.emptied):
                self.program.upper[variable] = 0
            yield

    @contextmanager
    def fixed(self, variables: Iterable[int], values: Sequence[int]) -> Iterator[None]:
        """These variables are as in a solution."""
        with self._own_ranges():
            for variable in variables:
                self.program.fix(variable, values[variable])
            yield

    @contextmanager
    def narrowed(self, proof: DualProof, value: int) -> Iterator[None]:
        """Only what an objective at least as good as a value allows."""
        with self._own_ranges():
            proof.tighten(self.program, value)
            yield

    @contextmanager
    def _own_ranges(self) -> Iterator[None]:
        """What is changed of the ranges of variables is so meanwhile."""
        ranges = self.program.lower, self.program.upper
        self.program.lower, self.program.upper = list(ranges[0]), list(ranges[1])
        try:
            yield
        finally:
            self.program.lower, self.program.upper = ranges

    def _unchanged(self, mode: Mode) -> bool:
        """Whether a gang that runs stays as it is."""
        demand = mode.option.demand
        pods = self.model.instance.gangs[demand.gang].running_pods
        return bool(pods) and not demand.roles and len(demand.stays) == len(pods)

    def settled(self, values: Sequence[float], proof: DualProof, known: Sequence[int]) -> list[int]:
        """Ways that cost something in an LP, and who stays in it, where a known solution, if any, agrees."""
        relaxed = np.array(values)
        nearest = np.rint(relaxed)
        agreed = np.abs(relaxed - nearest) < INTEGRAL
        if known:
            agreed &= nearest == np.array(known)
        return [
            mode.variable
            for mode in self.model.modes
            if agreed[mode.variable]
            and (
                self._unchanged(mode)
                if nearest[mode.variable]
                else proof.reduced[mode.variable] != 0
            )
        ]

    def other_ways(self, values: Sequence[int], expressions: Sequence[Linear]) -> list[int]:
        """Ways that would change an expression if gangs had them in place of what a solution gives them."""
        worth: dict[int, tuple[int, ...]] = {}
        chosen: dict[int, tuple[int, ...]] = {}
        none = (0,) * len(expressions)
        for mode in self.model.modes:
            variable = mode.variable
            own = worth[variable] = tuple(one.terms.get(variable, 0) for one in expressions)
            if own != none and values[variable]:
                chosen[mode.option.demand.gang] = own
        return [
            mode.variable
            for mode in self.model.modes
            if (own := worth[mode.variable]) != none
            and own != chosen.get(mode.option.demand.gang, none)
        ]

    def running(self, values: Sequence[int]) -> set[int]:
        """The gangs that run in a solution."""
        return {m.option.demand.gang for m in self.model.modes if values[m.variable]}

    def tell_apart(self, family: str) -> None:
        """Tell apart what tiers in LAST count, for a search to come."""
        self._expressions.pop(family, None)
        self.program.interrupted = self._budget.exhausted
        self.model.tell_apart(family, self.running(self.latest) if self.latest else ())

    @property
    def ways(self) -> list[int]:
        """The variables of ways of gangs."""
        return [mode.variable for mode in self.model.modes]

    @property
    def firm_ways(self) -> list[int]:
        """Those of gangs that do not grow."""
        gangs, modes = self.model.instance.gangs, self.model.modes
        return [mode.variable for mode in modes if not gangs[mode.option.demand.gang].elastic]

    def decode(self, values: Sequence[int]) -> tuple[GangDecision, ...]:
        self.latest = tuple(values)
        asked = self.latest, self._budget.exhausted()
        if self._followed[0] != asked:
            found, homeless = settle_in(self.model, values, self._budget)
            own = justified(self.model.instance, found, self._budget.exhausted)
            plan = back_in_place(self.model.instance, own, sorted(homeless))
            self._followed = asked, needless_undone(self.model.instance, plan)
        return self._followed[1]


class Chain:
    """The tiers of one program in groups: those of a priority, and those between priorities or after them."""

    def __init__(self, problem: SlotProblem, stated: Sequence[Stated], budget: Budget) -> None:
        self._problem = problem
        self._budget = budget
        parts = groupby(stated, lambda one: one[1].priority if one[1].row.fused else None)
        self.groups = [list(group) for _, group in parts]

    def solution(self) -> tuple[int, ...]:
        """The values of all variables, () if none are found.

        Where no whole counts follow what was decided without them, all is whole from the beginning.
        """
        return self._decide(partly=True) or self._decide(partly=False)

    def _decide(self, *, partly: bool) -> tuple[int, ...]:
        problem, keep, closed = self._problem, list[Kept](), list[int]()
        values: tuple[int, ...] = ()
        last = max((n for n, own in enumerate(self.groups) if own[0][1].row.fused), default=-1)
        for number, tiers in enumerate(self.groups):
            if self._budget.exhausted():
                return ()
            expressions = [one for _, _, one in tiers]
            goal = Goal(_weighted(problem.program, tiers), maximize=True, keep=tuple(keep))
            with (
                problem.without(self._idle(tiers[0][1], values)),
                problem.fixed(closed, [0] * len(problem.program.lower)),
            ):
                if partly and number < last:
                    values = self._ways(goal, tiers)
                    closed += problem.other_ways(values, expressions) if values else []
                else:
                    values = self._counts(goal, values if number > last else ())
            if not values:
                return ()
            keep += [
                kept(one, one.value(values), maximize=tier.sense == "max") for _, tier, one in tiers
            ]
        return values

    def _ways(self, goal: Goal, tiers: Sequence[Stated]) -> tuple[int, ...]:
        """Values for a goal of which those in its tiers are whole, and the others rounded up.

        If they are whole in the LP, that is the best. Otherwise what costs something in it is left out at
        first; where that is far from the LP, it shows what may be left out without a loss.
        """
        whole = set[int]().union(*(one.terms for _, _, one in tiers))
        relaxed, values = self._relaxed(goal), tuple[int, ...]()
        found = relaxed.values
        if found and all(abs(found[one] - round(found[one])) < INTEGRAL for one in whole):
            return _rounded_up(found)
        for held, nearest in self._settled(relaxed, ()):
            with self._problem.fixed(held, nearest):
                values = self._branched(goal, whole)
            if values:
                break
        if values and found and relaxed.proof is not None and _is_far(tiers, values, found):
            with self._problem.narrowed(relaxed.proof, goal.objective.value(values)):
                values = max(
                    values, self._branched(goal, whole) or values, key=goal.objective.value
                )
        return values

    def _branched(self, goal: Goal, whole: Collection[int]) -> tuple[int, ...]:
        problem, seconds = self._problem, self._budget.seconds_left() * SHARE
        return _rounded_up(
            branch_on(problem.program, goal, self._budget, whole, nodes=NODES, seconds=seconds)
        )

    def _counts(self, goal: Goal, known: tuple[int, ...]) -> tuple[int, ...]:
        """Whole values for a goal, with a solution that is ``known`` at first some near the LP's."""
        asked = self._problem.program, goal, self._budget
        near = self._settled(self._relaxed(goal), known) if known else [((), ())]
        for held, nearest in near:
            with self._problem.fixed(held, nearest):
                seconds = self._budget.seconds_left() * SHARE
                found = branch(*asked, nodes=NODES, seconds=seconds, hint=known)
            if found.values:
                return found.values
        return ()

    def _relaxed(self, goal: Goal) -> RelaxedAnswer:
        seconds = self._budget.seconds_left() * SHARE
        return Relaxation(self._problem.program, self._budget).bound(goal, seconds=seconds)

    def _settled(
        self, relaxed: RelaxedAnswer, known: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
        """(variables that stay as they are in an LP, its values rounded); in the end none."""
        if relaxed.values is not None and relaxed.proof is not None:
            settled = self._problem.settled(relaxed.values, relaxed.proof, known)
            yield settled, tuple(map(round, relaxed.values))
        if not self._budget.exhausted():
            yield (), ()

    def _idle(self, tier: Tier, solution: Sequence[int]) -> Callable[[Mode], bool]:
        """Whether a gang that waits may go on waiting as far as this tier goes, and those of its group.

        Those of lower priority only take room, unless they have to start, or are within a guarantee, for
        which earlier tiers ask; once it is settled who runs, nobody else needs any.
        """
        instance = self._problem.model.instance
        gangs, promised, starting = instance.gangs, tier.family != "guarantee", due(instance)
        running = self._problem.running(solution) if solution else set(range(len(instance.gangs)))

        def idle(mode: Mode) -> bool:
            gang = gangs[mode.option.demand.gang]
            if gang.running:
                return False
            if tier.row.fused:
                lower = gang.priority < (tier.priority or 0) and gang.key not in starting
                return lower and not (promised and within_guarantee(instance, gang))
            return mode.option.demand.gang not in running

        return idle


def _is_far(tiers: Sequence[Stated], values: Sequence[int], relaxed: Sequence[float]) -> bool:
    """Whether the first tier in which a solution differs from the LP's is more than NEAR from it."""
    for _, _, expression in tiers:
        value = expression.value(values)
        best = sum(relaxed[one] * factor for one, factor in expression.terms.items())
        best += expression.constant
        if abs(best - value) > INTEGRAL * max(1, abs(value)):
            return abs(best - value) * NEAR > abs(value)
    return False


def _rounded_up(values: Iterable[float]) -> tuple[int, ...]:
    return tuple(ceil(one - INTEGRAL) for one in values)


def _weighted(program: Program, tiers: Sequence[Stated]) -> Linear:
    """An objective to maximise in which a tier's range weighs far more than those of the tiers after it."""
    total = Linear()
    for place, (_, tier, expression) in enumerate(tiers):
        extent = program.bound_above(expression) - program.bound_below(expression)
        weight = (1 if tier.sense == "max" else -1) * (1 << RESOLUTION - BITS * place)
        for variable, coefficient in expression.terms.items():
            total.add(variable, coefficient * weight // max(1, extent))
    return total


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
    _answered: dict[int, tuple[tuple[int, ...], bool]] = field(default_factory=dict)
    follows: bool = False

    def build(self) -> None:
        ledger, budget = self.ledger, self.budget
        with suppress(Interrupted):
            model = SlotModel(ledger.instance, self.immovable, interrupted=budget.exhausted)
            self._problem = SlotProblem(model, budget)

    def run(self) -> None:
        """Solve one tier after the other: for each a bound, and a plan of the solution.

        LPs of all come first, so that every tier is looked at, and what they leave open is answered beside
        them; what is nearly proven comes next where that took little, or else last.
        """
        ledger, problem, tiers = self.ledger, self._problem, self.ledger.tiers
        if problem is None:
            return
        last = next((p for p, tier in enumerate(tiers) if tier.family in LAST), len(tiers))
        late = self.budget.used(SHARE)
        with closing(OpenGoals(self.budget)) as goals:
            self._prove(problem, last, rough=True, aside=goals)
            ledger.reopen()
            self.renew(last)
            stayed = goals.conclude()
        ledger.reopen()
        if not stayed:
            self._answered.clear()  # of equal solutions plans follow one better than another
            for position in range(last):
                if tiers[position].family == "growth" and not ledger.proven(position):
                    self._follow_on(problem, position, problem.firm_ways)
                    self._answered[position] = ledger.incumbent.values[:position], False
            self._prove(problem, last, rough=True)
            ledger.reopen()
        if not late():
            self._prove(problem, last)
            ledger.reopen()
        with closing(OpenGoals(self.budget)) as goals:
            for position in range(last, len(tiers)):
                if self.budget.exhausted():
                    break
                with suppress(Interrupted):
                    self._tell_apart(problem, position)
                    if not problem.model.parts:  # their geometry decides, everywhere at once
                        self._prove(problem, position + 1, rough=True, aside=goals)
                        ledger.reopen()
            goals.conclude()
        ledger.reopen()
        self._prove(problem, len(tiers))
        ledger.reopen()

    def _tell_apart(self, problem: SlotProblem, position: int) -> None:
        """Tell apart what a tier counts, and give gangs the ways of the last solution at first."""
        if self.ledger.tiers[position].family in LAST:
            problem.tell_apart(self.ledger.tiers[position].family)
            self.renew(position)
            self._follow_on(problem, position, range(len(problem.latest)), problem.ways)

    def _follow_on(self, problem: SlotProblem, position: int, *held: Sequence[int]) -> None:
        """Solve a tier with these variables as they are in the last solution, and then with others."""
        ledger, tier, known = self.ledger, self.ledger.tiers[position], problem.latest
        expression = problem.expression(tier)
        if not known or expression is None or self.budget.exhausted():
            return
        goal = Goal(expression, tier.sense == "max", self._kept(problem, position, known))
        asked, hint = (problem.program, goal, self.budget), tuple[int, ...]()
        for variables in held:
            with problem.fixed(variables, known):
                seconds = self.budget.seconds_left() * SHARE
                found = branch(*asked, nodes=NODES, seconds=seconds, hint=hint)
            if hint := found.values or hint:
                ledger.offer(problem.decode(hint), hint)

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
            answered=self._answered,
        ).run()

    def aim(self) -> None:
        """Offer the plan of the chain; see whether it has what was promised about who runs."""
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
            self.follows = True
            return
        solution = chain.solution()
        if not solution:
            return
        plan = problem.decode(solution)
        ledger.offer(plan)
        ledger.offer(self._improved(plan))
        running = (one for own in chain.groups if own[0][1].row.fused for one in own)
        promised = [(p, one.value(solution)) for p, _, one in running]
        values = ledger.incumbent.values
        self.follows = all(SHORT_OF * values[p] >= (SHORT_OF - 1) * best for p, best in promised)

    def renew(self, first: int = 0) -> None:
        """Bound the tiers from this one on by LPs, for plans that keep the earlier ones as they are."""
        ledger, budget, problem = self.ledger, self.budget, self._problem
        if problem is None or not problem.complete:
            return
        relaxation = Relaxation(problem.program, budget)
        for position, tier in enumerate(ledger.tiers[first:], first):
            expression = problem.expression(tier)
            if expression is None or not expression.terms or ledger.proven(position):
                continue
            if budget.exhausted():
                return
            goal = Goal(expression, tier.sense == "max", self._kept(problem, position))
            answer = relaxation.bound(goal, seconds=budget.seconds_left() * SHARE)
            ledger.searched.add(position)
            ledger.bound(position, answer.bound, exact=True)

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
