"""The pipeline of ``replay``: read a trace and a cluster, simulate every run in parallel, state the results.

Runs know nothing of each other, so the number of workers changes no result. What is finished is saved at
once; a replay that is stopped goes on from there.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pydantic import ValidationError

from models.documents.base import API_VERSION
from models.documents.canonical import canonical_instance, digest
from models.documents.policy import SolveLimits
from models.documents.replay import (
    Distribution,
    ReplayCluster,
    ReplayDigests,
    ReplayDocument,
    ReplayFailures,
    ReplayMetadata,
    ReplayRun,
    ReplaySpec,
    ReplayStatus,
    ReplayTiming,
    ReplayTrace,
)
from models.hardware import Nic, ServerModel
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.program.base_state import base_decisions
from models.units import epoch_seconds, plural
from planner import __version__
from planner.atomic_files import check_target, save
from planner.errors import Fault, InputError, UsageError
from planner.read.inputs import load
from planner.read.instance_builder import default_mix
from planner.read.traces.trace_files import read_trace
from planner.replay.jobs import MS, JobFacts
from planner.replay.schedulers import RULES, Baseline, Planner, Scheduler, limited
from planner.replay.simulation import EPOCH, Scenario, Settings, Simulation, Stopped
from planner.replay.summary import distribution, least_mean_ms, run_document, spreads
from planner.search.budget import Budget
from planner.search.executors import PROCESSES, THREADS, Workers
from planner.search.start.greedy import greedy
from planner.signals import stop_on_signal

if TYPE_CHECKING:
    from planner.read.traces.trace import Trace
    from planner.show.console import Console


NO_LIMIT_S = 10**9


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """The options of ``replay``. ``policies``: files; without any the Policy in ``cluster``, or the default.

    ``baselines``: names of rules. ``budget``: of one plan. ``prefer``: level that gangs of several pods
    prefer, unless they say. ``resume``: keep the finished runs of ``out``. ``repeat``: runs of each, with
    arrivals moved by up to ``jitter_ms`` at random. ``fraction``: of a step that all gangs spend in
    communication where links are ideal, None for what they state. ``rules_only``: no plans.
    """

    trace: str
    cluster: tuple[str, ...]
    policies: tuple[str, ...]
    baselines: tuple[str, ...]
    settings: Settings
    budget: int = 1
    from_s: int = 0
    until_s: int | None = None
    speedup: Fraction = Fraction(1)
    node_gpus: int | None = None
    prefer: str | None = None
    out: Path | None = None
    resume: bool = False
    workers: int | None = None
    executor: str | None = None
    repeat: int = 1
    jitter_ms: int = 0
    fraction: Fraction | None = None
    rules_only: bool = False


@dataclass(frozen=True)
class RunTask:
    """One run, complete in itself. ``rules``: name of a baseline, None for the planner.

    ``stop``: shared by threads; another process has one of its own.
    """

    name: str
    repeat: int
    scenario: Scenario
    rules: str | None
    inputs: str
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def kind(self) -> str:
        return "policy" if self.rules is None else "baseline"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "stop"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, stop=threading.Event())

    def scheduler(self) -> Scheduler:
        """A new one: it counts its own seconds."""
        policy = self.scenario.instance.policy
        if self.rules is None:
            return Planner(policy, self.stop)
        return Baseline(RULES[self.rules], policy)


Finished = tuple[dict[str, Any], dict[str, Any]]
"""The JSON of a run and of its timing."""


def run_one(task: RunTask, _seconds: float) -> Finished | None:
    """Simulate one run; None if it was stopped."""
    started = time.monotonic()
    scheduler = task.scheduler()
    simulation = Simulation(task.scenario, scheduler, task.stop)
    try:
        simulation.run()
    except Stopped:
        return None
    document = run_document(task.name, task.repeat, task.kind, task.inputs, simulation)
    seconds = [round(1000 * one) for one in getattr(scheduler, "seconds", ())]
    timing = ReplayTiming.model_construct(
        name=task.name,
        repeat=task.repeat,
        plans=len(seconds),
        planning_seconds=Distribution.model_construct(**distribution(seconds)),
        max_seconds=max(seconds, default=0) / MS if seconds else None,
        total_seconds=round(time.monotonic() - started, 3),
    )
    return document.to_json(), timing.to_json()


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replay, typed and as its JSON document. ``signal_exit``: 129, 130 or 143 if a signal stopped it."""

    replay: ReplayDocument
    document: dict[str, Any]
    signal_exit: int | None


