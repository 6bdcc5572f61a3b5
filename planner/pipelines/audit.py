"""``audit``: what the present placement costs, and which moves regain most. It changes nothing.

The loss is what a re-plan regains: every running gang may stand elsewhere at no price, with the pods that it
has. Every plan that a figure is taken from was checked by the judge.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from models.instance.policy import EVERY_SCHEDULER
from planner import __version__
from planner.errors import Fault, RefusedPlanError, UsageError
from planner.pipelines.adjustments import at_no_price
from planner.pipelines.plan import Maker, Phases, PlanRequest, check_out
from planner.pipelines.timed_search import TimedSearch
from planner.signals import Stop, stop_on_signal

if TYPE_CHECKING:
    from models.documents.audit import AuditDocument
    from models.documents.plan import PlanDocument
    from models.instance.instance import Instance
    from models.instance.solution import GangDecision, Solution
    from planner.read.instance_builder import LoadedInput
    from planner.search.improve.regaining_moves import Regain
    from planner.show.console import Console

TIME_LIMIT_S = 45
"""Most seconds after reading, unless the command line allows more: 1,000 nodes are audited in a minute."""

BUDGET_PER_S = 10
"""As of ``plan``: whoever gives a time limit alone wants it used."""


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """The options of ``audit``; None keeps the value of the policy.

    ``out``, ``out_plan``, ``metrics``: files for the audit, the re-plan and the metrics, which the caller
    writes.
    """

    paths: tuple[str, ...]
    out: Path | None = None
    out_plan: Path | None = None
    policy: str | None = None
    queue: tuple[str, ...] | None = (EVERY_SCHEDULER,)
    time_limit_s: int | None = None
    now: int | None = None
    metrics: Path | None = None


@dataclass(frozen=True, slots=True)
class Audited:
    """An audit, typed and as its JSON document; ``plan``: the re-plan. ``signal_exit``: as in ``Planned``."""

    audit: AuditDocument
    document: dict[str, Any]
    plan: PlanDocument
    signal_exit: int | None
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Share:
    """Part of the time and of the search budget that a search may use."""

    of_all: float


UNMOVED, POSSIBLE, MOVES = Share(0.1), Share(0.34), Share(0.12)
ALLOWED, WHOLE = Share(0.12), Share(0.16)
"""In this order; the rest is for checking and writing."""

LEAST_S = 1
"""Seconds that each of them has in any case."""

LAST_CHECKS = 5
"""As long as so many checks of a plan without proofs take those of the moves and of the re-plan."""


def audit(
    request: AuditRequest,
    console: Console,
    *,
    created_at: str,
    stdin: BinaryIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Audited:
    """Audit a cluster, and save the audit and the re-plan if requested.

    Raises as ``planner.pipelines.plan.plan`` does.
    """
    from models.results.plan import dumps
    from planner.atomic_files import save

    phases = Phases(clock)
    files = [file for file in (request.out, request.out_plan, request.metrics) if file is not None]
    for file in files:
        check_out(file, request.paths)
    if len({file.absolute() for file in files}) < len(files):
        raise UsageError(Fault("two files of the audit are one", "name a file for each"))
    console.doing("reading the input")
    with phases.phase("read"):
        built = _read(request, stdin)
    console.levels_source(built.levels_source)
    console.remarks(built.remarks)
    with stop_on_signal(_SAVING) as stop:
        auditor = _Auditor(request, built, created_at, console, stop, clock)
        document, plan, audited = auditor.run(phases)
    if request.out is not None:
        save(request.out, dumps(document))
    return Audited(audited, document, plan, stop.exit_code, phases.seconds)


_SAVING = b"the audit is being finished with what was found so far; please wait\n"


def _read(request: AuditRequest, stdin: BinaryIO | None) -> LoadedInput:
    """The input, or the instance of a saved plan."""
    from planner.read import plan_files
    from planner.read.inputs import instance_from_document, load
    from planner.read.instance_builder import LoadedInput

    if len(request.paths) == 1 and _is_plan(request.paths[0]):
        if request.policy is not None:
            hint = "audit the input of the plan with --policy"
            raise UsageError(Fault("--policy: a saved plan has its own", hint))
        content = plan_files.read_bytes(request.paths[0], stdin)
        plan_files.read_plan(content, request.paths[0])
        document = plan_files.parse(content, request.paths[0])
        return LoadedInput(instance_from_document(document["instance"]))
    return load(
        request.paths, policy=request.policy, now=request.now, queue=request.queue, stdin=stdin
    )


HEAD_BYTES = 200


def _is_plan(path: str) -> bool:
    """Whether a file starts like a plan that gangplan saved."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(HEAD_BYTES)
    except (OSError, ValueError):
        return False  # - is stdin; reading says what is wrong with a file
    return b'"kind": "Plan"' in head


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
        self._limit = _seconds(request, built.instance)
        self._check_s = 0.0

    def run(self, phases: Phases) -> tuple[dict[str, Any], PlanDocument, AuditDocument]:
        from models.documents.audit import AuditDocument
        from models.results.audit import AuditWriter, Found
        from models.results.audit_figures import fixed_gangs, most_whole, wholly_free
        from planner.show.reason_words import words

        instance = self._built.instance
        running = {i for i, gang in enumerate(instance.gangs) if gang.running}
        fixed = fixed_gangs(instance)
        movable = {i for i in running if instance.gangs[i].movable} - fixed.keys()
        free = at_no_price(instance, running - fixed.keys(), budgets=False)
        with phases.phase("solve"):
            standing = at_no_price(instance, ())
            unmoved = self._checked("gangs that could start now", standing, UNMOVED)
            possible = self._search("the re-plan", free, POSSIBLE)
            if not any(one.decision == "move" for one in possible.decisions):
                stated = _unproven(free, unmoved.decisions, unmoved)
                if _best(free, stated, (possible,)) is possible:
                    unmoved = possible
            moves = self._moves(free, unmoved, possible)
            allowed = unmoved
            if movable:
                willing = at_no_price(instance, movable)
                allowed = self._checked("moves that gangs allow", willing, ALLOWED)
            alone = _packed(free)
            packed = self._checked("whole nodes", alone, WHOLE)
        with phases.phase("check"):
            moves, jointly = self._accepted(free, unmoved, moves)
            possible = _best(free, possible, (jointly, _unproven(free, allowed.decisions, unmoved)))
            plan, document = self._made(free, possible, self._request.out_plan)
            possible = _as_stated(possible, plan)
            few = self._few_restarts(free, unmoved, possible, jointly)
        found = Found(
            unmoved,
            allowed,
            possible,
            wholly_free(alone, packed.decisions),
            most_whole(alone, packed),
            [one.decisions for one in moves],
            few,
        )
        written = AuditWriter(instance, free, found, words).compose(
            name=document["metadata"]["name"],
            created_at=self._created_at,
            generator=f"gangplan {__version__}",
            plan=document,
            remarks=self._built.remarks,
        )
        return written, plan, AuditDocument.model_validate_json(json.dumps(written))

    @property
    def _left(self) -> float:
        """Seconds until the last plans have to be checked."""
        passed = self._clock() - self._started
        return max(0.0, self._limit - passed - LAST_CHECKS * self._check_s)

    def _checked(self, what: str, instance: Instance, share: Share) -> Solution:
        """The same, after the judge has accepted the plan, of which only figures are stated."""
        solution = self._search(what, instance, share)
        self._check(instance, solution)
        return solution

    def _search(self, what: str, instance: Instance, share: Share) -> Solution:
        """The best plan found with a share of the time and the budget."""
        self._console.doing(f"searching: {what}")
        policy, limits = instance.policy, instance.policy.solve
        budget = limits.budget
        if self._request.time_limit_s is not None:
            budget = max(budget, BUDGET_PER_S * self._request.time_limit_s)
        seconds = max(LEAST_S, math.ceil(min(share.of_all * self._limit, self._left)))
        own = replace(limits, budget=max(1, int(share.of_all * budget)), time_limit_s=seconds)
        instance = replace(instance, policy=replace(policy, solve=own))
        return TimedSearch(
            instance, self._console, self._stop.event, self._clock, lambda *_: None
        ).run()

    def _made(
        self, instance: Instance, solution: Solution, out: Path | None, *, refute: bool = True
    ) -> tuple[PlanDocument, dict[str, Any]]:
        """The plan of a solution, checked by the judge, and saved if requested."""
        self._console.doing("verifying")
        request = PlanRequest(self._request.paths, out=out)
        built = replace(self._built, instance=instance)
        maker = Maker(request, built, self._created_at, self._console)
        refute = refute and not self._stop.event.is_set()
        plan, found = maker.made(solution, Phases(self._clock), refute=refute)
        return plan, found.document

    def _check(self, instance: Instance, solution: Solution) -> None:
        """Let the judge look at a plan of which only figures are stated. Raises RefusedPlanError."""
        if not self._stop.event.is_set():
            before = self._clock()
            self._made(instance, solution, None, refute=False)
            self._check_s = self._clock() - before

    def _accepted(
        self, free: Instance, unmoved: Solution, moves: tuple[Regain, ...]
    ) -> tuple[tuple[Regain, ...], Solution]:
        """The moves and the plan with them; none if the judge refuses what the search took for kept rules."""
        try:
            return moves, self._judged(free, unmoved, moves)
        except RefusedPlanError:
            if not moves:
                raise
        return (), self._judged(free, unmoved, ())

    def _few_restarts(
        self, free: Instance, unmoved: Solution, possible: Solution, jointly: Solution
    ) -> Sequence[GangDecision]:
        """The plan with the fewest restarts of those found that regain as much as the re-plan."""
        from models.values.effective_gpus import gpus_at_speed
        from models.values.tier_values import Evaluation
        from planner.search.improve.regaining_moves import with_few_restarts

        until = self._clock() + max(LEAST_S, min(MOVES.of_all * self._limit, self._left))
        found = [with_few_restarts(free, possible.decisions, self._ends(until))]
        try:
            self._check(free, _unproven(free, found[0], unmoved))
        except RefusedPlanError:
            found = []
        plans = [*found, jointly.decisions, possible.decisions]
        worths = [sum(gpus_at_speed(Evaluation(free, plan))) for plan in plans]
        as_good = [p for p, worth in zip(plans, worths, strict=True) if worth >= worths[-1]]
        return min(as_good, key=lambda plan: sum(one.decision == "move" for one in plan))

    def _ends(self, until: float) -> Callable[[], bool]:
        return lambda: self._stop.event.is_set() or self._clock() > until

    def _judged(self, free: Instance, unmoved: Solution, moves: tuple[Regain, ...]) -> Solution:
        """The plan with these moves. Raises RefusedPlanError."""
        jointly = together(free, unmoved, moves)
        self._check(free, jointly)
        return jointly

    def _moves(self, free: Instance, unmoved: Solution, possible: Solution) -> tuple[Regain, ...]:
        from models.results.audit_figures import best_speeds
        from planner.search.improve.regaining_moves import regaining_moves

        self._console.doing("searching: the moves that regain most")
        until = self._clock() + max(LEAST_S, min(MOVES.of_all * self._limit, self._left))
        ended = self._ends(until)
        return regaining_moves(
            free, unmoved.decisions, possible.decisions, best_speeds(free), ended
        )


