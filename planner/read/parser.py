"""YAML and JSON texts as plain values, and the line and column of a path inside them.

Values come from ``json.loads`` and from PyYAML's events. Only when there is something to report
is a text read again to find its place. Nothing here knows what a document means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from json.decoder import scanstring  # type: ignore[attr-defined]  # the stubs lack it
from typing import Any

import yaml

from models.documents.base import MAX_FIELDS, Path
from models.units import shown
from planner.read.sources import Source

MAX_DEPTH = 64
"""Deepest nesting of lists and objects."""

MAX_NUMBER_DIGITS = 40
"""Longest number; real ones have at most 15 digits."""

MAX_VALUES = 2_000_000
"""Most values of one YAML text."""

MAX_ALIASED = 100_000
"""Most values that the aliases of a YAML text may add."""

MAX_JSON_MARKS = 8_000_000
"""Most brackets and commas of a JSON text, counted before any value is built."""

_JSON_START = re.compile(r"\s*[\[{]")
_SURELY_JSON = re.compile(r'\s*[\[{]\s*["\[{\]}]')


class Malformed(Exception):  # noqa: N818  # it is about the text, not the program
    """A text that is not YAML or JSON: what is wrong, where, and a hint."""

    def __init__(self, what: str, line: int, column: int, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.line = line
        self.column = column
        self.hint = hint


@dataclass(slots=True)
class Parsed:
    """The documents of a text and the faults of its form."""

    documents: list[object] = field(default_factory=list)
    faults: list[Malformed] = field(default_factory=list)


Visit = Callable[[Path, bool, int, int], None]
"""Called with (path, whether the place is the field's name, line, column)."""


def parse(source: Source) -> Parsed:
    """Every document of the text, or the faults. Never raises."""
    if source.format == "json" or _JSON_START.match(source.text):
        if sum(source.text.count(mark) for mark in ",[{") > MAX_JSON_MARKS:
            what = f"more than {MAX_JSON_MARKS:,} values in one file"
            return Parsed([], [Malformed(what, 1, 1, "split it into several files")])
        parsed = _parse_json(source.text)
        if not parsed.faults or _must_be_json(source):
            return parsed
    return _YamlReader(source.text).read()


def places(
    source: Source, wanted: Iterable[tuple[Path, bool]]
) -> dict[tuple[Path, bool], tuple[int, int]]:
    """(line, column) of every wanted (path, at its field name), or of the nearest value around it."""
    missing = set(wanted)
    result = dict.fromkeys(missing, (1, 1))
    needed = {path[:length] for path, _ in missing for length in range(1, len(path) + 1)}
    found: dict[tuple[Path, bool], tuple[int, int]] = {}

    def visit(path: Path, at_key: bool, line: int, column: int) -> None:  # noqa: FBT001
        if path in needed:
            found.setdefault((path, at_key), (line, column))
            missing.discard((path, at_key))
            if not missing:
                raise _AllFoundError

    with suppress(_AllFoundError):
        if _is_json(source):
            _visit_json(source.text, visit)
        else:
            _YamlReader(source.text, visit).read()
    for path, at_key in result:
        around = [(path, True)] if at_key else []
        around += [(path[:length], False) for length in range(len(path), 0, -1)]
        result[path, at_key] = next((found[one] for one in around if one in found), (1, 1))
    return result


class _AllFoundError(Exception):
    """Every place is known; the rest of the text need not be read."""


def _must_be_json(source: Source) -> bool:
    """Whether a text that is not valid JSON cannot be a YAML flow collection instead."""
    if source.format == "either":
        return _SURELY_JSON.match(source.text) is not None
    return source.format == "json"


def _is_json(source: Source) -> bool:
    """Whether ``parse`` read the text as JSON."""
    if _must_be_json(source):
        return True
    return _JSON_START.match(source.text) is not None and not _parse_json(source.text).faults


def _parse_json(text: str) -> Parsed:
    doubtful = False

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal doubtful
        fields = dict(pairs)
        if len(fields) != len(pairs) or len(fields) > MAX_FIELDS:
            doubtful = True
        return fields

    def constant(_: str) -> None:
        nonlocal doubtful
        doubtful = True

    try:
        value = json.loads(
            text, object_pairs_hook=build, parse_float=_decimal, parse_constant=constant
        )
    except json.JSONDecodeError as error:
        reason = error.msg[0].lower() + error.msg[1:].removesuffix(" at")
        hint = "check the commas, quotes and brackets near this place"
        return Parsed([], [Malformed(f"not JSON: {reason}", error.lineno, error.colno, hint)])
    except (ValueError, RecursionError):  # a number or a nesting beyond Python's limits
        return Parsed([], _json_faults(text).faults)
    checked = _json_faults(text) if doubtful else Parsed([None])
    return Parsed([value] if checked.documents else [], checked.faults)


def _json_faults(text: str) -> Parsed:
    """What ``json`` accepts and documents may not have; a document only if the rest is sound."""
    faults: list[Malformed] = []
    names: dict[Path, set[str]] = {}
    try:
        for path, at_key, start, word in _json_items(text):
            if at_key:
                fields = names.setdefault(path[:-1], set())
                if path[-1] in fields:
                    line, column = _line_and_column(text, start)
                    faults.append(_duplicate(str(path[-1]), line, column))
                fields.add(str(path[-1]))
                if len(fields) > MAX_FIELDS:
                    raise _too_many_fields(*_line_and_column(text, start))
            elif len(path) - 1 > MAX_DEPTH:
                raise _too_deep(*_line_and_column(text, start))
            elif word in ("NaN", "Infinity", "-Infinity"):
                raise _not_finite(word, *_line_and_column(text, start))
            elif len(word) > MAX_NUMBER_DIGITS:
                raise _too_long_a_number(len(word), *_line_and_column(text, start))
            elif "e" in word.lower() and not _fits_decimal(word):
                raise _too_large_an_exponent(*_line_and_column(text, start))
            else:
                names.pop(path, None)  # a duplicate field's object starts without names
    except Malformed as fault:
        return Parsed([], [*faults, fault])
    return Parsed([None], faults)


def _visit_json(text: str, visit: Visit) -> None:
    line, line_start, before = 1, 0, 0
    for path, at_key, start, _ in _json_items(text):
        newlines = text.count("\n", before, start)
        if newlines:
            line += newlines
            line_start = text.rindex("\n", before, start) + 1
        before = start
        visit(path, at_key, line, start - line_start + 1)


_BLANK = re.compile(r"[ \t\n\r]*")
_WORD = re.compile(r"[^\s\[\]{},:\"]+|.", re.DOTALL)


def _json_items(text: str) -> Iterator[tuple[Path, bool, int, str]]:
    """(path, whether it is a field name, offset, word) of every name and value, in order.

    ``word``: text of a number, true, false or null. The text is one that ``json`` accepts, at least
    up to where it gave up.
    """
    path: list[str | int] = [0]
    is_name = False
    at = 0
    while path and (at := _end(_BLANK, text, at)) < len(text):
        start, character = at, text[at]
        at += 1
        if character in "{[":
            yield tuple(path), False, start, ""
            is_name = character == "{"
            path.append("" if is_name else 0)
        elif character in "}]":
            path.pop()
            is_name = False
        elif character == ",":
            step = path[-1]
            is_name = isinstance(step, str)
            path[-1] = step + 1 if isinstance(step, int) else step
        elif character == ":":
            is_name = False
        elif character == '"':
            value, at = scanstring(text, at, True)  # noqa: FBT003
            if is_name:
                path[-1] = value
            yield tuple(path), is_name, start, ""
        else:
            at = _end(_WORD, text, start)
            yield tuple(path), False, start, text[start:at]


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _line_and_column(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError:  # an exponent beyond what Decimal holds
        raise ValueError from None


def _fits_decimal(word: str) -> bool:
    """Whether a word with an ``e``, such as ``1e9`` or ``true``, is no number beyond Decimal."""
    try:
        Decimal(word)
    except ArithmeticError:
        return word in ("true", "false")
    return True


def _duplicate(name: str, line: int, column: int) -> Malformed:
    what = f"the field {shown(name)} appears twice"
    return Malformed(what, line, column, "remove one of the two")


def _not_finite(word: str, line: int, column: int) -> Malformed:
    return Malformed(f"not JSON: {word} is no number", line, column, "write a finite number")


def _too_many_fields(line: int, column: int) -> Malformed:
    return Malformed(f"an object of more than {MAX_FIELDS:,} fields", line, column, "use a list")


def _too_deep(line: int, column: int) -> Malformed:
    what = f"nested more than {MAX_DEPTH} levels deep"
    return Malformed(what, line, column, "no document needs so many")


def _too_long_a_number(digits: int, line: int, column: int) -> Malformed:
    what = f"a number of {digits:,} characters"
    return Malformed(what, line, column, f"the most is {MAX_NUMBER_DIGITS}")


def _too_large_an_exponent(line: int, column: int) -> Malformed:
    return Malformed("a number with too large an exponent", line, column, "write it in full")


# YAML 1.1 turns NO, on, 010, 12:30 and dates into other values. Here only true, false, null and
# decimal numbers are values; everything else is text. A dot makes a decimal: 12e45 may be a uid.
_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STRING_TAGS = ("!", "tag:yaml.org,2002:str")
_COLLECTION_TAGS = ("!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


class _YamlReader:
    """Builds every document of a YAML text: bounded depth and size, no tags, no Python objects."""

    def __init__(self, text: str, visit: Visit | None = None) -> None:
        self.text = text
        self.visit = visit
        self.result = Parsed()
        self.anchors: dict[str, tuple[object, int] | None] = {}
        """Value and number of values of each anchor; None while it is being built."""
        self.values = 0
        self.aliased = 0

    def read(self) -> Parsed:
        """Every document up to the first fault that ends the reading."""
        try:
            self._check_characters()
            self._documents()
        except Malformed as fault:
            self.result.faults.append(fault)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            what = _one_line(error.problem or error.context or "cannot be read")
            self.result.faults.append(
                Malformed(f"not YAML: {what}", line, column, _yaml_hint(what))
            )
        except yaml.YAMLError as error:
            self.result.faults.append(Malformed(f"not YAML: {_one_line(str(error))}", 1, 1))
        return self.result

    def _check_characters(self) -> None:
        if (bad := _FORBIDDEN.search(self.text)) is not None:
            what = f"not YAML: the control character {shown(bad.group())}"
            hint = "remove it, or write it as an escape in double quotes"
            raise Malformed(what, *_line_and_column(self.text, bad.start()), hint)

    def _documents(self) -> None:
        self.next_event: Callable[[], Any] = yaml.CSafeLoader(self.text).get_event
        while (event := self.next_event()) is not None:
            if type(event) is yaml.DocumentStartEvent:
                self.anchors.clear()
                number = len(self.result.documents)
                self.result.documents.append(self._value(self.next_event(), (number,), 0))

    def _value(self, event: Any, path: Path, depth: int) -> object:  # noqa: ANN401  # untyped
        """The value that starts with the event."""
        self.values += 1
        if self.values > MAX_VALUES:
            what = f"more than {MAX_VALUES:,} values in one file"
            raise Malformed(what, *_place(event), "use host ranges, or write JSON")
        if self.visit is not None:
            self.visit(path, False, *_place(event))  # noqa: FBT003
        kind = type(event)
        if kind is yaml.ScalarEvent:
            value = _scalar(event)
            if event.anchor is not None:
                self.anchors[event.anchor] = (value, 1)
            return value
        if kind is yaml.AliasEvent:
            return self._alias(event)
        return self._collection(event, path, depth)

    def _collection(self, event: Any, path: Path, depth: int) -> object:  # noqa: ANN401
        if depth > MAX_DEPTH:
            raise _too_deep(*_place(event))
        if event.tag is not None and event.tag not in _COLLECTION_TAGS:
            raise _tagged(event)
        before = self.values + self.aliased
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        value: object
        if type(event) is yaml.MappingStartEvent:
            value = self._mapping(path, depth)
        else:
            value = self._sequence(path, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, self.values + self.aliased - before + 1)
        return value

    def _sequence(self, path: Path, depth: int) -> list[object]:
        items: list[object] = []
        while type(event := self.next_event()) is not yaml.SequenceEndEvent:
            items.append(self._value(event, (*path, len(items)), depth + 1))
        return items

    def _mapping(self, path: Path, depth: int) -> dict[str, object]:
        fields: dict[str, object] = {}
        merged: list[dict[str, object]] = []
        while type(event := self.next_event()) is not yaml.MappingEndEvent:
            if type(event) is not yaml.ScalarEvent:
                hint = "put a name that starts with a bracket, '*' or '&' in quotes"
                raise Malformed("a field name must be text", *_place(event), hint)
            name: str = event.value
            if name == "<<" and event.tag is None and not event.style:
                merged += self._merge(self.next_event(), path, depth)
                continue
            _scalar(event)  # checks its tag and the length of a number
            if len(fields) >= MAX_FIELDS:
                raise _too_many_fields(*_place(event))
            if name in fields:
                self.result.faults.append(_duplicate(name, *_place(event)))
            if self.visit is not None:
                self.visit((*path, name), True, *_place(event))  # noqa: FBT003
            fields[name] = self._value(self.next_event(), (*path, name), depth + 1)
        for more in merged:  # own fields win, then those of the first object merged
            fields = {**more, **fields}
        return fields

    def _merge(self, event: Any, path: Path, depth: int) -> list[dict[str, object]]:  # noqa: ANN401
        """The objects that ``<<`` merges, the first one winning."""
        value = self._value(event, (*path, "<<"), depth + 1)
        sources = value if isinstance(value, list) else [value]
        found = [source for source in sources if isinstance(source, dict)]
        if len(found) != len(sources):
            raise Malformed("'<<' merges objects only", *_place(event), "remove it")
        return found

    def _alias(self, event: Any) -> object:  # noqa: ANN401
        target = self.anchors.get(event.anchor)
        if target is None:
            what = (
                "unknown alias" if event.anchor not in self.anchors else "an alias inside itself:"
            )
            hint = "an alias repeats an anchor (&name) written in full before it"
            raise Malformed(f"{what} {shown(event.anchor)}", *_place(event), hint)
        value, size = target
        self.aliased += size
        if self.aliased > MAX_ALIASED:
            what = f"aliases of more than {MAX_ALIASED:,} values"
            raise Malformed(what, *_place(event), "write the values out")
        return value


def _place(event: Any) -> tuple[int, int]:  # noqa: ANN401
    return event.start_mark.line + 1, event.start_mark.column + 1


def _scalar(event: Any) -> object:  # noqa: ANN401
    text: str = event.value
    if event.tag is not None:
        if event.tag not in _STRING_TAGS:
            raise _tagged(event)
        return text
    if event.style:
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in "+-.0123456789":
        return text
    number = int if _INTEGER.fullmatch(text) else Decimal if _DECIMAL.fullmatch(text) else None
    if number is None:
        return text
    if len(text) > MAX_NUMBER_DIGITS:
        raise _too_long_a_number(len(text), *_place(event))
    try:
        return number(text)
    except ArithmeticError:
        raise _too_large_an_exponent(*_place(event)) from None


def _tagged(event: Any) -> Malformed:  # noqa: ANN401
    short = event.tag.replace("tag:yaml.org,2002:", "!!")
    return Malformed(f"the tag {shown(short)} is not supported", *_place(event), "remove the tag")


def _one_line(text: str) -> str:
    return shown(" ".join(text.split()))[1:-1]


def _yaml_hint(problem: str) -> str:
    if "cannot start any token" in problem:
        return "indent with blanks, not tabs, and put special characters in quotes"
    if "mapping values are not allowed" in problem:
        return "check the indentation, or put text that holds ': ' in quotes"
    if "undefined alias" in problem:
        return "an alias repeats an anchor (&name) written before it"
    return "check the indentation, the quotes and the brackets near this place"
