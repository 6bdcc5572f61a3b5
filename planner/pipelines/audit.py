"""``audit``: what the present placement costs, and the fewest restarts that regain it. It changes nothing.

What stands is compared with a re-plan, in which every running gang may stand elsewhere at no price, with the
pods that it has. Every plan that a figure is taken from was checked by the judge.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from models.documents.plan import PlanDocument
from models.instance.instance import Instance
from models.instance.policy import EVERY_SCHEDULER
from models.instance.solution import GangDecision, Proof, Reason, Solution, StoppedBy, TierResult
from models.results.audit import Audit, AuditWriter, free_to_move
from models.results.plan_gpus import most_effective_gpus
from models.values.implied_bounds import ImpliedBounds
from models.values.tier_values import Evaluation, tiers_of
from planner import __version__
from planner.errors import RefusedPlanError
from planner.pipelines.adjustments import at_no_price, starting_from
from planner.pipelines.plan import BUDGET_PER_S, Maker, Phases, PlanRequest, check_out
from planner.pipelines.timed_search import TimedSearch
from planner.read.instance_builder import LoadedInput
from planner.search.improve.fewest_restarts import FewestRestarts, Good, Step, undominated
from planner.search.improve.making_room import steps_by_making_room
from planner.search.improve.moves import with_moves_as_one
from planner.show.console import Console
from planner.signals import Stop, stop_on_signal

TIME_LIMIT_S = 45
"""Most seconds after reading, unless the command line allows more: 1,000 nodes are audited in a minute."""

UNMOVED, ROOM, REPLAN, STEPS, FEWER = 0.12, 0.2, 0.3, 0.1, 0.2
"""Shares of the time and of the search budget, in this order; the rest is for checking and writing."""

LEAST_S = 1
"""Seconds that each of them has in any case."""

LAST_CHECKS = 4
"""As long as so many checks of a plan those of the re-plan and of the steps may take."""

UNKNOWN_GPUS = (
    "which GPUs some running pods hold is not known: they count as the slowest that their node may have "
    "given them, now and in the re-plan"
)

MAX_STEPS = 10
"""Steps of one audit: those that regain most."""

QUESTION = 0.05
"""Share of each search for a plan with fewer restarts, or with cheaper ones."""


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
) -> Audited:
    """Audit a cluster, and save the re-plan if requested.

    Raises as ``planner.pipelines.plan.plan`` does.
    """
    from planner.read.inputs import load

    phases = Phases(time.monotonic)
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
        audited, plan = _Auditor(request, built, created_at, console, stop).run(phases)
    return Audited(audited, plan, stop.exit_code, phases.seconds)


_SAVING = b"the audit is being finished with what was found so far; please wait\n"


class _Auditor:
    """Searches and checks the plans that an audit compares."""

    def __init__(
        self,
        request: AuditRequest,
        built: LoadedInput,
        created_at: str,
        console: Console,
        stop: Stop,
    ) -> None:
        self._request, self._built, self._created_at = request, built, created_at
        self._console, self._stop = console, stop
        self._clock, self._started = time.monotonic, time.monotonic()
        self._limit = request.time_limit_s or min(
            TIME_LIMIT_S, built.instance.policy.solve.time_limit_s
        )
        self._check_s = 0.0
        self._most: dict[int, int] = {}
        """By the most restarts: the most permille-GPU that they regain, where that is proven."""

    def run(self, phases: Phases) -> tuple[Audit, PlanDocument]:

        instance = self._built.instance
        free = at_no_price(instance, movable := free_to_move(instance))
        with phases.phase("solve"):
            first = self._search("gangs that could start now", at_no_price(instance, ()), UNMOVED)
            unmoved, steps = self._room(free, _with(free, first, first.decisions))
            start = self._finder(free, unmoved.decisions, STEPS).together(steps)
            found = self._search("the re-plan", starting_from(free, start), REPLAN)
            finder = self._finder(free, unmoved.decisions, STEPS + FEWER)
            steps += finder.of_plan(found.decisions)
            steps += finder.of_plan(finder.together(steps))
            steps = self._with_fewer_restarts(finder, steps)
        with phases.phase("check"):
            chosen = self._accepted(free, unmoved, steps)
            possible, good = _best(finder, unmoved, found, chosen)
            plan = self._made(
                free, possible, self._request.out, refute=not self._stop.event.is_set()
            )
        whole = (n for n, step in enumerate(chosen, 1) if step.good == good)
        proven = self._most.get(len(movable)) == good[-1]
        notes = [UNKNOWN_GPUS] if free.policy.gpu_binding != instance.policy.gpu_binding else []
        most = [self._most.get(len(one.moved) - 1, one.regained) for one in chosen]
        listed = [(one.decisions, n < one.regained) for one, n in zip(chosen, most, strict=True)]
        writer = AuditWriter(instance, free, unmoved.decisions, possible.decisions, listed)
        written = writer.compose(
            created_at=self._created_at,
            generator=f"gangplan {__version__}",
            at_most=0 if proven else most_effective_gpus(plan),  # 0: no more than it has
            whole=next(whole, None),
            notes=(*self._built.remarks, *notes),
        )
        return written, plan

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
            instance,
            self._console,
            self._stop.event,
            self._clock,
            lambda _: 0.0,
            frequent=share == QUESTION,
        ).run()

    def _finder(
        self, free: Instance, unmoved: Sequence[GangDecision], share: float
    ) -> FewestRestarts:
        """Looks for steps with a share of the time."""
        until = self._clock() + max(LEAST_S, min(share * self._limit, self._left))
        event = self._stop.event
        return FewestRestarts(free, unmoved, lambda: event.is_set() or self._clock() > until)

    def _room(self, free: Instance, unmoved: Solution) -> tuple[Solution, list[Step]]:
        """The plan in which nothing moves, better where a step without a restart was found, and steps."""
        self._console.doing("searching: moves that make room")
        while True:
            steps = list(steps_by_making_room(self._finder(free, unmoved.decisions, ROOM)))
            at_once = [step for step in steps if not step.moved]
            if not at_once:
                return unmoved, steps
            unmoved = _with(free, unmoved, max(at_once, key=lambda step: step.good).decisions)

    def _with_fewer_restarts(self, finder: FewestRestarts, steps: list[Step]) -> list[Step]:
        """The steps, with those that need fewer or cheaper restarts."""
        free, asked = finder.instance, set[Question]()
        while True:
            steps = undominated(one for one in steps if _helps(finder, one))
            question = next((one for one in _questions(finder, steps) if one not in asked), None)
            if question is None or self._left < LEAST_S or finder.ended():
                return steps
            asked.add(question)
            most, movable, level = question
            limited = _limited(free, movable, level=level)
            known = [one for one in steps if len(one.moved) <= most]
            start = max(known, key=lambda one: one.good).decisions if known else finder.unmoved
            limited = starting_from(limited, start, max_gangs=most)
            plan = self._search("the same with fewer restarts", limited, QUESTION)
            steps += finder.of_plan(plan.decisions)
            if movable is None and plan.stopped_by == "proof" and _by_gpus_alone(limited):
                self._most[most] = finder.good_of(Evaluation(free, plan.decisions))[-1]

    def _made(
        self, free: Instance, solution: Solution, out: Path | None = None, *, refute: bool = False
    ) -> PlanDocument:
        """The plan of a solution, checked by the judge, and saved if requested. Raises RefusedPlanError."""
        self._console.doing("verifying")
        before, request = self._clock(), PlanRequest(self._request.paths, out=out)
        maker = Maker(request, replace(self._built, instance=free), self._created_at, self._console)
        plan = maker.made(solution, Phases(self._clock), refute=refute)[0]
        self._check_s = self._clock() - before
        return plan

    def _accepted(self, free: Instance, unmoved: Solution, steps: Iterable[Step]) -> list[Step]:
        """The steps that regain most of those that the judge accepts, the cheapest first."""
        found: list[Step] = []
        if not self._stop.event.is_set():
            self._made(free, unmoved)
        for step in sorted(steps, key=lambda one: (-one.regained, one.cost)):
            late = found and self._left <= 0
            if len(found) == MAX_STEPS or late or self._stop.event.is_set():
                break
            try:
                self._made(free, _with(free, unmoved, step.decisions))
            except RefusedPlanError:
                continue  # what the search took for kept rules
            found.append(step)
        return sorted(found, key=lambda one: one.cost)


Question = tuple[int, frozenset[int] | None, bool]
"""The most restarts; the gangs (indices) that may restart, None: all; whether all have one priority, so that
the answer is the most to regain."""


def _questions(finder: FewestRestarts, steps: Sequence[Step]) -> Iterator[Question]:
    """What could be regained at most; whether half the restarts, one less, or cheaper ones are enough."""
    gangs = finder.instance.gangs
    levels = (True, False)[: len({gang.priority for gang in gangs})]
    yield sum(gang.running and gang.movable for gang in gangs), None, True
    counts = [len(one.moved) for one in steps]
    for most in sorted({most for n in counts for most in (n // 2, n - 1)}):
        yield from ((most, None, level) for level in levels)
    for step in steps:
        for dearest in sorted(step.moved, key=lambda i: finder.cost([i]), reverse=True):
            less = finder.cost([dearest])
            cheaper = {i for i, one in enumerate(gangs) if one.running and finder.cost([i]) < less}
            movable = frozenset(cheaper.union(step.moved) - {dearest})
            yield from ((len(step.moved), movable, level) for level in levels)


def _limited(free: Instance, movable: frozenset[int] | None, *, level: bool) -> Instance:
    """The instance in which only these gangs move; ``level``: and none goes before another one."""
    gangs = tuple(
        replace(gang, movable=gang.movable and (movable is None or i in movable))
        for i, gang in enumerate(free.gangs)
    )
    if not level:
        return replace(free, gangs=gangs)
    gangs = tuple(replace(gang, priority=0, stated_priority=None) for gang in gangs)
    return replace(free, gangs=gangs, policy=replace(free.policy, starvation_after_s=None))


def _by_gpus_alone(instance: Instance) -> bool:
    """Whether the best plan has the most effective GPUs: all plans keep as many GPUs of gangs that run."""
    tiers = [tier for tier in tiers_of(instance) if tier.family != "kept"]
    return len(tiers) == 1 and all(gang.running or gang.least_units for gang in instance.gangs)


def _helps(finder: FewestRestarts, step: Step) -> bool:
    """Whether more is regained, or a gang starts; no gang is restarted for the speed of another one alone."""
    return step.regained > 0 or any(not finder.unmoved[i].pods for i in step.gains)


def _with(free: Instance, like: Solution, decisions: Sequence[GangDecision]) -> Solution:
    """A plan that was found beside another: its bounds follow from the queue alone."""
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
    ended: StoppedBy = "proof" if all(one.proof for one in tiers) else "budget"
    plan = replace(
        like, decisions=decisions, tiers=tuple(tiers), stopped_by=ended, notes=(), moves=()
    )
    return with_moves_as_one(free, plan, like.decisions) or plan


def _best(
    finder: FewestRestarts, unmoved: Solution, found: Solution, steps: Sequence[Step]
) -> tuple[Solution, Good]:
    """The best plan, and how good it is; of equal ones that with the cheapest restarts.

    One as good in all tiers as ``found`` has the bounds of that.
    """
    free = finder.instance
    goods = {
        tuple(one): finder.good_of(Evaluation(free, one))
        for one in (unmoved.decisions, *(step.decisions for step in steps), found.decisions)
    }
    best = max(goods, key=lambda one: goods[one])
    plan = _with(free, unmoved, best)
    if [one.value for one in plan.tiers] != [one.value for one in found.tiers]:
        return plan, goods[best]
    reasons = zip(plan.decisions, found.decisions, strict=True)
    explained = tuple(new if one.pods == new.pods else one for one, new in reasons)
    plan = replace(plan, decisions=explained, tiers=found.tiers, stopped_by=found.stopped_by)
    return plan, goods[best]
