"""``gangplan apply PLAN``: apply a saved plan to the live cluster that it was made for."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated

import typer

from planner.cli.options import Applying, Connection, Locking, PlanArgument, verb
from planner.errors import Fault, UsageError
from planner.show.console import Console
from planner.show.text import Format


class DryRun(StrEnum):
    """The only kind of dry run: ``render`` is the offline preview."""

    server = "server"


@verb
def apply(  # the options of the verb
    console: Console,
    path: PlanArgument,
    *,
    dry_run: Annotated[
        DryRun | None,
        typer.Option("--dry-run", help="Send every request as a server-side dry run."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    max_age: Annotated[
        str | None,
        typer.Option("--max-age", metavar="DURATION", help="Refuse an older plan, such as 1h."),
    ] = None,
    applying: Applying,
    connection: Connection,
    lock: Locking,
    output: Annotated[
        Format,
        typer.Option(
            "-o", "--output", help="Format on stdout: wide adds plans, name lists what started."
        ),
    ] = Format.table,
) -> None:
    """Apply a saved plan: each gang whole or not at all."""
    from planner.cli.apply_report import ConsoleApplyReporter, can_ask, report
    from planner.cli.options import seconds_of
    from planner.pipelines import apply as pipeline

    request = pipeline.ApplyRequest(
        path=path,
        options=applying.options(lock),
        target=connection.target(console),
        max_age_s=None if max_age is None else seconds_of("--max-age", max_age),
        dry=dry_run is not None,
        yes=yes,
    )
    if not (request.yes or request.dry or can_ask(console, path)):
        hint = "preview it: gangplan diff PLAN, or gangplan apply PLAN --dry-run server"
        raise UsageError(Fault("apply cannot ask without a terminal: add --yes", hint))
    reporter = ConsoleApplyReporter(console, request, output, time.monotonic)
    result = pipeline.apply(request, console, reporter, stdin=console.stdin)
    code = report(console, request, output, result)
    if code:
        raise typer.Exit(code)
