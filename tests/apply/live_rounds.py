"""Run after run on a live API server, some of them killed: ``python tests/apply/live_rounds.py --rounds 40``.

Two queues share three nodes of 8 GPUs: ``owner`` is guaranteed 16, ``spare`` nothing, and borrows. Gangs
arrive, end and come back after an eviction, as their controllers would make them. Every round is a ``run``
with reservations, backfill and evictions; some die of SIGKILL at a request or at any moment, are unlocked and
run again. What happened is read from the API server's pods alone, what was promised from the plan. Prints
what broke; exit code 1 if anything did. ``GANGPLAN_TEST_KUBECONFIG`` names a real cluster, as for live tests.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

sys.path.extend(str(room) for room in Path(__file__).resolve().parents[1].glob("**/"))

from live_checks import overfull, partial, placed
from live_cluster import Live, opened
from live_objects import Wanted, listed, pods
from live_runs import Killer, Ran, killed, policy_of, ran, started

Tree = dict[str, Any]

GUARANTEE = 16
MIN_RUN_S = 25
SLACK_S = 30
"""A start may be so much later than promised: runs take time, and killed ones more."""
QUEUE = "kai.scheduler/queue"
BACKFILL = 0.35
"""The part of the gangs that say when they end."""


@dataclass
class Job:
    """A gang as its owner knows it. ``since``: when its pods were seen bound. ``lasts``: seconds."""

    wanted: Wanted
    queue: str
    submitted: float
    deadline: int | None
    lasts: float
    since: float | None = None
    evicted: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.wanted.name

    @property
    def gpus(self) -> int:
        return self.wanted.pods * self.wanted.gpus

    @property
    def rank(self) -> tuple[bool, float, str]:
        """The order of the queue: higher priority first, then the older."""
        return (not self.wanted.high, self.submitted, self.name)


@dataclass
class Promise:
    """``start``: of the first plan that stated it. ``at``: when that was."""

    start: float
    at: float


@dataclass
class Rounds:
    """One history. ``jobs``: those that have not ended.

    ``waits``: rounds that a gang within its guarantee waited for borrowers. ``arrivals``: when and who.
    """

    live: Live
    random: Random
    jobs: dict[str, Job] = field(default_factory=dict)
    promises: dict[str, Promise] = field(default_factory=dict)
    waits: dict[str, int] = field(default_factory=dict)
    arrivals: list[tuple[float, Job]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    kills: int = 0
    evictions: int = 0
    starts: int = 0
    kept: int = 0
    made: int = 0

    def play(self, number: int) -> str:
        """One round; what it was, in words."""
        self._end_jobs()
        for _ in range(self.random.choice((0, 1, 1, 2, 3))):
            if sum(job.since is None for job in self.jobs.values()) < 7:
                self._submit()
        before, kill = self._bound(), self.random.random() < 0.4 and number > 1
        if kill:
            self._killed_run()
            self._check_no_gpu_twice("after the kill")
            self._unlock()
        done = self._run()
        self._notice(before)
        self._check(done)
        if kill:
            self._check_again()
        waiting = sum(job.since is None for job in self.jobs.values())
        state = f"{len(self._bound())} pods run, {waiting} gangs wait"
        return f"{'killed and resumed' if kill else 'run'}, exit {done.code}: {state}"

    # ---- what users and controllers do

    def _submit(self) -> None:
        self.made += 1
        owner = self.random.random() < 0.4
        count, gpus = self.random.choice(((1, 4), (1, 8), (2, 4), (2, 8), (3, 8), (1, 2), (4, 2)))
        if owner and count * gpus > GUARANTEE:
            count = 2
        wanted = Wanted(
            f"g{self.made:03}",
            count,
            gpus,
            high=not owner and self.random.random() < 0.15,
            preemptible=not owner,
        )
        deadline = self.random.choice((60, 90)) if self.random.random() < BACKFILL else None
        lasts = self.random.uniform(0.4, 0.6) * (deadline or 100)
        job = Job(wanted, "owner" if owner else "spare", time.time(), deadline, lasts)
        self.jobs[job.name] = job
        self.arrivals.append((job.submitted, job))
        self._create(job)

    def _create(self, job: Job) -> None:
        trees = pods(job.wanted, self.live.namespace, self.live.run)
        for tree in trees:
            tree["metadata"]["labels"][QUEUE] = job.queue
            if job.deadline is not None:
                tree["spec"]["activeDeadlineSeconds"] = job.deadline
        self.live.kubectl("create", "--validate=false", "-f", "-", given=listed(trees))

    def _end_jobs(self) -> None:
        """Those whose work is done leave; nobody runs for longer than it said."""
        over = [
            job
            for job in self.jobs.values()
            if job.since is not None and time.time() - job.since >= job.lasts
        ]
        for job in over:
            self.live.delete_pods(*(f"{job.name}-{i}" for i in range(job.wanted.pods)))
            del self.jobs[job.name]
            self.promises.pop(job.name, None)

    # ---- runs

    def _words(self) -> list[str]:
        live = self.live
        tree = json.loads(policy_of(live).read_text(encoding="utf-8"))
        tree["spec"] |= {
            "reservations": {"perPriority": 1},
            "minRunTime": f"{MIN_RUN_S}s",
            "evictionBackoff": {"base": "10s", "max": "20s"},
            "solve": {"timeLimit": "20s"},
        }
        policy = live.folder / "rounds-policy.json"
        policy.write_text(json.dumps(tree), encoding="utf-8")
        queues = live.folder / "queues.json"
        queues.write_text(
            json.dumps(
                listed(
                    [
                        {
                            "apiVersion": "gangplan.dev/v1alpha1",
                            "kind": "Queue",
                            "metadata": {"name": name},
                            "spec": {"guarantee": {"gpus": gpus}},
                        }
                        for name, gpus in (("owner", GUARANTEE), ("spare", 0))
                    ]
                )
            ),
            encoding="utf-8",
        )
        words = ["run", str(queues), "--policy", str(policy), "--out", str(self._plan)]
        return [
            *words,
            "--lock-namespace",
            live.lock_namespace,
            "--allow-evictions",
            "--wait",
            "8s",
        ]

    @property
    def _plan(self) -> Path:
        return self.live.folder / "rounds-plan.json"

    def _run(self) -> Ran:
        self.live.relay.forget()
        self._plan.unlink(missing_ok=True)
        return ran(self.live, *self._words())

    def _killed_run(self) -> None:
        self.kills += 1
        self.live.relay.forget()
        if self.random.random() < 0.6:
            killer = Killer(self.random.randint(1, 9), after=self.random.random() < 0.5)
            killed(self.live, killer, *self._words())
            self.live.relay.later_s = 0.0  # the lock is unlocked instead
            return
        with started(self.live, *self._words()) as process:
            try:
                process.communicate(timeout=self.random.uniform(2.0, 9.0))
            except subprocess.TimeoutExpired:
                process.kill()

    def _unlock(self) -> None:
        base = "/apis/coordination.k8s.io/v1/namespaces"
        lease = self.live.get(f"{base}/{self.live.lock_namespace}/leases/gangplan")
        if holder := lease["spec"].get("holderIdentity"):
            done = ran(
                self.live,
                "status",
                "--release",
                holder,
                "--lock-namespace",
                self.live.lock_namespace,
            )
            if done.code:
                self.faults.append(f"release: exit {done.code}: {done.err}")

    # ---- what became of it

    def _bound(self) -> dict[str, tuple[str, str]]:
        """Pod name to (node, uid) of all that are bound and stay."""
        return {
            name: (pod["spec"]["nodeName"], pod["metadata"]["uid"])
            for name, pod in self.live.pods().items()
            if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
        }

    def _notice(self, before: dict[str, tuple[str, str]]) -> None:
        """What kubelets report, and who was evicted; controllers make the pods of those again."""
        now, bound = time.time(), self._bound()
        for job in list(self.jobs.values()):
            names = [f"{job.name}-{i}" for i in range(job.wanted.pods)]
            gone = [name for name in names if name in before and bound.get(name) != before[name]]
            if gone and job.since is not None:
                self._evicted(job, names, gone, now)
                continue
            if job.since is None and all(name in bound for name in names):
                job.since = now
                self.starts += 1
                self._report_running(names, now)
                self._check_promise_kept(job, now)

    def _evicted(self, job: Job, names: list[str], gone: list[str], now: float) -> None:
        assert job.since is not None
        ran_s = now - job.since
        self.evictions += 1
        if len(gone) < len(names):
            self.faults.append(f"{job.name}: only {gone} of {len(names)} pods are gone")
        if ran_s < MIN_RUN_S:
            self.faults.append(f"{job.name}: evicted after {ran_s:.0f} s, minRunTime {MIN_RUN_S} s")
        if not job.wanted.preemptible:
            self.faults.append(f"{job.name}: evicted, and not preemptible")
        job.since = None
        job.evicted.append(now)
        job.submitted = now  # its pods are new
        left = [name for name in names if name in self.live.pods()]
        if left:
            self.live.delete_pods(*left)
        self._create(job)

    def _report_running(self, names: list[str], now: float) -> None:
        at = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "startTime": at,
        }
        for name in names:
            path = f"/api/v1/namespaces/{self.live.namespace}/pods/{name}/status"
            self.live.send("PATCH", path, {"status": status})

    # ---- what must hold

    def _check_no_gpu_twice(self, when: str) -> None:
        self.faults += [f"{when}: {one}" for one in overfull(self.live.pods())]

    def _check(self, done: Ran) -> None:
        if done.code != 0:
            self.faults.append(f"exit {done.code}: {done.err}")
        self._check_no_gpu_twice("after the run")
        self.faults += [f"{gang} is partial" for gang in partial(self.live.pods())]
        if done.code == 0:
            self._check_guarantee()
            self._check_promises()

    def _check_guarantee(self) -> None:
        """The owner's first gang that its guarantee covers does not wait for borrowers twice in a row."""
        own = [job for job in self.jobs.values() if job.queue == "owner"]
        held = sum(job.gpus for job in own if job.since is not None)
        waiting = sorted((job for job in own if job.since is None), key=lambda job: job.rank)
        for job in waiting[:1]:
            if held + job.gpus <= GUARANTEE and self._could_start(job):
                self.waits[job.name] = self.waits.get(job.name, 0) + 1
                if self.waits[job.name] > 1:
                    self.faults.append(f"{job.name}: within its guarantee, waits for borrowers")
            else:
                self.waits.pop(job.name, None)

    def _could_start(self, job: Job) -> bool:
        """Whether there is room without gangs of the other queue that may be stopped."""
        now = time.time()
        may_go = {
            one.name
            for one in self.jobs.values()
            if one.queue == "spare"
            and one.wanted.preemptible
            and not one.wanted.high
            and one.since is not None
            and now - one.since > 2 * MIN_RUN_S
        }
        free = dict.fromkeys(self.live.nodes, 8)
        for name, (place, _) in placed(self.live.pods()).items():
            gang = name.rpartition("-")[0]
            if gang not in may_go:
                free[place] -= self.jobs[gang].wanted.gpus
        return sum(left // job.wanted.gpus for left in free.values()) >= job.wanted.pods

    def _check_promises(self) -> None:
        """A promised start moves later only for a cause: somebody of more precedence has come."""
        now = time.time()
        stated = {
            gang["name"]: datetime.fromisoformat(gang["reserved"]["start"]).timestamp()
            for gang in json.loads(self._plan.read_text(encoding="utf-8"))["spec"]["gangs"]
            if gang.get("reserved") and gang["decision"] == "wait"
        }
        for name, promise in list(self.promises.items()):
            job = self.jobs.get(name)
            if job is None or job.since is not None or self._has_cause(job, promise):
                del self.promises[name]
            elif stated.get(name, now) > promise.start + SLACK_S or now > promise.start + SLACK_S:
                late = stated.get(name)
                later = "no promise" if late is None else f"{late - promise.start:.0f} s later"
                self.faults.append(
                    f"{name}: promised {now - promise.start:+.0f} s ago, now {later}"
                )
                del self.promises[name]
        for name, start in stated.items():
            if name in self.jobs:
                self.promises.setdefault(name, Promise(start, now))

    def _has_cause(self, job: Job, promise: Promise) -> bool:
        came = [one for at, one in self.arrivals if at >= promise.at - 1]
        came += [one for one in self.jobs.values() if any(at >= promise.at for at in one.evicted)]
        return any(
            one is not job and (one.wanted.high > job.wanted.high or one.queue == "owner")
            for one in came
        )

    def _check_promise_kept(self, job: Job, now: float) -> None:
        promise = self.promises.pop(job.name, None)
        self.kept += promise is not None
        if (
            promise is not None
            and now > promise.start + SLACK_S
            and not self._has_cause(job, promise)
        ):
            self.faults.append(f"{job.name}: started {now - promise.start:.0f} s after its promise")

    def _check_again(self) -> None:
        """A resumed run left nothing to another: what it started, the next one leaves where it is."""
        before = self._bound()
        done = self._run()
        bound = self._bound()
        fresh = {
            job.name
            for job in self.jobs.values()
            if job.since is not None and time.time() - job.since < MIN_RUN_S
        }
        for name, place in before.items():
            gang = name.rpartition("-")[0]
            if gang in fresh and bound.get(name) != place:
                self.faults.append(f"{name}: started by the resumed run, gone after the next")
        self._notice(before)
        self._check(done)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    wish = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder), nodes=3) as live:
        rounds = Rounds(live, Random(wish.seed))
        for number in range(1, wish.rounds + 1):
            known = len(rounds.faults)
            said = rounds.play(number)
            sys.stdout.write(f"round {number}: {said}\n")
            sys.stdout.writelines(f"  FAULT {one}\n" for one in rounds.faults[known:])
            sys.stdout.flush()
        counts = (
            f"{rounds.starts} gangs started, {rounds.kept} of them promised a time before, "
            f"{rounds.evictions} evicted, {rounds.kills} runs killed"
        )
        sys.stdout.write(f"{wish.rounds} rounds, {counts}: {len(rounds.faults)} faults\n")
    return 1 if rounds.faults else 0


if __name__ == "__main__":
    sys.exit(main())
