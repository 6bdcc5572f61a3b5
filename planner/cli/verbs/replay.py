"""``gangplan replay TRACE --cluster PATH``: what a trace of jobs would have met under other policies."""

from __future__ import annotations

import json
import shlex
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import seconds_of, verb
from planner.errors import Fault, UsageError
from planner.show.console import Console

if TYPE_CHECKING:
    from planner.pipelines.replay import Replayed, ReplayRequest

MAX_SPEEDUP = 1000
MAX_FRACTION = Fraction(95, 100)


class ReplayFormat(StrEnum):
    """``-o``: how the replay is printed."""

    table = "table"
    wide = "wide"
    json = "json"
    yaml = "yaml"


LEAST_MTBF_S = 3600
"""A node that fails more often lets hardly any job end."""


@verb
def replay(
    console: Console,
    trace: Annotated[
        str,
        typer.Argument(
            metavar="TRACE", help="A Trace, or a published table of jobs; - reads stdin."
        ),
    ],
    *,
    cluster: Annotated[
        list[str],
        typer.Option(
            "--cluster", metavar="PATH", help="The cluster, as `plan` reads it; repeatable."
        ),
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="FILE",
            help="Plan under this Policy; repeatable. Default: the Policy of --cluster.",
        ),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            "--baseline",
            metavar="NAME",
            help="The rules of another scheduler: fifo, mostallocated, leastallocated, kueue, kueue-fair, "
            "kueue-reclaim, kai, kai-reclaim, volcano, slurm, slurm-easy, hived, koordinator, fgd, "
            "first-fit-decreasing, tight, delay, delay-day, tiresias, qssf, shortest-remaining or "
            "least-remaining; repeatable.",
        ),
    ] = None,
    every: Annotated[
        str,
        typer.Option(
            "--every",
            metavar="DURATION",
            help="Time between two plans; event: plan whenever a job arrives or ends, or a node "
            "fails or returns.",
        ),
    ] = "10m",
    debounce: Annotated[
        str,
        typer.Option(
            "--debounce",
            metavar="DURATION",
            help="With --every event: plan so long after the first event without a plan, for all "
            "events until then.",
        ),
    ] = "0s",
    preemptible: Annotated[
        bool,
        typer.Option("--preemptible", help="Plans may stop all jobs, which save their work first."),
    ] = False,
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="DURATION",
            help="Start of the part to replay, in the time of the trace.",
        ),
    ] = "0s",
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="DURATION",
            help="Replay the jobs that arrive before this time; default: all.",
        ),
    ] = None,
    speedup: Annotated[
        str,
        typer.Option("--speedup", metavar="X", help="Divide the times between arrivals by X."),
    ] = "1",
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            min=0,
            max=2**31 - 1,
            metavar="N",
            help="Seed of the searches and of the failures.",
        ),
    ] = 0,
    budget: Annotated[
        int,
        typer.Option(
            "--budget", min=1, max=1000, metavar="N", help="Deterministic budget of one plan."
        ),
    ] = 1,
    repeat: Annotated[
        int,
        typer.Option(
            "--repeat", min=1, max=1000, metavar="N", help="Runs of each policy and baseline."
        ),
    ] = 1,
    jitter: Annotated[
        str | None,
        typer.Option(
            "--jitter",
            metavar="DURATION",
            help="Move each arrival at random by so much at most, in each repeat anew; default: 30s "
            "with --repeat.",
        ),
    ] = None,
    fraction: Annotated[
        str | None,
        typer.Option(
            "--fraction",
            metavar="X",
            help="Part of a step that all gangs spend in communication where links are ideal, 0 to 0.95.",
        ),
    ] = None,
    rules_only: Annotated[
        bool, typer.Option("--rules-only", help="Replay the baselines alone, without a policy.")
    ] = False,
    failures: Annotated[
        str | None,
        typer.Option(
            "--failures",
            metavar="MTBF",
            help="Mean time between two failures of a node, such as 60d; default: no node fails.",
        ),
    ] = None,
    repair: Annotated[
        str,
        typer.Option(
            "--repair", metavar="DURATION", help="Time until a failed node is ready again."
        ),
    ] = "4h",
    checkpoint: Annotated[
        str,
        typer.Option(
            "--checkpoint",
            metavar="DURATION",
            help="Time between two checkpoints: an interrupted job loses its work since the last one.",
        ),
    ] = "30m",
    restart: Annotated[
        str,
        typer.Option(
            "--restart",
            metavar="DURATION",
            help="Time that an interrupted job takes to start again.",
        ),
    ] = "2m",
    node_gpus: Annotated[
        int | None,
        typer.Option(
            "--node-gpus",
            min=1,
            max=1024,
            metavar="N",
            help="Most GPUs of one pod, for tables that only state the GPUs of a job.",
        ),
    ] = None,
    prefer: Annotated[
        str | None,
        typer.Option(
            "--prefer",
            metavar="LEVEL",
            help="Level, such as rack, that gangs of several pods prefer unless the trace names one.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            max=256,
            metavar="N",
            help="Runs simulated at a time; default: one for each core.",
        ),
    ] = None,
    executor: Annotated[
        str | None,
        typer.Option(
            "--executor",
            metavar="WHERE",
            help="Where runs are simulated: threads, processes or dask://HOST:PORT.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Save the replay here (JSON) after each run."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Keep the finished runs that --out already has."),
    ] = False,
    output: Annotated[
        ReplayFormat,
        typer.Option(
            "-o",
            "--output",
            help="Format on stdout: wide adds queueing times by size, and how good forecasts of starts were.",
        ),
    ] = ReplayFormat.table,
) -> None:
    """Replay a trace under policies and rules of other schedulers."""
    from planner.pipelines import replay as replaying
    from planner.pipelines.plan import now
    from planner.replay.jobs import MS
    from planner.replay.simulation import Settings

    if resume and out is None:
        raise UsageError(Fault("--resume without --out", "name the file with --out"))
    if trace == "-" and "-" in (*cluster, *(policy or ())):
        raise UsageError(Fault("the trace and the cluster both read stdin", "name a file"))
    mtbf = None if failures is None else MS * _positive("--failures", failures)
    if mtbf is not None and mtbf < LEAST_MTBF_S * MS:
        raise UsageError(Fault("--failures is below one hour", "use a value such as 60d"))
    if rules_only and (policy or not baseline):
        what = "--rules-only with a --policy" if policy else "--rules-only without a --baseline"
        raise UsageError(Fault(what, "name the rules with --baseline, and no policy"))
    at_events = every == "event"
    every_ms = 0 if at_events else MS * _positive("--every", every, word="event")
    debounce_ms = MS * seconds_of("--debounce", debounce)
    if debounce_ms and not at_events:
        raise UsageError(Fault("--debounce without --every event", "add --every event"))
    settings = Settings(
        seed=seed,
        every_ms=every_ms,
        debounce_ms=debounce_ms,
        restart_ms=MS * seconds_of("--restart", restart),
        checkpoint_ms=MS * seconds_of("--checkpoint", checkpoint),
        mtbf_ms=mtbf,
        repair_ms=MS * seconds_of("--repair", repair),
        preemptible=preemptible,
    )
    request = replaying.ReplayRequest(
        trace=trace,
        cluster=tuple(cluster),
        policies=tuple(dict.fromkeys(policy or ())),
        baselines=_baselines(baseline or []),
        settings=settings,
        budget=budget,
        from_s=seconds_of("--from", from_),
        until_s=None if until is None else seconds_of("--until", until),
        speedup=_speedup(speedup),
        node_gpus=node_gpus,
        prefer=prefer,
        out=out,
        resume=resume,
        workers=workers,
        executor=executor,
        repeat=repeat,
        jitter_ms=MS * _jitter_s(jitter, repeat),
        fraction=None if fraction is None else _fraction(fraction),
        rules_only=rules_only,
    )
    replayed = replaying.replay(
        request, console, created_at=now(console.environ), stdin=console.stdin
    )
    _show(console, output, replayed)
    _end(console, request, replayed)


