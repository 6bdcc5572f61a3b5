"""One run of a replay in figures, and the repeats of each scheduler together."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean, stdev
from typing import Any

from benchmarks.lab.jobs import MS, JobFacts, JobState
from benchmarks.lab.simulation import Simulation
from models.instance.speed import FULL_SPEED

SHORT_MS = 10 * MS
"""A shorter job counts as one of this length in the slowdown, which the shortest would decide alone."""

Steps = Sequence[tuple[int, tuple[int, ...]]]
"""(time, values) in order of time; values hold until the next time."""

Figures = dict[str, Any]
"""A run: ``name``, ``repeat``, and numbers; times in seconds, None where no job ended or started."""


def figures(name: str, repeat: int, done: Simulation) -> Figures:
    """What the simulation found."""
    jobs, measures = done.jobs, done.measures
    ended = [job for job in jobs if job.ended is not None]
    completion = exact_distribution(map(_completion, ended))
    waits = exact_distribution(
        job.started - job.facts.submit_ms for job in jobs if job.started is not None
    )
    usable, busy, _, effective, gpu_mbps = (
        time_mean(measures.steps, 0, max(1, done.scenario.window_ms))
        if measures.steps
        else [Fraction(0)] * 5
    )
    slowdowns = [Fraction(_completion(j), max(SHORT_MS, j.facts.duration_ms)) for j in ended]
    return {
        "name": name,
        "repeat": repeat,
        "jobs": len(jobs),
        "completed": len(ended),
        "endedEarly": done.gave_up,
        "endSeconds": _seconds(max((job.ended or 0 for job in ended), default=0)),
        "meanSeconds": _seconds(completion.mean),
        "p50Seconds": _seconds(completion.p50),
        "p99Seconds": _seconds(completion.p99),
        "queueingSeconds": _seconds(waits.mean),
        "slowdown": _digits(sum(slowdowns, Fraction(0)) / len(ended)) if ended else None,
        "speed": _digits(effective / (busy * FULL_SPEED)) if busy else None,
        "utilisation": _digits(busy / usable) if usable else 0.0,
        "gpuGBps": _digits(gpu_mbps / 1000),
        "preemptions": measures.preemptions,
        "moves": measures.moves,
        "restarts": measures.restarts,
        "lostGpuSeconds": _seconds(measures.lost_gpu_ms),
        "jain": _fairness(jobs),
    }


def _completion(job: JobState) -> int:
    assert job.ended is not None, "it has ended"
    return job.ended - job.facts.submit_ms


def _digits(value: Fraction) -> float:
    """Up to three digits."""
    return float(round(value, 3))


def _seconds(time_ms: Fraction | int | None) -> float | None:
    return None if time_ms is None else _digits(Fraction(time_ms) / MS)


def _fairness(jobs: Sequence[JobState]) -> float | None:
    """Jain's index of the queues' means of duration at full speed / completion time."""
    services: dict[str, list[Fraction]] = {}
    for job in jobs:
        if job.ended is not None:
            took = max(1, _completion(job), job.facts.duration_ms)
            services.setdefault(job.facts.queue, []).append(Fraction(job.facts.duration_ms, took))
    index = jain(sum(own, Fraction(0)) / len(own) for own in services.values())
    return None if index is None else _digits(index)


MEANS = (
    *("meanSeconds", "p50Seconds", "p99Seconds", "queueingSeconds", "slowdown", "utilisation"),
    *("speed", "preemptions", "moves", "jain"),
)
"""Figures whose spread over repeats is stated."""


def spreads(runs: Sequence[Figures]) -> tuple[dict[str, Figures], str | None]:
    """(mean, standard deviation) of the figures of each name, and the name of the shortest mean completion.

    ``behind``: mean completion time less that of the best in the same repeat, as a share of that. Only names
    whose runs complete as many jobs as any run of the same repeat may be the best: who leaves jobs out leaves
    out the hard ones.
    """
    of: dict[str, dict[int, Figures]] = {}
    for run in runs:
        of.setdefault(run["name"], {})[run["repeat"]] = run
    most: dict[int, int] = {}
    for run in runs:
        most[run["repeat"]] = max(most.get(run["repeat"], 0), run["completed"])
    means = {
        name: fmean(run["meanSeconds"] for run in own.values())
        for name, own in of.items()
        if all(run["completed"] == most[run["repeat"]] and run["completed"] for run in own.values())
    }
    best = min(means, key=lambda name: means[name], default=None)
    found = {}
    for name, own in of.items():
        found[name] = {one: spread(run[one] for run in own.values()) for one in MEANS}
        found[name]["behind"] = spread(_behind(own, of.get(best or "", {})))
    return found, best


def _behind(own: Mapping[int, Figures], best: Mapping[int, Figures]) -> Iterable[float | None]:
    for repeat, run in own.items():
        mean, least = run["meanSeconds"], best[repeat]["meanSeconds"] if repeat in best else None
        yield None if mean is None or not least else mean / least - 1


def spread(values: Iterable[float | None]) -> tuple[float, float | None] | None:
    """Mean and standard deviation of the sample, of those that are known; None without any."""
    found = [value for value in values if value is not None]
    if not found:
        return None
    return fmean(found), stdev(found) if len(found) > 1 else None


@dataclass(frozen=True, slots=True)
class ExactDistribution:
    """Mean and percentiles of some numbers; None without any."""

    mean: Fraction | None = None
    p50: int | None = None
    p99: int | None = None


def exact_distribution(values: Iterable[int]) -> ExactDistribution:
    """Mean and percentiles of numbers in any order."""
    ordered = sorted(values)
    if not ordered:
        return ExactDistribution()
    mean = Fraction(sum(ordered), len(ordered))
    return ExactDistribution(mean, *(nearest_rank(ordered, percent) for percent in (50, 99)))


def nearest_rank(ordered: Sequence[int], percent: int) -> int:
    """The smallest of the numbers that so many percent of them do not exceed: nearest rank, not interpolated.

    ``ordered``: ascending, not empty. ``percent``: 1 to 100.
    """
    rank = -(-percent * len(ordered) // 100)
    return ordered[max(rank, 1) - 1]


def jain(shares: Iterable[Fraction | int]) -> Fraction | None:
    """Jain's index, (sum x)^2 / (n sum x^2): 1 if all are equal, 1/n if one has everything.

    None without any share; 1 if all are zero, for then they are equal. Source: Jain, Chiu and Hawe, "A
    Quantitative Measure of Fairness and Discrimination", DEC-TR-301, 1984.
    """
    found = [Fraction(share) for share in shares]
    if not found:
        return None
    squares = sum(share * share for share in found)
    return Fraction(sum(found) ** 2, len(found) * squares) if squares else Fraction(1)


def time_mean(steps: Steps, start: int, end: int) -> tuple[Fraction, ...]:
    """Mean of every value over [start, end), which is not empty; nothing counts before the first time."""
    return tuple(Fraction(area, end - start) for area in _areas(steps, [start, end])[0])


def _areas(steps: Steps, edges: Sequence[int]) -> list[list[int]]:
    """Time x value between neighbouring edges, of every value; edges ascend."""
    width = len(steps[0][1]) if steps else 0
    areas = [[0] * width for _ in edges[1:]]
    part = 0
    for i, (time, values) in enumerate(steps):
        begin = max(time, edges[0])
        end = min(steps[i + 1][0], edges[-1]) if i + 1 < len(steps) else edges[-1]
        while begin < end:
            while edges[part + 1] <= begin:
                part += 1
            until = min(end, edges[part + 1])
            for v, value in enumerate(values):
                areas[part][v] += value * (until - begin)
            begin = until
    return areas


def least_mean_ms(jobs: Sequence[JobFacts], gpus: int) -> Fraction:
    """No schedule of so many GPUs has a shorter mean completion time, even one that knows the future.

    Each job takes its duration, or less if it is elastic. And with one machine that does the work of all GPUs
    at once and stops jobs at will, the sum of the mean times at which work is done is least if the job of the
    least work goes first; a job completes half its duration after that mean at the earliest. Goemans et al.,
    "Single machine scheduling with release dates", SIAM J. Discrete Math. 15 (2002):
    https://doi.org/10.1137/S089548019936223X
    """
    if not jobs:
        return Fraction(0)
    durations = sum(job.least_ms for job in jobs)
    by_machine = Fraction(0)
    if gpus:
        done_at = Fraction(_twice_mean_times(jobs, gpus), 2 * gpus)
        by_machine = done_at - sum(job.submit_ms for job in jobs) + Fraction(durations, 2)
    return max(Fraction(durations), by_machine) / len(jobs)


def _twice_mean_times(jobs: Sequence[JobFacts], gpus: int) -> int:
    """The sum of twice the mean times at which the work of each job is done, rounded down.

    In ticks of 1 / ``gpus`` ms, in each of which the machine does a millisecond of one GPU.
    """
    total, now, arrived, waiting = 0, 0, 0, list[tuple[int, int]]()
    left = [job.gpus * job.duration_ms for job in jobs]
    order = sorted(range(len(jobs)), key=lambda i: jobs[i].submit_ms)
    arrivals = [jobs[number].submit_ms * gpus for number in order]
    while waiting or arrived < len(order):
        if not waiting:
            now = max(now, arrivals[arrived])
        while arrived < len(order) and arrivals[arrived] <= now:
            number = order[arrived]
            if left[number]:
                heapq.heappush(waiting, (left[number], number))
            else:
                total += 2 * arrivals[arrived]
            arrived += 1
        if waiting:
            work, first = waiting[0]
            until = now + left[first]
            if arrived < len(order):
                until = min(until, arrivals[arrived])
            total += (until - now) * (now + until) // work
            left[first] -= until - now
            now = until
            if not left[first]:
                heapq.heappop(waiting)
    return total
