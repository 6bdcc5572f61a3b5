"""The search over one program, tier by tier, exact as far as the budget goes.

Every tier is closed with a bound that holds for all plans that keep the earlier tiers. It works on
the full formulation and on the slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from models.instance.solution import GangDecision
from models.program.linear_program import UNBOUNDED, Linear, Program
from models.tiers import Tier, larger_is_better
from planner.search.bound.fused_objectives import FusedObjective, next_objective
from planner.search.bound.open_goals import OpenGoals, Question
from planner.search.budget import Budget, Progress
from planner.search.engines.interface import Answer, Goal, Status
from planner.search.engines.portfolio import BRANCHING_LPS, CLOCK_SHARE, can_branch, solve_goal
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


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Ranges of the variables in all plans that are at least as good as ``values`` in the first tiers."""

    values: tuple[int, ...]
    lower: list[int]
    upper: list[int]


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


class TierSearch:
    """Search the tiers of a ledger from the first open one to ``last`` (exclusive).

    ``fill``: adds to a plan what fits beside it. ``only_better``: no plan is made of an assignment that is
    only as good as the incumbent. ``lps``: see ``solve_goal``. ``rough``: a tier is closed with the bound of
    its LP if that is NEAR; with ``aside`` in any case, and what is further is left to that. ``share``: share
    of the remaining time that HiGHS gets for a tier, with no engine after it; ``shares``: of some families.
    ``narrowed``: by the number of tiers, what earlier searches of the program found out, to which this one
    adds. ``start``: a solution to begin with.
    """

    def __init__(
        self,
        problem: Problem,
        ledger: Ledger,
        budget: Budget,
        progress: Progress,
        last: int,
        *,
        share: float | None = None,
        shares: Mapping[str, float] | None = None,
        fill: Callable[[Sequence[GangDecision]], Sequence[GangDecision]] = tuple,
        only_better: bool = False,
        lps: int = BRANCHING_LPS,
        rough: bool = False,
        aside: OpenGoals | None = None,
        narrowed: dict[int, Narrowed] | None = None,
        start: Sequence[int] = (),
    ) -> None:
        self._problem = problem
        self._ledger = ledger
        self._budget = budget
        self._progress = progress
        self._last = last
        self._time_share = share
        self._shares = shares or {}
        self._fill = fill
        self._only_better = only_better
        self._lps = lps
        self._rough = rough
        self._aside = aside
        self._narrowed = {} if narrowed is None else narrowed
        self._relaxation = Relaxation(problem.program, budget)
        self._assignment = tuple(start)
        self._expressions: list[Linear] = []
        self._silent: set[int] = set()
        self._tops: list[int] = []
        self._ranges = list(problem.program.lower), list(problem.program.upper)
        self._express()

    def run(self) -> None:
        """Solve every tier within the budget.

        The program has the ranges of every plan again afterwards: what was narrowed for a tier holds for
        later tiers only.
        """
        program = self._problem.program
        program.lower, program.upper = list(self._ranges[0]), list(self._ranges[1])
        self._relaxation = Relaxation(program, self._budget)
        try:
            self._solve_all()
        finally:
            program.lower, program.upper = list(self._ranges[0]), list(self._ranges[1])

    def _solve_all(self) -> None:
        ledger, program = self._ledger, self._problem.program
        while ledger.closed < self._last:
            position, end = ledger.closed, ledger.closed + 1
            skipped = self._is_known(position) and not self._tightens(position)
            if not skipped:
                self._express()
            if not skipped and position not in self._silent:
                known = next(
                    (p for p in sorted(self._silent) if p > position), len(self._expressions)
                )
                fused = next_objective(
                    program, ledger.tiers[:known], self._expressions, position, self._tops
                )
                end = position + len(fused.members)
                if not self._budget.exhausted():
                    self._tighten(fused, self._solve(fused))
            for _ in range(position, end):
                self._close()
            self._recall(end)

    def _is_known(self, position: int) -> bool:
        """Whether a tier is proven, or nearly if no more is asked for and an engine was."""
        known, value = self._ledger.known(position).value, self._ledger.incumbent.values[position]
        near = self._rough and position in self._ledger.searched
        return known == value or (near and abs(known - value) * NEAR <= abs(value))

    def _tightens(self, position: int) -> bool:
        """Whether an LP of a tier that is proven already is worth what it tells the tiers to come."""
        if self._budget.exhausted() or self._open_until() <= position:
            return False
        known, share = self._relaxation.hardest, self._time_share
        return share is None or (
            known is not None and can_branch(self._budget, known, share, self._lps)
        )

    def _tighten(self, fused: FusedObjective, proof: DualProof | None) -> None:
        """Let the tiers to come use that these are kept at their values."""
        if proof is not None and not any(
            self._ledger.tiers[member.position].tolerance for member in fused.members
        ):
            proof.tighten(self._problem.program, self._value(fused))

    def _recall(self, closed: int) -> None:
        """Use what was found out about the first tiers, and leave it to later searches."""
        program = self._problem.program
        known, better = self._narrowed.get(closed), self._ledger.tiers[:closed]
        values = self._ledger.incumbent.values[:closed]
        if known is not None and all(
            now >= then
            for now, then in zip(
                larger_is_better(better, values),
                larger_is_better(better, known.values),
                strict=True,
            )
        ):
            program.lower[: len(known.lower)] = map(max, program.lower, known.lower)
            program.upper[: len(known.upper)] = map(min, program.upper, known.upper)
        self._narrowed[closed] = Narrowed(values, list(program.lower), list(program.upper))

    def _open_until(self) -> int:
        """The number of tiers up to the last one that is not proven, and those fused with it."""
        ledger, tiers = self._ledger, self._ledger.tiers
        unproven = (p for p in range(self._last - 1, ledger.closed - 1, -1) if not ledger.proven(p))
        count = next(unproven, -1) + 1
        while 0 < count < self._last and tiers[count - 1].row.fuses_with(tiers[count].row):
            count += 1
        return count

    def _express(self) -> None:
        """The expressions up to the last open tier; what they imply holds for every plan.

        Tiers whose value is implied have none: nothing asks for them, and no later tier does.
        """
        program, ledger = self._problem.program, self._ledger
        first, last = len(self._expressions), self._open_until()
        if last <= first:
            return
        tightened = program.lower, program.upper
        program.lower, program.upper = self._ranges
        for position, expression in enumerate(
            map(self._problem.expression, ledger.tiers[first:last]), first
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
        program, expression = self._problem.program, self._expressions[position]
        if self._ledger.tiers[position].sense == "max":
            return program.bound_above(expression)
        return max(0, program.bound_below(expression))

    def _close(self) -> None:
        position = self._ledger.closed
        value, known = self._ledger.incumbent.values[position], self._ledger.known(position)
        self._ledger.close()
        bound = None if known.proof is None else known.value
        self._progress.update(self._ledger.tiers[position].name, value, bound)

    def _required_rows(self, before: int) -> tuple[tuple[Linear, int, int], ...]:
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

    def _solve(self, fused: FusedObjective) -> DualProof | None:
        """Ask the LP, then engines for what it leaves open. Returns what narrows ranges."""
        ledger, program = self._ledger, self._problem.program
        first, value = fused.members[0].position, self._value(fused)
        goal = Goal(fused.objective, fused.maximize, self._required_rows(first))
        implied = range_proof(program, goal)
        if implied.sign * implied.bound <= implied.sign * value:  # no solver finds more
            self._adopt(fused, Answer(Status.INFEASIBLE, (), value, exact=True))
            return implied
        share = self._share_of_time(fused)
        relaxed = self._relax(fused, goal, share)
        ledger.searched.update(member.position for member in fused.members)
        if all(ledger.proven(member.position) for member in fused.members):
            return relaxed.proof
        near = self._rough and abs(relaxed.bound - value) * NEAR <= abs(value)
        if near or self._aside is not None:
            self._adopt(fused, Answer(Status.UNKNOWN, (), relaxed.bound, exact=True))
        if not near:
            if self._aside is None:
                question = self._question(fused, goal, relaxed, share)
                self._conclude(fused, question(program, self._budget))
            else:
                question = self._question(fused, goal, relaxed, max(share, LP_SHARE))
                self._aside.add(program, question, self._accepting(fused))
        return relaxed.proof

    def _accepting(self, fused: FusedObjective) -> Callable[[Answer], bool]:
        """Takes over an answer that comes later, and says whether the plan is as it is now."""
        ledger, plan = self._ledger, self._ledger.incumbent

        def accept(answer: Answer) -> bool:
            ledger.reopen()
            ledger.close_all(fused.members[0].position)
            self._conclude(fused, answer)
            return ledger.incumbent is plan

        return accept

    def _relax(self, fused: FusedObjective, goal: Goal, share: float) -> RelaxedAnswer:
        """The LP's answer; on the slots the bound that an engine has found, as long as it holds."""
        position = fused.members[0].position
        known = self._ledger.known(position)
        own = self._time_share is not None and len(fused.members) == 1
        if own and known is self._ledger.bounds[position]:
            return RelaxedAnswer(known.value, None)
        seconds = self._budget.seconds_left() * max(share, LP_SHARE)
        return self._relaxation.bound(goal, seconds=seconds)

    def _question(
        self, fused: FusedObjective, goal: Goal, relaxed: RelaxedAnswer, share: float
    ) -> Question:
        """Asks the engines; those of ``aside`` for a proof only."""
        name = self._ledger.tiers[fused.members[0].position].name
        value, effort, hint = self._value(fused), self._effort(fused), self._hint()

        def improved(value: int, bound: int) -> None:
            if len(fused.members) == 1:
                sign, shift = (-1 if fused.maximize else 1), fused.objective.constant
                top = self._tops[fused.members[0].position]
                best = sign * max(sign * (sign * bound + shift), sign * top)
                self._progress.update(name, sign * value + shift, best)

        def question(program: Program, budget: Budget) -> Answer:
            return solve_goal(
                program,
                goal,
                budget,
                effort,
                incumbent=value,
                relaxed_to=relaxed,
                share=share,
                exact=self._time_share is None,
                hint=hint,
                improved=improved,
                lps=self._lps,
                heuristics=self._aside is None,
            )

        return question

    def _conclude(self, fused: FusedObjective, answer: Answer) -> None:
        """Take over what an answer has for the plan and for the bounds."""
        self._adopt(fused, answer)
        if answer.status not in (Status.OPTIMAL, Status.INFEASIBLE):
            self._budget.record_limit()

    def _value(self, fused: FusedObjective) -> int:
        """The objective's value in the incumbent."""
        return fused.value([self._ledger.incumbent.values[m.position] for m in fused.members])

    def _holds(self, position: int) -> bool:
        """Whether the program's bounds of a tier hold for all plans; if not, the tier stays unproven."""
        if self._problem.complete:
            return True
        subjects = {tier.row.subject for tier in self._ledger.tiers[: position + 1]}
        if self._problem.covers_admission and subjects <= RUNNING_SUBJECTS:
            return True
        self._budget.record_limit()
        return False

    def _adopt(self, fused: FusedObjective, answer: Answer) -> None:
        if answer.values and not (self._only_better and self._reaches(fused, answer.values)):
            self._assignment = answer.values
            plan, instance = self._problem.decode(answer.values), self._ledger.instance
            self._ledger.offer(plan, answer.values)
            if instance.by_speed and not self._reaches(fused, answer.values):
                self._ledger.offer(settle(instance, plan, budget=self._budget))
            self._ledger.offer(self._fill(self._ledger.incumbent.decisions))
        self._bound(fused, answer)

    def _reaches(self, fused: FusedObjective, values: Sequence[int]) -> bool:
        """Whether the incumbent is as good as an assignment."""
        sign = 1 if fused.maximize else -1
        return sign * self._value(fused) >= sign * fused.objective.value(values)

    def _hint(self) -> tuple[int, ...]:
        assignment = self._ledger.incumbent.assignment
        known = len(self._problem.program.lower)
        return next((own for own in (assignment, self._assignment) if len(own) == known), ())

    def _share_of_time(self, fused: FusedObjective) -> float:
        """The share of the remaining time: more for tiers on which many others depend, and for the last."""
        if fused.members[-1].position == len(self._ledger.tiers) - 1:
            return LAST_SHARE if self._time_share is None else ADMISSION_SHARE
        tier = self._ledger.tiers[fused.members[0].position]
        if self._time_share is None:
            return ADMISSION_SHARE if tier.row.subject in RUNNING_SUBJECTS else CLOCK_SHARE
        return self._shares.get(tier.family, self._time_share)

    def _effort(self, fused: FusedObjective) -> float:
        """The most effort for a goal: half of the remaining effort, all of it for the last."""
        left = self._budget.effort_left()
        last = fused.members[-1].position == len(self._ledger.tiers) - 1
        return left if last else left / 2

    def _bound(self, fused: FusedObjective, answer: Answer) -> None:
        if not self._holds(fused.members[0].position):
            return
        values = [self._ledger.incumbent.values[m.position] for m in fused.members]
        # INFEASIBLE: nothing is better than the incumbent
        nothing = answer.status is Status.INFEASIBLE
        bounds = values if nothing else fused.bounds(answer.bound, values)
        for member, bound in zip(fused.members, bounds, strict=True):
            self._ledger.bound(member.position, bound, exact=answer.exact)
