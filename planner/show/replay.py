"""The table of a replay: one row a policy or baseline, with its difference to the best."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from models.units import plural
from planner.show.table import Cell, Column, Table
from planner.show.text import gpu_amount, lasting, number

if TYPE_CHECKING:
    from models.documents.replay import (
        ReplayDocument,
        ReplayFailures,
        ReplayRun,
        ReplayTiming,
    )

Figure = Callable[["ReplayRun"], float | None]

_MEAN: Figure = lambda run: run.jct_seconds.mean  # noqa: E731
_TIMES: tuple[tuple[str, Figure], ...] = (
    ("MEAN", _MEAN),
    ("P50", lambda run: run.jct_seconds.p50),
    ("P99", lambda run: run.jct_seconds.p99),
    ("QUEUEING", lambda run: run.queueing_seconds.mean),
)


def results(replay: ReplayDocument) -> Table:
    """Completion times, waiting, how well the cluster is used, and what was stopped."""
    runs, best = replay.status.runs, _best(replay)
    timing = {one.name: one for one in replay.status.timing}
    columns = [Column("RUN"), Column("JOBS", right=True), Column("MEAN", right=True)]
    columns += [Column("VS BEST", right=True)]
    columns += [Column(name, right=True, optional=name == "P50") for name, _ in _TIMES[1:]]
    columns += [
        Column("USED", right=True),
        Column("SPEED", right=True),
        Column("GPU x GB/S", right=True, optional=True),
        Column("STOPPED", right=True, droppable=True),
        Column("MOVED", right=True, droppable=True),
        Column("FAILED", right=True, droppable=True),
        Column("FAIR", right=True, optional=True),
        Column("PLAN", right=True, optional=True),
    ]
    rows = tuple(_row(run, best, timing.get(run.name)) for run in runs)
    return Table(tuple(columns), rows, _notes(replay)).without_empty_columns()


def _best(replay: ReplayDocument) -> float | None:
    """The shortest mean of the runs that completed the most jobs: others left out the hard ones."""
    most = max((run.completed for run in replay.status.runs), default=0)
    means = [_MEAN(run) for run in replay.status.runs if run.completed == most]
    return min((mean for mean in means if mean is not None), default=None)


def _row(run: ReplayRun, best: float | None, timing: ReplayTiming | None) -> tuple[Cell, ...]:
    short = run.completed < run.jobs
    cells = [
        Cell(run.name),
        Cell(
            f"{run.completed:,} of {run.jobs:,}" if short else number(run.jobs),
            "warn" if short else None,
        ),
        Cell(took(_MEAN(run))),
        _difference(_MEAN(run), best),
        *(Cell(took(figure(run))) for _, figure in _TIMES[1:]),
        Cell(f"{run.utilisation:.1%}"),
        Cell("-" if run.speed is None else f"{run.speed:.1%}"),
        Cell(gpu_amount(round(run.gpu_gbps))),
        *(Cell(_count(count)) for count in (run.preemptions, run.moves, run.failures)),
        Cell("-" if run.fairness.jain is None else f"{run.fairness.jain:.3f}"),
        Cell("-" if timing is None or not timing.plans else _plan(timing)),
    ]
    return tuple(cells)


def _plan(timing: ReplayTiming) -> str:
    """Mean and longest seconds of one plan."""
    return f"{timing.planning_seconds.mean or 0:.2f}s/{timing.max_seconds or 0:.1f}s"


def _difference(mean: float | None, best: float | None) -> Cell:
    if mean is None or not best:
        return Cell("-")
    if mean <= best:
        return Cell("best", "good")
    return Cell(f"+{(mean - best) / best:.1%}")


def took(seconds: float | None) -> str:
    """``3h12m``; below a minute with one digit."""
    if seconds is None:
        return "-"
    return f"{seconds:.1f}s" if seconds < 60 else lasting(round(seconds))


def _count(count: int) -> str:
    return number(count) if count else "-"


def queueing(replay: ReplayDocument) -> Table:
    """Mean time from submission to the first start by size of the jobs, one row a size."""
    runs = replay.status.runs
    sizes = sorted({size.gpus for run in runs for size in run.queueing_seconds.by_size})
    columns = ["GPUS UP TO", "JOBS", *(run.name for run in runs)]
    rows = []
    for gpus in sizes:
        found = [
            {size.gpus: size for size in run.queueing_seconds.by_size}.get(gpus) for run in runs
        ]
        jobs = max(size.jobs for size in found if size is not None)
        times = [Cell("-" if size is None else took(size.mean)) for size in found]
        rows.append((Cell(number(gpus)), Cell(number(jobs)), *times))
    return Table(tuple(Column(title, right=True) for title in columns), tuple(rows))


def _notes(replay: ReplayDocument) -> tuple[str, ...]:
    spec = replay.spec
    every = f"planned every {lasting(spec.every_seconds)}"
    if not spec.every_seconds:
        every = "planned at every event"
    policies = [run for run in replay.status.runs if run.kind == "policy"]
    jobs = plural(spec.trace.jobs, "job")
    what = f"{jobs} of {spec.trace.name} on {spec.cluster.gpus:,} GPUs of {spec.cluster.name}"
    times = "MEAN and P99: from submission to completion; QUEUEING: mean, from submission to the first start"
    notes = [f"{what}; {every}" if policies else what, times]
    notes.append(f"digest {replay.status.digests.runs}")
    notes += endings(replay)
    if replay.status.missing:
        notes.append(f"not finished: {', '.join(replay.status.missing)}")
    return tuple(notes)


def endings(replay: ReplayDocument) -> list[str]:
    """Of every run that ended before all of its jobs did: why."""
    failures = replay.spec.failures
    return [_ending(run, failures) for run in replay.status.runs if run.ended_early]


def _ending(run: ReplayRun, failures: ReplayFailures | None) -> str:
    last = lasting(round((run.simulated_seconds or 0) - run.end_seconds))
    left = f"{run.name}: the simulation ended with {plural(run.unfinished, 'unfinished job')}"
    if run.ended_early == "idle":
        return f"{left}: no job ran any more, and none was to arrive"
    if run.ended_early == "stalled":
        cause = "failures of nodes" if failures is not None else "plans"
        return f"{left}: {cause} interrupted them, so that no job had ended for {last}"
    return f"{left}: too many nodes had failed"
