"""A plan file to what is shown of it, or to the whole document.

Promises: a file that is not a plan, or a broken one, is an InputError with the place; never a traceback.
Plans of hundreds of megabytes pass: for the tables the parser builds only what is shown. Used by ``show``
and ``verify``.

A plan in the format asked for: table, wide, json, yaml, name.

Promises: everything goes to stdout through the console; json and yaml hold the whole document.
Called by the verbs ``plan`` and ``show``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from planner.errors import Fault, InputError, MissingPathError
from planner.show.plan_view import PlanView, View
from planner.show.text import Format
from planner.untrusted_text import document_safe, json_safe, safe

MAX_PLAN_BYTES = 512 * 1024 * 1024
"""More is no plan of ours (100,000 GPUs make about 30 MB) and would only fill the memory."""

_HINT = "a plan is what `plan --out FILE` writes"

API_VERSION = "gangplan.dev/v1alpha1"


class _Header(View):
    api_version: Any = Field(default=None, alias="apiVersion")
    kind: Any = None


def read_bytes(path: str, stdin: IO[bytes] | None = None) -> bytes:
    """The bytes of a plan file; ``-`` reads ``stdin``. At most MAX_PLAN_BYTES are ever held."""
    try:
        if path == "-":
            content = b"" if stdin is None else stdin.read(MAX_PLAN_BYTES + 1)
        else:
            with Path(path).open("rb") as stream:
                content = stream.read(MAX_PLAN_BYTES + 1)
    except IsADirectoryError:
        raise InputError(Fault("a plan is one JSON file, this is a folder", _HINT, path)) from None
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise MissingPathError(Fault(f"cannot read {path}: {why}", "check the path")) from error
    if len(content) > MAX_PLAN_BYTES:
        raise InputError(Fault(f"larger than {MAX_PLAN_BYTES >> 20} MiB: not a plan", _HINT, path))
    return content


def view(content: bytes, path: str) -> PlanView:
    """The plan in ``content``. Raises InputError with every fault of its shape (at most 20)."""
    try:
        _check_header(_Header.model_validate_json(content), path)
        return PlanView.model_validate_json(content)
    except ValidationError as error:
        if any(not fault["loc"] for fault in error.errors(include_input=False)):
            parse(content, path)  # not JSON, or no object: Python's parser says where
        raise InputError(*faults_of(error, path)) from None


def parse(content: bytes, path: str) -> dict[str, Any]:
    """The whole document, strictly JSON: no NaN, UTF-8, an object at the top.

    Raises InputError with line and column.
    """
    try:
        document = json.loads(content.decode("utf-8-sig"), parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        ends = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated")
        cut = error.doc.strip() and ends
        hint = "the file is cut short" if cut else _HINT
        raise InputError(
            Fault(f"not JSON: {_lower(error.msg)}", hint, path, error.lineno, error.colno)
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(
            Fault(f"not a plan: byte {error.start} is not UTF-8", _HINT, path)
        ) from None
    except RecursionError:
        raise InputError(Fault("not a plan: nested too deeply", _HINT, path)) from None
    except ValueError as error:
        raise InputError(Fault(f"not a plan: {_lower(str(error))}", _HINT, path)) from None
    if not isinstance(document, dict):
        raise InputError(Fault("not a plan: an object is expected", _HINT, path))
    _check_header(_Header(apiVersion=document.get("apiVersion"), kind=document.get("kind")), path)
    return document


def _check_header(header: _Header, path: str) -> None:
    if header.kind != "Plan":
        said = f"kind is {_short(header.kind)}" if header.kind is not None else "it has no kind"
        raise InputError(Fault(f"not a plan: {said}", _HINT, path))
    if header.api_version != API_VERSION:
        raise InputError(
            Fault(
                f"unknown version of a plan: apiVersion is {_short(header.api_version)}",
                f"this gangplan reads {API_VERSION}; plan again or use the gangplan that wrote it",
                path,
            )
        )


def faults_of(error: ValidationError, path: str) -> list[Fault]:
    """Where a document is no plan, at most 20 places."""
    faults = []
    for fault in error.errors(include_url=False, include_input=False)[:20]:
        place = ""
        for step in fault["loc"]:
            place += f"[{step}]" if isinstance(step, int) else f".{step}"
        where = f"{place.lstrip('.')}: " if place else ""
        where = where if len(where) < 200 else f"{where[:197]}...: "
        said = _lower(fault["msg"].removeprefix("Value error, "))
        said = said.replace("input should be", "it should be")
        faults.append(
            Fault(f"not a plan: {where}{said.replace('valid array', 'list')}", _HINT, path)
        )
    return faults


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]


if TYPE_CHECKING:
    from planner.cli.console import Console
    from planner.show.plan_view import PlanView


STARTS = ("place", "complete")
"""Decisions that start pods: what ``-o name`` lists."""


def show(
    console: Console, output: Format, view: PlanView, document: Callable[[], dict[str, Any]]
) -> None:
    """Print the plan. ``document`` is asked only by json and yaml, which need the whole of it."""
    if output is Format.json:
        from models.plan import dumps

        console.data(json_safe(dumps(document())))
    elif output is Format.yaml:
        console.data(yaml_text(document()))
    elif output is Format.name:
        starting = [gang for gang in view.spec.gangs if gang.decision in STARTS]
        console.data("".join(f"gang/{safe(g.namespace)}/{safe(g.name)}\n" for g in starting))
    else:
        _tables(console, view, wide=output is Format.wide)


def _tables(console: Console, view: PlanView, *, wide: bool) -> None:
    from planner.show import plan_tables as plantables
    from planner.show import plan_tables as tiertable
    from planner.show import running_changes as changes

    console.table(plantables.facts(view))
    console.data("\n")
    console.table(plantables.gangs(view, wide=wide))
    for table in (changes.changes(view, wide=wide), changes.moves(view)):
        if table.rows:
            console.data("\n")
            console.table(table)
    if wide:
        console.data("\n")
        console.table(plantables.pods(view))
    console.data("\n")
    console.table(tiertable.tiers(view, wide=wide))
    console.data("\n" + "\n".join(safe(line) for line in plantables.ending(view)) + "\n")


def yaml_text(document: dict[str, Any]) -> str:
    """The document as YAML, keys in document order, written by libyaml where it is built in."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    def dump(*, unicode: bool) -> str:
        return str(
            yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=unicode, width=10**6)
        )

    text = dump(unicode=True)
    return text if document_safe(text) else dump(unicode=False)
