"""A plan file to what is shown of it, or to the whole document.

Promises: a file that is not a plan, or a broken one, is an InputError with the place; never a traceback.
Plans of hundreds of megabytes pass: for the tables the parser builds only what is shown. Used by ``show``
and ``verify``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

from pydantic import Field, ValidationError

from planner.errors import Fault, InputError, MissingPathError
from planner.showing.planview import PlanView, View

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
