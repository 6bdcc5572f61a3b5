"""The search over one program, tier by tier, exact as far as the budget goes.

Every tier is closed with a bound that holds for all plans that keep the earlier tiers. It works on
the full formulation and on the slots.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from operator import ge
from typing import Protocol

from models.instance.solution import GangDecision
from models.program.linear_program import Linear, Program
from models.tiers import Tier, larger_is_better, sign
from planner.search.budget import Budget, Progress
from planner.search.engines.interface import Answer, Goal, Status, kept
from planner.search.engines.portfolio import CLOCK_SHARE, solve_goal
from planner.search.engines.relaxation import DualProof, Relaxation, RelaxedAnswer, range_proof
from planner.search.improve.rearranging import settle
from planner.search.ledger import Ledger

ADMISSION_SHARE = 0.35
"""Share of the remaining time and effort that one admission goal may take."""

LAST_SHARE = 0.8
"""Share of the remaining time of the last tier: nothing comes after it."""

LP_SHARE = 0.5
"""Share of the remaining time of one LP, or of what is asked beside LPs: one that ends late says nothing."""

NEAR = 200
"""A bound is near if it is a 200th of the value away, or less."""

RUNNING_SUBJECTS = {"admission", "disruption"}
"""Subjects of tiers that get that share: a poor plan starts too little, or stops gangs needlessly."""

SHARE = 0.3
"""Share of the remaining time that one tier of the slots may take."""

Improvement = Callable[[Sequence[GangDecision]], Sequence[GangDecision]]
"""From a plan to one that is better."""

Question = Callable[[Program, Budget], Answer]
"""Asks an engine about a program, within a budget."""

Accept = Callable[[Answer], bool]
"""Takes over an answer; returns whether the plan stays as it is."""


class OpenGoals:
    """What LPs leave open, asked in ``beside`` threads, one less than there are workers, beside other LPs.

    A goal is stated as soon as its LP is there, with the ranges that are known by then, and answers are
    taken over in order: what comes out does not depend on which of two cores is faster. Of those that wait,
    the one comes next whose LP is nearest: it is most likely to be answered in time.
    """

    def __init__(self, budget: Budget, late: Callable[[], bool]) -> None:
        """``late``: whether it is too late for other plans, and answers are bounds only."""
        self._budget, self.late = budget, late
        self.beside = budget.limits.workers - 1
        self._pool = ThreadPoolExecutor(max(1, self.beside), thread_name_prefix="open goal")
        self._asked: list[tuple[Callable[[], Answer], Future[Answer], Accept, Budget, float]] = []
        self._waiting: list[tuple[float, int]] = []

    def close(self) -> None:
        """Wait for the threads; what they have not begun is not answered."""
        self._pool.shutdown(cancel_futures=True)

    def add(self, program: Program, question: Question, accept: Accept, gap: float) -> None:
        """Ask about the program as it is now. ``gap``: what the LP leaves open, relative."""
        now = copy.copy(program)
        now.lower, now.upper, now.rows = [*program.lower], [*program.upper], [*program.rows]
        spent = replace(self._budget, calls=0)
        ask = partial(question, now, spent)
        self._asked.append((ask, Future[Answer](), accept, spent, spent.effort))
        heappush(self._waiting, (gap, len(self._asked) - 1))
        if self.beside:
            self._pool.submit(self._answer_nearest)

    def _answer_nearest(self) -> bool:
        """Answer one of those that wait; returns whether there was one."""
        try:
            _, number = heappop(self._waiting)
        except IndexError:
            return False
        ask, own, *_ = self._asked[number]
        try:
            own.set_result(ask())
        except BaseException as error:  # noqa: BLE001  # raised again by who concludes
            own.set_exception(error)
        return True

    def conclude(self) -> bool:
        """Take over the answers in their order; returns whether the plan stayed as it was.

        What no thread has begun yet is asked here, as long as the budget lasts.
        """
        budget, stayed = self._budget, True
        while not budget.exhausted() and self._answer_nearest():
            pass
        unasked, self._waiting = self._waiting, []
        for number in sorted({*range(len(self._asked))} - {number for _, number in unasked}):
            _, own, accept, spent, before = self._asked[number]
            found = own.result()
            budget.spend(spent.effort - before, spent.calls)
            budget.clocked |= spent.clocked
            stayed &= accept(found)
        return stayed


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Ranges of the variables in all plans that are at least as good as ``values`` in the first tiers.

    ``settled``: whether they say who runs, as engines proved in floating point.
    """

    values: tuple[int, ...]
    lower: list[int]
    upper: list[int]
    settled: bool = False

    def hold(self, program: Program) -> None:
        """Leave the variables of a program no more than these ranges."""
        program.lower[: len(self.lower)] = map(max, program.lower, self.lower)
        program.upper[: len(self.upper)] = map(min, program.upper, self.upper)


