"""What both text formats are read as: a flat stream of events, each with its place.

Promises: one alphabet for YAML and JSON, so that everything above reads one dialect.
Made by ``yaml_events`` and ``json_events``; consumed by ``composing``.

Events to plain trees (dict, list, str, int, Decimal, bool, None), and places in the text.

Promises: bounded depth and size (aliases counted as often as they are used), duplicates reported,
shared values never copied. Called by ``parsing`` to read and by ``locating`` to find a place.

JSON text as events with places, for texts that plain ``json`` has refused or that hold faults.

Promises: exactly JSON (RFC 8259), numbers exact, nesting bounded; the first error is ``Malformed``.
Called by ``parsing`` and ``locating``.

YAML text as events with places, without YAML 1.1's surprises.

Promises: only true, false, null, decimal integers and decimal fractions are anything but text
(``NO``, ``on``, ``010``, ``12:30`` and dates stay text); no tags, no Python objects.
Called by ``parsing`` and ``locating``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]  # the stubs lack it
from typing import Any, Literal, NamedTuple

import yaml

from models.documents.base import MAX_FIELDS
from models.units import shown

MAX_DEPTH = 64
"""Deepest nesting of lists and objects."""

MAX_NUMBER_DIGITS = 40
"""Longest number; nothing real needs more than 15 digits."""

Kind = Literal["document", "map", "list", "end", "scalar", "alias"]


class Event(NamedTuple):
    """One step through a text.

    ``value``: of a scalar, its Python value. ``text``: a scalar's own text (its name where it is
    a key) or an alias's name. Lines and columns count from 1.
    """

    kind: Kind
    line: int
    column: int
    value: object = None
    text: str = ""
    anchor: str | None = None
    plain: bool = False


class Malformed(Exception):  # noqa: N818  # it names the text, not the program
    """The text cannot be read any further: what, where, and a hint."""

    def __init__(self, what: str, line: int, column: int, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.line = line
        self.column = column
        self.hint = hint


def too_deep(line: int, column: int) -> Malformed:
    """Nesting beyond MAX_DEPTH."""
    return Malformed(
        f"nested more than {MAX_DEPTH} levels deep", line, column, "no document needs so many"
    )


def too_long_a_number(digits: int, line: int, column: int) -> Malformed:
    """A number beyond MAX_NUMBER_DIGITS."""
    return Malformed(
        f"a number of {digits:,} characters", line, column, f"the most is {MAX_NUMBER_DIGITS}"
    )


MAX_VALUES = 2_000_000
"""Most values of one text read through events."""

MAX_ALIASED = 100_000
"""Most values that aliases may add to those written."""

Path = tuple[str | int, ...]
Seen = Callable[[Path, Event, bool], None]
"""Told (path, event, whether the event is the path's field name)."""


@dataclass(slots=True)
class Composed:
    """The documents of a text, and what is wrong with it beside its contents."""

    documents: list[object] = field(default_factory=list)
    faults: list[Malformed] = field(default_factory=list)


def compose(events: Iterator[Event], seen: Seen | None = None) -> Composed:
    """Build every document. Never raises: a text that breaks off has its fault last."""
    composer = _Composer(events, seen)
    try:
        composer.run()
    except Malformed as fault:
        composer.result.faults.append(fault)
    return composer.result


class _Composer:
    def __init__(self, events: Iterator[Event], seen: Seen | None) -> None:
        self.events = events
        self.seen = seen
        self.result = Composed()
        self.anchors: dict[str, tuple[object, int] | None] = {}
        self.values = 0
        self.aliased = 0

    def run(self) -> None:
        for event in self.events:
            if event.kind == "document":
                self.anchors.clear()
                path = (len(self.result.documents),)
                self.result.documents.append(self.value(next(self.events), path, 0))

    def value(self, event: Event, path: Path, depth: int) -> object:
        """The value that starts with the event."""
        self.values += 1
        if self.values > MAX_VALUES:
            what = f"more than {MAX_VALUES:,} values in one file"
            raise Malformed(what, event.line, event.column, "use host ranges, or write JSON")
        if self.seen is not None:
            self.seen(path, event, False)  # noqa: FBT003
        if event.kind == "alias":
            return self.alias(event)
        if event.kind != "scalar":
            return self.collection(event, path, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = (event.value, 1)
        return event.value

    def collection(self, event: Event, path: Path, depth: int) -> object:
        if depth > MAX_DEPTH:
            raise too_deep(event.line, event.column)
        before = self.values + self.aliased
        if event.anchor is not None:
            self.anchors[event.anchor] = None  # not complete: may not hold itself
        value = self.mapping(path, depth) if event.kind == "map" else self.sequence(path, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, self.values + self.aliased - before + 1)
        return value

    def sequence(self, path: Path, depth: int) -> list[object]:
        items: list[object] = []
        for event in self.events:
            if event.kind == "end":
                break
            items.append(self.value(event, (*path, len(items)), depth + 1))
        return items

    def mapping(self, path: Path, depth: int) -> dict[str, object]:
        fields: dict[str, object] = {}
        merged: list[dict[str, object]] = []
        for event in self.events:
            if event.kind == "end":
                break
            if event.kind != "scalar":
                hint = "put a name that starts with a bracket, '*' or '&' in quotes"
                raise Malformed("a field name must be text", event.line, event.column, hint)
            name = event.text
            if name == "<<" and event.plain:
                merged += self.merge(next(self.events), path, depth)
                continue
            if len(fields) >= MAX_FIELDS:
                what = f"an object of more than {MAX_FIELDS:,} fields"
                raise Malformed(what, event.line, event.column, "use a list")
            if name in fields:
                what = f"the field {shown(name)} stands here twice"
                fault = Malformed(what, event.line, event.column, "remove one of the two")
                self.result.faults.append(fault)
            if self.seen is not None:
                self.seen((*path, name), event, True)  # noqa: FBT003
            fields[name] = self.value(next(self.events), (*path, name), depth + 1)
        for more in merged:  # what stands here itself, and what came first, wins
            fields = {**more, **fields}
        return fields

    def merge(self, event: Event, path: Path, depth: int) -> list[dict[str, object]]:
        """Objects named by ``<<``, the first one winning."""
        value = self.value(event, (*path, "<<"), depth + 1)
        sources = value if isinstance(value, list) else [value]
        found = [source for source in sources if isinstance(source, dict)]
        if len(found) != len(sources):
            raise Malformed("'<<' takes objects alone", event.line, event.column, "remove it")
        return found

    def alias(self, event: Event) -> object:
        target = self.anchors.get(event.text)
        if target is None:
            what = "unknown alias" if event.text not in self.anchors else "an alias inside itself:"
            hint = "an alias repeats an anchor (&name) written in full before it"
            raise Malformed(f"{what} {shown(event.text)}", event.line, event.column, hint)
        value, size = target
        self.aliased += size
        if self.aliased > MAX_ALIASED:
            what = f"aliases that stand for more than {MAX_ALIASED:,} values"
            raise Malformed(what, event.line, event.column, "write the values out")
        return value


_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORD = re.compile(r"-?[A-Za-z]+")
_WORDS = {"true": True, "false": False, "null": None}


def json_events(text: str) -> Iterator[Event]:
    """Events of the one document in the text. Raises Malformed."""
    scanner = _Scanner(text)
    yield Event("document", 1, 1)
    scanner.skip()
    yield from scanner.value(0)
    scanner.skip()
    if scanner.at < len(text):
        raise scanner.malformed(f"{scanner.found()} after the end of the document")


class _Scanner:
    """A position in the text; line and column are kept up as it moves."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.line_start = 0

    def move(self, to: int) -> None:
        newlines = self.text.count("\n", self.at, to)
        if newlines:
            self.line += newlines
            self.line_start = self.text.rindex("\n", self.at, to) + 1
        self.at = to

    def skip(self) -> None:
        found = _BLANK.match(self.text, self.at)
        if found is not None and found.end() > self.at:
            self.move(found.end())

    @property
    def column(self) -> int:
        return self.at - self.line_start + 1

    def malformed(self, what: str, hint: str | None = None) -> Malformed:
        hint = hint or "check the commas, quotes and brackets near this place"
        return Malformed(f"not JSON: {what}", self.line, self.column, hint)

    def found(self) -> str:
        return shown(self.text[self.at]) if self.at < len(self.text) else "end of file"

    def expect(self, character: str) -> None:
        if self.text[self.at : self.at + 1] != character:
            raise self.malformed(f"expected {shown(character)}, found {self.found()}")
        self.at += 1
        self.skip()

    def value(self, depth: int) -> Iterator[Event]:
        """Events of the value that starts here."""
        if depth > MAX_DEPTH:
            raise too_deep(self.line, self.column)
        start = self.text[self.at : self.at + 1]
        if start == "{":
            yield from self.object(depth)
        elif start == "[":
            yield from self.array(depth)
        elif start == '"':
            yield self.string()
        elif start == "-" or start.isdigit():
            yield self.number()
        else:
            yield self.word()

    def object(self, depth: int) -> Iterator[Event]:
        yield Event("map", self.line, self.column)
        self.expect("{")
        first = True
        while self.text[self.at : self.at + 1] != "}":
            if not first:
                self.expect(",")
            if self.text[self.at : self.at + 1] != '"':
                raise self.malformed(f"expected a field name in quotes, found {self.found()}")
            yield self.string()
            self.skip()
            self.expect(":")
            yield from self.value(depth + 1)
            self.skip()
            first = False
        yield Event("end", self.line, self.column)
        self.at += 1

    def array(self, depth: int) -> Iterator[Event]:
        yield Event("list", self.line, self.column)
        self.expect("[")
        first = True
        while self.text[self.at : self.at + 1] != "]":
            if not first:
                self.expect(",")
            yield from self.value(depth + 1)
            self.skip()
            first = False
        yield Event("end", self.line, self.column)
        self.at += 1

    def string(self) -> Event:
        line, column = self.line, self.column
        try:
            value, end = scanstring(self.text, self.at + 1, True)  # noqa: FBT003
        except JSONDecodeError as error:
            self.move(error.pos)
            reason = error.msg.rstrip(" at").lower()
            raise self.malformed(reason) from None
        self.at = end  # a JSON string holds no newline
        return Event("scalar", line, column, value, value)

    def number(self) -> Event:
        found = _NUMBER.match(self.text, self.at)
        if found is None:
            return self.word()
        text = found.group()
        if len(text) > MAX_NUMBER_DIGITS:
            raise too_long_a_number(len(text), self.line, self.column)
        whole = found.group(1) is None and found.group(2) is None
        event = Event("scalar", self.line, self.column, int(text) if whole else Decimal(text), text)
        self.at = found.end()
        return event

    def word(self) -> Event:
        found = _WORD.match(self.text, self.at)
        if found is None:
            raise self.malformed(f"expected a value, found {self.found()}")
        text = found.group()
        if text in ("NaN", "Infinity", "-Infinity"):
            raise self.malformed(f"{text} is no number", "write a finite number")
        if text not in _WORDS:
            raise self.malformed(f"expected a value, found {shown(text)}", "put text in quotes")
        event = Event("scalar", self.line, self.column, _WORDS[text], text)
        self.at = found.end()
        return event


_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
# A dot is what makes a number: 12e45 may well be a name or a uid.
_DECIMAL = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_WORDS_YAML_EVENTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TEXT_TAGS = ("!", "tag:yaml.org,2002:str")
_COLLECTION_TAGS = ("!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


def yaml_events(text: str) -> Iterator[Event]:
    """Events of every document in the text. Raises Malformed."""
    if (bad := _FORBIDDEN.search(text)) is not None:
        line = text.count("\n", 0, bad.start()) + 1
        column = bad.start() - text.rfind("\n", 0, bad.start())
        what = f"not YAML: the control character {shown(bad.group())}"
        raise Malformed(what, line, column, "remove it, or write it as an escape in double quotes")
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            kind = _HANDLERS.get(type(event))
            if kind is not None:
                yield kind(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        what = _one_line(error.problem or error.context or "cannot be read")
        raise Malformed(f"not YAML: {what}", line, column, _hint(what)) from None
    except yaml.YAMLError as error:
        raise Malformed(f"not YAML: {_one_line(str(error))}", 1, 1) from None


def _one_line(text: str) -> str:
    return shown(" ".join(text.split()))[1:-1]


def _hint(problem: str) -> str | None:
    if "cannot start any token" in problem:
        return "indent with blanks, not tabs, and put special characters in quotes"
    if "mapping values are not allowed" in problem:
        return "check the indentation, or put text that holds ': ' in quotes"
    if "undefined alias" in problem:
        return "an alias repeats an anchor (&name) written before it"
    return "check the indentation, the quotes and the brackets near this place"


def _scalar(event: Any) -> Event:  # noqa: ANN401  # PyYAML's events are untyped
    line, column = event.start_mark.line + 1, event.start_mark.column + 1
    text: str = event.value
    if event.tag is not None and event.tag not in _TEXT_TAGS:
        raise _tagged(event.tag, line, column)
    plain = event.tag is None and not event.style
    value = _resolved(text, line, column) if plain else text
    return Event("scalar", line, column, value, text, event.anchor, plain)


def _tagged(tag: str, line: int, column: int) -> Malformed:
    short = tag.replace("tag:yaml.org,2002:", "!!")
    return Malformed(f"the tag {shown(short)} is not read", line, column, "remove the tag")


def _resolved(text: str, line: int, column: int) -> object:
    """What a plain scalar stands for."""
    if text in _WORDS_YAML_EVENTS:
        return _WORDS_YAML_EVENTS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        if len(text) > MAX_NUMBER_DIGITS:
            raise too_long_a_number(len(text), line, column)
        return int(text)
    if _DECIMAL.fullmatch(text):
        if len(text) > MAX_NUMBER_DIGITS:
            raise too_long_a_number(len(text), line, column)
        return Decimal(text)
    return text


def _collection(event: Any) -> Event:  # noqa: ANN401
    line, column = event.start_mark.line + 1, event.start_mark.column + 1
    if event.tag is not None and event.tag not in _COLLECTION_TAGS:
        raise _tagged(event.tag, line, column)
    kind = "map" if isinstance(event, yaml.MappingStartEvent) else "list"
    return Event(kind, line, column, anchor=event.anchor)  # type: ignore[arg-type]  # both are Kinds


def _end(event: Any) -> Event:  # noqa: ANN401
    return Event("end", event.start_mark.line + 1, event.start_mark.column + 1)


def _document(event: Any) -> Event:  # noqa: ANN401
    return Event("document", event.start_mark.line + 1, event.start_mark.column + 1)


def _alias(event: Any) -> Event:  # noqa: ANN401
    mark = event.start_mark
    return Event("alias", mark.line + 1, mark.column + 1, text=event.anchor)


_HANDLERS = {
    yaml.ScalarEvent: _scalar,
    yaml.MappingStartEvent: _collection,
    yaml.SequenceStartEvent: _collection,
    yaml.MappingEndEvent: _end,
    yaml.SequenceEndEvent: _end,
    yaml.DocumentStartEvent: _document,
    yaml.AliasEvent: _alias,
}
