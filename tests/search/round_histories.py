# ruff: noqa: T201  # a script speaks on stdout
"""Plays a shared cluster round after round, and reads from the plans alone which promises broke.

    python tests/search/round_histories.py --seeds 0:20 --rounds 500
    python tests/search/round_histories.py --seeds 3:4 --rounds 200 --show
    python tests/search/round_histories.py --seeds 0:40 --rounds 200 --full [--keep FOLDER]

Every round is a set of compact documents, as a user writes them; what happens next follows from the plan
document. Gangs end when they said, but for those that overrun. Nothing here asks the planner why. Prints what
broke; exit code 1 if anything did. ``--full``: with all that a shared cluster has at once (starvation,
elastic gangs, moves, limits and cells of queues, failures; ``order: shortest`` in every second history),
each plan as the command makes it, knowing the last one; what slips then has a cause that the plan names.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

sys.path.extend(str(room) for room in Path(__file__).resolve().parents[1].glob("**/"))

from models.documents.plan import PlanDocument
from models.results.plan import compose
from models.verify.check import check
from planner.errors import RefusedPlanError
from planner.pipelines.plan import Maker, Phases, PlanRequest, read_request
from planner.pipelines.previous_plan import with_previous
from planner.read.inputs import load
from planner.search.solve import solve
from planner.show.console import Console

Json = dict[str, Any]

ROUND_S = 600
"""Seconds from one plan to the next; durations are multiples of it."""

MIN_RUN_S = 1800
STARVATION_S = 6 * 3600
FIRST_S = 1_795_000_200
NODES, RACKS, GPUS = 8, 4, 4

ELSEWHERE = ("Quota", "Backoff", "Never", "Reserved")
"""Codes of gangs for which something else than room is missing."""

MODEL: Json = {
    "name": "four", "aliases": [], "vendor": "test", "gpu": "H100", "gpus": GPUS,
    "fabric": "nvswitch", "linkMBps": 20600, "linksPerGpu": 6, "pcieMBps": 40000,
    "sysMBps": 10000, "numa": [0, 0, 1, 1], "pcieSwitch": [0, 1, 2, 3], "nvlinkDomainNodes": 1,
    "nics": [{"name": f"n{i}", "gbps": 400, "gpus": [i]} for i in range(GPUS)],
}  # fmt: skip


@dataclass
class Job:
    """A gang as its owner knows it. ``pods``: (node, GPUs) of each while it runs; ``most`` where elastic."""

    name: str
    queue: str | None
    priority: int
    submitted: int
    duration: int
    replicas: int
    gpus: int
    rack: bool
    preemptible: bool
    late: int = 0
    most: int = 0
    movable: bool = False
    started: int | None = None
    pods: list[tuple[str, list[int]]] = field(default_factory=list)
    evicted: list[int] = field(default_factory=list)

    @property
    def size(self) -> int:
        """GPUs that it holds, or needs to start."""
        return (len(self.pods) or self.replicas) * self.gpus

    def end(self) -> int | None:
        """When it really ends."""
        return None if self.started is None else self.started + self.duration + self.late

    def asks(self) -> tuple[object, ...]:
        """What decides where and by whose leave it may run."""
        own = self.replicas, self.most, self.gpus, self.rack
        return self.queue, self.priority, self.preemptible, own

    def document(self) -> Json:
        count = {"min": self.replicas, "max": self.most} if self.most else self.replicas
        spec: Json = {
            "priority": self.priority,
            "submittedAt": stamp(self.submitted),
            "expectedDuration": f"{self.duration}s",
            "preemptible": self.preemptible,
            "roles": [{"name": "w", "replicas": count, "gpus": self.gpus}],
        }
        if self.movable:
            spec["movable"] = True
        if self.queue is not None:
            spec["queue"] = self.queue
        if self.rack:
            spec["topology"] = {"required": "rack"}
        status: Json = {}
        if self.started is not None:
            status["startedAt"] = stamp(self.started)
            status["pods"] = [
                {"name": f"{self.name}-w-{i}", "role": "w", "index": i, "node": n, "gpus": g}
                for i, (n, g) in enumerate(self.pods)
            ]
        if self.evicted:
            status["evictedAt"] = stamp(self.evicted[-1])
            status["evictions"] = len(self.evicted)
        found = {"apiVersion": "gangplan.dev/v1alpha1", "kind": "Gang",
                 "metadata": {"name": self.name, "namespace": "t"}, "spec": spec}  # fmt: skip
        return found | ({"status": status} if status else {})


@dataclass(frozen=True)
class Promise:
    """A reserved start, the round that stated it and who held it."""

    start: int
    made: int


@dataclass
class World:
    """A cluster, its queues and what is random about it. ``full``: with all that there may be at once."""

    seed: int
    rounds: int
    queues: dict[str, int]
    cells: bool
    perturbed: bool
    rng: Random
    full: bool = False

    @property
    def busy(self) -> int:
        """So many wait that nobody comes."""
        return 10 if self.full else 14

    @classmethod
    def of(cls, seed: int, rounds: int, *, perturbed: bool, full: bool = False) -> World:
        r = Random(seed)
        if full:
            return cls(seed, rounds, {"a": 12, "b": 8, "c": 0}, seed % 4 >= 2, perturbed, r, full)
        kinds: list[dict[str, int]] = [{}, {"a": 8, "b": 16}, {"a": 12, "b": 8, "c": 0}]
        return cls(seed, rounds, kinds[seed % 3], seed % 6 >= 4, perturbed, r)

    def nodes(self) -> list[str]:
        return [f"n{i}" for i in range(NODES)]

    def guarantees(self) -> dict[str, int]:
        """GPUs that each queue is promised."""
        cells = {"b": (2 - self.full) * GPUS * NODES // RACKS} if self.cells else {}
        return self.queues | cells

    def rack(self, node: str) -> int:
        return int(node[1:]) * RACKS // NODES

    def documents(self, jobs: list[Job], now: int, down: set[str]) -> list[Json]:
        nodes = [
            {"name": n, "model": "four", "domains": {"rack": f"r{self.rack(n)}"}}
            | ({"ready": False} if n in down else {})
            for n in self.nodes()
        ]
        head: Json = {"apiVersion": "gangplan.dev/v1alpha1"}
        cluster = {"levels": [{"name": "rack", "oversubscription": 2}], "nodes": nodes}
        found = [head | {"kind": "Cluster", "metadata": {"name": "c"},
                         "spec": cluster | {"serverModels": [MODEL]}}]  # fmt: skip
        for name, gpus in self.queues.items():
            spec: Json = {"guarantee": {"gpus": gpus}}
            if self.cells and name == "b":
                spec = {"cells": [{"count": 2 - self.full, "level": "rack"}]}
            if self.full and name == "c":
                spec = {"limit": {"gpus": 20}}
            found.append(head | {"kind": "Queue", "metadata": {"name": name}, "spec": spec})
        policy: Json = {
            "now": stamp(now),
            "mix": {"1": 300, "4": 700},
            "minRunTime": f"{MIN_RUN_S}s",
            "reservations": {"perPriority": 1, "horizon": "24h"},
            "solve": {"budget": 4, "timeLimit": "60s", "workers": 1, "seed": 0},
        }
        if self.full:
            policy["starvation"] = {"after": f"{STARVATION_S}s"}
            policy["moves"] = {"maxGangs": 2}
            policy["order"] = ("submitted", "shortest")[self.seed % 2]
        found.append(head | {"kind": "Policy", "metadata": {"name": "p"}, "spec": policy})
        return [*found, *(job.document() for job in jobs)]

    def arrivals(self, number: int, now: int, busy: int) -> Iterator[Job]:
        """Gangs that come before this round: about as much work as the cluster can do."""
        r = self.rng
        for k in range(r.choice((0, 0, 1, 1, 2)) if busy < self.busy else 0):
            gpus = r.choice((1, 2, 4, 4, 4))
            replicas = r.choice((1, 1, 2, 2, 3, 4, 6)) if gpus == 4 else r.choice((1, 1, 2, 4))
            queue = r.choice((*self.queues, *self.queues, None))
            yield Job(
                f"g{number:04}-{k}",
                queue,
                r.choice((0, 0, 10)),
                now - r.choice((0, 0, r.randrange(ROUND_S))),
                r.choice((1, 2, 3, 6, 12, 18)) * ROUND_S,
                replicas,
                gpus,
                rack=replicas * gpus <= 2 * GPUS and r.random() < 0.4,
                preemptible=r.random() < 0.6,
                late=ROUND_S * r.choice((0,) * 12 + (1, 3)) if self.perturbed else 0,
                most=2 * replicas if self.full and r.random() < 0.25 else 0,
                movable=self.full and r.random() < 0.3,
            )


def stamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


class History:
    """``broken``: (round, kind, what) of every promise that broke.

    ``keep``: folder for the input and the last plan of rounds in which something broke.
    """

    def __init__(
        self,
        world: World,
        folder: Path,
        *,
        previous: bool,
        show: bool,
        keep: Path | None = None,
    ) -> None:
        self.world = world
        self.file = folder / f"round-{world.seed}.json"
        self.previous, self.show, self.keep = previous, show, keep
        self.jobs: dict[str, Job] = {}
        self.broken: list[tuple[int, str, str]] = []
        self.promises: dict[str, Promise] = {}
        self.fresh: set[str] = set()
        self.down: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.last: Json | None = None
        self.earlier: Json | None = None

    def play(self) -> None:
        now = FIRST_S
        for number in range(self.world.rounds):
            now += ROUND_S
            self.number, self.now = number, now
            self._happen()
            before = {job.name: job.started for job in self.jobs.values()}
            jobs = sorted(self.jobs.values(), key=lambda job: job.name)
            plan = self._plan(self.world.documents(jobs, now, self.down))
            if plan is None:  # the cluster stays as it is
                continue
            decided = {one["name"]: one for one in plan["spec"]["gangs"]}
            self._apply(decided)
            self._judge(decided, before)
            self.fresh = {n for n, one in decided.items() if one["decision"] == "place"}

    def _happen(self) -> None:
        """Gangs end and arrive, nodes fail and come back."""
        now = self.now
        self.overran = False
        for name, job in list(self.jobs.items()):
            end = job.end()
            if end is not None and end <= now:
                del self.jobs[name]
            elif job.started is not None and job.started + job.duration <= now:
                self.overran = True
        waiting = sum(job.started is None for job in self.jobs.values())
        self.arrived = list(self.world.arrivals(self.number, now, waiting))
        self.jobs |= {job.name: job for job in self.arrived}
        self.failed = False
        r = self.world.rng
        if self.world.perturbed and r.random() < 0.02:
            node = r.choice(self.world.nodes())
            self.down ^= {node}
            self.failed = node in self.down
            for job in self.jobs.values():
                if self.failed and any(n == node for n, _ in job.pods):
                    job.started, job.pods = None, []

    def _plan(self, documents: list[Json]) -> Json | None:
        self.file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
        if self.world.full:
            return self._as_command()
        instance = load([str(self.file)]).instance
        if self.previous and self.last is not None:
            instance, _ = with_previous(instance, PlanDocument.model_validate(self.last), "last")
        plan = compose(
            instance, solve(instance), name="r", created_at=stamp(self.now), generator="test"
        )
        for what in check(plan):
            self._breaks("verify", str(what))
        self.last = plan
        return plan

    def _as_command(self) -> Json | None:
        """The plan that the command saves; None if it saves none."""
        self.earlier = self.last
        previous = self.file.with_suffix(".previous.json")
        if self.last is not None:
            previous.write_text(json.dumps(self.last))
        request = PlanRequest(
            (str(self.file),), previous=None if self.last is None else str(previous)
        )
        console = Console(stdout=io.StringIO(), stderr=io.StringIO(), environ={})
        try:
            built = read_request(request, None)
            maker = Maker(request, built, stamp(self.now), console)
            _, made = maker.made(solve(built.instance), Phases(time.monotonic))
        except RefusedPlanError as refused:
            self._breaks("refused", "; ".join(fault.what for fault in refused.faults))
            return None
        plan = json.loads(made.text)
        for remark in plan["status"].get("remarks", ()):
            if "is a bug of gangplan" in remark:
                self._breaks("left out", remark)
        self.last = plan
        return self.last

    def _apply(self, decided: dict[str, Json]) -> None:
        for name, one in decided.items():
            job = self.jobs[name]
            self.counts[one["decision"]] += 1
            if one["decision"] == "place":
                job.started = self.now
                job.pods = [(pod["node"], pod["gpus"]) for pod in one["pods"]]
            elif one["decision"] in ("move", "resize"):
                self._changed(job, one)
            elif one["decision"] == "preempt":
                self._stopped(job)
                job.started, job.pods = None, []
                job.evicted.append(self.now)

    def _changed(self, job: Job, one: Json) -> None:
        """Its pods stand elsewhere, or are more or fewer."""
        assert job.started is not None
        pods = [(pod["node"], pod["gpus"]) for pod in one["pods"]]
        moved = one["decision"] == "move"
        if self.now - job.started < MIN_RUN_S and (moved or len(pods) < len(job.pods)):
            self._breaks(
                "min-run", f"{job.name}: {one['decision']} after {self.now - job.started} s"
            )
        job.pods, job.started = pods, self.now if moved else job.started

    def _stopped(self, job: Job) -> None:
        assert job.started is not None
        if self.now - job.started < MIN_RUN_S:
            self._breaks(
                "min-run", f"{job.name} stopped {self.now - job.started} s after its start"
            )
        if job.evicted and self.now - job.evicted[-1] < MIN_RUN_S:
            self._breaks("twice", f"{job.name} evicted again")
        if job.name in self.fresh and not self.arrived and not self.failed:
            self._breaks("thrash", f"{job.name} started by the last plan, stopped by this one")

    def _breaks(self, kind: str, what: str) -> None:
        if self.keep is not None:
            name = f"{self.world.seed}-{self.number}-{kind.replace(' ', '-')}"
            self.keep.mkdir(exist_ok=True)
            (self.keep / f"{name}.json").write_text(self.file.read_text())
            if self.earlier is not None:
                (self.keep / f"{name}.previous.json").write_text(json.dumps(self.earlier))
        self.broken.append((self.number, kind, what))
        if self.show:
            print(f"  round {self.number} {stamp(self.now)} {kind}: {what}", flush=True)

    def _judge(self, decided: dict[str, Json], before: dict[str, int | None]) -> None:
        within = self._within(before)
        for name, one in decided.items():
            job = self.jobs[name]
            if name in self.promises:
                self._kept(job, one, within)
            if job.started is None and not self.world.full:
                if name in within:
                    self._guaranteed(job, within, before)
                self._in_turn(job, before, within)
            elif job.started is None:
                self._aged(job, one)
        self.promises = {
            name: Promise(seconds_of(one["reserved"]["start"]), self.now)
            for name, one in decided.items()
            if one["decision"] == "wait" and one.get("reserved")
        }

    def _kept(self, job: Job, one: Json, within: set[str]) -> None:
        """A reserved start never moves later but for a higher arrival, a failure or an overrun."""
        promise, reserved = self.promises[job.name], one.get("reserved")
        if job.started is not None:
            return
        start = seconds_of(reserved["start"]) if reserved else None
        if start is not None and start <= promise.start:
            return
        if self.world.full:
            late = one.get("delayed")
            self.counts[f"later: {late['cause'] if late else 'unnamed'}"] += 1
            if late is None or late["cause"] == "Input":
                self._breaks(
                    "slip", f"{job.name} promised {stamp(promise.start)}, {reserved}, {late}"
                )
            return
        place = self._place(job, within)
        higher = [other.name for other in self.arrived if self._place(other, within) < place]
        if higher or self.failed or self.overran or one.get("delayed"):
            self.counts["later for a cause"] += 1
            return
        what = "no longer reserved" if start is None else f"reserved {stamp(start)}"
        self._breaks("slip", f"{job.name} promised {stamp(promise.start)}, {what}")

    def _aged(self, job: Job, one: Json) -> None:
        """Who has waited too long is passed by nobody younger of its priority that borrows, or does not.

        Where a queue keeps it from starting, or its pause, the plan says so.
        """
        if self.now - self._time(job) <= STARVATION_S or one["reason"]["code"] in ELSEWHERE:
            return
        younger = {
            other.name
            for other in self.jobs.values()
            if other.started == self.now and other.priority <= job.priority
            if self.now - self._time(other) <= STARVATION_S
        }
        if younger and self._fits(job, self._free(younger)):
            self._breaks(
                "aged", f"{job.name} ({job.size} GPUs, {job.queue}) waits, {sorted(younger)} start"
            )

    def _time(self, job: Job) -> int:
        return max([job.submitted, *job.evicted[-1:]])

    def _place(self, job: Job, within: set[str]) -> tuple[bool, int, int, str]:
        return job.name not in within, -job.priority, self._time(job), job.name

    def _within(self, before: dict[str, int | None]) -> set[str]:
        """Who is within the guarantee of its queue; no queue is in another."""
        left = self.world.guarantees()
        ran = {name for name, started in before.items() if started is not None}

        def turn(job: Job) -> tuple[object, ...]:
            fixed = job.name in ran and not job.preemptible
            time_of = self._time(job)
            return not fixed, -job.priority, job.name not in ran, time_of, job.name

        found = set()
        for job in sorted(self.jobs.values(), key=turn):
            if job.queue is None:
                continue
            fits = left[job.queue] >= job.size
            if fits:
                found.add(job.name)
            if fits or (job.name in ran and not job.preemptible):
                left[job.queue] -= job.size
            elif job.name not in ran and self.now - job.submitted > 24 * 3600:
                left[job.queue] = min(0, left[job.queue])  # whoever waits too long is not passed
        return found

    def _free(self, without: set[str]) -> dict[str, int]:
        free = dict.fromkeys(set(self.world.nodes()) - self.down, GPUS)
        for job in self.jobs.values():
            for node, gpus in job.pods:
                if job.name not in without and node in free:
                    free[node] -= len(gpus)
        return free

    def _fits(self, job: Job, free: dict[str, int]) -> bool:
        rooms: Counter[int] = Counter()
        for node, gpus in free.items():
            rooms[self.world.rack(node) if job.rack else 0] += gpus // job.gpus
        return max(rooms.values(), default=0) >= job.replicas

    def _guaranteed(self, job: Job, within: set[str], before: dict[str, int | None]) -> None:
        """A gang within its guarantee never waits while borrowers hold what it needs and may be stopped."""
        if job.evicted and self.now - job.evicted[-1] < 4 * MIN_RUN_S:
            return  # it may have to wait before it starts again
        borrowers = {
            other.name
            for other in self.jobs.values()
            if other.started is not None
            and other.name not in within
            and self._gives_way(other, job)
        }
        if self._fits(job, self._free(borrowers)):
            self._breaks("guarantee", f"{job.name} waits, {sorted(borrowers)} borrow")

    def _gives_way(self, other: Job, job: Job) -> bool:
        """Whether the plan could do without a borrower: it started it, or the gang may stop it.

        It stops what has a lower priority, and what others borrow while its queue holds no more than its
        guarantee.
        """
        assert other.started is not None
        if other.started == self.now:
            return True
        if not other.preemptible or self.now - other.started < MIN_RUN_S:
            return False
        holding = (one.size for one in self.jobs.values() if one.queue == job.queue and one.pods)
        reclaims = sum(holding) + job.size <= self.world.guarantees()[job.queue or ""]
        return other.priority < job.priority or (reclaims and other.queue != job.queue)

    def _in_turn(self, job: Job, before: dict[str, int | None], within: set[str]) -> None:
        """Nobody starts that asks for the same and comes later."""
        if job.evicted:
            return
        for other in self.jobs.values():
            later = self._place(other, within) > self._place(job, within)
            started = other.started == self.now and not other.evicted
            if later and started and other.asks() == job.asks() and other.duration >= job.duration:
                self._breaks("turn", f"{other.name} starts before {job.name}")


def main() -> int:
    """Exit code 1 if a promise broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:6")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--calm", action="store_true", help="no failures and overruns")
    parser.add_argument("--previous", action="store_true", help="each plan knows the last one")
    parser.add_argument(
        "--full", action="store_true", help="everything at once, as the command plans"
    )
    parser.add_argument("--keep", type=Path, help="folder for rounds in which something broke")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    first, end = (int(part) for part in options.seeds.split(":"))
    broken: Counter[str] = Counter()
    for seed in range(first, end):
        began = time.monotonic()
        perturbed = not options.calm and (options.full or seed % 2 == 1)
        world = World.of(seed, options.rounds, perturbed=perturbed, full=options.full)
        with tempfile.TemporaryDirectory() as folder:
            history = History(
                world,
                Path(folder),
                previous=options.previous,
                show=options.show,
                keep=options.keep,
            )
            history.play()
        kinds = Counter(kind for _, kind, _ in history.broken)
        broken += kinds
        what = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())) or "nothing broke"
        print(
            f"seed {seed}: {what}; {dict(history.counts)}; {time.monotonic() - began:.0f} s",
            flush=True,
        )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
