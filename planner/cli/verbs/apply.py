"""``gangplan apply PLAN``: apply a saved plan to the live cluster that it was made for."""

from __future__ import annotations

import time
from enum import StrEnum

from planner.cli.options import Applying, Connection, seconds_of, verb
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
def apply(
    console: Console,
    path: str,
    *,
    dry_run: DryRun | None = None,
    detailed_exitcode: bool = False,
    yes: bool = False,
    max_age: str | None = None,
    applying: Applying,
    connection: Connection,
    lock_timeout: str = "0s",
    output: Format = Format.table,
) -> int:
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
        options=applying.options(connection, lock_timeout),
        target=connection.target(console),
        max_age_s=None if max_age is None else seconds_of("--max-age", max_age, least=0),
        dry=dry_run is DryRun.server,
        yes=yes,
    )
    if client and output in OBJECTS:
        reports.show_objects(console, request, output)
        return 0
    if not (client or request.yes or request.dry or reports.can_ask(console, path)):
        hint = "preview it: gangplan apply PLAN --dry-run=client"
        raise UsageError(Fault("apply cannot ask without a terminal: add --yes", hint))
    if client:
        preview = pipeline.preview(request, console)
        return reports.show_preview(console, request, output, preview, detailed=detailed_exitcode)
    progress = ApplyProgress(console, time.monotonic)
    reporter = reports.ConsoleApplyReporter(console, request, output, progress)
    result = pipeline.apply(
        request, console, reporter.announce, reporter.confirm, progress.on_event
    )
    return reports.report(console, request, output, result)
