"""``audit``: what the present placement costs, and the fewest restarts that regain it. It changes nothing.

What stands is compared with a re-plan, in which every running gang may stand elsewhere at no price, with the
pods that it has. Every plan that a figure is taken from was checked by the judge.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from models.instance.policy import EVERY_SCHEDULER
from planner import __version__
from planner.errors import RefusedPlanError
from planner.pipelines.adjustments import at_no_price, starting_from
from planner.pipelines.plan import Maker, Phases, PlanRequest, check_out
from planner.pipelines.timed_search import TimedSearch
from planner.signals import Stop, stop_on_signal

if TYPE_CHECKING:
    from models.documents.plan import PlanDocument
    from models.instance.instance import Instance
    from models.instance.solution import GangDecision, Proof, Solution
    from models.results.audit import Audit
    from planner.read.instance_builder import LoadedInput
    from planner.search.improve.fewest_restarts import FewestRestarts, Step
    from planner.show.console import Console

TIME_LIMIT_S = 45
"""Most seconds after reading, unless the command line allows more: 1,000 nodes are audited in a minute."""

BUDGET_PER_S = 10
"""As of ``plan``: whoever gives a time limit alone wants it used."""

UNMOVED, ROOM, REPLAN, STEPS, FEWER = 0.12, 0.2, 0.3, 0.1, 0.2
"""Shares of the time and of the search budget, in this order; the rest is for checking and writing."""

LEAST_S = 1
"""Seconds that each of them has in any case."""

LAST_CHECKS = 4
"""As long as so many checks of a plan those of the re-plan and of the steps may take."""

MAX_STEPS = 10
"""Steps of one audit: those that regain most."""

MAX_QUESTIONS = 4
"""Searches for plans with fewer restarts."""


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """The options of ``audit``; None keeps the value of the policy. ``out``: a file for the re-plan."""

    paths: tuple[str, ...]
    out: Path | None = None
    policy: str | None = None
    schedulers: tuple[str, ...] | None = (EVERY_SCHEDULER,)
    time_limit_s: int | None = None
    now: int | None = None


@dataclass(frozen=True, slots=True)
class Audited:
    """An audit, and its re-plan. ``signal_exit``: as in ``Planned``."""

    audit: Audit
    plan: PlanDocument
    signal_exit: int | None
    seconds: dict[str, float] = field(default_factory=dict)


def audit(
    request: AuditRequest,
    console: Console,
    *,
    created_at: str,
    stdin: BinaryIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Audited:
    """Audit a cluster, and save the re-plan if requested.

    Raises as ``planner.pipelines.plan.plan`` does.
    """
    from planner.read.inputs import load

    phases = Phases(clock)
    if request.out is not None:
        check_out(request.out, request.paths)
    console.doing("reading the input")
    with phases.phase("read"):
        built = load(
            request.paths,
            policy=request.policy,
            now=request.now,
            schedulers=request.schedulers,
            stdin=stdin,
        )
    console.levels_source(built.levels_source)
    console.remarks(built.remarks)
    with stop_on_signal(_SAVING) as stop:
        audited, plan = _Auditor(request, built, created_at, console, stop, clock).run(phases)
    return Audited(audited, plan, stop.exit_code, phases.seconds)


_SAVING = b"the audit is being finished with what was found so far; please wait\n"


@dataclass(frozen=True, slots=True)
class _Limited:
    """The best plan found with at most so many restarts. ``proven``: no such plan is better."""

    worth: tuple[int, ...]
    proven: bool


class _Auditor:
    """Searches and checks the plans that an audit compares."""

    def __init__(
        self,
        request: AuditRequest,
        built: LoadedInput,
        created_at: str,
        console: Console,
        stop: Stop,
        clock: Callable[[], float],
    ) -> None:
        self._request = request
        self._built = built
        self._created_at = created_at
        self._console = console
        self._stop = stop
        self._clock = clock
        self._started = clock()
        self._limit = request.time_limit_s or min(
            TIME_LIMIT_S, built.instance.policy.solve.time_limit_s
        )
        self._check_s = 0.0
        self._limited: dict[int, _Limited] = {}

    def run(self, phases: Phases) -> tuple[Audit, PlanDocument]:
        from models.results.audit import AuditWriter, FoundStep, free_to_move
        from planner.search.improve.fewest_restarts import undominated
        from planner.show.plan.proofs import most_effective_gpus

        instance = self._built.instance
        free = at_no_price(instance, free_to_move(instance))
        with phases.phase("solve"):
            standing = at_no_price(instance, ())
            first = self._search("gangs that could start now", standing, UNMOVED)
            unmoved, steps = self._room(free, _with(free, first, first.decisions))
            finder = self._finder(free, unmoved.decisions, STEPS)
            start = finder.together(steps)
            found = self._search("the re-plan", starting_from(free, start), REPLAN)
            possible = _best(free, (_with(free, unmoved, start), found))
            steps += self._steps(finder, possible)
            self._limited[0] = _Limited(finder.worth, first.stopped_by == "proof")
            more, possible = self._with_fewer_restarts(free, finder, steps, possible)
            steps = undominated([*steps, *more])
            possible = _with_fewest(free, unmoved, possible, steps)
        with phases.phase("check"):
            self._check(free, unmoved)
            plan = self._made(free, possible, self._request.out)
            chosen = self._accepted(free, unmoved, steps, finder)
        replanned = finder.worth_of(possible.decisions)
        whole = (n for n, step in enumerate(chosen, 1) if step.worth == replanned)
        written = AuditWriter(
            instance,
            free,
            unmoved.decisions,
            possible.decisions,
            [FoundStep(step.decisions, self._is_fewest(step)) for step in chosen],
        ).compose(
            created_at=self._created_at,
            generator=f"gangplan {__version__}",
            at_most=most_effective_gpus(plan),
            whole=next(whole, None),
            notes=tuple(self._notes(free)),
        )
        return written, plan

    def _notes(self, free: Instance) -> Iterator[str]:
        yield from self._built.remarks
        if free.policy.gpu_binding != self._built.instance.policy.gpu_binding:
            yield (
                "which GPUs some running pods hold is not known: the slowest that their node may have "
                "chosen count for them, now and in the re-plan"
            )

    @property
    def _left(self) -> float:
        """Seconds until the last plans have to be checked."""
        passed = self._clock() - self._started
        return max(0.0, self._limit - passed - LAST_CHECKS * self._check_s)

    def _search(self, what: str, instance: Instance, share: float) -> Solution:
        """The best plan found with a share of the time and the budget."""
        self._console.doing(f"searching: {what}")
        policy, limits = instance.policy, instance.policy.solve
        budget = limits.budget
        if self._request.time_limit_s is not None:
            budget = max(budget, BUDGET_PER_S * self._request.time_limit_s)
        seconds = max(LEAST_S, math.ceil(min(share * self._limit, self._left)))
        own = replace(limits, budget=max(1, int(share * budget)), time_limit_s=seconds)
        instance = replace(instance, policy=replace(policy, solve=own))
        return TimedSearch(
            instance, self._console, self._stop.event, self._clock, lambda *_: None
        ).run()

    def _finder(
        self, free: Instance, unmoved: Sequence[GangDecision], share: float
    ) -> FewestRestarts:
        """Looks for steps with a share of the time."""
        from planner.search.improve.fewest_restarts import FewestRestarts

        seconds = max(LEAST_S, min(share * self._limit, self._left))
        until: list[float] = []

        def ended() -> bool:
            if not until:  # its time begins once it is asked
                until.append(self._clock() + seconds)
            return self._stop.event.is_set() or self._clock() > until[0]

        return FewestRestarts(free, unmoved, ended)

    def _room(self, free: Instance, unmoved: Solution) -> tuple[Solution, list[Step]]:
        """The plan in which nothing moves, better where a step without a restart was found, and steps."""
        from planner.search.improve.making_room import steps_by_making_room

        self._console.doing("searching: moves that make room")
        while True:
            finder = self._finder(free, unmoved.decisions, ROOM)
            steps = list(steps_by_making_room(finder))
            at_once = [step for step in steps if not step.moved]
            if not at_once:
                return unmoved, steps
            best = max(at_once, key=lambda step: step.worth)
            unmoved = _with(free, unmoved, best.decisions)

    def _steps(self, finder: FewestRestarts, plan: Solution) -> list[Step]:
        self._console.doing("searching: moves that can be taken back")
        return list(finder.of_plan(plan.decisions))

    def _with_fewer_restarts(
        self, free: Instance, finder: FewestRestarts, steps: Sequence[Step], possible: Solution
    ) -> tuple[list[Step], Solution]:
        """Steps of the best plans with one restart less than some step has, and the best plan of all."""
        from planner.search.improve.fewest_restarts import undominated

        found: list[Step] = []
        for _ in range(MAX_QUESTIONS):
            known = undominated([*steps, *found])
            counts = {len(one.moved) - 1 for one in known} - self._limited.keys()
            if not counts or self._stop.event.is_set() or self._left < LEAST_S:
                break
            most = min(counts)
            limited = starting_from(free, finder.unmoved, max_gangs=most)
            plan = self._search("the same with fewer restarts", limited, FEWER / MAX_QUESTIONS)
            proven = plan.stopped_by == "proof"
            self._limited[most] = _Limited(finder.worth_of(plan.decisions), proven)
            found += self._steps(finder, plan)
            possible = _best(free, (possible, plan))
        return found, possible

    def _is_fewest(self, step: Step) -> bool:
        """Whether it is proven that no plan with fewer restarts is as good as this step."""
        fewer = self._limited.get(len(step.moved) - 1)
        return fewer is not None and fewer.proven and fewer.worth < step.worth

    def _made(
        self, instance: Instance, solution: Solution, out: Path | None, *, refute: bool = True
    ) -> PlanDocument:
        """The plan of a solution, checked by the judge, and saved if requested."""
        self._console.doing("verifying")
        request = PlanRequest(self._request.paths, out=out)
        built = replace(self._built, instance=instance)
        maker = Maker(request, built, self._created_at, self._console)
        refute = refute and not self._stop.event.is_set()
        return maker.made(solution, Phases(self._clock), refute=refute)[0]

    def _check(self, instance: Instance, solution: Solution) -> None:
        """Let the judge look at a plan of which only figures are stated. Raises RefusedPlanError."""
        if not self._stop.event.is_set():
            before = self._clock()
            self._made(instance, solution, None, refute=False)
            self._check_s = self._clock() - before

    def _accepted(
        self, free: Instance, unmoved: Solution, steps: Iterable[Step], finder: FewestRestarts
    ) -> list[Step]:
        """The steps that regain most of those that the judge accepts, the cheapest first."""
        found: list[Step] = []
        gainful = [(finder.regained(one), one) for one in steps]
        gainful = [(gain, one) for gain, one in gainful if gain > 0]
        for _, step in sorted(gainful, key=lambda pair: (-pair[0], pair[1].cost)):
            late = found and self._left <= 0
            if len(found) == MAX_STEPS or late or self._stop.event.is_set():
                break
            try:
                self._check(free, _with(free, unmoved, step.decisions))
            except RefusedPlanError:
                continue  # what the search took for kept rules
            found.append(step)
        return sorted(found, key=lambda one: one.cost)


def _with(free: Instance, like: Solution, decisions: Sequence[GangDecision]) -> Solution:
    """A plan that was found beside another: its bounds follow from the queue alone."""
    from models.instance.solution import GangDecision, Reason, TierResult
    from models.values.implied_bounds import ImpliedBounds
    from models.values.tier_values import Evaluation, tiers_of
    from planner.search.improve.moves import with_moves_as_one

    waits = GangDecision("wait", (), Reason("NoRoom", bare=True))
    decisions = tuple(
        waits if one.decision == "wait" and gang.hold is None else replace(one, expected_start=None)
        for one, gang in zip(decisions, free.gangs, strict=True)
    )
    implied, values = ImpliedBounds(free), Evaluation(free, decisions).vector()
    tiers = []
    for tier, value in zip(tiers_of(free), values, strict=True):
        bound = implied.bound(tier)
        proof: Proof | None = "exact" if bound == value else None
        tiers.append(TierResult(tier.name, tier.sense, value, value, bound, proof))
    plan = replace(
        like,
        decisions=decisions,
        tiers=tuple(tiers),
        stopped_by="proof" if all(one.proof for one in tiers) else "budget",
        notes=(),
        moves=(),
    )
    return with_moves_as_one(free, plan, like.decisions) or plan


def _with_fewest(
    free: Instance, unmoved: Solution, plan: Solution, steps: Sequence[Step]
) -> Solution:
    """The cheapest of the steps that are as good as the plan, with the bounds of that; else the plan."""
    values = tuple(tier.value for tier in plan.tiers)
    for step in steps:  # the cheapest first
        found = _with(free, unmoved, step.decisions)
        if tuple(tier.value for tier in found.tiers) == values:
            return replace(found, tiers=plan.tiers, stopped_by=plan.stopped_by)
    return plan


def _best(free: Instance, plans: Sequence[Solution]) -> Solution:
    """The best plan by the tiers; of equal ones the last, whose bounds a search found."""
    from models.tiers import larger_is_better
    from models.values.tier_values import tiers_of

    def worth(plan: Solution) -> tuple[int, ...]:
        return larger_is_better(tiers_of(free), [tier.value for tier in plan.tiers])

    best = max(map(worth, plans))
    return [plan for plan in plans if worth(plan) == best][-1]
