"""The pipeline of ``plan``: read, solve, compose, verify, save.

No plan is saved that the judge refuses. A signal keeps the best verified plan.
"""

from __future__ import annotations

import gc
import shlex
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from models.documents.policy import MAX_BUDGET
from models.instance.policy import EVERY_SCHEDULER
from planner import __version__
from planner.atomic_files import check_target, encoded, save
from planner.errors import Fault, InputError, RefusedPlanError, UsageError
from planner.pipelines.adjustments import (
    avoiding,
    freeze_running,
    since_release,
    with_defragment,
    with_evictions,
    with_stability,
)
from planner.pipelines.judge_process import Findings, JudgeProcess, judge_apart
from planner.pipelines.refused_statements import without_refused
from planner.pipelines.required_gangs import Required, resolve, unmet
from planner.pipelines.timed_search import TimedSearch
from planner.pipelines.what_if import Changes, with_changes
from planner.show.progress import PHASES, STOPPING
from planner.signals import stop_on_signal

if TYPE_CHECKING:
    from models.apply.notes import EvictNote, Promises
    from models.documents.plan import PlanDocument
    from models.instance.instance import Instance
    from models.instance.solution import GangDecision, Solution
    from models.results.plan import PlanWriter
    from models.verify.check import Judge, Verdict
    from models.verify.violation import Violation
    from planner.read.instance_builder import LoadedInput
    from planner.read.kube.objects import Gatherer
    from planner.show.console import Console

BUDGET_PER_S = 10
"""A budget that outlasts each second of a time limit, whatever the workers."""


MAX_MENDED = 10
"""Times that a plan is checked again without what was refused: each time some statement is left out."""

MAX_SHOWN = 20
"""Violations shown of a refused plan."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The options of ``plan``; None keeps the value of the policy.

    ``previous``: file of an earlier plan; ``promises``: of the last run. ``now``: seconds since the epoch.
    ``keep_running``: running gangs keep every pod as it is; ``keep_in``: those of these namespaces do.
    ``avoid``: (gang, node) on which it did not start.
    ``held``: (gang, last time at which a gate of others held it).
    ``evicted``: gangs that plans stopped or moved.
    ``schedulers``: others that are planned. ``changes``: of a what-if. ``gather``: adds the objects of a
    live cluster to those of the paths.
    """

    paths: tuple[str, ...]
    out: Path | None = None
    policy: str | None = None
    require: tuple[str, ...] = ()
    budget: int | None = None
    time_limit_s: int | None = None
    seed: int | None = None
    workers: int | None = None
    previous: str | None = None
    promises: Promises | None = None
    defragment: bool = False
    now: int | None = None
    keep_running: bool = False
    keep_in: frozenset[str] = frozenset()
    avoid: tuple[tuple[tuple[str, str], str], ...] = ()
    held: tuple[tuple[tuple[str, str], int], ...] = ()
    evicted: tuple[EvictNote, ...] = ()
    schedulers: tuple[str, ...] | None = None
    changes: Changes = field(default_factory=Changes)
    gather: Callable[[Gatherer], None] | None = None

    @property
    def read_paths(self) -> tuple[str, ...]:
        """The input, and what is added to it."""
        return (*self.paths, *self.changes.add)

    @property
    def scheduler_option(self) -> str | None:
        """``schedulers`` as ``--scheduler`` states them."""
        if self.schedulers is None:
            return None
        return "all" if EVERY_SCHEDULER in self.schedulers else ",".join(self.schedulers) or "mine"


ReadReporter = Callable[["LoadedInput"], None]
"""Receives the result of reading, before the search."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A verified plan, typed, and the text of its JSON document.

    ``signal_exit``: 129, 130 or 143 if a signal stopped the search. ``made_of``: its input and solution.
    """

    plan: PlanDocument
    text: str
    unmet: tuple[Required, ...]
    signal_exit: int | None
    seconds: dict[str, float] = field(default_factory=dict)
    made_of: tuple[LoadedInput, Solution] | None = None


