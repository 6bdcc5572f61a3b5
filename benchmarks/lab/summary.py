"""What a run of a replay found, several runs of one name together, and the table of them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean, stdev

from benchmarks.lab.jobs import MS, JobFacts, JobState
from benchmarks.lab.simulation import Simulation
from models.instance.speed import FULL_SPEED

SHORT_MS = 10 * MS
"""A shorter job counts as one of this length in the slowdown, which the shortest would decide alone."""


@dataclass(frozen=True, slots=True)
class Result:
    """One run; times in seconds, None where no job ended.

    ``completion_s``: mean from submission to the end, ``p50_s``, ``p95_s``: of the same. ``wait_s``: mean to
    the first start. ``slowdown``: mean of completion time / duration at full speed. ``fairness``: Jain's
    index over the queues of the mean of duration / completion time. ``speed``, ``used``: mean of the
    predicted speed of GPUs that are held, and part of all GPUs that are, until the last submission.
    ``stops``: how often jobs were stopped or moved. ``unfinished``: jobs, and why, where there are some.
    """

    name: str
    repeat: int
    jobs: int
    completion_s: float | None
    p50_s: float | None
    p95_s: float | None
    wait_s: float | None
    slowdown: float | None
    fairness: float | None
    speed: float | None
    used: float
    stops: int
    unfinished: str = ""


def result(name: str, repeat: int, done: Simulation) -> Result:
    """What the simulation found."""
    ended = [job for job in done.jobs if job.ended is not None]
    times = sorted(_completion(job) for job in ended)
    waits = [job.started - job.facts.submit_ms for job in done.jobs if job.started is not None]
    slowdowns = [Fraction(_completion(j), max(SHORT_MS, j.facts.duration_ms)) for j in ended]
    left = len(done.jobs) - len(ended)
    return Result(
        name,
        repeat,
        len(done.jobs),
        _mean(Fraction(time, MS) for time in times),
        nearest_rank(times, 50) / MS if times else None,
        nearest_rank(times, 95) / MS if times else None,
        _mean(Fraction(wait, MS) for wait in waits),
        _mean(slowdowns),
        _fairness(ended),
        _digits(Fraction(done.effective, done.busy * FULL_SPEED)) if done.busy else None,
        _digits(Fraction(done.busy, max(1, done.usable * done.scenario.window_ms))),
        done.stops,
        f"{left} ({done.gave_up})" if left else "",
    )


def _completion(job: JobState) -> int:
    assert job.ended is not None, "it has ended"
    return job.ended - job.facts.submit_ms


def _digits(value: Fraction) -> float:
    """Up to three digits."""
    return float(round(value, 3))


def _mean(values: Iterable[Fraction]) -> float | None:
    found = list(values)
    return _digits(sum(found, Fraction(0)) / len(found)) if found else None


def nearest_rank(ordered: Sequence[int], percent: int) -> int:
    """The smallest of the numbers that so many percent of them do not exceed.

    ``ordered``: ascending, not empty. ``percent``: 1 to 100.
    """
    return ordered[max(-(-percent * len(ordered) // 100), 1) - 1]


def _fairness(ended: Iterable[JobState]) -> float | None:
    services: dict[str, list[Fraction]] = {}
    for job in ended:
        took = max(1, _completion(job), job.facts.duration_ms)
        services.setdefault(job.facts.queue, []).append(Fraction(job.facts.duration_ms, took))
    index = jain([sum(own, Fraction(0)) / len(own) for own in services.values()])
    return None if index is None else _digits(index)


def jain(shares: Sequence[Fraction | int]) -> Fraction | None:
    """Jain's index, (sum x)^2 / (n sum x^2): 1 if all are equal, 1/n if one has everything.

    None without any share; 1 if all are zero. Source: Jain, Chiu and Hawe, DEC-TR-301, 1984.
    """
    if not shares:
        return None
    squares = sum(Fraction(share) ** 2 for share in shares)
    return Fraction(sum(shares)) ** 2 / (len(shares) * squares) if squares else Fraction(1)


def took(seconds: float) -> str:
    """``2.53h``, ``3.4m`` or ``12.0s``."""
    for least, unit in ((3600, "h"), (60, "m")):
        if seconds >= least:
            return f"{seconds / least:.{2 if unit == 'h' else 1}f}{unit}"
    return f"{seconds:.1f}s"


Figure = Callable[[Result], float | None]

_COLUMNS: tuple[tuple[str, Figure, Callable[[float], str]], ...] = (
    ("mean completion", lambda one: one.completion_s, took),
    ("median", lambda one: one.p50_s, took),
    ("95 %", lambda one: one.p95_s, took),
    ("mean wait", lambda one: one.wait_s, took),
    ("slowdown", lambda one: one.slowdown, "{:.1f}".format),
    ("fairness", lambda one: one.fairness, "{:.3f}".format),
    ("speed", lambda one: one.speed, "{:.1%}".format),
    ("used", lambda one: one.used, "{:.1%}".format),
    ("stopped", lambda one: one.stops, "{:,.0f}".format),
)


def table(results: Sequence[Result]) -> str:
    """Markdown: a row a name, means with standard deviations over its repeats.

    The last column: how much the mean completion time of the first name is below, in the same repeat.
    """
    of: dict[str, dict[int, Result]] = {}
    for one in results:
        of.setdefault(one.name, {})[one.repeat] = one
    first = next(iter(of.values()))
    heads = ["run", "runs", *(title for title, _, _ in _COLUMNS), "first is below", "unfinished"]
    rows = [heads, ["---"] * len(heads)]
    for name, own in of.items():
        means = [
            (first[repeat].completion_s, one.completion_s)
            for repeat, one in own.items()
            if repeat in first
        ]
        below = [100 * (1 - ours / theirs) for ours, theirs in means if ours and theirs]
        cells = [
            spread([figure(one) for one in own.values()], text) for _, figure, text in _COLUMNS
        ]
        unfinished = ", ".join(one.unfinished for one in own.values() if one.unfinished)
        differs = "" if own is first else spread(below, "{:.1f} %".format)
        rows.append([f"`{name}`", str(len(own)), *cells, differs, unfinished])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def spread(values: Iterable[float | None], text: Callable[[float], str]) -> str:
    """``mean ± standard deviation`` of what is known."""
    found = [value for value in values if value is not None]
    if not found:
        return "-"
    mean = text(fmean(found))
    return f"{mean} ± {text(stdev(found))}" if len(found) > 1 else mean


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
