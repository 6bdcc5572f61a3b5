"""One run of a replay as the document states it: times of its jobs, means over time, and curves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TypedDict

from models.documents.replay import (
    CompletionCurve,
    Curves,
    Distribution,
    Fairness,
    Queueing,
    QueueingBySize,
    ReplayQueue,
    ReplayRun,
)
from models.instance.speed import FULL_SPEED
from planner.replay import statistics
from planner.replay.jobs import JobState
from planner.replay.measures import Level
from planner.replay.simulation import MS, Simulation

MOST_SHARES = 100
"""Most points of the curve of completion."""

SHORT_MS = 10 * MS
"""A shorter job counts as one of this length in the slowdown, which the shortest would decide alone."""


def run_document(name: str, kind: str, inputs: str, done: Simulation) -> ReplayRun:
    """What the simulation found."""
    jobs, measures = done.jobs, done.measures
    ended = [job for job in jobs if job.ended is not None]
    completion = [_completion(job) for job in ended]
    curve = statistics.completion_curve(completion, len(jobs), MOST_SHARES)
    window_ms = max(1, done.scenario.window_ms)
    usable, busy, _, effective, gpu_mbps = (
        statistics.time_mean(measures.steps, 0, window_ms) if measures.steps else [Fraction(0)] * 5
    )
    slowdowns = (Fraction(_completion(j), max(SHORT_MS, j.facts.duration_ms)) for j in ended)
    return ReplayRun.model_construct(
        name=name,
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
    p99: float | None


def distribution(times_ms: Iterable[int]) -> Figures:
    """Mean and percentiles of times, in seconds."""
    found = statistics.distribution(times_ms)
    return Figures(mean=_seconds(found.mean), p50=_seconds(found.p50), p99=_seconds(found.p99))


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
    sizes = statistics.by_size((job.facts.gpus, _waited(job)) for job in started)
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
    index = statistics.jain(share for share in services.values() if share is not None)
    return Fairness.model_construct(
        by_queue=tuple(_queue(name, queues[name], share) for name, share in services.items()),
        jain=None if index is None else _digits(index),
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
    points = statistics.downsampled(steps, end_ms)
    return Curves.model_construct(
        seconds=tuple(_seconds(time_ms) for time_ms, _ in points),
        gpus_busy=tuple(_digits(level[1]) for _, level in points),
        waiting_gpus=tuple(_digits(level[2]) for _, level in points),
        effective_gpus=tuple(_digits(level[3] / FULL_SPEED) for _, level in points),
    )
