"""A shared cluster played round after round, as documents and plans alone; what breaks is noted.

Promises: the same seed gives the same gangs. Every round is a set of compact documents, as a user writes
them; what happens next follows from the plan document, as the command saves it. Gangs end when they said,
but for those that overrun. Nothing here asks the planner why. Called by the tests of promised starts.
"""

from __future__ import annotations

import io
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from bundles import packed

from planner.errors import RefusedPlanError
from planner.pipelines.plan import Maker, Phases, PlanRequest, read_request
from planner.search.solve import solve
from planner.show.console import Console

Json = dict[str, Any]

ROUND_S = 600
"""Seconds from one plan to the next; durations are multiples of it."""

MIN_RUN_S, STARVATION_S, FIRST_S = 1800, 6 * 3600, 1_795_000_200
NODES, RACKS, GPUS = 8, 4, 4
HEAD: Json = {"apiVersion": "gangplan.dev/v1alpha1"}

ELSEWHERE = ("Quota", "Backoff", "Never", "Reserved")
"""Codes of gangs for which something else than room is missing."""

MODEL: Json = {
    "name": "four", "aliases": [], "vendor": "test", "gpu": "H100", "gpus": GPUS,
    "fabric": "nvswitch", "linkMBps": 20600, "linksPerGpu": 6, "pcieMBps": 40000,
    "sysMBps": 10000, "numa": [0, 0, 1, 1], "pcieSwitch": [0, 1, 2, 3], "nvlinkDomainNodes": 1,
    "nics": [{"name": f"n{i}", "gbps": 400, "gpus": [i]} for i in range(GPUS)],
}  # fmt: skip


def stamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def of(kind: str, name: str, **spec: object) -> Json:
    return HEAD | {"kind": kind, "metadata": {"name": name}, "spec": spec}


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

    def document(self) -> Json:
        count = {"min": self.replicas, "max": self.most} if self.most else self.replicas
        found = of(
            "Gang",
            self.name,
            priority=self.priority,
            submittedAt=stamp(self.submitted),
            expectedDuration=f"{self.duration}s",
            preemptible=self.preemptible,
            movable=self.movable,
            queue=self.queue,
            topology={"required": "rack"} if self.rack else {},
            roles=[{"name": "w", "replicas": count, "gpus": self.gpus}],
        )
        found["spec"] = {key: value for key, value in found["spec"].items() if value is not None}
        status: Json = {}
        if self.started is not None:
            pods = [
                {"role": "w", "index": i, "node": n, "gpus": g}
                for i, (n, g) in enumerate(self.pods)
            ]
            status |= {"startedAt": stamp(self.started), "pods": pods}
        if self.evicted:
            status |= {"evictedAt": stamp(self.evicted[-1]), "evictions": len(self.evicted)}
        return found | {"status": status}