def replay(
    request: ReplayRequest, console: Console, *, created_at: str, stdin: BinaryIO | None = None
) -> Replayed:
    """Simulate every run and save the results if requested.

    Raises InputError, MissingPathError, UsageError before; CannotWriteError.
    """
    if request.out is not None:
        check_target(request.out, (request.trace, *request.cluster, *request.policies))
    console.doing("reading the trace and the cluster")
    prepared = prepare(request, console, stdin)
    done: dict[str, Finished] = {}
    if request.resume and request.out is not None:
        done = _known(request.out, {task.inputs for task in prepared.tasks})
        if done:
            console.say(f"kept {plural(len(done), 'finished run')} of {request.out}")
    with stop_on_signal() as stop:
        tasks = [replace(t, stop=stop.event) for t in prepared.tasks if t.inputs not in done]
        for task, finished in _finished(tasks, request, stop.event, console, len(prepared.tasks)):
            done[task.inputs] = finished
            _report(console, finished)
            if request.out is not None:
                save(request.out, _text(_document(prepared, done, created_at)))
        console.clear_live()
        document = _document(prepared, done, created_at)
        if request.out is not None:
            save(request.out, _text(document))
        return Replayed(ReplayDocument.model_validate(document), document, stop.exit_code)


def _finished(
    tasks: Sequence[RunTask],
    request: ReplayRequest,
    stop: threading.Event,
    console: Console,
    total: int,
) -> Iterator[tuple[RunTask, Finished]]:
    """(task, result) of every run, as soon as it is finished."""
    if not tasks:
        return
    count = min(request.workers or os.cpu_count() or 1, len(tasks))
    spec = request.executor or (PROCESSES if count > 1 else THREADS)
    budget = Budget(SolveLimits(budget=NO_LIMIT_S, time_limit_s=NO_LIMIT_S), stop)
    left = len(tasks)
    with closing(Workers(spec, count)) as workers:
        console.doing(f"replaying: {total - left} of {total} runs finished")
        for number, result in workers.finished(run_one, tasks, budget):
            if result is None:
                return
            left -= 1
            yield tasks[number], result
            console.doing(f"replaying: {total - left} of {total} runs finished")


def _report(console: Console, finished: Finished) -> None:
    run, timing = finished
    console.event("run_done", name=run["name"], seconds=timing["totalSeconds"])
    completed, jobs = run["completed"], run["jobs"]
    took = timing["totalSeconds"]
    console.say(f"finished {run['name']}: {completed:,} of {jobs:,} jobs completed, {took:.0f} s")


# reading


@dataclass(frozen=True)
class Prepared:
    """All that is known before the first run. ``spec``: of the document."""

    tasks: tuple[RunTask, ...]
    spec: ReplaySpec
    least_mean_seconds: float


_NAMED = 3
"""Jobs that a warning names."""


def prepare(request: ReplayRequest, console: Console, stdin: BinaryIO | None = None) -> Prepared:
    """Read the trace, the cluster and the policies. Raises InputError, MissingPathError, UsageError."""
    more = {} if request.node_gpus is None else {"node_gpus": request.node_gpus}
    whole = read_trace(request.trace, stdin=stdin, **more)
    trace = whole.between(request.from_s, request.until_s).sped_up(request.speedup)
    if request.prefer is not None:
        trace = trace.preferring(request.prefer)
    if not trace.jobs:
        what = f"none of the {plural(len(whole.jobs), 'job')} of the trace arrives in the replayed part"
        raise InputError(Fault(what, "choose another --from and --until", request.trace))
    base = _scenario(request, trace, None)
    left_out = _too_large(base)
    if len(left_out) == len(base.jobs):
        what = "no job of the trace fits on the cluster, even when it is empty"
        raise InputError(Fault(what, "give a larger cluster with --cluster", request.trace))
    if whole.left_out:
        counts = ", ".join(f"{count:,} {why}" for why, count in whole.left_out)
        console.warn(f"jobs of the trace left out: {counts}")
    if left_out:
        named = ", ".join("/".join(key) for key in sorted(left_out)[:_NAMED])
        others = f" and {len(left_out) - _NAMED:,} more" if len(left_out) > _NAMED else ""
        what = "left out, there is no place even on the empty cluster"
        console.warn(f"{plural(len(left_out), 'job')} {what}: {named}{others}")
    scenarios = [(name, _scenario(request, trace, path)) for name, path in _names(request)]
    rules = [(name, _at_events(base), name) for name in request.baselines]
    runs = [*((name, scenario, None) for name, scenario in scenarios), *rules]
    tasks = [
        _task(name, repeat, _jittered(_without(s, left_out), request, repeat), rules)
        for repeat in range(1, request.repeat + 1)
        for name, s, rules in runs
        if rules is not None or not request.rules_only
    ]
    jobs = _without(base, left_out).jobs
    spec = _spec(request, trace, base, jobs, len(left_out))
    least_ms = least_mean_ms(jobs, spec.cluster.gpus)
    return Prepared(tuple(tasks), spec, float(round(least_ms / MS, 3)))


