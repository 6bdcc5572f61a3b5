"""Options that several verbs share, declared once.

Promises: nothing but declarations. Used by every file of ``planner.verbs``.
"""

from __future__ import annotations

from typing import Annotated

import typer

from planner.console import Color, Console, LogFormat
from planner.showing.formats import Format

ColorOption = Annotated[
    Color,
    typer.Option("--color", help="When to colour; NO_COLOR and FORCE_COLOR are honoured."),
]
LogOption = Annotated[
    LogFormat,
    typer.Option("--log-format", help="How stderr speaks: text, or one JSON object a line."),
]
DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")
]
OutputOption = Annotated[
    Format,
    typer.Option(
        "-o", "--output", help="Format on stdout: wide adds pods, name lists what starts."
    ),
]
PlanArgument = Annotated[
    str, typer.Argument(metavar="PLAN", help="A plan saved by `plan --out`; - reads stdin.")
]
PathsArgument = Annotated[
    list[str],
    typer.Argument(metavar="PATH...", help="Files and folders of YAML or JSON; - reads stdin."),
]


def console_of(
    context: typer.Context, *, color: Color, log_format: LogFormat, debug: bool
) -> Console:
    """The console of this run, told what the command line says."""
    console: Console = context.obj
    console.configure(color=color, log_format=log_format, debug=debug)
    return console
