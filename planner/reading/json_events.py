"""JSON text as events with places, for texts that plain ``json`` has refused or that hold faults.

Promises: exactly JSON (RFC 8259), numbers exact, nesting bounded; the first error is ``Malformed``.
Called by ``parsing`` and ``locating``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]  # untyped

from models.quantities import shown
from planner.reading.events import (
    MAX_DEPTH,
    MAX_NUMBER_DIGITS,
    Event,
    Malformed,
    too_deep,
    too_long_a_number,
)

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