class World:
    """A cluster, its queues and what is random about it. ``full``: with all that there may be at once.

    That is starvation, elastic gangs, moves, limits, failures and overruns.
    """

    def __init__(self, seed: int, *, full: bool) -> None:
        self.seed, self.full, self.rng = seed, full, Random(seed)
        kinds: list[dict[str, int]] = [{}, {"a": 8, "b": 16}, {"a": 12, "b": 8, "c": 0}]
        self.queues = kinds[2] if full else kinds[seed % 3]
        self.cells = seed % 4 >= 2 if full else seed % 6 >= 4
        self.nodes = [f"n{i}" for i in range(NODES)]

    def documents(self, jobs: list[Job], now: int, down: set[str]) -> list[Json]:
        racks = [f"r{i * RACKS // NODES}" for i in range(NODES)]
        nodes = [
            {"name": n, "model": "four", "domains": {"rack": rack}, "ready": n not in down}
            for n, rack in zip(self.nodes, racks, strict=True)
        ]
        levels = [{"name": "rack", "oversubscription": 2}]
        found = [of("Cluster", "c", levels=levels, nodes=nodes, serverModels=[MODEL])]
        for name, gpus in self.queues.items():
            spec: Json = {"guarantee": {"gpus": gpus}}
            if self.cells and name == "b":
                spec = {"cells": [{"count": 2 - self.full, "level": "rack"}]}
            if self.full and name == "c":
                spec = {"limit": {"gpus": 20}}
            found.append(of("Queue", name, **spec))
        policy: Json = {
            "now": stamp(now),
            "mix": {"1": 300, "4": 700},
            "minRunTime": f"{MIN_RUN_S}s",
            "reservations": {"perPriority": 1, "horizon": "24h"},
            "solve": {"budget": 4, "timeLimit": "60s", "workers": 1, "seed": 0},
        }
        if self.full:
            policy |= {"starvation": {"after": f"{STARVATION_S}s"}, "moves": {"maxGangs": 2}}
            policy["order"] = ("submitted", "shortest")[self.seed % 2]
        return [*found, of("Policy", "p", **policy), *(job.document() for job in jobs)]

    def arrivals(self, number: int, now: int, waiting: int) -> Iterator[Job]:
        """Gangs that come before this round: about as much work as the cluster can do."""
        r, full = self.rng, self.full
        for k in range(r.choice((0, 0, 1, 1, 2)) if waiting < (10 if full else 14) else 0):
            gpus = r.choice((1, 2, 4, 4, 4))
            replicas = r.choice((1, 1, 2, 2, 3, 4, 6)) if gpus == 4 else r.choice((1, 1, 2, 4))
            yield Job(
                f"g{number:04}-{k}",
                r.choice((*self.queues, *self.queues, None)),
                r.choice((0, 0, 10)),
                now - r.choice((0, 0, r.randrange(ROUND_S))),
                r.choice((1, 2, 3, 6, 12, 18)) * ROUND_S,
                replicas,
                gpus,
                rack=replicas * gpus <= 2 * GPUS and r.random() < 0.4,
                preemptible=r.random() < 0.6,
                late=ROUND_S * r.choice((0,) * 12 + (1, 3)) if full else 0,
                most=2 * replicas if full and r.random() < 0.25 else 0,
                movable=full and r.random() < 0.3,
            )


