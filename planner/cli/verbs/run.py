"""``gangplan run``: plan the live cluster and apply the plan, unattended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import (
    Applying,
    BudgetOption,
    Connection,
    Locking,
    MetricsOption,
    PolicyOption,
    SaveOption,
    SkipOption,
    TimeLimitOption,
    seconds_of,
    verb,
)
from planner.errors import Fault, UsageError
from planner.show.console import Console

if TYPE_CHECKING:
    from planner.week.shadow import Shadow

LEAST, MOST = "30s", "10m"
"""Between two runs of a watch."""

_WATCHING = ("--watch", "--min-interval", "--max-interval")


@dataclass(frozen=True, slots=True)
class Shadowing:
    """The options of a run that changes nothing."""

    shadow: Annotated[
        Path | None,
        typer.Option(
            "--shadow",
            metavar="FOLDER",
            help="Write nothing to the cluster: add what is seen and could run to this journal.",
        ),
    ] = None
    restarts: Annotated[
        int | None,
        typer.Option(
            "--restarts",
            min=0,
            max=100,
            metavar="N",
            help="With --shadow: also what could run if at most N gangs restarted; default: 2.",
        ),
    ] = None
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep",
            metavar="DURATION",
            help="With --shadow: how long a day stays in the journal; default: 35d.",
        ),
    ] = None
    anonymize: Annotated[
        bool,
        typer.Option("--anonymize", help="With --shadow: no name of the cluster in the journal."),
    ] = False

    def work(self, *, watch: bool) -> Shadow | None:
        """What the run does then; None without --shadow. Raises UsageError."""
        from planner.week.rounds import RESTARTS
        from planner.week.shadow import KEEP_S, Shadow

        if self.shadow is None:
            others = {"--restarts": self.restarts, "--keep": self.keep}
            given = [name for name, one in others.items() if one is not None]
            if given or self.anonymize:
                option = (*given, "--anonymize")[0]
                raise UsageError(Fault(f"{option} without --shadow", "add --shadow FOLDER"))
            return None
        if watch:
            hint = "start it every few minutes, by cron or by the CronJob of deploy/shadow"
            raise UsageError(Fault("--shadow does not watch", hint))
        return Shadow(
            self.shadow,
            RESTARTS if self.restarts is None else self.restarts,
            KEEP_S if self.keep is None else seconds_of("--keep", self.keep),
            self.anonymize,
        )


@verb
def run(
    console: Console,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH",
            help="Files and folders that go with the cluster, such as a Policy or levels.",
        ),
    ] = None,
    *,
    policy: PolicyOption = None,
    out: SaveOption = None,
    budget: BudgetOption = None,
    time_limit: TimeLimitOption = None,
    applying: Applying,
    skip: SkipOption = None,
    connection: Connection,
    lock: Locking,
    metrics_file: MetricsOption = None,
    shadow: Shadowing,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Run again when pods come or go, and from time to time, until a signal."
        ),
    ] = False,
    min_interval: Annotated[
        str | None,
        typer.Option(
            "--min-interval",
            metavar="DURATION",
            help="With --watch: the least time from the end of one run to the next; default: 30s.",
        ),
    ] = None,
    max_interval: Annotated[
        str | None,
        typer.Option(
            "--max-interval",
            metavar="DURATION",
            help="With --watch: run after this time even if nothing changed; default: 10m.",
        ),
    ] = None,
) -> None:
    """Plan the live cluster and apply the plan, unattended."""
    work = shadow.work(watch=watch)
    from planner.cli.verbs.snapshot import skipped
    from planner.pipelines import run as pipeline
    from planner.pipelines.plan import PlanRequest

    if str(out) == "-":
        raise UsageError(Fault("--out takes a file", "the plan does not go to stdout here"))
    if "-" in (*(paths or ()), policy):
        raise UsageError(Fault("run does not read stdin", "pass a file"))
    request = pipeline.RunRequest(
        planning=PlanRequest(
            schedulers=(),  # a plan of others is never applied
            paths=tuple(paths or ()),
            out=out,
            policy=policy,
            budget=budget,
            time_limit_s=None if time_limit is None else seconds_of("--time-limit", time_limit),
        ),
        # An open node in one tenant's pool must not block the gangs of the others.
        options=applying.options(lock),
        target=connection.target(console),
        skip=skipped(skip or []),
        metrics=metrics_file,
    )
    if watch:
        from planner.pipelines import watch as watching

        least_s = seconds_of("--min-interval", min_interval or LEAST)
        most_s = seconds_of("--max-interval", max_interval or MOST)
        if least_s > most_s:
            hint = "leave one of them out, or swap them"
            raise UsageError(Fault("--min-interval is above --max-interval", hint))
        words = _of_a_round(console.arguments)
        code = watching.watch(watching.WatchRequest(request, words, least_s, most_s), console)
    elif min_interval or max_interval:
        option = "--min-interval" if min_interval else "--max-interval"
        raise UsageError(Fault(f"{option} without --watch", "add --watch"))
    else:
        code = pipeline.run(request, console, work=work)
    if code:
        raise typer.Exit(code)


def _of_a_round(arguments: Sequence[str]) -> tuple[str, ...]:
    """The same command without the options of the watch."""
    kept, value = list[str](), False
    for word in arguments:
        name, equals, _ = word.partition("=")
        if value or name in _WATCHING:
            value = not value and not equals and name != "--watch"
        else:
            kept.append(word)
    return tuple(kept)
