"""A made-up fortnight: gangs arrive, and a first-fit scheduler starts them; a shadow keeps the journal.

What happened is known by events, so that every figure of a report can be counted from them. The scheduler
takes gangs in the order of their arrival, none before an earlier one, and puts pods on the emptiest nodes.
"""

from __future__ import annotations

import heapq
import json
import random
import threading
import time as clock
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from models.units import time_text

Tree = dict[str, Any]

GPUS = 8
START = 1_794_268_800
"""2026-11-10T00:00:00Z."""

DAY_S = 86_400


@dataclass(slots=True)
class Job:
    """A gang: ``pods`` of ``gpus`` each. Times are seconds from the start; None: not yet."""

    name: str
    submit: int
    seconds: int
    pods: int
    gpus: int
    queue: str
    start: int | None = None
    end: int | None = None
    places: list[tuple[int, int]] = field(default_factory=list)
    """(node, mask of GPUs) of each pod."""


@dataclass(frozen=True, slots=True)
class Setting:
    """``limits``: GPUs of each queue. ``fraction``: of communication. ``every``: seconds between rounds.

    ``grid``: all times are multiples of it.
    """

    nodes: int = 8
    racks: int = 2
    gangs: int = 300
    days: int = 14
    seed: int = 1
    load: float = 0.85
    limits: tuple[tuple[str, int], ...] = ()
    fraction: float | None = None
    price: float | None = None
    every: int = 600
    grid: int = 1
    shapes: tuple[tuple[int, int, int], ...] = (
        (30, 1, 1),
        (15, 1, 2),
        (20, 1, 4),
        (20, 1, 8),
        (10, 2, 8),
        (5, 4, 8),
    )
    """(weight, pods, GPUs of each)."""