class History:
    """``broken``: (round, kind, what) of every promise that broke."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.file = world, folder / "round.json"
        self.jobs: dict[str, Job] = {}
        self.broken: list[tuple[int, str, str]] = []
        self.promises: dict[str, int] = {}
        self.fresh: set[str] = set()
        self.down: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.last: str | None = None

    def play(self, rounds: int) -> None:
        for self.number in range(rounds):
            self.now = FIRST_S + ROUND_S * (self.number + 1)
            self._happen()
            jobs = sorted(self.jobs.values(), key=lambda job: job.name)
            plan = self._plan(self.world.documents(jobs, self.now, self.down))
            if plan is not None:  # otherwise the cluster stays as it is
                decided = {one["name"]: one for one in plan["spec"]["gangs"]}
                for name, one in decided.items():
                    self._apply(self.jobs[name], one)
                self._judge(decided)
                self.fresh = {n for n, one in decided.items() if one["decision"] == "place"}

    def _happen(self) -> None:
        """Gangs end and arrive, nodes fail and come back."""
        for name, job in list(self.jobs.items()):
            if job.started is not None and job.started + job.duration + job.late <= self.now:
                del self.jobs[name]
        waiting = sum(job.started is None for job in self.jobs.values())
        self.arrived = list(self.world.arrivals(self.number, self.now, waiting))
        self.jobs |= {job.name: job for job in self.arrived}
        self.failed, r = False, self.world.rng
        if self.world.full and r.random() < 0.02:
            node = r.choice(self.world.nodes)
            self.down ^= {node}
            self.failed = node in self.down
            for job in self.jobs.values():
                if self.failed and any(n == node for n, _ in job.pods):
                    job.started, job.pods = None, []

    def _plan(self, documents: list[Json]) -> Json | None:
        """The plan that the command saves, knowing the last one; None if it saves none."""
        self.file.write_bytes(packed(documents))
        previous = self.file.with_suffix(".previous.json")
        if self.last is not None:
            previous.write_text(self.last)
        request = PlanRequest((str(self.file),), previous=str(previous) if self.last else None)
        console = Console(stdout=io.StringIO(), stderr=io.StringIO(), environ={})
        try:
            built = read_request(request, None)
            maker = Maker(request, built, stamp(self.now), console)
            _, made = maker.made(solve(built.instance), Phases(time.monotonic))
        except RefusedPlanError as refused:
            self._breaks("refused", "; ".join(fault.what for fault in refused.faults))
            return None
        self.last = made.text
        plan: Json = json.loads(self.last)
        for remark in plan["status"].get("remarks", ()):
            if "is a bug of gangplan" in remark:
                self._breaks("left out", remark)
        return plan

    def _apply(self, job: Job, one: Json) -> None:
        decision, before = one["decision"], len(job.pods)
        self.counts[decision] += 1
        pods = [(pod["node"], pod["gpus"]) for pod in one["pods"]]
        ran = 0 if job.started is None else self.now - job.started
        gives = decision in ("move", "preempt") or (decision == "resize" and len(pods) < before)
        if gives and ran < MIN_RUN_S:
            self._breaks("min-run", f"{job.name}: {decision} after {ran} s")
        if decision == "preempt":
            if job.evicted and self.now - job.evicted[-1] < MIN_RUN_S:
                self._breaks("twice", f"{job.name} evicted again")
            if job.name in self.fresh and not self.arrived and not self.failed:
                self._breaks("thrash", f"{job.name} started by the last plan, stopped by this one")
            job.started, job.pods = None, []
            job.evicted.append(self.now)
        elif decision in ("place", "move", "resize"):
            job.pods, job.started = pods, job.started if decision == "resize" else self.now

    def _breaks(self, kind: str, what: str) -> None:
        self.broken.append((self.number, kind, what))

    def _judge(self, decided: dict[str, Json]) -> None:
        """A reserved start is later only for a cause; who waits too long is passed by nobody younger."""
        for name, one in decided.items():
            held, promised = one.get("reserved"), self.promises.get(name)
            kept = promised is None or (held and seconds_of(held["start"]) <= promised)
            if one["decision"] == "wait" and not kept:
                late = one.get("delayed")
                self.counts[f"later: {late['cause'] if late else 'unnamed'}"] += 1
                if late is None or late["cause"] == "Input":
                    self._breaks("slip", f"{name} promised {promised}, {held}, {late}")
            if one["decision"] == "wait" and self.world.full:
                self._aged(self.jobs[name], one)
        self.promises = {
            name: seconds_of(one["reserved"]["start"])
            for name, one in decided.items()
            if one["decision"] == "wait" and one.get("reserved")
        }

    def _aged(self, job: Job, one: Json) -> None:
        """Where a queue keeps it from starting, or its pause, the plan says so."""
        if self.now - self._since(job) <= STARVATION_S or one["reason"]["code"] in ELSEWHERE:
            return
        younger = {
            other.name
            for other in self.jobs.values()
            if other.started == self.now and other.priority <= job.priority
            if self.now - self._since(other) <= STARVATION_S
        }
        free = dict.fromkeys(set(self.world.nodes) - self.down, GPUS)
        for other in self.jobs.values():
            for node, gpus in other.pods if other.name not in younger else ():
                if node in free:
                    free[node] -= len(gpus)
        rooms: Counter[int] = Counter()
        for node, left in free.items():
            rooms[int(node[1:]) * RACKS // NODES if job.rack else 0] += left // job.gpus
        if younger and max(rooms.values(), default=0) >= job.replicas:
            self._breaks("aged", f"{job.name} waits, {sorted(younger)} start")

    def _since(self, job: Job) -> int:
        return max([job.submitted, *job.evicted[-1:]])