def _at_events(scenario: Scenario) -> Scenario:
    """The scenario of a baseline: what concerns plans alone makes no difference to it."""
    policy = replace(scenario.instance.policy, solve=SolveLimits())
    return replace(
        scenario,
        instance=replace(scenario.instance, policy=policy),
        settings=replace(scenario.settings, every_ms=0, debounce_ms=0),
    )


def _names(request: ReplayRequest) -> list[tuple[str, str | None]]:
    """(name, file) of every policy: the file's name without its ending, or all of it if that is not clear."""
    if not request.policies:
        return [("default", None)]
    stems = [Path(path).stem for path in request.policies]
    taken = [*stems, *request.baselines]
    return [
        (stem if taken.count(stem) == 1 else path, path)
        for stem, path in zip(stems, request.policies, strict=True)
    ]


def _scenario(request: ReplayRequest, trace: Trace, policy: str | None) -> Scenario:
    epoch = EPOCH if trace.starts_at is None else trace.starts_at
    gangs = [job.gang_document(epoch) for job in trace.jobs]
    loaded = load(request.cluster, policy=policy, jobs=(request.trace, gangs))
    built = reachable(loaded.instance)
    by_key = {
        gang.key: replace(
            gang,
            hold=None,
            preemptible=gang.preemptible or request.settings.preemptible,
            fraction=gang.fraction if request.fraction is None else request.fraction,
        )
        for gang in built.gangs
    }
    jobs = tuple(
        JobFacts(by_key[job.key], MS * job.submit_s, MS * job.duration_s) for job in trace.jobs
    )
    own_mix = built.policy.mix != default_mix(built.gangs, built.cluster.nodes)
    limits = limited(built.policy, request.budget, request.settings.seed)
    instance = replace(built, gangs=(), policy=limits)
    return Scenario(
        instance,
        jobs,
        epoch,
        request.settings,
        own_mix=own_mix,
        own_max_gangs=loaded.states_max_gangs,
    )


def reachable(instance: Instance) -> Instance:
    """The instance in which the ideal of a server model is that of the best such server of the cluster.

    The catalogue's NICs may be more than any server has: then no gang of several servers could take as little
    time as its trace says.
    """
    best: dict[ServerModel, tuple[Nic, ...]] = {}
    for node in instance.cluster.nodes:
        if node.model is not None:
            known = best.get(node.model, ())
            best[node.model] = max(known, node.effective_nics, key=_megabits)
    models = {model: replace(model, nics=nics) for model, nics in best.items()}
    nodes = tuple(
        node
        if node.model is None
        else replace(node, model=models[node.model], nics=node.effective_nics)
        for node in instance.cluster.nodes
    )
    return replace(instance, cluster=replace(instance.cluster, nodes=nodes))


def _megabits(nics: Sequence[Nic]) -> int:
    return sum(nic.megabits or 0 for nic in nics)


def _too_large(scenario: Scenario) -> frozenset[tuple[str, str]]:
    """Gangs for which there is no place even if the cluster is empty, whatever their bandwidth."""
    base = scenario.instance
    policy = replace(base.policy, min_bandwidth_share=Fraction(0), patience=None)
    known: dict[Gang, bool] = {}
    found = set()
    for job in scenario.jobs:
        shape = replace(job.gang, namespace="", name="", submitted_at=None, queue=None, priority=0)
        if shape not in known:
            known[shape] = _fits(base.with_gangs((shape,), policy))
        if not known[shape]:
            found.add(job.gang.key)
    return frozenset(found)


def _fits(instance: Instance) -> bool:
    return bool(greedy(instance, base_decisions(instance))[0].pods)


def _without(scenario: Scenario, left_out: frozenset[tuple[str, str]]) -> Scenario:
    return replace(
        scenario, jobs=tuple(job for job in scenario.jobs if job.gang.key not in left_out)
    )


