"""One run of a replay as the document states it: times of its jobs, means over time, and curves."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean, stdev
from typing import Any, TypedDict

from models.documents.replay import (
    CompletionCurve,
    Curves,
    Distribution,
    Fairness,
    Queueing,
    QueueingBySize,
    ReplayQueue,
    ReplayRun,
    ReplaySpread,
    Spread,
    StartIntervals,
)
from models.instance.speed import FULL_SPEED
from models.values.expected_starts import ninety
from planner.replay.jobs import MS, JobFacts, JobState, StartForecast
from planner.replay.measures import Level
from planner.replay.simulation import Simulation

MOST_SHARES = 100
"""Most points of the curve of completion."""

SHORT_MS = 10 * MS
"""A shorter job counts as one of this length in the slowdown, which the shortest would decide alone."""


def run_document(name: str, repeat: int, kind: str, inputs: str, done: Simulation) -> ReplayRun:
    """What the simulation found."""
    jobs, measures = done.jobs, done.measures
    ended = [job for job in jobs if job.ended is not None]
    completion = [_completion(job) for job in ended]
    curve = completion_curve(completion, len(jobs), MOST_SHARES)
    window_ms = max(1, done.scenario.window_ms)
    usable, busy, _, effective, gpu_mbps = (
        time_mean(measures.steps, 0, window_ms) if measures.steps else [Fraction(0)] * 5
    )
    slowdowns = (Fraction(_completion(j), max(SHORT_MS, j.facts.duration_ms)) for j in ended)
    return ReplayRun.model_construct(
        name=name,
        repeat=repeat,
        kind=kind,
        inputs=inputs,
        jobs=len(jobs),
        completed=len(ended),
        unfinished=len(jobs) - len(ended),
        ended_early=done.gave_up,
        simulated_seconds=None if done.gave_up is None else _seconds(done.now_ms),
        end_seconds=_seconds(max((job.ended or 0 for job in ended), default=0)),
        jct_seconds=Distribution.model_construct(**distribution(completion)),
        queueing_seconds=_queueing(jobs),
        slowdown=_mean(slowdowns),
        speed=_digits(effective / (busy * FULL_SPEED)) if busy else None,
        utilisation=_digits(busy / usable) if usable else 0.0,
        gpu_gbps=_digits(gpu_mbps / 1000),
        preemptions=measures.preemptions,
        moves=measures.moves,
        failures=measures.failures,
        restarts=measures.restarts,
        lost_gpu_seconds=_seconds(measures.lost_gpu_ms),
        fairness=_fairness(jobs),
        start_intervals=start_intervals(jobs, done.forecasts),
        curves=_curves(measures.steps, done.now_ms),
        completion_curve=CompletionCurve.model_construct(
            seconds=tuple(_seconds(time_ms) for time_ms, _ in curve),
            share=tuple(_digits(share) for _, share in curve),
        ),
    )


class Figures(TypedDict):
    """The fields of a Distribution document."""

    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None


def distribution(times_ms: Iterable[int]) -> Figures:
    """Mean and percentiles of times, in seconds."""
    found = exact_distribution(times_ms)
    return Figures(
        mean=_seconds(found.mean),
        p50=_seconds(found.p50),
        p95=_seconds(found.p95),
        p99=_seconds(found.p99),
    )


def _completion(job: JobState) -> int:
    assert job.ended is not None, "it has ended"
    return job.ended - job.facts.submit_ms


def _waited(job: JobState) -> int:
    assert job.started is not None, "it has started"
    return job.started - job.facts.submit_ms


def _digits(value: Fraction) -> float:
    """Up to three digits."""
    return float(round(value, 3))


def _seconds(time_ms: Fraction | int | None) -> float | None:
    return None if time_ms is None else _digits(Fraction(time_ms) / MS)


def _mean(values: Iterable[Fraction]) -> float | None:
    found = list(values)
    return _digits(sum(found, Fraction(0)) / len(found)) if found else None


def _queueing(jobs: Sequence[JobState]) -> Queueing:
    started = [job for job in jobs if job.started is not None]
    sizes = by_size((job.facts.gpus, _waited(job)) for job in started)
    return Queueing.model_construct(
        **distribution(map(_waited, started)),
        by_size=tuple(
            QueueingBySize.model_construct(gpus=gpus, jobs=len(times), **distribution(times))
            for gpus, times in sizes
        ),
    )


def _fairness(jobs: Sequence[JobState]) -> Fairness:
    queues: dict[str, list[JobState]] = {}
    for job in jobs:
        queues.setdefault(job.facts.queue, []).append(job)
    services = {name: _service(queues[name]) for name in sorted(queues)}
    index = jain(share for share in services.values() if share is not None)
    return Fairness.model_construct(
        by_queue=tuple(_queue(name, queues[name], share) for name, share in services.items()),
        jain=None if index is None else _digits(index),
    )


def start_intervals(
    jobs: Sequence[JobState], forecasts: Mapping[int, StartForecast]
) -> StartIntervals:
    """How good forecasts were; who never started was in none."""
    held, widths, errors = 0, list[int](), list[int]()
    for number, said in forecasts.items():
        started, between = jobs[number].started, said.between
        if between is not None:
            widths.append(between.latest - between.earliest)
            held += started is not None and between.earliest <= started <= between.latest
        if started is not None and said.point_ms is not None:
            errors.append(started - said.point_ms)
    band = ninety(sorted(errors))
    return StartIntervals.model_construct(
        waited=len(forecasts),
        stated=len(widths),
        held=_digits(Fraction(held, len(widths))) if widths else None,
        median_seconds=_seconds(exact_distribution(widths).p50),
        point_band_seconds=None if band is None else _seconds(band[1] - band[0]),
    )


def _queue(name: str, jobs: Sequence[JobState], service: Fraction | None) -> ReplayQueue:
    return ReplayQueue.model_construct(
        queue=name,
        jobs=len(jobs),
        gpu_seconds=_seconds(sum(job.held_gpu_ms for job in jobs)),
        mean_queueing_seconds=_mean(
            Fraction(_waited(job), MS) for job in jobs if job.started is not None
        ),
        service=None if service is None else _digits(service),
    )


def _service(jobs: Sequence[JobState]) -> Fraction | None:
    """Mean of duration at full speed / completion time, over the jobs that ended."""
    found = [
        Fraction(job.facts.duration_ms, max(1, _completion(job), job.facts.duration_ms))
        for job in jobs
        if job.ended is not None
    ]
    return sum(found, Fraction(0)) / len(found) if found else None


def _curves(steps: Sequence[tuple[int, Level]], end_ms: int) -> Curves:
    points = downsampled(steps, end_ms)
    return Curves.model_construct(
        seconds=tuple(_seconds(time_ms) for time_ms, _ in points),
        gpus_busy=tuple(_digits(level[1]) for _, level in points),
        waiting_gpus=tuple(_digits(level[2]) for _, level in points),
        effective_gpus=tuple(_digits(level[3] / FULL_SPEED) for _, level in points),
    )


_FIGURES: dict[str, Callable[[ReplayRun], float | None]] = {
    "jct_mean_seconds": lambda run: run.jct_seconds.mean,
    "jct_p50_seconds": lambda run: run.jct_seconds.p50,
    "jct_p99_seconds": lambda run: run.jct_seconds.p99,
    "queueing_mean_seconds": lambda run: run.queueing_seconds.mean,
    "slowdown": lambda run: run.slowdown,
    "end_seconds": lambda run: run.end_seconds,
    "utilisation": lambda run: run.utilisation,
    "speed": lambda run: run.speed,
    "jain": lambda run: run.fairness.jain,
    "stops": lambda run: run.preemptions + run.moves,
}


def spreads(runs: Sequence[ReplayRun]) -> tuple[tuple[ReplaySpread, ...], str | None]:
    """The runs of each name together, and the name with the shortest mean completion; nothing of single runs.

    Only names whose runs complete as many jobs as any run of the same repeat may be the best: who leaves jobs
    out leaves out the hard ones.
    """
    of: dict[str, dict[int, ReplayRun]] = {}
    for run in runs:
        of.setdefault(run.name, {})[run.repeat] = run
    if all(len(own) < 2 for own in of.values()):
        return (), None
    most: dict[int, int] = {}
    for run in runs:
        most[run.repeat] = max(most.get(run.repeat, 0), run.completed)
    means = {
        name: found.mean
        for name, own in of.items()
        if all(run.completed == most[run.repeat] for run in own.values())
        and (found := _spread(run.jct_seconds.mean for run in own.values())) is not None
    }
    best = min(means, key=lambda name: means[name], default=None)
    return tuple(_together(name, own, of.get(best or "", {})) for name, own in of.items()), best


def _together(
    name: str, own: Mapping[int, ReplayRun], best: Mapping[int, ReplayRun]
) -> ReplaySpread:
    """``own``, ``best``: runs by repeat."""
    behind = []
    for repeat, run in own.items():
        mean = run.jct_seconds.mean
        least = best[repeat].jct_seconds.mean if repeat in best else None
        behind.append(None if mean is None or not least else mean / least - 1)
    figures: dict[str, Any] = {
        field: _spread(figure(run) for run in own.values()) for field, figure in _FIGURES.items()
    }
    return ReplaySpread.model_construct(
        name=name, runs=len(own), behind_best=_spread(behind), **figures
    )


def _spread(values: Iterable[float | None]) -> Spread | None:
    found = [value for value in values if value is not None]
    if not found:
        return None
    mean = fmean(found)
    deviation = stdev(found) if len(found) > 1 else None
    return Spread.model_construct(
        mean=round(mean, 4), sd=None if deviation is None else round(deviation, 4)
    )


MOST_POINTS = 500
"""Most points of a curve that is shown."""

Steps = Sequence[tuple[int, tuple[int, ...]]]
"""(time, values) in order of time; values hold until the next time."""


@dataclass(frozen=True, slots=True)
class ExactDistribution:
    """Mean and percentiles of some numbers; None without any."""

    mean: Fraction | None = None
    p50: int | None = None
    p95: int | None = None
    p99: int | None = None


def exact_distribution(values: Iterable[int]) -> ExactDistribution:
    """Mean and percentiles of numbers in any order."""
    ordered = sorted(values)
    if not ordered:
        return ExactDistribution()
    mean = Fraction(sum(ordered), len(ordered))
    return ExactDistribution(mean, *(nearest_rank(ordered, percent) for percent in (50, 95, 99)))


def nearest_rank(ordered: Sequence[int], percent: int) -> int:
    """The smallest of the numbers that so many percent of them do not exceed: nearest rank, not interpolated.

    ``ordered``: ascending, not empty. ``percent``: 1 to 100.
    """
    rank = -(-percent * len(ordered) // 100)
    return ordered[max(rank, 1) - 1]


def by_size(jobs: Iterable[tuple[int, int]]) -> list[tuple[int, list[int]]]:
    """(most GPUs, values) of the size classes 1, 2, 3-4, 5-8, ... that have jobs, ascending.

    ``jobs``: (GPUs, value) of each.
    """
    classes: dict[int, list[int]] = {}
    for gpus, value in jobs:
        classes.setdefault(size_class(gpus), []).append(value)
    return sorted(classes.items())


def size_class(gpus: int) -> int:
    """The least power of 2 that is not below the number of GPUs; 0 for none."""
    return 1 << (gpus - 1).bit_length() if gpus else 0


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


def downsampled(
    steps: Steps, end: int, most: int = MOST_POINTS
) -> list[tuple[int, tuple[Fraction, ...]]]:
    """A step curve up to ``end`` with at most so many points, whose mean over all of it is the same.

    Short curves stay as they are. Of a long one, time is cut into equal parts (as equal as integers are), and
    each point is the mean of its part.
    """
    known = [step for i, step in enumerate(steps) if i == 0 or step[1] != steps[i - 1][1]]
    if len(known) <= most or not known:
        return [(time, tuple(map(Fraction, values))) for time, values in known]
    start = known[0][0]
    parts = min(most, end - start)
    edges = [start + (end - start) * i // parts for i in range(parts + 1)]
    return [
        (edges[i], tuple(Fraction(area, edges[i + 1] - edges[i]) for area in areas))
        for i, areas in enumerate(_areas(known, edges))
    ]


def completion_curve(
    times: Iterable[int], jobs: int, most: int = MOST_POINTS
) -> list[tuple[int, Fraction]]:
    """(time, share of the jobs whose time is not longer): at most so many points, the last the longest.

    ``jobs``: all jobs, with those that never ended and so have no time.
    """
    ordered = sorted(times)
    if not ordered:
        return []
    count = min(most, len(ordered))
    ranks = [-(-len(ordered) * (i + 1) // count) for i in range(count)]
    chosen = dict.fromkeys(ordered[rank - 1] for rank in ranks)
    return [(time, Fraction(bisect_right(ordered, time), jobs)) for time in chosen]


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
