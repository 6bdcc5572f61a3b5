"""The plan that a verb shows: of a file, or without one the last plan, with its age on stderr."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from planner.show.console import Console

_COMPLETED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
"""Names that shells are given: no other character comes near a command line."""


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """``content``: the bytes of the plan. ``path``: where they are, for errors.

    ``file``: as on the command line; None for the last plan.
    """

    content: bytes
    path: str
    file: str | None

    def command(self, program: str, verb: str, *more: str) -> str:
        """The command that asks another verb for this plan."""
        return " ".join([program, verb, *([shlex.quote(self.file)] if self.file else []), *more])


def shown_plan(console: Console, file: str | None) -> ShownPlan:
    """The plan of a file, ``-`` for stdin; without one the last plan, whose age goes to stderr.

    Raises MissingPathError, InputError.
    """
    from planner import last_plan
    from planner.read import plan_files

    console.doing("reading the plan")
    if file is not None:
        return ShownPlan(plan_files.read_bytes(file, console.stdin), file, file)
    last = last_plan.load(console.environ)
    here = ""
    with suppress(OSError):  # the folder is gone
        here = str(Path.cwd())
    where = "" if last.folder == here else f" in {last.folder}"
    made = f"plan of {last.made_from}{where}, made {ago(last.age_s)}"
    console.say(f"{made}; for another, name its file")
    console.event("last_plan", made_from=last.made_from, seconds=last.age_s)
    return ShownPlan(last.content, str(last.path), None)


def ago(seconds: int) -> str:
    """An age in its largest unit, rounded down."""
    from models.units import plural

    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{plural(seconds // size, unit)} ago"
    return "just now"


def complete_gangs(context: typer.Context, incomplete: str) -> Iterator[str]:
    """For shells: the gangs of the plan on the command line, or of the last one. Nothing on any failure."""
    from planner import last_plan
    from planner.errors import GangplanError
    from planner.read import plan_files

    file = context.params.get("path")
    with suppress(GangplanError, OSError):
        if isinstance(file, str) and Path(file).is_file():
            content, path = plan_files.read_bytes(file), file
        else:
            content, path = last_plan.load(os.environ).content, ""
        for name in _gang_names(plan_files.parse(content, path)):
            if _COMPLETED.fullmatch(name) and name.startswith(incomplete):
                yield name


def _gang_names(document: dict[str, Any]) -> Iterator[str]:
    spec = document.get("spec")
    gangs = spec.get("gangs") if isinstance(spec, dict) else None
    for gang in gangs if isinstance(gangs, list) else ():
        if isinstance(gang, dict):
            yield f"{gang.get('namespace')}/{gang.get('name')}"