class Phases:
    """Seconds of each phase, in order, summed if it runs twice."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = self._clock()
        try:
            yield
        finally:
            self.add({name: self._clock() - start})

    def add(self, seconds: Mapping[str, float]) -> None:
        for name, spent in seconds.items():
            self.seconds[name] = round(self.seconds.get(name, 0.0) + spent, 3)


@contextmanager
def uncollected() -> Iterator[None]:
    """What is made in bulk inside stays: until this is used again no collection of garbage looks at it."""
    gc.unfreeze()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def plan(
    request: PlanRequest,
    console: Console,
    *,
    created_at: str,
    stdin: BinaryIO | None = None,
    clock: Callable[[], float] = time.monotonic,
    on_read: ReadReporter | None = None,
) -> Planned:
    """Make a verified plan and save it if requested.

    ``on_read``: replaces the default report of the input.

    Raises InputError, MissingPathError, UsageError before the search; NoPlanError,
    RefusedPlanError, CannotWriteError after it.
    """
    phases, began = Phases(clock), clock()
    if request.out is not None:
        check_out(request.out, request.read_paths)
    console.doing("reading the input")
    with phases.phase("read"), uncollected():
        built = read_request(request, stdin)
        instance = built.instance
    if on_read is None:
        report_reading(console, built, request)
    else:
        on_read(built)
    required = tuple(resolve(name, instance) for name in request.require)
    console.event(
        "read",
        nodes=len(instance.cluster.nodes),
        gangs=len(instance.gangs),
        left_out=built.left_out,
    )

    console.doing("building the model")
    with judge_apart(instance) as apart:
        maker = Maker(request, built, created_at, console, apart)
        with stop_on_signal(maker.saving, maker.stopping) as stop:
            with phases.phase("solve"):
                search = TimedSearch(
                    instance,
                    console,
                    stop.event,
                    clock,
                    maker.keep,
                    spent=clock() - began,
                )
                with uncollected():
                    maker.announce()
                solution = search.run()
            stopped = stop.event.is_set()
            console.doing(f"{'stopping: ' * stopped}verifying the best plan so far")
            made, found = maker.made(solution, phases, refute=not stopped)
            console.clear_live()
            console.event("solve_done", outcome=made.status.outcome, stopped_by=solution.stopped_by)
            console.event("verify_done", violations=0)
            left_out: tuple[Required, ...] = ()
            if required:
                with phases.phase("require"):
                    left_out = unmet(required, instance, solution, stop.event)
    return Planned(made, found.text, left_out, stop.exit_code, phases.seconds, (built, solution))


@dataclass(frozen=True, slots=True)
class _Checked:
    """A plan as it was checked: the text of its document, its typed form if it was asked for."""

    text: str
    plan: PlanDocument | None
    findings: Findings


class Maker:
    """Makes plans of solutions, verifies them and saves them if requested.

    ``apart``: a process that verifies them as long as it lives; without one this process does.
    """

    def __init__(
        self,
        request: PlanRequest,
        built: LoadedInput,
        created_at: str,
        console: Console,
        apart: JudgeProcess | None = None,
    ) -> None:
        self._request = request
        self._built = built
        self._created_at = created_at
        self._console = console
        self._apart = apart

    @cached_property
    def _writer(self) -> PlanWriter:
        from models.results.plan import PlanWriter
        from planner.show.reason_words import words

        return PlanWriter(self._built.instance, words)

    @cached_property
    def _judge(self) -> Judge:
        from models.verify.check import Judge

        return Judge()

    @property
    def stopping(self) -> bytes:
        """The live line that answers the first signal, even while the first plan is verified."""
        if not self._console.has_live_line:
            return b""  # the progress says it once, as a line
        text = PHASES[STOPPING][: self._console.live_width - 1]
        return f"\r\x1b[2K{text}".encode()

    @property
    def saving(self) -> bytes:
        """The answer to a signal while the plan is finished."""
        what = "the best plan so far is being verified and saved; please wait"
        if self._console.json_log:
            return f'{{"type": "saving", "message": "{what}"}}\n'.encode()
        wipe = "\r\x1b[2K" * self._console.is_terminal(self._console.stderr)
        return f"{wipe}{what}\n".encode()

    def announce(self) -> None:
        """Let the process that verifies read the instance, while there is no plan yet."""
        if self._apart is not None:
            self._apart.expect(encoded(self._writer.instance_text))

    def keep(self, solution: Solution) -> float:
        """Verify an early plan and save it if requested, so that something usable exists.

        Returns the seconds for which the process that verifies still read the instance.
        """
        found = self._verified(solution, refute=True, last=False)
        self._save(found.text)
        out = self._request.out
        self._console.event("first_plan", saved=out is not None)
        if out is not None:
            saved = shlex.quote(str(out))
            self._console.say(f"first plan verified, saved {saved}")
        return found.findings.waited_s

    def made(
        self, solution: Solution, phases: Phases, *, refute: bool = True
    ) -> tuple[PlanDocument, _Checked]:
        """The verified plan, saved if requested. Raises RefusedPlanError, CannotWriteError.

        ``refute``: whether the judge looks for a better plan. A proof that it refutes is an engine's
        error, and given up: the plan itself breaks no rule.
        """
        with phases.phase("check"):
            found = self._verified(solution, refute=refute, last=True)
        assert found.plan is not None, "a plan without violations has a form"
        if self._request.out is not None:
            self._console.doing("saving the plan")
            with phases.phase("save"):
                self._save(found.text)
        return found.plan, found

    def _verified(self, solution: Solution, *, refute: bool, last: bool) -> _Checked:
        """The plan of a solution. Raises RefusedPlanError. ``last``: its typed form is needed.

        A statement that is refused is left out, which the plan says: a gang that cannot be explained blocks
        no other.
        """
        instance, remarks = self._built.instance, tuple[str, ...]()
        found = self._checked(solution, remarks, refute=refute, last=last)
        for _ in range(MAX_MENDED):
            if found.findings.refuted:
                solution, refute = _unproven(instance, solution, found.findings.refuted), False
            elif (less := without_refused(instance, solution, found.findings.violations)) is None:
                break
            else:
                solution, more = less
                remarks += more
            found = self._checked(solution, remarks, refute=refute, last=last)
        if last:
            self._console.remarks(remarks)
        if found.findings.violations or (last and found.plan is None):
            raise RefusedPlanError(*refusals(found.findings.violations))
        return found

    def _checked(
        self, solution: Solution, remarks: tuple[str, ...], *, refute: bool, last: bool
    ) -> _Checked:
        document = self._writer.compose(
            solution,
            name=f"{self._built.instance.cluster.name}-{self._created_at.translate(_NAME).lower()}",
            created_at=self._created_at,
            generator=f"gangplan {__version__}",
            remarks=(*self._built.remarks, *remarks),
            left_out=self._built.left_out,
        )
        text = self._writer.text(document)
        if self._apart is not None:
            self._apart.ask(encoded(text), refute=refute)
            plan = _typed(document) if last else None  # while that process checks it
            findings = self._apart.findings()
            if findings is not None:
                return _Checked(text, plan, findings)
            self._apart = None
        verdict = self._judge.check(document, refute=refute)
        findings = Findings(verdict.violations, verdict.refuted)
        return _Checked(text, verdict.document, findings)

    def _save(self, text: str) -> None:
        if self._request.out is not None:
            save(self._request.out, text)


def _typed(document: dict[str, Any]) -> PlanDocument | None:
    """The plan as its type; None if its form is broken, which the judge then says."""
    from pydantic import ValidationError

    from models.documents.plan import PlanDocument

    try:
        return PlanDocument.model_validate(document, context={})
    except ValidationError:
        return None


def _unproven(instance: Instance, solution: Solution, refuted: Collection[str]) -> Solution:
    """The solution without the bounds of these tiers: what is implied by the input is left."""
    from models.values.implied_bounds import ImpliedBounds
    from models.values.tier_values import tiers_of

    implied = ImpliedBounds(instance)
    tiers = tuple(
        replace(found, bound=implied.bound(tier), proof=None) if found.name in refuted else found
        for tier, found in zip(tiers_of(instance), solution.tiers, strict=True)
    )
    stopped_by = "budget" if solution.stopped_by == "proof" else solution.stopped_by
    names = ", ".join(sorted(refuted))
    note = f"the judge found a better plan than an engine's proof allows: not proven: {names}"
    notes = (*solution.notes, note)
    decisions = tuple(_without_proof(one) for one in solution.decisions)
    return replace(solution, decisions=decisions, tiers=tiers, stopped_by=stopped_by, notes=notes)


def _without_proof(decision: GangDecision) -> GangDecision:
    """The decision with a reason that rests on no proof."""
    reason = decision.reason
    if reason is None:
        return decision
    fields = reason.fields.model_copy(update={"proven": False})
    return replace(decision, reason=replace(reason, fields=fields))


_NAME = str.maketrans("", "", "-:")


def report_reading(console: Console, built: LoadedInput, request: PlanRequest) -> None:
    """Where the levels come from, and the first warnings."""
    given = (("--scheduler", request.scheduler_option), ("--policy", request.policy))
    options = [word for option, value in given if value is not None for word in (option, value)]
    files = [path for path in request.paths if path != "-"]
    console.levels_source(built.levels_source)
    console.remarks(
        built.remarks,
        all_with=shlex.join([*console.program.split(), "validate", *files, *options]),
    )


def verify_file(content: bytes, path: str) -> PlanDocument:
    """The plan of a file if the judge accepts it; raises as ``judge_file`` does."""
    return judge_file(content, path)[0]


def judge_file(content: bytes, path: str) -> tuple[PlanDocument, Verdict]:
    """The plan of a file that the judge accepts, and what it says of it.

    Raises InputError for a file that is no plan, RefusedPlanError for a plan with violations, its
    form included.
    """
    from models.verify.check import Judge, check
    from planner.read import plan_files

    document = plan_files.parse(content, path)
    try:
        plan = plan_files.read_plan(content, path)
    except InputError as broken:
        raise RefusedPlanError(*(refusals(check(document), path) or broken.faults)) from None
    verdict = Judge().check(document, plan)
    if verdict.violations:
        raise RefusedPlanError(*refusals(verdict.violations, path))
    return plan, verdict


def refusals(violations: list[Violation], path: str | None = None) -> list[Fault]:
    """The judge's violations as errors, at most MAX_SHOWN and a count of the rest."""
    faults = [
        Fault(f"{v.rule}: {f'{v.gang}: ' if v.gang else ''}{v.message}", file=path)
        for v in violations[:MAX_SHOWN]
    ]
    rest = len(violations) - len(faults)
    hint = (
        "this is a bug of gangplan: nothing was saved; please report it with the input"
        if path is None
        else "do not use this plan: it was changed after it was made, or made by another program"
    )
    said = (
        f"the verifier refuses the plan ({len(violations)} violation{'s' * (len(violations) != 1)})"
    )
    if rest:
        said += f", the first {MAX_SHOWN} are shown"
    return [*faults, Fault(said, hint)]