def _as_stated(solution: Solution, plan: PlanDocument) -> Solution:
    """The solution with the bounds that its plan states: the judge may have refuted a proof."""
    tiers = tuple(
        replace(tier, bound=stated.bound, proof=stated.proof)
        for tier, stated in zip(solution.tiers, plan.status.objectives, strict=True)
    )
    return replace(solution, tiers=tiers, notes=plan.status.notes)


def together(free: Instance, unmoved: Solution, moves: Sequence[Regain]) -> Solution:
    """The plan with all moves, of which nothing is proven."""
    from planner.search.improve.regaining_moves import with_decisions

    changes = {index: one for move in moves for index, one in move.decisions.items()}
    return _unproven(free, with_decisions(unmoved.decisions, changes), unmoved)


def _unproven(free: Instance, decisions: Sequence[GangDecision], unmoved: Solution) -> Solution:
    """A plan of the re-plan's instance that was found otherwise: its bounds follow from the queue alone."""
    from models.instance.solution import GangDecision, Reason, TierResult
    from models.values.implied_bounds import ImpliedBounds
    from models.values.tier_values import Evaluation, tiers_of
    from planner.search.improve.moves import with_moves_as_one

    waits = GangDecision("wait", (), Reason.of("NoRoom", text="it does not start by these moves"))
    decisions = tuple(
        waits if one.decision == "wait" and gang.hold is None else replace(one, expected_start=None)
        for one, gang in zip(decisions, free.gangs, strict=True)
    )
    implied, values = ImpliedBounds(free), Evaluation(free, decisions).vector()
    bounds = [implied.bound(tier) for tier in tiers_of(free)]
    tiers = tuple(
        TierResult(t.name, t.sense, value, value, bound, "exact" if bound == value else None)
        for t, value, bound in zip(tiers_of(free), values, bounds, strict=True)
    )
    proven = all(tier.bound == tier.value for tier in tiers)
    plan = replace(
        unmoved,
        decisions=decisions,
        tiers=tiers,
        stopped_by="proof" if proven else "budget",
        notes=(),
        moves=(),
    )
    found = with_moves_as_one(free, plan, unmoved.decisions)
    return plan if found is None else found


def _best(free: Instance, possible: Solution, others: Sequence[Solution]) -> Solution:
    """The re-plan, or one with fewer moves if the search, short of time, has found nothing as good."""
    from models.tiers import larger_is_better
    from models.values.tier_values import tiers_of

    def worth(plan: Solution) -> tuple[int, ...]:
        return larger_is_better(tiers_of(free), [tier.value for tier in plan.tiers])

    best = max((possible, *others), key=worth)
    return best if worth(best) > worth(possible) else possible


def _seconds(request: AuditRequest, instance: Instance) -> float:
    """The time limit."""
    if request.time_limit_s is not None:
        return request.time_limit_s
    return min(TIME_LIMIT_S, instance.policy.solve.time_limit_s)


def _packed(instance: Instance) -> Instance:
    """The running gangs alone, as fast as they can be, and then with most nodes wholly free."""
    from models.documents.policy import Objective
    from models.tiers import family

    gangs = tuple(gang for gang in instance.gangs if gang.running)
    mains = [one for one in instance.policy.objectives if family(one.name).fused]
    policy = replace(instance.policy, objectives=(*mains, Objective("defragment")))
    return replace(instance, gangs=gangs, policy=policy)
