"""Replay a trace on a cluster: every run in a process of its own, the same wherever and however many at once.

Arrivals are moved at random, in each repeat anew and the same for all who decide, so that differences are
paired.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.lab.deciders import Baseline, Planner, limited
from benchmarks.lab.jobs import MS, JobFacts
from benchmarks.lab.rules import RULES
from benchmarks.lab.simulation import EPOCH, Scenario, Settings, Simulation
from benchmarks.lab.summary import Result, least_mean_ms, result
from benchmarks.lab.trace import Trace
from models.documents.policy import SolveLimits
from models.hardware import Nic, ServerModel
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.program.base_state import base_decisions
from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput, default_mix
from planner.search.start.greedy import greedy


@dataclass(frozen=True, slots=True)
class Request:
    """``policies``: files, ``baselines``: names of rules; without both the default policy.

    ``budget``: of one plan. ``repeat``: runs of each, with arrivals moved by up to ``jitter_s`` at random.
    ``fraction``: of a step that all gangs spend in communication where links are ideal, None for what they
    state. ``preemptible``: whether plans may stop all jobs.
    """

    trace: Trace
    cluster: str
    policies: tuple[str, ...] = ()
    baselines: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings)
    preemptible: bool = False
    budget: int = 1
    repeat: int = 1
    jitter_s: int = 0
    seed: int = 0
    fraction: Fraction | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One run, complete in itself. ``rules``: name of a baseline, None for the planner."""

    name: str
    repeat: int
    scenario: Scenario
    rules: str | None


def run(task: Task) -> tuple[Result, list[float]]:
    """The run, and the seconds of each of its plans."""
    policy = task.scenario.instance.policy
    decider = Planner(policy) if task.rules is None else Baseline(RULES[task.rules], policy)
    simulation = Simulation(task.scenario, decider)
    simulation.run()
    return result(task.name, task.repeat, simulation), getattr(decider, "seconds", [])


def replay(request: Request, out: Path | None, workers: int | None = None) -> list[Result]:
    """Every run, in the order asked for. ``out``: saved there as JSON, anew after each run."""
    tasks, notes = prepare(request)
    print(*notes, sep="\n", flush=True)
    found: dict[tuple[str, int], Result] = {}
    for finished, seconds in _runs(tasks, workers or os.cpu_count() or 1):
        found[finished.name, finished.repeat] = finished
        longest = f", {len(seconds)} plans, the longest {max(seconds):.1f} s" if seconds else ""
        print(f"finished {finished.name}, repeat {finished.repeat}{longest}", flush=True)
        ordered = [found[key] for task in tasks if (key := (task.name, task.repeat)) in found]
        if out is not None:
            out.write_text(json.dumps([asdict(one) for one in ordered], indent=1) + "\n")
    return ordered


def _runs(tasks: list[Task], workers: int) -> Iterator[tuple[Result, list[float]]]:
    if workers == 1:
        yield from map(run, tasks)
        return
    with ProcessPoolExecutor(min(workers, len(tasks))) as pool:
        yield from (done.result() for done in as_completed([pool.submit(run, t) for t in tasks]))


def prepare(request: Request) -> tuple[list[Task], list[str]]:
    """The runs, and what is to be said of all of them. Raises InputError, ValueError without jobs."""
    base = _scenario(request, None)
    fit = frozenset(_fitting(base))
    if not fit:
        raise ValueError("no job of the trace fits on the cluster, even when it is empty")
    files = request.policies or (() if request.baselines else (None,))
    runs = [
        *((Path(one).stem if one else "default", _scenario(request, one), None) for one in files),
        *((name, _at_events(base), name) for name in request.baselines),
    ]
    tasks = [
        Task(name, repeat, _jittered(_only(scenario, fit), request, repeat), rules)
        for repeat in range(1, request.repeat + 1)
        for name, scenario, rules in runs
    ]
    jobs = _only(base, fit).jobs
    gpus = sum(node.gpus for node in base.instance.cluster.nodes)
    least = float(least_mean_ms(jobs, gpus)) / MS / 3600
    notes = [f"{len(jobs):,} jobs of {request.trace.name} on {gpus:,} GPUs"]
    if len(jobs) < len(base.jobs):
        notes.append(f"{len(base.jobs) - len(jobs):,} jobs fit nowhere, and are left out")
    return tasks, [*notes, f"no schedule has a mean completion time below {least:.3f} h"]


