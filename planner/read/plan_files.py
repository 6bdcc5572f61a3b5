"""Plan files: their bytes, the JSON document, and the typed plan.

A file that is not a plan, or a broken one, is an InputError with the place.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import IO, Any

import msgspec

from models.documents.base import API_VERSION
from models.documents.plan import PlanDocument
from models.units import shortened
from planner.errors import Fault, InputError, MissingPathError

MAX_PLAN_BYTES = 512 * 1024 * 1024
"""A plan of 100,000 GPUs has about 30 MB; a larger file would only fill the memory."""

_HINT = "a plan is what `plan --out FILE` writes"


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""An escape of JSON that UTF-8 cannot write, unless another follows and both make one character."""


class _NotFiniteError(Exception):
    """NaN or an infinity, which JSON does not have, or a number too large for a float."""


def _finite(word: str) -> float:
    value = float(word)
    if not math.isfinite(value):
        raise _NotFiniteError(word)
    return value


def read_bytes(path: str, stdin: IO[bytes] | None = None) -> bytes:
    """The bytes of a plan file; ``-`` reads ``stdin``. Holds at most MAX_PLAN_BYTES in memory.

    Raises MissingPathError, and InputError for a folder or a file that is too large.
    """
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


def load(path: str, stdin: IO[bytes] | None = None) -> PlanDocument:
    """The plan in a file, ``-`` for ``stdin``. Raises MissingPathError, InputError."""
    return read_plan(read_bytes(path, stdin), path)


def read_plan(content: bytes, path: str) -> PlanDocument:
    """The plan in ``content``. Raises InputError with the place of at most 20 faults."""
    try:
        return PlanDocument.model_validate(msgspec.json.decode(content), context={})
    except (ValueError, RecursionError):
        tree = parse(content, path)
    # read as input documents are: every fault has a line and a column
    from planner.read.findings import Findings
    from planner.read.sources import Source
    from planner.read.validation import validate

    findings = Findings()
    source = Source(path, content.decode("utf-8-sig"), "json")
    entry = validate(PlanDocument, tree, source, (0,), findings)
    if entry is None or findings:
        findings.raise_all()
    return entry.document


def parse(content: bytes, path: str) -> dict[str, Any]:
    """The JSON document of a plan. Only its kind and version are checked.

    Raises InputError with line and column.
    """
    try:
        text = content.decode("utf-8-sig")
        document = json.loads(text, parse_float=_finite, parse_constant=_finite)
    except json.JSONDecodeError as error:
        ends = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated")
        hint = "the file is cut short" if error.doc.strip() and ends else _HINT
        what = f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise InputError(Fault(what, hint, path, error.lineno, error.colno)) from None
    except UnicodeDecodeError as error:
        raise _no_plan(f"byte {error.start} is not UTF-8", path) from None
    except _NotFiniteError as error:
        from planner.read.parser import place_of_word

        what = f"not a plan: {shortened(str(error), 60)} is not a finite number"
        raise InputError(Fault(what, _HINT, path, *place_of_word(text, str(error)))) from None
    except RecursionError:
        raise _no_plan("nested too deeply", path) from None
    except ValueError:
        raise _no_plan("a number is far too long", path) from None
    if not isinstance(document, dict):
        raise _no_plan("an object is expected", path)
    try:
        if _SURROGATE.search(content):
            json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _no_plan("half of a surrogate pair in a text", path) from None
    _check_header(document, path)
    return document


def _check_header(document: dict[str, Any], path: str) -> None:
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind != "Plan":
        said = "it has no kind" if kind is None else f"kind is {shortened(repr(kind), 60)}"
        raise _no_plan(said, path)
    if version != API_VERSION:
        what = f"unknown version of a plan: apiVersion is {shortened(repr(version), 60)}"
        hint = f"this gangplan reads {API_VERSION}; plan again or use the gangplan that wrote it"
        raise InputError(Fault(what, hint, path))


def _no_plan(why: str, path: str) -> InputError:
    return InputError(Fault(f"not a plan: {why}", _HINT, path))
