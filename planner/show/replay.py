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
        ReplaySpread,
        ReplayTiming,
        Spread,
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
    if replay.status.spreads:
        return _together(replay)
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


def _together(replay: ReplayDocument) -> Table:
    """The same of the repeats of each name: means with standard deviations."""
    columns = [Column("RUN"), Column("RUNS", right=True), Column("MEAN", right=True)]
    columns += [Column("VS BEST", right=True)]
    columns += [
        Column(name, right=True, optional=name == "P50", droppable=name == "P99")
        for name, _ in _TIMES[1:]
    ]
    columns += [
        Column("SLOWDOWN", right=True, droppable=True),
        Column("USED", right=True, droppable=True),
        Column("SPEED", right=True, droppable=True),
        Column("STOPPED", right=True, droppable=True),
        Column("FAIR", right=True, optional=True),
    ]
    rows = tuple(_spread_row(one, replay.status.best) for one in replay.status.spreads)
    notes = (*_notes(replay), f"{_REPEATS} {_PAIRED}")
    return Table(tuple(columns), rows, notes).without_empty_columns()


_REPEATS = "numbers are means of the repeats ± their standard deviation;"
_PAIRED = "VS BEST: mean of the differences in the same repeat"


def _spread_row(one: ReplaySpread, best: str | None) -> tuple[Cell, ...]:
    times = (one.jct_p50_seconds, one.jct_p99_seconds, one.queueing_mean_seconds)
    behind = Cell(plus_minus(one.behind_best, lambda value: f"{value:+.1%}", "{:.1%}".format))
    return (
        Cell(one.name),
        Cell(number(one.runs)),
        Cell(plus_minus(one.jct_mean_seconds, took)),
        Cell("best", "good") if one.name == best else behind,
        *(Cell(plus_minus(time, took)) for time in times),
        Cell(plus_minus(one.slowdown, "{:.1f}".format)),
        Cell(plus_minus(one.utilisation, "{:.1%}".format)),
        Cell(plus_minus(one.speed, "{:.1%}".format)),
        Cell(plus_minus(one.stops, "{:.0f}".format) if one.stops and one.stops.mean else "-"),
        Cell(plus_minus(one.jain, "{:.3f}".format)),
    )


def plus_minus(
    spread: Spread | None, text: Callable[[float], str], of_sd: Callable[[float], str] | None = None
) -> str:
    """``mean ± standard deviation``."""
    if spread is None:
        return "-"
    mean = text(spread.mean)
    return mean if spread.sd is None else f"{mean} ± {(of_sd or text)(spread.sd)}"


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
    """Mean time from submission to the first start, one row a size of the jobs. Of repeats the first."""
    runs = [run for run in replay.status.runs if run.repeat == 1]
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


def starts(replay: ReplayDocument) -> Table:
    """How good the intervals were in which jobs were to start. Of repeats the first."""
    columns = ["WAITED", "STATED", "HELD", "MEDIAN WIDTH", "BAND OF A POINT"]
    rows = [
        (
            Cell(run.name),
            Cell(number(found.waited)),
            Cell(number(found.stated)),
            Cell("-" if found.held is None else f"{found.held:.1%}"),
            Cell(took(found.median_seconds)),
            Cell(took(found.point_band_seconds)),
        )
        for run in replay.status.runs
        if run.repeat == 1 and (found := run.start_intervals) is not None
    ]
    return Table((Column("RUN"), *(Column(title, right=True) for title in columns)), tuple(rows))


def _notes(replay: ReplayDocument) -> tuple[str, ...]:
    spec = replay.spec
    every = f"planned every {lasting(spec.every_seconds)}"
    if not spec.every_seconds:
        every = "planned at every event"
        if spec.debounce_seconds:
            every = f"planned {lasting(spec.debounce_seconds)} after events"
    if spec.preemptible:
        every += ", and plans could stop jobs"
    policies = [run for run in replay.status.runs if run.kind == "policy"]
    jobs = plural(spec.trace.jobs, "job")
    what = f"{jobs} of {spec.trace.name} on {spec.cluster.gpus:,} GPUs of {spec.cluster.name}"
    times = "MEAN and P99: from submission to completion; QUEUEING: mean, from submission to the first start"
    notes = [f"{what}; {every}" if policies else what, times]
    if (least := replay.status.least_mean_seconds) is not None:
        notes.append(
            f"no schedule has a shorter mean than {took(least)}, even one that knows the future"
        )
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