def now(environ: Mapping[str, str], clock: Callable[[], float] = time.time) -> str:
    """Creation time of a plan, RFC 3339 UTC: SOURCE_DATE_EPOCH if set, for reproducible files."""
    epoch = environ.get("SOURCE_DATE_EPOCH")
    try:
        seconds = int(clock()) if not epoch else int(epoch)
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            Fault(
                f"SOURCE_DATE_EPOCH is not a time: {epoch!r}",
                "give seconds since 1970, or unset it",
            )
        ) from None


def check_out(out: Path, paths: tuple[str, ...]) -> None:
    if str(out) == "-":
        raise UsageError(Fault("--out takes a file", "for the plan on stdout use -o json"))
    check_target(out, paths)


def read_request(request: PlanRequest, stdin: BinaryIO | None) -> LoadedInput:
    """Read the input and apply the options of the command line."""
    from models.queues.bands import banded
    from planner.pipelines.adjustments import evictions_of, with_previous, with_promises
    from planner.read import plan_files
    from planner.read.inputs import load

    if request.previous == "-" and "-" in (*request.read_paths, request.policy):
        raise UsageError(Fault("--previous - and the input both read stdin", "name a file"))
    previous = None if request.previous is None else plan_files.load(request.previous, stdin)
    built = load(
        request.read_paths,
        policy=request.policy,
        now=request.now,
        schedulers=request.schedulers,
        stdin=stdin,
        gather=request.gather,
    )
    instance, changed = with_changes(built.instance, request.changes)
    instance, remarks = _limited(instance, request), (*changed, *built.remarks)
    if request.keep_running:
        instance = freeze_running(instance)
    elif request.keep_in:
        instance = freeze_running(instance, request.keep_in)
    instance, avoided = avoiding(instance, request.avoid)
    instance = with_evictions(instance, request.evicted)
    instance, released = since_release(instance, request.held)
    remarks = (*avoided, *released, *remarks)
    if request.defragment:
        instance = replace(instance, policy=with_defragment(instance.policy))
    if previous is not None and request.previous is not None:
        instance, more = with_previous(instance, previous, request.previous)
        instance = with_evictions(instance, evictions_of(previous))
        instance = replace(instance, policy=with_stability(instance.policy))
        remarks = (*more, *remarks)
    elif request.promises is not None and instance.policy.reservations is not None:
        instance = with_promises(instance, request.promises)
    instance = banded(instance)  # an eviction puts a gang at the end of the queue
    return replace(built, instance=instance, remarks=remarks)


def _limited(instance: Instance, request: PlanRequest) -> Instance:
    """The instance with the limits of the command line in its policy, so that the plan states them.

    Who gives a time limit alone wants that time used: the budget does not end the search before it.
    """
    budget = request.budget
    if budget is None and request.time_limit_s is not None:
        budget = max(instance.policy.solve.budget, BUDGET_PER_S * request.time_limit_s)
    given = {
        name: value
        for name, value in (
            ("budget", None if budget is None else min(budget, MAX_BUDGET)),
            ("time_limit_s", request.time_limit_s),
            ("seed", request.seed),
            ("workers", request.workers),
        )
        if value is not None
    }
    if not given:
        return instance
    policy = replace(instance.policy, solve=replace(instance.policy.solve, **given))
    return replace(instance, policy=policy)
