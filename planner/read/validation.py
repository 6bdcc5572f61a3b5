"""Plain values to typed documents; every pydantic error becomes a message with its place."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Generic, TypeVar

from msgspec import Struct
from pydantic import BaseModel, ValidationError

from models.documents.base import Data, FieldError, Path, Read, fields_of, suggestion
from models.documents.gang import GangDocument
from models.units import InvalidValueError, described, shown
from planner.read.findings import Finding, Findings
from planner.read.sources import Source

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "an object with fields",
    "model_type": "an object with fields",
    "model_attributes_type": "an object with fields",
    "dataclass_type": "an object with fields",
}

_COMMA = re.compile(", | or ")
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def path_text(path: Path) -> str:
    """``spec.roles[0].gpus``; field names that are not plain words are quoted."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.isidentifier() and step.isascii():
            text += f".{step}" if text else step
        else:
            text += f"[{shown(step)}]"
    return text


def with_path(path: Path, what: str) -> str:
    """The message with its path in front."""
    return f"{path_text(path)}: {what}" if path else what


def describe_error(
    model: type[BaseModel], error: dict[str, Any], path: Path
) -> tuple[str, str | None]:
    """(what, hint) of one pydantic error at ``path`` of the document."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in _UNKNOWN:
        what = f"unknown field {shown(str(path[-1]))}{_inside(path[:-1])}"
        return what, suggestion(str(path[-1]), fields_at(model, path[:-1]), "fields")
    if kind == "missing":
        name = str(error["loc"][-1])
        return f"missing field {shown(name)}{_inside(path)}", f"add {name}"
    if kind == "value_error" and isinstance(context.get("error"), InvalidValueError):
        refused = context["error"]
        return with_path(path, refused.what), refused.hint
    what, hint = _describe_value(error)
    return with_path(path, what), hint


def _describe_value(error: dict[str, Any]) -> tuple[str, str | None]:
    kind, value, context = error["type"], error.get("input"), error.get("ctx", {})
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, not {described(value)}", _type_hint(kind, value)
    if kind == "literal_error":
        words = _COMMA.split(context["expected"])
        options = [word.strip("'") for word in words if word != "''"]
        hint = suggestion(value, options, "one of") if isinstance(value, str) else None
        return f"{described(value)} is not allowed here", hint or f"one of: {', '.join(options)}"
    if kind not in _BOUNDS:
        return str(error["msg"]).lower(), None
    what, bound = _BOUNDS[kind]
    return what.format(value=described(value)), bound.format(**context)


def _inside(path: Path) -> str:
    return f" in {path_text(path)}" if path else ""


def _type_hint(kind: str, value: object) -> str | None:
    if value is None:
        return "give it a value, or remove the field"
    match kind:
        case "string_type" if isinstance(value, int | float | Decimal | bool):
            return "put it in quotes"
        case "int_type" | "float_type" if isinstance(value, str) and value.isdigit():
            return "remove the quotes, and zeros in front"
        case "bool_type":
            return "write true or false, without quotes"
        case "tuple_type":
            return "write it like [..., ...], or one line with '- ' an entry"
    return f"write {_EXPECTED[kind]}"


_BOUNDS = {
    "greater_than_equal": ("{value} is too small", "write {ge} or more"),
    "less_than_equal": ("{value} is too large", "write {le} or less"),
    "too_long": ("too many entries", "the most is {max_length}"),
    "too_short": ("no entries", "the least is {min_length}"),
    "string_too_short": ("an empty text", "write at least one character"),
    "string_too_long": ("the text is too long", "the most is {max_length} characters"),
}


def fields_at(model: type[BaseModel], path: Path) -> list[str]:
    """Field names of an object at a path, as in YAML."""
    kinds: list[Any] = [*_arms(model)]
    for step in path:
        kinds = [arm for kind in kinds for one in _below(kind, step) for arm in _arms(one)]
    objects = [one for one in kinds if isinstance(one, type) and issubclass(one, BaseModel | Data)]
    return [name for found in objects for name in fields_of(found)]


def _below(kind: Any, step: str | int) -> Iterator[Any]:  # noqa: ANN401  # any annotation
    if isinstance(kind, type) and issubclass(kind, BaseModel | Data):
        if step in (known := fields_of(kind)):
            yield known[str(step)].annotation
    elif typing.get_origin(kind) is tuple and isinstance(step, int):
        yield typing.get_args(kind)[0]
    elif typing.get_origin(kind) is dict:
        yield typing.get_args(kind)[1]


def _arms(kind: Any) -> Iterator[Any]:  # noqa: ANN401
    """The alternatives of a type, without Annotated and None."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        yield from _arms(typing.get_args(kind)[0])
    elif origin in (typing.Union, types.UnionType):
        for arm in typing.get_args(kind):
            yield from _arms(arm)
    elif kind is not type(None):
        yield kind


D = TypeVar("D", bound=BaseModel)


class Entry(Struct, Generic[D]):
    """A typed document and where it came from."""

    source: Source
    path: Path
    document: D
    findings: Findings

    def fault(
        self, path: Path, what: str, hint: str | None = None, *, at_key: bool = False
    ) -> None:
        """Report something wrong at a path of this document."""
        finding = Finding(self.source, (*self.path, *path), with_path(path, what), hint, at_key)
        self.findings.add(finding)

    def report_errors(self, field_errors: Iterator[FieldError]) -> None:
        """Report contradictions."""
        for error in field_errors:
            if self.findings.full:
                return
            self.fault(error.path, error.what, error.hint, at_key=error.at_key)


def sound_gang(tree: dict[str, Any]) -> tuple[GangDocument | None, str]:
    """The document of a tree; None, and what is wrong with it, if it is invalid."""
    try:
        document = GangDocument.model_validate(tree)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return None, describe_error(GangDocument, dict(first), real_path(tree, first)[0])[0]
    wrong = next(iter(document.field_errors()), None)
    return (document, "") if wrong is None else (None, wrong.what)


def validate(
    model: type[D],
    tree: dict[str, Any],
    source: Source,
    path: Path,
    findings: Findings,
    known: Read | None = None,
) -> Entry[D] | None:
    """The typed document; None, with a finding for every fault, if it is none.

    ``known``: parts of documents that were read before; equal ones become one object.
    """
    try:
        return Entry(source, path, model.model_validate(tree, context=known), findings)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            at, at_key = real_path(tree, one)
            what, hint = describe_error(model, one, at)  # type: ignore[arg-type]  # a TypedDict
            findings.add(Finding(source, (*path, *at), what, hint, at_key))
    return None


def real_path(tree: Any, error: Any) -> tuple[Path, bool]:  # noqa: ANN401  # plain data
    """The path of an error in the tree, and whether its place is the field's name.

    Steps that pydantic adds (arms of a union, ``[key]``) are left out; a missing field is the fault
    of the object around it.
    """
    path: list[str | int] = []
    here = tree
    for step in error["loc"]:
        if (isinstance(here, dict) and isinstance(step, str) and step in here) or (
            isinstance(here, list) and isinstance(step, int) and step < len(here)
        ):
            path.append(step)
            here = here[step]  # type: ignore[index]  # a name in a dict, a position in a list
    return tuple(path), (error["type"] in _UNKNOWN or error["loc"][-1:] == ("[key]",))
