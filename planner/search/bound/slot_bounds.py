"""Plans and bounds from counting slots: every tier is looked at before any larger program is built.

The program is small at any size. Solved for several tiers at once it says who should run and in which
domains, and a plan follows that; solved tier by tier it proves how far the plan is from the best one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from random import Random

from models.instance.solution import GangDecision
from models.program.interruption import Interrupted
from models.program.linear_program import UNBOUNDED, Linear, Program
from models.program.slots.slot_program import SlotModel
from models.program.slots.slot_rooms import Mode
from models.queues.queue_shares import within_guarantee
from models.queues.reservations import due
from models.tiers import Tier
from planner.search.bound.slot_problem import LAST, SlotProblem
from planner.search.bound.tier_search import Narrowed, TierSearch
from planner.search.budget import Budget, Progress
from planner.search.engines.highs import branch
from planner.search.engines.interface import Goal
from planner.search.engines.relaxation import Relaxation
from planner.search.ledger import Ledger

TOGETHER = 5
"""Tiers that are solved as one weighted objective."""

BITS = 8
"""A tier weighs that many times two more than the next one of such an objective."""

RESOLUTION = 60
"""Bits of the weight of the first tier: coefficients of the last ones must not become 0."""

UNAIMED = {"growth", *LAST}
"""Families of tiers that are left to the search tier by tier."""

AIMING_SHARE = 0.25
"""Share of what is left of the budget for one weighted objective."""

AIMING_NODES = 2000
"""Branch-and-bound nodes for one: where it stops short, the tiers are solved one by one all the same."""

SHARE = 0.4
"""Share of the remaining time that one tier may take."""

SHARES = {"span": 0.6}
"""Shares of families of tiers that need more."""

SHORT_OF = 50
"""Plans follow the program if in no tier about who runs they have a 50th less than it promised."""

VARIATIONS = 60
"""Neighbourhoods of a solution that are searched."""

VARYING_NODES = 200
"""Branch-and-bound nodes for one of them."""

VARYING_SHARE = 0.2
"""Share of what is left of the budget for all of them."""

ATTEMPTS = 3
"""Solutions that plans follow at first: of gangs that rules kept from leaving, the next one knows."""

FEW_LPS = 3
"""Branching is tried where so many LPs fit into its time: mostly it ends at the root."""


Stated = tuple[int, Tier, Linear]
"""Position, tier and expression."""

Improvement = Callable[[Sequence[GangDecision]], Sequence[GangDecision]]
"""From a plan to one that is better."""

Kept = tuple[Linear, int, int]
"""Expression, at least, at most."""


class SlotSearch:
    """The search with the slots of one ledger's instance, once they are built.

    ``improved``: a plan that is better where nothing else can be. ``follows``: whether plans follow the
    program: where rules that it leaves out decide who runs, they do not. Without a program, because it
    was not asked for or the budget ended meanwhile, nothing is found.
    """

    def __init__(
        self,
        ledger: Ledger,
        budget: Budget,
        immovable: frozenset[int],
        improved: Improvement,
    ) -> None:
        self._ledger = ledger
        self._budget = budget
        self._immovable = immovable
        self._improved = improved
        self.follows = False
        self._problem: SlotProblem | None = None
        self._narrowed: dict[int, Narrowed] = {}
        self._random = Random(budget.limits.seed)  # noqa: S311  # of neighbourhoods

    def build(self) -> None:
        """Build the program."""
        ledger, budget = self._ledger, self._budget
        with suppress(Interrupted):
            model = SlotModel(
                ledger.instance, self._immovable, cache=ledger.cache, interrupted=budget.exhausted
            )
            self._problem = SlotProblem(model, budget)

    def run(self, progress: Progress) -> None:
        """Solve one tier after the other: for each a bound, and a plan of the solution.

        Those with a gap come first, so that every tier is looked at; what is nearly proven comes last.
        """
        if self._problem is None:
            return
        ledger, problem, tiers = self._ledger, self._problem, self._ledger.tiers
        last = next((p for p, tier in enumerate(tiers) if tier.family in LAST), len(tiers))
        self._prove(problem, progress, last, rough=True)
        ledger.reopen()
        if last < len(tiers) and not self._budget.exhausted():
            with suppress(Interrupted):
                problem.tell_apart()
                if problem.in_parts:  # their geometry decides, everywhere at once
                    self._renew(last)
                else:
                    self._narrow(problem, last)
                self._prove(problem, progress, len(tiers), rough=True)
                ledger.reopen()
                self._narrow(problem, last)
        self._prove(problem, progress, len(tiers))
        ledger.reopen()

    def run_once(self, progress: Progress) -> None:
        """Solve one tier after the other, and leave them closed: so tolerances are granted once."""
        if self._problem is not None:
            self._prove(self._problem, progress, len(self._ledger.tiers))

    def begin(self, progress: Progress, fill: Improvement) -> None:
        """Solve one tier after the other as long as plans, filled up, reach the bounds."""
        ledger = self._ledger
        for position in range(len(ledger.tiers)):
            if self._problem is None or self._budget.exhausted():
                break
            self._prove(self._problem, progress, position + 1, fill)
            if not ledger.proven(position):
                break
        ledger.reopen()

    def _prove(
        self,
        problem: SlotProblem,
        progress: Progress,
        last: int,
        fill: Improvement | None = None,
        *,
        rough: bool = False,
    ) -> None:
        TierSearch(
            problem,
            self._ledger,
            self._budget,
            progress,
            last,
            share=SHARE,
            shares=SHARES,
            fill=fill or self._improved,
            only_better=True,
            lps=FEW_LPS,
            rough=rough,
            narrowed=self._narrowed,
            start=problem.latest,
        ).run()

    def aim(self) -> bool:
        """Offer a plan of weighted objectives: the tiers of one priority together, then the others.

        What LPs promise to all priorities but the lowest is taken for their best at first. Returns whether
        the plan has all that was promised about who runs.
        """
        ledger, problem = self._ledger, self._problem
        if problem is None:
            return False
        known = [one for one in self._stated(problem) if one[1].family not in UNAIMED]
        if all(ledger.proven(position) for position, _, _ in known):
            self.follows = True
            return True
        groups = [
            tiers
            for _, group in groupby(
                known, lambda one: one[1].priority if one[1].row.fused else None
            )
            for tiers in _parts(list(group))
        ]
        running = [tiers for tiers in groups if tiers[0][1].row.fused]
        kept = self._promised(problem, [one for tiers in running[:-1] for one in tiers])
        solution = self._solve(problem, groups[len(running) - 1 :], kept) if running else ()
        if not solution and not self._budget.exhausted():
            solution = self._solve(problem, groups, [])
        held = set[int]()
        for _ in range(ATTEMPTS):
            if not solution:
                break
            plan = problem.decode(solution)
            ledger.offer(plan)
            ledger.offer(self._improved(plan))
            if self._has(running, solution) or self.follows or self._budget.exhausted():
                break
            held |= problem.refused
            problem.hold(held)
            solution = self._solve(problem, groups, [])
        problem.hold(())
        return bool(solution) and self._has(running, solution)

    def _has(self, running: Sequence[Sequence[Stated]], solution: Sequence[int]) -> bool:
        """Whether the plan has all that a solution promised about who runs; says whether it follows."""
        values = self._ledger.incumbent.values
        promised = [(p, one.value(solution)) for tiers in running for p, _, one in tiers]
        self.follows = all(SHORT_OF * values[p] >= (SHORT_OF - 1) * best for p, best in promised)
        return all(values[p] >= best for p, best in promised)

    def _stated(self, problem: SlotProblem) -> list[Stated]:
        """The tiers about which the program says something."""
        return [
            (position, tier, expression)
            for position, tier in enumerate(self._ledger.tiers)
            if (expression := problem.expression(tier)) is not None
        ]

    def _promised(self, problem: SlotProblem, tiers: Sequence[Stated]) -> list[Kept]:
        """Rows that keep these tiers at the bounds of their LPs."""
        relaxation, kept = Relaxation(problem.program, self._budget), list[Kept]()
        for position, tier, expression in tiers:
            if self._ledger.proven(position):
                best = self._ledger.required(position)
            else:
                goal = Goal(expression, tier.sense == "max", tuple(kept))
                best = relaxation.bound(goal, seconds=self._budget.seconds_left()).bound
            kept.append(_kept(tier, expression, best))
        return kept

    def _solve(
        self,
        problem: SlotProblem,
        groups: Sequence[Sequence[Stated]],
        kept: list[Kept],
    ) -> tuple[int, ...]:
        """A solution for one group after the other; () if there is none."""
        solution: tuple[int, ...] = ()
        for tiers in groups:
            if self._budget.exhausted():
                break
            goal = Goal(_weighted(problem.program, tiers), maximize=True, keep=tuple(kept))
            seconds = self._budget.seconds_left() * AIMING_SHARE
            with problem.without(self._idle(problem, tiers[0][1], solution)):
                solution = self._branched(problem, goal, seconds, solution) or solution
            if not solution:
                break
            kept += [_kept(tier, one, one.value(solution)) for _, tier, one in tiers]
        return solution

    def _branched(
        self, problem: SlotProblem, goal: Goal, seconds: float, hint: tuple[int, ...]
    ) -> tuple[int, ...]:
        """A solution for a goal, () for none: at first one in which what its LP settles stays so."""
        relaxed = Relaxation(problem.program, self._budget).bound(goal, seconds=seconds)
        settled: list[int] = []
        if relaxed.values is not None and relaxed.proof is not None:
            settled = problem.settled(relaxed.values, relaxed.proof, hint)
        values = tuple(map(round, relaxed.values or ()))
        for held in (settled, ()):
            if self._budget.exhausted():
                break
            with problem.fixed(held, values):
                found = branch(
                    problem.program,
                    goal,
                    self._budget,
                    nodes=AIMING_NODES,
                    seconds=seconds,
                    hint=hint,
                )
            if found.values:
                return found.values
        return ()

    def _idle(
        self, problem: SlotProblem, tier: Tier, solution: Sequence[int]
    ) -> Callable[[Mode], bool]:
        """Whether a gang that waits may go on waiting as far as this tier goes, and those of its group.

        Those of lower priority only take room, unless they have to start, or are within a guarantee, for
        which earlier tiers ask; once it is settled who runs, nobody else needs any.
        """
        instance = self._ledger.instance
        gangs, promised, starting = instance.gangs, tier.family != "guarantee", due(instance)
        running = problem.running(solution) if solution else set(range(len(gangs)))

        def idle(mode: Mode) -> bool:
            gang = gangs[mode.option.demand.gang]
            if gang.running:
                return False
            if tier.row.fused:
                lower = gang.priority < (tier.priority or 0) and gang.key not in starting
                return lower and not (promised and within_guarantee(instance, gang))
            return mode.option.demand.gang not in running

        return idle

    def _narrow(self, problem: SlotProblem, last: int) -> None:
        """Offer plans of the last solution: who is where in it, then others move, gangs start elsewhere."""
        latest = problem.latest
        stated = self._stated(problem)
        own = [one for one in stated if one[0] == last]
        kept = [_kept(tier, one, self._ledger.required(p)) for p, tier, one in stated if p < last]
        if (
            self._ledger.proven(last)
            or not own
            or not latest
            or any(not _holds(row, latest) for row in kept)
        ):
            return
        _, tier, expression = own[0]
        goal = Goal(expression, tier.sense == "max", tuple(kept))
        solution = self._again(problem, goal, range(len(latest)), latest)
        if solution:
            solution = self._vary(problem, goal, solution)
            plan = problem.decode(solution)
            self._ledger.offer(plan, solution)
            self._ledger.offer(self._improved(plan))

    def _vary(self, problem: SlotProblem, goal: Goal, solution: tuple[int, ...]) -> tuple[int, ...]:
        """A better solution, from solving for some domains at a time, with all else as it is."""
        over = self._budget.used(VARYING_SHARE)
        for _ in range(VARIATIONS):
            if over() or self._budget.exhausted():
                break
            held = problem.neighbourhood(solution, self._random)
            solution = self._again(problem, goal, held, solution) or solution
        return solution

    def _again(
        self, problem: SlotProblem, goal: Goal, held: Iterable[int], values: tuple[int, ...]
    ) -> tuple[int, ...]:
        """A solution that has these variables as they are, () if none is found."""
        seconds = self._budget.seconds_left() * VARYING_SHARE / 2
        hint = values if len(values) == len(problem.program.lower) else ()
        with problem.fixed(held, values):
            return branch(
                problem.program,
                goal,
                self._budget,
                nodes=VARYING_NODES,
                seconds=seconds,
                hint=hint,
            ).values

    def renew(self) -> None:
        """Bound all tiers again: a bound holds only for plans that keep the earlier tiers."""
        with suppress(Interrupted):
            self._renew()

    def _renew(self, first: int = 0) -> None:
        ledger, budget, problem = self._ledger, self._budget, self._problem
        if problem is None or not problem.complete:
            return
        relaxation, kept = Relaxation(problem.program, budget), list[Kept]()
        for position, tier in enumerate(ledger.tiers):
            expression = problem.expression(tier)
            if expression is None or not expression.terms:
                continue
            if budget.exhausted():
                return
            if position >= first and not ledger.proven(position):
                goal = Goal(expression, tier.sense == "max", tuple(kept))
                answer = relaxation.bound(goal, seconds=budget.seconds_left())
                ledger.searched.add(position)
                ledger.bound(position, answer.bound, exact=True)
            kept.append(_kept(tier, expression, ledger.required(position)))


def _kept(tier: Tier, expression: Linear, value: int) -> Kept:
    """The row that keeps a tier as good as this."""
    limits = (value, UNBOUNDED) if tier.sense == "max" else (-UNBOUNDED, value)
    return expression, *limits


def _holds(row: Kept, values: Sequence[int]) -> bool:
    """Whether a solution keeps a tier as good as the row asks."""
    expression, least, most = row
    return least <= expression.value(values) <= most


def _parts(tiers: list[Stated]) -> Iterator[list[Stated]]:
    """At most TOGETHER of them at a time."""
    for first in range(0, len(tiers), TOGETHER):
        yield tiers[first : first + TOGETHER]


def _weighted(program: Program, tiers: Sequence[Stated]) -> Linear:
    """An objective to maximise in which a tier's range weighs far more than those of the tiers after it."""
    total = Linear()
    for place, (_, tier, expression) in enumerate(tiers):
        extent = program.bound_above(expression) - program.bound_below(expression)
        weight = (1 if tier.sense == "max" else -1) * (1 << RESOLUTION - BITS * place)
        for variable, coefficient in expression.terms.items():
            total.add(variable, coefficient * weight // max(1, extent))
    return total
