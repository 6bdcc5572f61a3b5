"""``gangplan validate PATH...``: read and check, and say every fault with its place.

Promises: no solver is loaded, nothing is written.
"""

from __future__ import annotations

import shlex

import typer

from planner.console import Color, LogFormat
from planner.showing.text import plural
from planner.verbs.options import (
    ColorOption,
    DebugOption,
    LogOption,
    PathsArgument,
    console_of,
)


def validate(
    context: typer.Context,
    paths: PathsArgument,
    *,
    color: ColorOption = Color.auto,
    log_format: LogOption = LogFormat.text,
    debug: DebugOption = False,
) -> None:
    """Read the input and list every fault with file, line and column."""
    console = console_of(context, color=color, log_format=log_format, debug=debug)
    from planner.reading import read

    instance = read(paths, stdin=console.stdin)
    nodes = instance.cluster.nodes
    running = sum(gang.running for gang in instance.gangs)
    waiting = len(instance.gangs) - running
    console.data(
        f"valid: {plural(len(nodes), 'node')}, {plural(sum(node.gpus for node in nodes), 'GPU')},"
        f" {plural(len(instance.gangs), 'gang')} ({running:,} running, {waiting:,} waiting)\n"
    )
    console.event("read", nodes=len(nodes), gangs=len(instance.gangs))
    console.next(f"{console.program} plan {shlex.join(paths)}")