def _at_events(scenario: Scenario) -> Scenario:
    """The scenario of a baseline: what concerns plans alone makes no difference to it."""
    policy = replace(scenario.instance.policy, solve=SolveLimits())
    return replace(
        scenario,
        instance=replace(scenario.instance, policy=policy),
        settings=replace(scenario.settings, every_ms=0),
    )


def _scenario(request: Request, policy: str | None) -> Scenario:
    loaded = _loaded(request, policy)
    built = reachable(loaded.instance)
    by_key = {
        gang.key: replace(
            gang,
            hold=None,
            preemptible=gang.preemptible or request.preemptible,
            fraction=gang.fraction if request.fraction is None else request.fraction,
        )
        for gang in built.gangs
    }
    jobs = tuple(
        JobFacts(by_key[job.namespace, job.name], MS * job.submit_s, MS * job.duration_s)
        for job in request.trace.jobs
    )
    limits = limited(built.policy, request.budget, request.seed)
    return Scenario(
        replace(built, gangs=(), policy=limits),
        jobs,
        EPOCH,
        request.settings,
        own_mix=built.policy.mix != default_mix(built.gangs, built.cluster.nodes),
        own_max_gangs=loaded.states_max_gangs,
    )


def _loaded(request: Request, policy: str | None) -> LoadedInput:
    """The cluster with all jobs of the trace, as ``plan`` reads them."""
    items = [job.gang_document(EPOCH).to_json() for job in request.trace.jobs]
    with TemporaryDirectory() as folder:
        path = Path(folder, "jobs.json")
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        return load((request.cluster, str(path)), policy=policy)


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


def _megabits(nics: tuple[Nic, ...]) -> int:
    return sum(nic.megabits or 0 for nic in nics)


def _fitting(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Gangs for which there is a place if the cluster is empty, whatever their bandwidth."""
    base, known = scenario.instance, dict[Gang, bool]()
    policy = replace(base.policy, min_bandwidth_share=Fraction(0))
    for job in scenario.jobs:
        shape = replace(job.gang, namespace="", name="", submitted_at=None, queue=None, priority=0)
        if shape not in known:
            alone = base.with_gangs((shape,), policy)
            known[shape] = bool(greedy(alone, base_decisions(alone))[0].pods)
        if known[shape]:
            yield job.gang.key


def _only(scenario: Scenario, keys: frozenset[tuple[str, str]]) -> Scenario:
    return replace(scenario, jobs=tuple(job for job in scenario.jobs if job.gang.key in keys))


def _jittered(scenario: Scenario, request: Request, repeat: int) -> Scenario:
    """The scenario with each arrival moved at random, and a search seed of its own."""
    jobs, jitter_ms, seed = [], MS * request.jitter_s, request.seed
    for job in scenario.jobs:
        draw = random.Random(f"{seed}/{repeat}/{'/'.join(job.gang.key)}")
        submit_ms = max(0, job.submit_ms + draw.randint(-jitter_ms, jitter_ms))
        gang = replace(job.gang, submitted_at=scenario.epoch + submit_ms // MS)
        jobs.append(replace(job, submit_ms=submit_ms, gang=gang))
    policy = scenario.instance.policy
    limits = replace(policy.solve, seed=policy.solve.seed + repeat - 1)
    return replace(
        scenario,
        jobs=tuple(sorted(jobs, key=lambda job: (job.submit_ms, job.gang.key))),
        instance=replace(scenario.instance, policy=replace(policy, solve=limits)),
    )
