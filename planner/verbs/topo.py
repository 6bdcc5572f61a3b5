"""``gangplan topo NAME|FILE``: a server model's link matrix and its bandwidth table.

Promises: no solver is loaded. A name is looked up in the catalogue, a path is read as a server model.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from planner.console import Color, LogFormat
from planner.errors import Fault, MissingPathError
from planner.verbs.options import ColorOption, DebugOption, LogOption, console_of

if TYPE_CHECKING:
    from models.hardware import ServerModel

_FILES = (".yaml", ".yml", ".json")


def topo(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE.yaml", help="A model of the catalogue, an alias, or a file."
        ),
    ],
    *,
    color: ColorOption = Color.auto,
    log_format: LogOption = LogFormat.text,
    debug: DebugOption = False,
) -> None:
    """Show a server model: its GPUs, links and NICs, and what every set of GPUs reaches."""
    console = console_of(context, color=color, log_format=log_format, debug=debug)
    from planner.showing import topology

    for number, found in enumerate(_find(model, console.stdin)):
        tables = [topology.facts(found), topology.links(found), topology.bandwidths(found)]
        for table in tables:
            if table is not None:
                console.data("\n" if number or table is not tables[0] else "")
                console.table(table)


def _find(name: str, stdin: BinaryIO | None) -> tuple[ServerModel, ...]:
    """The model of that name or alias, or those in that file. Raises MissingPathError, InputError."""
    from models import catalogue

    looks_like_a_file = name.lower().endswith(_FILES) or "/" in name or name == "-"
    if not looks_like_a_file:
        found = catalogue.find(name)
        if found is not None:
            return (found,)
    if looks_like_a_file or Path(name).is_file():
        from planner.model_files import read_models

        return read_models(name, stdin)
    from models.documents import similar

    models = catalogue.server_models()
    names = sorted(model.name for model in models)
    near = similar(name, names) or similar(name, (a for model in models for a in model.aliases))
    hint = f"did you mean {' or '.join(near)}?" if near else f"the catalogue has {'; '.join(names)}"
    raise MissingPathError(Fault(f"no server model and no file is named {name}", hint))
