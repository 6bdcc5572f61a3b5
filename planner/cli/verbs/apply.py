"""``gangplan apply PLAN``: apply a saved plan to the live cluster that it was made for."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated

import typer

from planner.cli.options import (
    Applying,
    Connection,
    Locking,
    PlanArgument,
    output_option,
    seconds_of,
    verb,
)
from planner.errors import Fault, UsageError
from planner.show.console import Console
from planner.show.text import Format


class DryRun(StrEnum):
    """``client``: show what would change. ``server``: the server checks every request."""

    client = "client"
    server = "server"


OBJECTS = (Format.json, Format.yaml)
"""Formats in which a client-side dry run writes the objects, without a cluster."""


@verb
def apply(  # the options of the verb
    console: Console,
    path: PlanArgument,
    *,
    dry_run: Annotated[
        DryRun | None,
        typer.Option(
            "--dry-run",
            help="Write nothing. client: show what would change; -o yaml: the objects that would be sent, "
            "without a cluster. server: have the server check every request.",
        ),
    ] = None,
    detailed_exitcode: Annotated[
        bool,
        typer.Option(
            "--detailed-exitcode", help="With --dry-run=client: exit 2 if anything would change."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    max_age: Annotated[
        str | None,
        typer.Option("--max-age", metavar="DURATION", help="Refuse an older plan, such as 1h."),
    ] = None,
    applying: Applying,
    connection: Connection,
    lock: Locking,
    output: Annotated[Format, output_option(": wide adds plans, name lists gangs")] = Format.table,
) -> None:
    """Apply a saved plan: each gang whole or not at all."""
    from planner.cli import apply_report as reports
    from planner.pipelines import apply as pipeline
    from planner.show.apply import ApplyProgress

    client = dry_run is DryRun.client
    if detailed_exitcode and (not client or output in OBJECTS):
        what = "--detailed-exitcode needs --dry-run=client, and a comparison with the cluster"
        raise UsageError(Fault(what, "use -o table, wide or name"))
    request = pipeline.ApplyRequest(
        path=path,
        options=applying.options(lock),
        target=connection.target(console),
        max_age_s=None if max_age is None else seconds_of("--max-age", max_age, least=0),
        dry=dry_run is DryRun.server,
        yes=yes,
    )
    if client and output in OBJECTS:
        reports.show_objects(console, request, output)
        return
    if not (client or request.yes or request.dry or reports.can_ask(console, path)):
        hint = "preview it: gangplan apply PLAN --dry-run=client"
        raise UsageError(Fault("apply cannot ask without a terminal: add --yes", hint))
    if client:
        preview = pipeline.preview(request, console)
        code = reports.show_preview(console, request, output, preview, detailed=detailed_exitcode)
    else:
        progress = ApplyProgress(console, time.monotonic)
        reporter = reports.ConsoleApplyReporter(console, request, output, progress)
        result = pipeline.apply(request, console, reporter, stdin=console.stdin)
        code = reports.report(console, request, output, result)
    if code:
        raise typer.Exit(code)
