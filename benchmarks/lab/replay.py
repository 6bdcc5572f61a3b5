"""A replay: read a trace and a cluster, simulate every run in parallel, state the results.

Runs know nothing of each other, so the number of workers changes no result.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.lab.jobs import MS, JobFacts
from benchmarks.lab.rules import RULES
from benchmarks.lab.schedulers import Baseline, Planner, Scheduler, limited
from benchmarks.lab.simulation import EPOCH, Scenario, Settings, Simulation
from benchmarks.lab.summary import Figures, figures, least_mean_ms
from benchmarks.lab.trace_files import read_trace
from models.documents.policy import SolveLimits
from models.hardware import Nic, ServerModel
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.program.base_state import base_decisions
from models.units import plural
from planner.errors import Fault, InputError
from planner.read.inputs import load
from planner.read.instance_builder import default_mix
from planner.search.budget import Budget
from planner.search.executors import PROCESSES, THREADS, Workers
from planner.search.start.greedy import greedy

if TYPE_CHECKING:
    from benchmarks.lab.trace import Trace

NO_LIMIT_S = 10**9


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What to replay. ``policies``: files; without any the Policy in ``cluster``, or the default.

    ``rules``: names of other schedulers. ``budget``: of one plan. ``prefer``: level that gangs of several
    pods prefer, unless they say. ``repeat``: runs of each, with arrivals moved by up to ``jitter_ms``.
    ``fraction``: of a step that all gangs spend in communication where links are ideal, None for what they
    state. ``rules_only``: no plans.
    """

    trace: str
    cluster: tuple[str, ...]
    policies: tuple[str, ...]
    rules: tuple[str, ...]
    settings: Settings
    budget: int = 1
    from_s: int = 0
    until_s: int | None = None
    speedup: Fraction = Fraction(1)
    node_gpus: int | None = None
    prefer: str | None = None
    workers: int | None = None
    repeat: int = 1
    jitter_ms: int = 0
    fraction: Fraction | None = None
    rules_only: bool = False


@dataclass(frozen=True)
class RunTask:
    """One run, complete in itself. ``rules``: name of another scheduler, None for the planner."""

    name: str
    repeat: int
    scenario: Scenario
    rules: str | None

    def scheduler(self) -> Scheduler:
        """A new one: it counts its own seconds."""
        policy = self.scenario.instance.policy
        if self.rules is None:
            return Planner(policy, threading.Event())
        return Baseline(RULES[self.rules], policy)


def run_one(task: RunTask, _seconds: float) -> Figures:
    """Simulate one run."""
    started = time.monotonic()
    scheduler = task.scheduler()
    simulation = Simulation(task.scenario, scheduler)
    simulation.run()
    plans = list(getattr(scheduler, "seconds", ()))
    found = figures(task.name, task.repeat, simulation)
    took = round(time.monotonic() - started, 3)
    return found | {"plans": len(plans), "longestPlan": max(plans, default=None), "took": took}


@dataclass(frozen=True)
class Replayed:
    """The runs, in the order asked for. ``facts``: of what was replayed; ``remarks``: what was left out."""

    runs: tuple[Figures, ...]
    facts: dict[str, Any]
    remarks: tuple[str, ...]


def replay(request: ReplayRequest) -> Replayed:
    """Simulate every run. Raises InputError, MissingPathError, UsageError before."""
    tasks, facts, remarks = prepare(request)
    done = dict(_finished(tasks, request.workers))
    return Replayed(tuple(done[number] for number in range(len(tasks))), facts, remarks)


def _finished(tasks: Sequence[RunTask], workers: int | None) -> Iterator[tuple[int, Figures]]:
    count = min(workers or os.cpu_count() or 1, len(tasks))
    budget = Budget(SolveLimits(budget=NO_LIMIT_S, time_limit_s=NO_LIMIT_S), threading.Event())
    with closing(Workers(PROCESSES if count > 1 else THREADS, count)) as pool:
        yield from pool.finished(run_one, tasks, budget)


