"""``gangplan run``: plan the live cluster and apply the plan, unattended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli.options import Applying, Connection, seconds_of, verb
from planner.errors import Fault, UsageError
from planner.show.console import Console

if TYPE_CHECKING:
    from planner.week.rounds import Shadow

LEAST, MOST = "30s", "10m"
"""Between two runs of a watch."""

_WATCHING = ("--watch", "--min-interval", "--max-interval")


@dataclass(frozen=True, slots=True)
class Shadowing:
    """The options of a run that changes nothing."""

    shadow: Path | None = None
    restarts: int | None = None
    keep: str | None = None
    anonymize: bool = False

    def work(self, applying: Applying, *, watch: bool) -> Shadow | None:
        """What the run does then; None without --shadow. Raises UsageError."""
        from planner.week.rounds import KEEP_S, RESTARTS, Shadow

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
        evicting = {
            "--allow-evictions": applying.allow_evictions,
            "--evict-partial": applying.evict_partial,
            "--max-evictions": applying.max_evictions is not None,
        }
        for option in (name for name, given in evicting.items() if given):
            hint = "leave out one of them: a shadow evicts nothing"
            raise UsageError(Fault(f"{option} with --shadow", hint))
        return Shadow(
            self.shadow,
            RESTARTS if self.restarts is None else self.restarts,
            KEEP_S if self.keep is None else seconds_of("--keep", self.keep),
            self.anonymize,
        )


@verb
def run(
    console: Console,
    paths: list[str] | None = None,
    *,
    policy: str | None = None,
    out: Path | None = None,
    budget: int | None = None,
    time_limit: str | None = None,
    applying: Applying,
    skip: list[str] | None = None,
    connection: Connection,
    lock_timeout: str = "0s",
    metrics_file: Path | None = None,
    shadow: Shadowing,
    watch: bool = False,
    min_interval: str | None = None,
    max_interval: str | None = None,
) -> int:
    """Plan the live cluster and apply the plan, unattended."""
    work = shadow.work(applying, watch=watch)
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
        options=applying.options(connection, lock_timeout),
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
        return watching.watch(watching.WatchRequest(request, words, least_s, most_s), console)
    if min_interval or max_interval:
        option = "--min-interval" if min_interval else "--max-interval"
        raise UsageError(Fault(f"{option} without --watch", "add --watch"))
    return pipeline.run(request, console, work=work)


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
