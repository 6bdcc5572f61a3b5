"""``gangplan render PLAN``: the Kubernetes objects of a plan, for review and for Git. Needs no cluster."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import PlanArgument, verb
from planner.errors import CannotWriteError, Fault, InputError, UsageError
from planner.show.console import Console

if TYPE_CHECKING:
    from planner.show.manifests import Rendering


class Form(StrEnum):
    """``-o``."""

    yaml = "yaml"
    json = "json"


@verb
def render(
    console: Console,
    path: PlanArgument,
    *,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Write one file per object into this folder."),
    ] = None,
    output: Annotated[
        Form | None,
        typer.Option("-o", "--output", help="On stdout: a YAML stream, or one JSON document."),
    ] = None,
) -> None:
    """Show the Kubernetes objects that applying a plan sends. For review, not for kubectl apply."""
    if to is not None and output is not None:
        raise UsageError(Fault("-o and --to exclude each other", "--to writes files, -o to stdout"))
    from models.apply.plan_actions import InapplicablePlanError
    from planner.pipelines.plan import verify_file
    from planner.read import plan_files
    from planner.show import manifests as rendertext

    plan = verify_file(plan_files.read_bytes(path, console.stdin), path)
    console.event("verify_done", violations=0)
    try:
        found = rendertext.rendering(plan)
    except InapplicablePlanError as error:
        raise InputError(Fault(error.what, error.hint, path)) from None
    if to is None:
        shown = rendertext.json_document if output is Form.json else rendertext.yaml_stream
        console.data(shown(found))
        return
    _write(to, found)
    console.say(
        f"rendered plan {found.plan} into {shlex.quote(str(to))}: {rendertext.counted(found)}"
    )
    if not found.known:
        console.warn("the plan has no pod uids: it cannot be applied")
    if path != "-" and found.known:
        console.next(f"{console.program} apply {shlex.quote(path)}")


def _write(folder: Path, found: Rendering) -> None:
    """Write the files and remove those of an earlier rendering that are not part of the plan.

    The index is written before the first file and after the last, so that every file is always listed.
    """
    from planner.atomic_files import save
    from planner.show.manifests import INDEX, files

    earlier = _earlier(folder)
    wanted = files(found)
    try:
        made = not folder.exists()
        folder.mkdir(exist_ok=True)
    except (OSError, ValueError) as error:
        raise _cannot_write(folder, error) from error
    try:
        gone = [one for one in earlier if one not in wanted]
        save(folder / INDEX, wanted[INDEX] + "".join(f"{one}\t\n" for one in gone))
        for name, text in wanted.items():
            if name != INDEX:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                save(folder / name, text)
        for name in gone:
            _remove(folder, name)
        save(folder / INDEX, wanted[INDEX])
    except BaseException as error:
        if not earlier:
            _undo(folder, wanted, made=made)
        if isinstance(error, OSError | ValueError):
            raise _cannot_write(folder, error) from error
        raise


def _cannot_write(folder: Path, error: OSError | ValueError) -> CannotWriteError:
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    hint = "check the path and its permissions"
    return CannotWriteError(Fault(f"cannot write {folder}: {why}", hint))


def _undo(folder: Path, written: Iterable[str], *, made: bool) -> None:
    """Leave nothing of a first rendering that failed; what made it fail may forbid that, too."""
    from planner.show.manifests import INDEX

    with contextlib.suppress(OSError):
        for name in written:
            if name != INDEX:
                _remove(folder, name)
        (folder / INDEX).unlink(missing_ok=True)
        if made:
            folder.rmdir()


def _earlier(folder: Path) -> list[str]:
    """Files of the rendering in the folder. Raises CannotWriteError if it contains other files."""
    from planner.show.manifests import INDEX, listed

    try:
        if not folder.exists() or not any(folder.iterdir()):
            return []
        return [one for one in listed((folder / INDEX).read_text("utf-8")) if _inside(one)]
    except (OSError, ValueError) as error:
        what = f"{folder} is not empty and contains no rendering"
        raise CannotWriteError(
            Fault(what, "name a new folder, or the folder of an earlier rendering")
        ) from error


def _inside(name: str) -> bool:
    """Whether a listed path is valid: the index may have been edited."""
    parts = name.split("/")
    kind = name.rpartition(".")[2]
    return (
        len(parts) == 3  # namespace, gang, file
        and not any(part in ("", ".", "..") for part in parts)
        and kind in ("patch", "eviction")
    )


def _remove(folder: Path, name: str) -> None:
    """Remove a file and the folders it leaves empty."""
    target = folder / name
    target.unlink(missing_ok=True)
    for parent in (target.parent, target.parent.parent):
        if parent.is_dir() and not any(parent.iterdir()):
            parent.rmdir()