_NAMED = 3
"""Jobs that a remark names."""


def prepare(request: ReplayRequest) -> tuple[list[RunTask], dict[str, Any], tuple[str, ...]]:
    """(runs, facts, remarks). Raises InputError, MissingPathError, UsageError."""
    more = {} if request.node_gpus is None else {"node_gpus": request.node_gpus}
    whole = read_trace(request.trace, **more)
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
    remarks = [f"{count:,} jobs of the trace left out: {why}" for why, count in whole.left_out]
    if left_out:
        named = ", ".join("/".join(key) for key in sorted(left_out)[:_NAMED])
        more_of = f" and {len(left_out) - _NAMED:,} more" if len(left_out) > _NAMED else ""
        what = "left out, there is no place even on the empty cluster"
        remarks.append(f"{plural(len(left_out), 'job')} {what}: {named}{more_of}")
    runs = [] if request.rules_only else _policies(request, trace)
    runs += [(name, _at_events(base), name) for name in request.rules]
    tasks = [
        RunTask(name, repeat, _jittered(_without(scenario, left_out), request, repeat), rules)
        for repeat in range(1, request.repeat + 1)
        for name, scenario, rules in runs
    ]
    jobs = _without(base, left_out).jobs
    gpus = sum(node.gpus for node in base.instance.cluster.nodes)
    facts = {
        "trace": trace.name,
        "jobs": len(jobs),
        "gpuSeconds": sum(job.duration_ms * job.gpus for job in jobs) / MS,
        "cluster": base.instance.cluster.name,
        "gpus": gpus,
        "leastMeanSeconds": float(round(least_mean_ms(jobs, gpus) / MS, 3)),
    }
    return tasks, facts, tuple(remarks)


def _policies(request: ReplayRequest, trace: Trace) -> list[tuple[str, Scenario, str | None]]:
    """A policy is named as its file without its ending, or as all of it if that is not clear."""
    if not request.policies:
        return [("default", _scenario(request, trace, None), None)]
    stems = [Path(path).stem for path in request.policies]
    taken = [*stems, *request.rules]
    return [
        (stem if taken.count(stem) == 1 else path, _scenario(request, trace, path), None)
        for stem, path in zip(stems, request.policies, strict=True)
    ]


def _at_events(scenario: Scenario) -> Scenario:
    """The scenario of other rules: what concerns plans alone makes no difference to them."""
    policy = replace(scenario.instance.policy, solve=SolveLimits())
    return replace(
        scenario,
        instance=replace(scenario.instance, policy=policy),
        settings=replace(scenario.settings, every_ms=0, debounce_ms=0),
    )


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
    return Scenario(
        replace(built, gangs=(), policy=limits),
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
    policy = replace(base.policy, min_bandwidth_share=Fraction(0))
    known: dict[Gang, bool] = {}
    found = set()
    for job in scenario.jobs:
        shape = replace(job.gang, namespace="", name="", submitted_at=None, queue=None, priority=0)
        if shape not in known:
            alone = base.with_gangs((shape,), policy)
            known[shape] = bool(greedy(alone, base_decisions(alone))[0].pods)
        if not known[shape]:
            found.add(job.gang.key)
    return frozenset(found)


def _without(scenario: Scenario, left_out: frozenset[tuple[str, str]]) -> Scenario:
    jobs = tuple(job for job in scenario.jobs if job.gang.key not in left_out)
    return replace(scenario, jobs=jobs)


def _jittered(scenario: Scenario, request: ReplayRequest, repeat: int) -> Scenario:
    """The scenario with each arrival moved at random, and a search seed of its own.

    The same repeat is the same for everybody who decides, so that differences are paired.
    """
    if request.repeat == 1:
        return scenario
    settings, jobs = scenario.settings, []
    for job in scenario.jobs:
        draw = random.Random(f"{settings.seed}/{repeat}/{'/'.join(job.gang.key)}")
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
