"""``gangplan record SNAPSHOT... --out trace.json``: what a live cluster ran, as a trace for ``replay``.

Reads snapshots only. The trace holds no uids, no nodes and no images.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from models.units import plural, time_text
from planner.cli.options import verb
from planner.errors import Fault, UsageError
from planner.show.console import Console

if TYPE_CHECKING:
    from planner.pipelines.record import Recorded


@verb
def record(
    console: Console,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="SNAPSHOT...",
            help="Folders of `gangplan snapshot`, or files of kubectl get -o json, one a moment.",
        ),
    ],
    *,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Where the trace is saved, as JSON.")
    ],
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="The name of the trace.")
    ] = "recorded",
    anonymize: Annotated[
        bool,
        typer.Option(
            "--anonymize", help="Write numbers for the names of gangs, namespaces and queues."
        ),
    ] = False,
) -> None:
    """Make a trace of snapshots of a live cluster, for `replay`."""
    from planner.atomic_files import check_target, save
    from planner.pipelines.record import record as observe

    _check_name(name)
    check_target(out, paths)
    live = console.is_terminal(console.stderr) and not console.json_log

    def progress(path: str, done: int, of: int) -> None:
        if live:
            console.live(f"reading {path}: {done:,} of {of:,}")

    found = observe(paths, name=name, anonymize=anonymize, stdin=console.stdin, progress=progress)
    console.clear_live()
    document = found.trace.document().to_json()
    save(out, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    _report(console, found, out)


def _check_name(name: str) -> None:
    """Raises UsageError for a name that the document could not have."""
    from pydantic import ValidationError

    from models.documents.trace import TraceMetadata

    try:
        TraceMetadata(name=name)
    except ValidationError:
        hint = "write printable characters, at most 253, without blanks at the ends"
        raise UsageError(Fault("--name is no name for a trace", hint)) from None


def _report(console: Console, found: Recorded, out: Path) -> None:
    """What the snapshots are, what is in the trace and what is not, and the next command."""
    trace, snapshots = found.trace, found.snapshots
    first, last = time_text(snapshots[0].time), time_text(snapshots[-1].time)
    origins = ", ".join(sorted({one.origin for one in snapshots}))
    console.say(f"{plural(len(snapshots), 'snapshot')} from {first} to {last}; times by {origins}")
    console.remarks(found.remarks)
    gone = ", ".join(f"{count:,} {why}" for why, count in trace.left_out)
    console.say(f"{plural(len(trace.jobs), 'job')}" + (f"; left out: {gone}" if gone else ""))
    if not trace.jobs:
        console.warn("no gang was seen to run and to end: record more snapshots, further apart")
    console.say(f"saved {shlex.quote(str(out))}")
    if trace.jobs:
        name = shlex.quote(str(out))
        console.next(f"{console.program} replay {name} --cluster {shlex.quote(snapshots[-1].path)}")
    console.event(
        "summary",
        verb="record",
        status="recorded",
        exit_code=0,
        jobs=len(trace.jobs),
        left_out=dict(trace.left_out),
    )
