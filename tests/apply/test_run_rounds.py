"""Run after run, some of them killed, while gangs arrive, end and come back. The server alone is asked.

Two queues share three nodes of 8 GPUs: ``owner`` is guaranteed 16, ``spare`` nothing, and borrows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from effort import examples, first_fast
from live_checks import overfull
from run_bench import EVICT, PREEMPTIBLE, Benches, Kill, RunBench, nodes

from models.units import time_text

pytest_plugins = ("run_fixtures",)

GUARANTEE = 16
MIN_RUN_S = 25
RULES = {
    "minRunTime": f"{MIN_RUN_S}s",
    "reservations": {"perPriority": 1},
    "evictionBackoff": {"base": "10s", "max": "20s"},
}


@dataclass
class Job:
    """A gang as its owner knows it. ``since``: when its pods were seen bound. ``lasts``: seconds."""

    name: str
    pods: int
    gpus: int
    owns: bool
    high: bool
    deadline: int | None
    lasts: float
    since: float | None = None

    @property
    def names(self) -> list[str]:
        return [f"{self.name}-{index}" for index in range(self.pods)]


@dataclass
class Rounds:
    """``jobs``: not ended. ``waits``: rounds that the owner's first gang waited for borrowers."""

    bench: RunBench
    random: Random
    jobs: dict[str, Job] = field(default_factory=dict)
    waits: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    made: int = 0
    starts: int = 0
    evictions: int = 0

    @property
    def now(self) -> float:
        return self.bench.cluster.clock()

    def play(self) -> None:
        """Time passes, jobs end and arrive, a run is killed perhaps, and others are not."""
        self.bench.cluster.advance(self.random.choice((5, 15, 40)))
        for job in [one for one in self.jobs.values() if one.since is not None]:
            if job.since is not None and self.now - job.since >= job.lasts:
                self._take_away(self.jobs.pop(job.name))
        for _ in range(self.random.choice((0, 1, 1, 2, 3))):
            if sum(job.since is None for job in self.jobs.values()) < 7:
                self._submit()
        before, killed = self._bound(), self.random.random() < 0.4
        if killed:
            self.bench.killed(Kill(self.random.randrange(25)), self._words())
            self._check_no_gpu_twice()
        self._run(before)
        if killed:  # the resumed run left nothing to another
            fresh, before = (
                {job.name for job in self.jobs.values() if job.since == self.now},
                self._bound(),
            )
            self._run(before)
            moved = [name for name, pod in before.items() if self._bound().get(name) != pod]
            self.faults += [f"{name}: gone again" for name in moved if name[:-2] in fresh]

    # ---- what users and controllers do

    def _submit(self) -> None:
        self.made += 1
        owns = self.random.random() < 0.4
        pods, gpus = self.random.choice(((1, 4), (1, 8), (2, 4), (2, 8), (3, 8), (1, 2), (4, 2)))
        pods = 2 if owns and pods * gpus > GUARANTEE else pods
        deadline = self.random.choice((60, 90, None, None, None))
        lasts = self.random.uniform(0.4, 0.6) * (deadline or 100)
        high = not owns and self.random.random() < 0.15
        job = Job(f"g{self.made}", pods, gpus, owns, high, deadline, lasts)
        self.jobs[job.name] = job
        self._create(job)

    def _create(self, job: Job) -> None:
        more = {} if job.deadline is None else {"activeDeadlineSeconds": job.deadline}
        self.bench.cluster.gang_of_pods(
            job.name,
            job.pods,
            gpus=job.gpus,
            annotations={} if job.owns else PREEMPTIBLE,
            labels={"kai.scheduler/queue": "owner" if job.owns else "spare"},
            priority=1000 * job.high,
            **more,
        )

    def _take_away(self, job: Job) -> None:
        self.bench.cluster.remove("Job", job.name)
        for name in job.names:
            if name in self.bench.places():
                self.bench.cluster.remove("Pod", name)

    # ---- runs, and what became of it

    def _words(self) -> tuple[str, ...]:
        bench, queues = self.bench, (("owner", GUARANTEE), ("spare", 0))
        files = [
            bench.file(f"{name}.json", "Queue", {"guarantee": {"gpus": gpus}})
            for name, gpus in queues
        ]
        policy = bench.file("policy.json", "Policy", RULES)
        return (*files, "--policy", policy, EVICT, "--wait", "8s")

    def _bound(self) -> dict[str, tuple[str, str]]:
        """Pod name to (node, uid) of all that are bound."""
        return {
            pod["metadata"]["name"]: (pod["spec"]["nodeName"], pod["metadata"]["uid"])
            for pod in self.bench.cluster.pods()
            if pod["spec"].get("nodeName")
        }

    def _run(self, before: dict[str, tuple[str, str]]) -> None:
        done = self.bench.run(*self._words())
        if done.code:
            self.faults.append(f"{time_text(int(self.now))}: exit {done.code}: {done.err}")
        self._check_no_gpu_twice()
        bound = self._bound()
        for job in list(self.jobs.values()):
            gone = [
                name for name in job.names if name in before and bound.get(name) != before[name]
            ]
            there = [name for name in job.names if name in bound]
            if gone and job.since is not None:
                self._evicted(job, gone)
            elif there and len(there) < job.pods:
                self.faults.append(f"{job.name}: partial: {there}")
            elif there and job.since is None:
                job.since = self.now
                self.starts += 1
        self._check_guarantee()

    def _evicted(self, job: Job, gone: list[str]) -> None:
        """Its controller makes its pods again."""
        assert job.since is not None
        self.evictions += 1
        ran_s = self.now - job.since
        found = {
            f"only {gone} of {job.pods} pods are gone": len(gone) < job.pods,
            f"evicted after {ran_s:g} s": ran_s < MIN_RUN_S,
            "evicted, and not preemptible": job.owns,
        }
        self.faults += [f"{job.name}: {what}" for what, wrong in found.items() if wrong]
        job.since = None
        self._take_away(job)
        self._create(job)

    def _check_no_gpu_twice(self) -> None:
        self.faults += overfull({pod["metadata"]["name"]: pod for pod in self.bench.cluster.pods()})

    def _check_guarantee(self) -> None:
        """The owner's first gang that its guarantee covers does not wait for borrowers twice in a row."""
        own = [job for job in self.jobs.values() if job.owns]
        held = sum(job.pods * job.gpus for job in own if job.since is not None)
        for job in [one for one in own if one.since is None][:1]:
            if held + job.pods * job.gpus > GUARANTEE or not self._could_start(job):
                self.waits.pop(job.name, None)
                continue
            self.waits[job.name] = self.waits.get(job.name, 0) + 1
            if self.waits[job.name] > 1:
                self.faults.append(f"{job.name}: within its guarantee, waits for borrowers")

    def _could_start(self, job: Job) -> bool:
        """Whether there is room without borrowers that may be stopped."""
        free = {f"n{number}": 8 for number in range(3)}
        for name, (place, _) in self._bound().items():
            other = self.jobs[name.rpartition("-")[0]]
            stays = other.since is None or self.now - other.since <= 4 * MIN_RUN_S
            if other.owns or other.high or stays:
                free[place] -= other.gpus
        return sum(left // job.gpus for left in free.values()) >= job.pods


@pytest.mark.parametrize("seed", first_fast(range(examples(4, 2))))
def test_rounds_with_kills_break_nothing(seed: int, memory: Benches) -> None:
    bench = memory(nodes(3, kubelets=True))
    bench.ran()
    bench.cluster.advance(100)
    rounds = Rounds(bench, Random(seed))
    for number in range(8 if seed == 0 else 25):
        rounds.play()
        assert rounds.faults == [], number
    assert rounds.starts >= 5
    assert rounds.evictions >= (seed > 0)