def _show(console: Console, output: ReplayFormat, replayed: Replayed) -> None:
    from planner.show.replay import queueing, results, starts

    if output is ReplayFormat.json:
        console.data(json.dumps(replayed.document, indent=2, ensure_ascii=False) + "\n")
    elif output is ReplayFormat.yaml:
        import yaml

        console.data(yaml.safe_dump(replayed.document, sort_keys=False, allow_unicode=True))
    elif replayed.replay.status.runs:
        console.table(results(replayed.replay))
        if output is ReplayFormat.wide:
            console.data("\n")
            console.table(queueing(replayed.replay))
            console.data("\n")
            console.table(starts(replayed.replay))


def _end(console: Console, request: ReplayRequest, replayed: Replayed) -> None:
    from models.units import plural

    saved = None if request.out is None else shlex.quote(str(request.out))
    missing = replayed.replay.status.missing
    if replayed.signal_exit is not None:
        console.say(f"interrupted: {plural(len(missing), 'run')} not finished")
    if saved is not None:
        console.say(f"saved {saved}")
    console.event(
        "summary",
        verb="replay",
        runs=len(replayed.replay.status.runs),
        missing=list(missing),
        digest=replayed.replay.status.digests.runs,
        exit_code=replayed.signal_exit or 0,
    )
    if replayed.signal_exit is not None:
        raise typer.Exit(replayed.signal_exit)
    if saved is not None:
        console.next(f"{console.program} report {saved} --out report.html")


def _baselines(names: list[str]) -> tuple[str, ...]:
    from models.documents.base import suggestion
    from models.units import shown
    from planner.replay.schedulers import RULES

    for name in names:
        if name not in RULES:
            what = f"--baseline: no rules are named {shown(name)}"
            raise UsageError(Fault(what, suggestion(name, RULES)))
    return tuple(dict.fromkeys(names))


def _positive(option: str, text: str, *, word: str | None = None) -> int:
    found = seconds_of(option, text, word=word)
    if found < 1:
        raise UsageError(Fault(f"{option} is below one second", "use a value such as 90s or 5m"))
    return found


JITTER_S = 30
"""Of repeats: plans differ as much by it as by anything that nobody can know."""


def _jitter_s(text: str | None, repeat: int) -> int:
    if text is None:
        return JITTER_S if repeat > 1 else 0
    return seconds_of("--jitter", text)


def _fraction(text: str) -> Fraction:
    try:
        # An exponent could make a number of a billion digits.
        found = Fraction(text if "e" not in text.lower() else -1)
    except (ValueError, ZeroDivisionError):
        found = Fraction(-1)
    if not 0 <= found <= MAX_FRACTION:
        raise UsageError(
            Fault(f"--fraction must be from 0 to {float(MAX_FRACTION)}", "use a value such as 0.03")
        )
    return found


def _speedup(text: str) -> Fraction:
    try:
        # An exponent could make a number of a billion digits.
        found = Fraction(text if "e" not in text.lower() else 0)
    except (ValueError, ZeroDivisionError):
        found = Fraction(0)
    if not Fraction(1, MAX_SPEEDUP) <= found <= MAX_SPEEDUP:
        raise UsageError(
            Fault(
                f"--speedup must be from 1/{MAX_SPEEDUP} to {MAX_SPEEDUP}",
                "use a value such as 1.5",
            )
        )
    return found