class Problem(Protocol):
    """A program whose assignments are plans. ``complete``: every plan is one of its assignments.

    ``covers_admission``: every plan is one as far as the running gangs go. ``expression``: None of a tier
    about which the program says nothing.
    """

    program: Program
    complete: bool
    covers_admission: bool

    def expression(self, tier: Tier) -> Linear | None: ...

    def decode(self, values: Sequence[int]) -> tuple[GangDecision, ...]: ...


@dataclass
class TierSearch:
    """Search the tiers of a ledger from the first open one to ``last`` (exclusive).

    ``fill``: of the slots, adds to a plan what fits beside it; CP-SAT confirms nothing there, and no
    plan is made of an assignment that is only as good as the incumbent. None of a full program. ``rough``:
    a tier is closed with the bound of its LP if that is NEAR; with ``aside`` in any case, and what is
    further is left to that. ``start``: a solution to begin with. ``narrowed``: by the number of tiers, what
    earlier searches of the program found out, to which this one adds; ``answered``: by position, the values
    of the tiers before it with which it was asked about in the slots, and whether the optimum is known.
    """

    problem: Problem
    ledger: Ledger
    budget: Budget
    progress: Progress
    last: int
    fill: Improvement | None = None
    rough: bool = False
    aside: OpenGoals | None = None
    start: tuple[int, ...] = ()
    narrowed: dict[int, Narrowed] = field(default_factory=dict)
    answered: dict[int, tuple[tuple[int, ...], bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        program = self.problem.program
        self._relaxation = Relaxation(program, self.budget)
        self._expressions: list[Linear] = []
        self._silent: set[int] = set()
        self._tops: list[int] = []
        self._settled = False
        self._ranges = list(program.lower), list(program.upper)
        self._express()

    def run(self) -> None:
        """Solve every tier within the budget.

        The program has the ranges of every plan again afterwards: what was narrowed for a tier holds for
        later tiers only.
        """
        program = self.problem.program
        program.lower, program.upper = list(self._ranges[0]), list(self._ranges[1])
        self._relaxation = Relaxation(program, self.budget)
        try:
            self._solve_all()
        finally:
            program.lower, program.upper = list(self._ranges[0]), list(self._ranges[1])

    def _solve_all(self) -> None:
        ledger, program = self.ledger, self.problem.program
        while ledger.closed < self.last:
            position = ledger.closed
            skipped = self._is_known(position) and not self._tightens(position)
            if not skipped:
                self._express()
            if not (skipped or position in self._silent or self.budget.exhausted()):
                proof = self._solve(position)
                if proof is not None and not ledger.tiers[position].tolerance:
                    proof.tighten(program, self._value(position))
            self._close()
            self._recall()

    def _recall(self) -> None:
        """Use what was found out about the closed tiers, and leave it to later searches."""
        program, closed = self.problem.program, self.ledger.closed
        tiers, values = self.ledger.tiers[:closed], self.ledger.incumbent.values[:closed]
        known, now = self.narrowed.get(closed), larger_is_better(tiers, values)
        if known is not None and all(map(ge, now, larger_is_better(tiers, known.values))):
            known.hold(program)
            self._settled |= known.settled
        own = list(program.lower), list(program.upper)
        self.narrowed[closed] = Narrowed(values, *own, self._settled)

    def _is_known(self, position: int) -> bool:
        """Whether a tier is proven, or nearly if no more is asked for and an engine was."""
        known, value = self.ledger.known(position).value, self.ledger.incumbent.values[position]
        near = self.rough and position in self.ledger.searched
        return known == value or (near and abs(known - value) * NEAR <= abs(value))

    def _tightens(self, position: int) -> bool:
        """Whether an LP of a tier that is proven already is worth what it tells the tiers to come."""
        if self.budget.exhausted() or self._open_until() <= position:
            return False
        return self.fill is None or self._relaxation.solved

    def _open_until(self) -> int:
        """The number of tiers up to the last one that is not proven."""
        ledger = self.ledger
        unproven = (p for p in range(self.last - 1, ledger.closed - 1, -1) if not ledger.proven(p))
        return next(unproven, -1) + 1

    def _express(self) -> None:
        """The expressions up to the last open tier; what they imply holds for every plan.

        Tiers whose value is implied have none: nothing asks for them, and no later tier does.
        """
        program, ledger = self.problem.program, self.ledger
        first, last = len(self._expressions), self._open_until()
        if last <= first:
            return
        tightened = program.lower, program.upper
        program.lower, program.upper = self._ranges
        for position, expression in enumerate(
            map(self.problem.expression, ledger.tiers[first:last]), first
        ):
            self._expressions.append(expression or Linear())
            if expression is None:
                self._silent.add(position)
        self._tops += map(self._top, range(first, last))
        known = len(tightened[0])
        program.lower = [*tightened[0], *self._ranges[0][known:]]
        program.upper = [*tightened[1], *self._ranges[1][known:]]
        for position in {*range(max(first, ledger.closed), last)} - self._silent:
            ledger.bound(position, self._tops[position], exact=True, always=True)

    def _top(self, position: int) -> int:
        """The best value that the bounds of the variables allow."""
        program, expression = self.problem.program, self._expressions[position]
        if self.ledger.tiers[position].sense == "max":
            return program.bound_above(expression)
        return max(0, program.bound_below(expression))

    def _close(self) -> None:
        position = self.ledger.closed
        value, known = self.ledger.incumbent.values[position], self.ledger.known(position)
        self.ledger.close()
        bound = None if known.proof is None else known.value
        self.progress.update(self.ledger.tiers[position].name, value, bound)

    def _goal(self, position: int) -> Goal:
        """The tier as an objective, with rows that keep those before it."""
        ledger = self.ledger
        largest = [tier.sense == "max" for tier in ledger.tiers]
        rows = (
            kept(self._expressions[p], ledger.required(p), maximize=largest[p])
            for p in range(position)
            if self._expressions[p].terms
        )
        return Goal(self._expressions[position], largest[position], tuple(rows))

    def _solve(self, position: int) -> DualProof | None:
        """Ask the LP, then engines for what it leaves open. Returns what narrows ranges."""
        ledger, program = self.ledger, self.problem.program
        goal, value = self._goal(position), self._value(position)
        implied = range_proof(program, goal)
        if implied.sign * implied.bound <= implied.sign * value:  # no solver finds more
            self._adopt(position, Answer(Status.INFEASIBLE, (), value, exact=True))
            return implied
        share = self._share_of_time(position)
        relaxed = self._relax(position, goal, share)
        ledger.searched.add(position)
        if ledger.proven(position):
            return relaxed.proof
        near = self.rough and abs(relaxed.bound - value) * NEAR <= abs(value)
        if near or self.aside is not None:
            self._adopt(position, Answer(Status.UNKNOWN, (), relaxed.bound, exact=True))
        if not near and not self._is_answered(position):
            if self.aside is None:
                question = self._question(position, goal, relaxed.bound, share)
                self._conclude(position, question(program, self.budget))
            else:
                question = self._question(position, goal, relaxed.bound, max(share, LP_SHARE))
                gap = abs(relaxed.bound - value) / max(1, abs(value))
                self.aside.add(program, question, self._accepting(position, self.aside), gap)
                self.answered[position] = self.ledger.incumbent.values[:position], False
        return relaxed.proof

    def _accepting(self, position: int, aside: OpenGoals) -> Accept:
        """Takes over an answer that comes later; its bound where the plan kept what was asked for."""
        ledger, then = self.ledger, self.ledger.incumbent.values
        tiers, late = ledger.tiers[:position], aside.late

        def accept(answer: Answer) -> bool:
            now = ledger.incumbent.values
            if late():  # there is no time for the tiers that come after it
                answer = replace(answer, values=())
            least, have = (larger_is_better(tiers, own[:position]) for own in (then, now))
            ledger.reopen()
            ledger.close_all(position)
            if now[: position + 1] == then[: position + 1]:
                self._conclude(position, answer)
            elif answer.status is not Status.INFEASIBLE and all(map(ge, have, least)):
                self._adopt(position, replace(answer, values=()))
            return ledger.incumbent.values[: self.last] == now[: self.last]

        return accept

    def _relax(self, position: int, goal: Goal, share: float) -> RelaxedAnswer:
        """The LP's answer; on the slots the bound that an engine has found, as long as it holds."""
        known = self.ledger.known(position)
        if self.fill is not None and known is self.ledger.bounds[position]:
            return RelaxedAnswer(known.value, None)
        seconds = self.budget.seconds_left() * max(share, LP_SHARE)
        return self._relaxation.bound(goal, seconds=seconds)

    def _question(self, position: int, goal: Goal, relaxed: int, share: float) -> Question:
        """Asks the engines; those of ``aside`` for a proof only."""
        left, known = self.budget.effort_left(), len(self.problem.program.lower)
        hints = (own for own in (self.ledger.incumbent.assignment, self.start) if len(own) == known)
        return partial(
            solve_goal,
            goal=goal,
            effort=left if position == len(self.ledger.tiers) - 1 else left / 2,
            incumbent=self._value(position),
            relaxed=relaxed,
            share=share,
            exact=self.fill is None,
            hint=next(hints, ()),
            heuristics=self.aside is None,
        )

    def _conclude(self, position: int, answer: Answer) -> None:
        """Take over what an answer has for the plan and for the bounds."""
        solved = answer.status in (Status.OPTIMAL, Status.INFEASIBLE)
        self.answered[position] = self.ledger.incumbent.values[:position], solved
        self._adopt(position, answer)
        if not solved:
            self.budget.record_limit()

    def _is_answered(self, position: int) -> bool:
        """Whether to ask about a tier of the slots again would say nothing new, or should come later."""
        before, solved = self.answered.get(position, ((), False))
        same = bool(before) and before == self.ledger.incumbent.values[:position]
        return self.fill is not None and same and (solved or self.rough)

    def _value(self, position: int) -> int:
        return self.ledger.incumbent.values[position]

    def _holds(self, position: int) -> bool:
        """Whether the program's bounds of a tier hold for all plans; if not, the tier stays unproven."""
        if self.problem.complete:
            return True
        subjects = {tier.row.subject for tier in self.ledger.tiers[: position + 1]}
        if self.problem.covers_admission and subjects <= RUNNING_SUBJECTS:
            return True
        self.budget.record_limit()
        return False

    def _adopt(self, position: int, answer: Answer) -> None:
        if answer.values and (self.fill is None or not self._reaches(position, answer.values)):
            self.start = answer.values
            plan, instance = self.problem.decode(answer.values), self.ledger.instance
            self.ledger.offer(plan, answer.values)
            if instance.by_speed and not self._reaches(position, answer.values):
                self.ledger.offer(settle(instance, plan, budget=self.budget))
            if self.fill is not None:
                self.ledger.offer(self.fill(self.ledger.incumbent.decisions))
        if self._holds(position):
            # INFEASIBLE: nothing is better than the incumbent
            nothing = answer.status is Status.INFEASIBLE
            bound = self._value(position) if nothing else answer.bound
            self.ledger.bound(position, bound, exact=answer.exact and not self._settled)

    def _reaches(self, position: int, values: Sequence[int]) -> bool:
        """Whether the incumbent is as good as an assignment."""
        factor = sign(self.ledger.tiers[position].sense)
        return factor * self._value(position) >= factor * self._expressions[position].value(values)

    def _share_of_time(self, position: int) -> float:
        """The share of the remaining time: more for tiers on which many others depend, and for the last."""
        tier, whole = self.ledger.tiers[position], self.fill is None
        if position == len(self.ledger.tiers) - 1:
            return LAST_SHARE if whole else ADMISSION_SHARE
        if whole:
            return ADMISSION_SHARE if tier.row.subject in RUNNING_SUBJECTS else CLOCK_SHARE
        return SHARE if tier.row.subject in RUNNING_SUBJECTS else LP_SHARE