def _jittered(scenario: Scenario, request: ReplayRequest, repeat: int) -> Scenario:
    """The scenario with each arrival moved at random, and a search seed of its own.

    The same repeat is the same for everybody who decides, so that differences are paired.
    """
    if request.repeat == 1 and not request.jitter_ms:
        return scenario
    settings, jobs = scenario.settings, []
    for job in scenario.jobs:
        draw = random.Random(f"{settings.seed}/{repeat}/{'/'.join(job.gang.key)}")  # noqa: S311  # a sample
        submit_ms = max(0, job.submit_ms + draw.randint(-request.jitter_ms, request.jitter_ms))
        gang = replace(job.gang, submitted_at=scenario.epoch + submit_ms // MS)
        jobs.append(replace(job, submit_ms=submit_ms, gang=gang))
    policy = scenario.instance.policy
    limits = replace(policy.solve, seed=policy.solve.seed + repeat - 1)
    return replace(
        scenario,
        jobs=tuple(sorted(jobs, key=lambda job: (job.submit_ms, job.gang.key))),
        instance=replace(scenario.instance, policy=replace(policy, solve=limits)),
        settings=replace(settings, seed=settings.seed + repeat - 1),
    )


def _task(name: str, repeat: int, scenario: Scenario, rules: str | None) -> RunTask:
    gangs = tuple(sorted((job.gang for job in scenario.jobs), key=lambda gang: gang.key))
    inputs = {
        "generator": f"gangplan {__version__}",
        "name": name,
        "rules": rules,
        "instance": canonical_instance(replace(scenario.instance, gangs=gangs)),
        "times": [[job.submit_ms, job.duration_ms] for job in scenario.jobs],
        "settings": repr(scenario.settings),
        "ownMix": scenario.own_mix,
        "ownMaxGangs": scenario.own_max_gangs,
    }
    return RunTask(name, repeat, scenario, rules, digest(inputs))


# the document


def _spec(
    request: ReplayRequest, trace: Trace, base: Scenario, jobs: Sequence[JobFacts], left_out: int
) -> ReplaySpec:
    settings, cluster = request.settings, base.instance.cluster
    work = sum(job.duration_ms * job.gpus for job in jobs)
    failures = None
    if settings.mtbf_ms is not None:
        failures = ReplayFailures.model_construct(
            mtbf_seconds=settings.mtbf_ms // MS, repair_seconds=settings.repair_ms // MS
        )
    return ReplaySpec.model_construct(
        trace=ReplayTrace.model_construct(
            name=trace.name, jobs=len(jobs), left_out=left_out, gpu_seconds=work / MS
        ),
        cluster=ReplayCluster.model_construct(
            name=cluster.name,
            nodes=len(cluster.nodes),
            gpus=sum(node.gpus for node in cluster.nodes),
        ),
        seed=settings.seed,
        from_seconds=request.from_s,
        until_seconds=request.until_s,
        every_seconds=settings.every_ms // MS,
        debounce_seconds=settings.debounce_ms // MS,
        budget=request.budget,
        speedup=float(request.speedup),
        prefer=request.prefer,
        restart_seconds=settings.restart_ms // MS,
        checkpoint_seconds=settings.checkpoint_ms // MS,
        preemptible=settings.preemptible,
        failures=failures,
        repeat=request.repeat,
        jitter_seconds=request.jitter_ms // MS,
    )


def _document(prepared: Prepared, done: dict[str, Finished], created_at: str) -> dict[str, Any]:
    """The document of the runs that are finished, in the order asked for."""
    known = [done[task.inputs] for task in prepared.tasks if task.inputs in done]
    missing = dict.fromkeys(task.name for task in prepared.tasks if task.inputs not in done)
    runs = tuple(ReplayRun.model_validate(run) for run, _ in known)
    together, best = spreads(runs)
    stem = f"{prepared.spec.trace.name}-{prepared.spec.cluster.name}"
    return ReplayDocument.model_construct(
        api_version=API_VERSION,
        kind="Replay",
        metadata=ReplayMetadata.model_construct(
            name=stem, created_at=epoch_seconds(created_at), generator=f"gangplan {__version__}"
        ),
        spec=prepared.spec,
        status=ReplayStatus.model_construct(
            runs=runs,
            spreads=together,
            best=best,
            least_mean_seconds=prepared.least_mean_seconds,
            missing=tuple(missing),
            digests=ReplayDigests.model_construct(runs=digest([run for run, _ in known])),
            timing=tuple(ReplayTiming.model_validate(timing) for _, timing in known),
        ),
    ).to_json()


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _known(out: Path, wanted: set[str]) -> dict[str, Finished]:
    """The runs of an earlier replay that would give the same again, by their inputs.

    Raises UsageError for a file that is no replay.
    """
    if not out.exists():
        return {}
    try:
        found = ReplayDocument.model_validate(json.loads(out.read_bytes()))
    except (ValueError, OSError, RecursionError, ValidationError):
        hint = "name the file that the stopped replay wrote, or leave out --resume"
        raise UsageError(Fault(f"--resume: {out} is not a replay", hint)) from None
    timing = {(one.name, one.repeat): one for one in found.status.timing}
    return {
        run.inputs: (run.to_json(), timing[run.name, run.repeat].to_json())
        for run in found.status.runs
        if run.inputs in wanted and (run.name, run.repeat) in timing
    }