class Fortnight:
    """What happens. ``jobs``: all, with when and where they ran, once it was played."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.jobs = list(self._made())
        self._free = [(1 << GPUS) - 1] * setting.nodes
        self._play()

    def _made(self) -> Iterator[Job]:
        own, draw = self.setting, random.Random(self.setting.seed)
        weights = [weight for weight, _, _ in own.shapes]
        picked = draw.choices(own.shapes, weights, k=own.gangs)
        lengths = [draw.lognormvariate(0, 1) for _ in picked]
        work = sum(n * g * length for (_, n, g), length in zip(picked, lengths, strict=True))
        unit = own.load * own.nodes * GPUS * own.days * DAY_S / work
        times = sorted(draw.randrange(own.days * DAY_S * 9 // 10) for _ in picked)
        queues = [name for name, _ in own.limits] or ["research"]
        for number, ((_, pods, gpus), length, submit) in enumerate(
            zip(picked, lengths, times, strict=True)
        ):
            seconds = max(600, int(unit * length)) + own.grid - 1
            seconds -= seconds % own.grid
            came = submit - submit % own.grid
            yield Job(f"job-{number:03d}", came, seconds, pods, gpus, draw.choice(queues))

    def _play(self) -> None:
        waiting: list[Job] = []
        events = [(job.submit, 0, n) for n, job in enumerate(self.jobs)]
        heapq.heapify(events)
        while events:
            now = events[0][0]
            while events and events[0][0] == now:
                _, ends, number = heapq.heappop(events)
                job = self.jobs[number]
                if ends:
                    for node, mask in job.places:
                        self._free[node] |= mask
                else:
                    waiting.append(job)
            while waiting and self._starts(waiting[0], now):
                job = waiting.pop(0)
                heapq.heappush(events, (now + job.seconds, 1, self.jobs.index(job)))

    def _starts(self, job: Job, now: int) -> bool:
        held = sum(
            j.pods * j.gpus for j in self.jobs if j.queue == job.queue and self._runs(j, now)
        )
        if held + job.pods * job.gpus > dict(self.setting.limits).get(job.queue, held + 10**6):
            return False
        free, places = list(self._free), []
        for _ in range(job.pods):
            node = max(range(len(free)), key=lambda n: (free[n].bit_count(), -n))
            if free[node].bit_count() < job.gpus:
                return False
            mask = 0
            for _ in range(job.gpus):
                lowest = free[node] & -free[node]
                mask |= lowest
                free[node] ^= lowest
            places.append((node, mask))
        self._free, job.places = free, places
        job.start, job.end = now, now + job.seconds
        return True

    @staticmethod
    def _runs(job: Job, now: int) -> bool:
        return job.start is not None and job.start <= now and (job.end or 0) > now

    # what a shadow reads

    def documents(self, now: int) -> list[Tree]:
        """The cluster at a second, as input documents."""
        return [self._cluster(), self._policy(), *self._queues(), *self._gangs(now)]

    def _cluster(self) -> Tree:
        own = self.setting
        rack = -(-own.nodes // own.racks)
        nodes = [
            {
                "name": f"gpu-{n:02d}",
                "model": "DGX H100",
                "domains": {"rack": f"r{n // rack}"},
            }
            for n in range(own.nodes)
        ]
        spec = {"levels": [{"name": "rack", "oversubscription": 4}], "nodes": nodes}
        return _document("Cluster", "made-up", spec)

    def _policy(self) -> Tree:
        price = self.setting.price
        return _document("Policy", "week", {} if price is None else {"gpuHourPrice": price})

    def _queues(self) -> list[Tree]:
        return [
            _document("Queue", name, {"limit": {"gpus": gpus}})
            for name, gpus in self.setting.limits
        ]

    def _gangs(self, now: int) -> Iterator[Tree]:
        for job in self.jobs:
            if job.submit > now or (job.end is not None and job.end <= now):
                continue
            spec: Tree = {
                "queue": job.queue,
                "submittedAt": time_text(START + job.submit),
                "roles": [{"name": "worker", "replicas": job.pods, "gpus": job.gpus}],
            }
            if not self.setting.limits:
                del spec["queue"]
            if self.setting.fraction is not None:
                spec["communication"] = {"fraction": self.setting.fraction}
            gang = _document("Gang", job.name, spec)
            gang["metadata"]["namespace"] = job.queue
            if self._runs(job, now):
                pods = [
                    {"role": "worker", "index": i, "node": f"gpu-{node:02d}", "gpus": _bits(mask)}
                    for i, (node, mask) in enumerate(job.places)
                ]
                gang["status"] = {
                    "pods": pods,
                    "startedAt": time_text(START + (job.start or 0)),
                }
            yield gang


def _bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def _document(kind: str, name: str, spec: Tree) -> Tree:
    return {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def record(
    fortnight: Fortnight, folder: Path, *, restarts: int = 1, missed: frozenset[int] = frozenset()
) -> int:
    """Keep the journal as a shadow does, but without the rounds that were missed; how many there are."""
    from models.documents.canonical import canonical_instance
    from planner.pipelines.plan import Maker, Phases, PlanRequest, read_request
    from planner.search.solve import solve
    from planner.show.console import Console
    from planner.week.journal import append
    from planner.week.rounds import Look, figures_of, unexplained

    known: dict[str, Any] = {}
    rounds, own = 0, fortnight.setting
    console = Console(stdout=_Nowhere(), stderr=_Nowhere(), environ={})
    with TemporaryDirectory() as place:
        path = Path(place, "cluster.json")
        for now in range(0, own.days * DAY_S + 1, own.every):
            if now in missed:
                continue
            items = fortnight.documents(now)
            text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
            path.write_text(text)
            created_at = time_text(START + now)
            request = PlanRequest((str(path),), keep_running=True, budget=1, workers=1)
            key = text
            if key not in known:
                built = read_request(replace(request, now=START + now), None)
                solution = unexplained(built.instance, solve(built.instance, frequent=True))
                maker = Maker(request, built, created_at, console)
                made, _ = maker.made(solution, Phases(clock.monotonic), refute=False)
                look = Look(restarts, created_at, console, threading.Event(), clock.monotonic)
                figures = figures_of(built, solution, made, look)
                known = {key: (canonical_instance(built.instance), figures)}
            document, figures = known[key]
            append(folder, START + now, document, figures, keep_s=10**9, anonymize=False)
            rounds += 1
    return rounds


class _Nowhere:
    """A stream to nowhere."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return False


def kept(setting: Setting, folder: Path, **options: Any) -> Fortnight:  # noqa: ANN401
    """A fortnight that was played, with its journal in the folder."""
    made = Fortnight(setting)
    record(made, folder, **options)
    return made


SHIPPED = Setting(limits=(("product", 40), ("research", 40)), price=2.5, load=0.55, every=1200)
"""The fortnight of ``make demo-week``."""


def main() -> None:
    parser = ArgumentParser(prog="python -m benchmarks.fortnight", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the journal")
    folder = parser.parse_args().folder
    missed = frozenset(range(6 * DAY_S, 6 * DAY_S + 3 * 3600, SHIPPED.every))
    print(f"{record(Fortnight(SHIPPED), folder, missed=missed):,} rounds")


if __name__ == "__main__":
    main()
