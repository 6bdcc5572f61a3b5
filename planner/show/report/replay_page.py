"""The page of a replay: what each policy and baseline would have made of a trace, in tables and curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from models.documents.replay import ReplayDocument, ReplayRun
from models.units import plural, time_text
from planner.show.replay import endings, plus_minus, queueing, results, took
from planner.show.report.charts import Chart, Point, Series, chart
from planner.show.report.page import Figure, Page, Part, Section
from planner.show.table import Cell, Column, Table
from planner.show.text import gpu_amount, lasting, number
from planner.untrusted_text import safe


def replay_page(replay: ReplayDocument) -> Page:
    """The page."""
    spec = replay.spec
    missing = ", ".join(safe(name) for name in replay.status.missing)
    return Page(
        title=f"Replay of {safe(spec.trace.name)}",
        subject=f"{plural(spec.trace.jobs, 'job')} on {safe(spec.cluster.name)}:"
        f" {plural(spec.cluster.nodes, 'node')}, {plural(spec.cluster.gpus, 'GPU')}",
        made=f"made {time_text(replay.metadata.created_at)} by {safe(replay.metadata.generator)}",
        headline=list(_headline(replay)),
        figures=list(_figures(replay)),
        sections=list(_sections(replay)),
        warnings=[
            *([f"Stopped before these runs were finished: {missing}."] if missing else []),
            *(f"{safe(line)}." for line in endings(replay)),
        ],
    )


def _best(runs: Sequence[ReplayRun], kind: str) -> ReplayRun | None:
    """The run with the shortest mean completion time of those that completed the most jobs."""
    most = max((run.completed for run in runs), default=0)
    known = [
        run
        for run in runs
        if run.kind == kind and run.completed == most and run.jct_seconds.mean is not None
    ]
    return min(known, key=lambda run: run.jct_seconds.mean or 0.0, default=None)


def _first(replay: ReplayDocument) -> list[ReplayRun]:
    """The first run of each policy and baseline: of what is shown run by run."""
    return [run for run in replay.status.runs if run.repeat == 1]


def _headline(replay: ReplayDocument) -> Iterator[str]:
    if replay.status.spreads:
        yield from _of_repeats(replay)
        return
    runs = replay.status.runs
    ours, theirs = _best(runs, "policy"), _best(runs, "baseline")
    if ours is None or theirs is None:
        return
    mine, other = ours.jct_seconds.mean or 0.0, theirs.jct_seconds.mean or 0.0
    if other:
        less = f"{abs(mine - other) / other:.1%} {'shorter' if mine <= other else 'longer'}"
        yield (
            f"Under {safe(ours.name)} a job takes {took(mine)} from submission to completion on average:"
            f" {less} than under {safe(theirs.name)}, the best baseline ({took(other)})."
        )
    yield (
        f"Jobs wait {took(ours.queueing_seconds.mean)} for their start on average under {safe(ours.name)},"
        f" {took(theirs.queueing_seconds.mean)} under {safe(theirs.name)}; {ours.utilisation:.1%} and"
        f" {theirs.utilisation:.1%} of the GPUs are in use."
    )


def _of_repeats(replay: ReplayDocument) -> Iterator[str]:
    """Who has the shortest mean completion time over the repeats, and who is next."""
    known = [
        (one.jct_mean_seconds.mean, one)
        for one in replay.status.spreads
        if one.jct_mean_seconds is not None
    ]
    best = next((one for _, one in known if one.name == replay.status.best), None)
    if best is None:
        return
    others = sorted((mean, one.name, one) for mean, one in known if one is not best)
    said = f"Over {plural(best.runs, 'run')} each, {safe(best.name)} has the shortest mean completion time,"
    said = f"{said} {plus_minus(best.jct_mean_seconds, took)}"
    if others:
        _, name, one = others[0]
        behind = plus_minus(one.behind_best, "{:+.1%}".format, "{:.1%}".format)
        yield f"{said}; next is {safe(name)}, {behind} (mean of paired differences ± standard deviation)."
    else:
        yield f"{said}."


def _figures(replay: ReplayDocument) -> Iterator[Figure]:
    runs = replay.status.runs
    yield Figure("Jobs replayed", number(replay.spec.trace.jobs), _left_out(replay))
    for kind, title in (("policy", "Best policy"), ("baseline", "Best baseline")):
        best = _best(runs, kind)
        if replay.status.spreads:
            yield from _over_repeats(replay, kind, title)
        elif best is not None:
            note = f"{safe(best.name)}: mean completion time"
            yield Figure(title, took(best.jct_seconds.mean), note)
    longest = max((one.max_seconds or 0.0 for one in replay.status.timing), default=0.0)
    if longest:
        plans = sum(one.plans for one in replay.status.timing)
        yield Figure("Longest plan", f"{longest:,.1f} s", f"of {number(plans)} plans")


def _over_repeats(replay: ReplayDocument, kind: str, title: str) -> Iterator[Figure]:
    """The shortest mean over the repeats of those that completed the most jobs in each."""
    runs, most = replay.status.runs, dict[int, int]()
    for run in runs:
        most[run.repeat] = max(most.get(run.repeat, 0), run.completed)
    short = {run.name for run in runs if run.completed < most[run.repeat]}
    names = {run.name for run in runs if run.kind == kind} - short
    known = [
        (one.jct_mean_seconds.mean, one.name, one)
        for one in replay.status.spreads
        if one.jct_mean_seconds is not None and one.name in names
    ]
    if known:
        _, name, one = min(known)
        note = f"{safe(name)}: mean completion time, over {plural(one.runs, 'run')}"
        yield Figure(title, plus_minus(one.jct_mean_seconds, took), note)


def _left_out(replay: ReplayDocument) -> str:
    left_out = replay.spec.trace.left_out
    return f"{number(left_out)} left out: no place on the empty cluster" if left_out else ""


def _sections(replay: ReplayDocument) -> Iterator[Section]:
    yield Section("results", "Results", (), [Part(replace(results(replay), notes=()))])
    if replay.status.spreads and (spread := _distributions(replay)) is not None:
        yield Section("distributions", "Repeats", (), [Part(chart=spread)])
    drawn = [Part(chart=one) for one in _charts(replay) if one is not None]
    if drawn:
        yield Section("curves", "Over time", (), drawn)
    yield Section("sizes", "Mean wait by size of the job", (), [Part(queueing(replay))])
    yield Section("fairness", "Queues", (), [Part(_fairness(replay))])
    yield Section("made", "What was replayed", (), [Part(_spec(replay))])


def _distributions(replay: ReplayDocument) -> Chart | None:
    """The share of the repeats of each name whose mean completion time is at most so long."""
    series = []
    for spread in replay.status.spreads:
        runs = (run for run in replay.status.runs if run.name == spread.name)
        means = sorted(mean for run in runs if (mean := run.jct_seconds.mean) is not None)
        points = [(mean, (i + 1) / len(means)) for i, mean in enumerate(means)]
        series.append(Series(safe(spread.name), [(means[0], 0.0), *points] if means else []))
    means_of = {safe(one.name): one.jct_mean_seconds for one in replay.status.spreads}
    return chart(
        "Share of the runs with a mean completion time of at most",
        "mean completion time of a run",
        series,
        x_text=lambda x: took(round(x)),
        y_text=lambda y: f"{y:.0%}",
        summary=lambda one: plus_minus(means_of[one.name], took),
        y_most=1.0,
    )


def _charts(replay: ReplayDocument) -> Iterator[Chart | None]:
    runs = _first(replay)
    gpus = float(replay.spec.cluster.gpus)
    for title, field, most in (
        ("GPUs in use", "gpus_busy", gpus),
        ("Effective GPUs: in use times speed", "effective_gpus", gpus),
        ("GPUs of jobs that wait", "waiting_gpus", None),
    ):
        series = [
            Series(
                safe(run.name),
                list(zip(run.curves.seconds, getattr(run.curves, field), strict=False)),
            )
            for run in runs
        ]
        yield chart(
            title,
            "time since the start",
            series,
            x_text=lambda x: lasting(round(x)),
            y_text=gpu_amount,
            summary=lambda one: f"{gpu_amount(round(time_mean(one.points)))} on average",
            y_most=most,
        )
    done = [
        Series(
            safe(run.name),
            list(zip(run.completion_curve.seconds, run.completion_curve.share, strict=False)),
        )
        for run in runs
    ]
    means = {safe(run.name): run.jct_seconds.p50 for run in runs}
    yield chart(
        "Share of the jobs complete, by time since submission",
        "time since submission (logarithmic)",
        done,
        x_text=lambda x: lasting(round(x)),
        y_text=lambda y: f"{y:.0%}",
        summary=lambda one: f"half of those complete within {took(means[one.name])}",
        log=True,
        y_most=1.0,
    )


def time_mean(points: Sequence[Point]) -> float:
    """Mean of a step function over its time."""
    length = points[-1][0] - points[0][0]
    area = sum(y * (right - x) for (x, y), (right, _) in zip(points, points[1:], strict=False))
    return area / length if length else points[-1][1]


MAX_QUEUES = 60


def _fairness(replay: ReplayDocument) -> Table:
    """A row for each queue: its jobs, and in each run the mean time that they waited; most GPU time first."""
    runs = _first(replay)
    by_run = [{one.queue: one for one in run.fairness.by_queue} for run in runs]
    work: dict[str, float] = {}
    for queues in by_run:
        for name, one in queues.items():
            work[name] = max(work.get(name, 0.0), one.gpu_seconds)
    names = sorted(work, key=lambda name: (-work[name], name))
    rows = []
    for name in names[:MAX_QUEUES]:
        found = [queues.get(name) for queues in by_run]
        jobs = max(one.jobs for one in found if one is not None)
        waits = [Cell(took(None if one is None else one.mean_queueing_seconds)) for one in found]
        rows.append(
            (Cell(name), Cell(number(jobs)), Cell(number(round(work[name] / 3600))), *waits)
        )
    columns = (
        Column("QUEUE", fold=True),
        Column("JOBS", right=True),
        Column("GPU-HOURS", right=True),
        *(Column(f"Wait under {safe(run.name)}", right=True) for run in runs),
    )
    left = len(names) - MAX_QUEUES
    notes = (f"and {number(left)} queues with less GPU time",) if left > 0 else ()
    return Table(columns, tuple(rows), notes)


def _spec(replay: ReplayDocument) -> Table:
    spec = replay.spec
    failures = spec.failures
    faster = "" if spec.speedup == 1 else f"{spec.speedup:g} times as fast"
    rows = [
        ("trace", f"{spec.trace.name}, {plural(spec.trace.jobs, 'job')}"),
        ("from", lasting(spec.from_seconds)),
        ("until", "the end" if spec.until_seconds is None else lasting(spec.until_seconds)),
        ("planned every", lasting(spec.every_seconds) if spec.every_seconds else "event"),
        ("debounce", lasting(spec.debounce_seconds)),
        ("search budget of a plan", number(spec.budget)),
        ("arrivals", f"{faster} as in the trace".strip()),
        ("a restart takes", lasting(spec.restart_seconds)),
        ("checkpoints every", lasting(spec.checkpoint_seconds)),
        (
            "failures",
            "none"
            if failures is None
            else f"a node every {lasting(failures.mtbf_seconds)} on average, repaired in"
            f" {lasting(failures.repair_seconds)}",
        ),
        ("seed", number(spec.seed)),
        ("digest of the results", replay.status.digests.runs),
    ]
    cells = tuple((Cell(name, "dim"), Cell(text)) for name, text in rows)
    return Table((Column("what"), Column("how")), cells, headless=True)
