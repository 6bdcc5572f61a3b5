"""A table of comma-separated values, a row at a time: fields by column, each with its place.

The text may come from strangers and be of any size: lines, rows and fields are bounded, and nothing is
held but the row that is read. Called by the readers of traces and of machine lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from pydantic import TypeAdapter, ValidationError

from models.documents.base import LabelValue, Name
from models.units import InvalidValueError, quantity, requested, shown
from planner.read.sources import Malformed, Source

MAX_LINE = 65_536
"""Most characters of a line."""

MAX_ROWS = 1_000_000
"""Most lines of a table."""

MAX_NUMBER = 10**12
"""Largest number of a field."""

NOTHING = frozenset({"", "none", "null", "nan", "na", "n/a"})
"""What tables write for a value that is not known, in lower case."""

_FIELD = re.compile(r'(?:"((?:[^"]|"")*)"|([^",]*))(?:,|$)')
_NUMBER = re.compile(r"[0-9]{1,13}(?:\.[0-9]{0,20})?")
_NAME: TypeAdapter[str] = TypeAdapter(Name)
_LABEL_VALUE: TypeAdapter[str] = TypeAdapter(LabelValue)


@dataclass(frozen=True, slots=True)
class Row:
    """The fields of a line. ``columns``: position of every field by its column's name."""

    line: int
    text: str
    fields: tuple[str, ...]
    columns: dict[str, int]

    def field(self, column: str) -> str:
        """The text of a field; empty for a value that is not known."""
        found = self.fields[self.columns[column]]
        return "" if found.lower() in NOTHING else found

    def whole(self, column: str, most: int = MAX_NUMBER) -> int:
        """A number, rounded down. Raises Malformed."""
        text = self.field(column)
        if not _NUMBER.fullmatch(text):
            what = f"{column}: expected a number of zero or more, not {shown(text)}"
            raise self.malformed(column, what, "write it in digits, such as 3600")
        found = int(text.partition(".")[0])
        if found > most:
            raise self.malformed(column, f"{column}: {found:,} is too large", f"most: {most:,}")
        return found

    def amount(self, resource: str, column: str, suffix: str) -> int:
        """Units of a resource, written without a suffix such as ``m`` or ``Mi``. Raises Malformed."""
        number = self.whole(column)
        try:
            return requested(resource, quantity(f"{number}{suffix}"))
        except InvalidValueError as refused:
            raise self.malformed(column, f"{column}: {refused.what}", refused.hint) from None

    def name(self, column: str) -> str:
        """The name of something. Raises Malformed."""
        return self._valid(column, self.field(column), _NAME)

    def label_values(self, column: str) -> tuple[str, ...]:
        """The values of labels that a field lists, sorted. Raises Malformed."""
        parts = {part.strip() for part in self.field(column).split("|")}
        return tuple(sorted(self._valid(column, part, _LABEL_VALUE) for part in parts if part))

    def label_value(self, column: str) -> str:
        """One value of a label, a short name. Raises Malformed."""
        found = self.label_values(column)
        if len(found) != 1:
            what = f"{column}: expected one name, not {shown(self.field(column))}"
            raise self.malformed(column, what, "write one, such as V100M32")
        return found[0]

    def _valid(self, column: str, text: str, form: TypeAdapter[str]) -> str:
        try:
            return form.validate_python(text)
        except ValidationError as error:
            refused = error.errors()[0].get("ctx", {}).get("error")
            assert isinstance(refused, InvalidValueError)  # the only one a text can have
            raise self.malformed(column, f"{column}: {refused.what}", refused.hint) from None

    def malformed(self, column: str, what: str, hint: str | None) -> Malformed:
        """The fault of a field, at its place."""
        return Malformed(what, self.line, _starts(self.text)[self.columns[column]] + 1, hint)


@dataclass(slots=True)
class Table:
    """``columns``: names of the first line, in lower case, with their positions."""

    columns: dict[str, int]
    rows: Iterator[Row]


def read_table(source: Source) -> Table:
    """The table of a text. Raises Malformed, later also while rows are read."""
    lines = _lines(source)
    number, text = next(lines, (1, ""))
    columns: dict[str, int] = {}
    for position, name in enumerate(_fields(number, text)):
        known = name.lower()
        if known in columns:
            at = _starts(text)[position] + 1
            raise Malformed(f"two columns are named {shown(name)}", number, at, "remove one")
        columns[known] = position
    return Table(columns, _rows(lines, columns))


def _rows(lines: Iterator[tuple[int, str]], columns: dict[str, int]) -> Iterator[Row]:
    for number, text in lines:
        if not text.strip():
            continue
        fields = _fields(number, text)
        if len(fields) != len(columns):
            what = f"{len(fields)} fields in a table of {len(columns)} columns"
            raise Malformed(what, number, 1, "every line has a value, or nothing, for each column")
        yield Row(number, text, fields, columns)


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    """(number, text) of every line. Raises Malformed for one too long, and for too many."""
    number, left = 1, ""
    for piece in chain([source.text], source.rest or ()):
        *whole, left = (left + piece).split("\n")
        for line in whole:
            yield number, _checked(line, number)
            number += 1
            if number > MAX_ROWS + 1:
                hint = "cut the trace to the weeks you replay"
                raise Malformed(f"more than {MAX_ROWS:,} lines", number, 1, hint)
        _checked(left, number)
    if left:
        yield number, _checked(left, number)


def _checked(line: str, number: int) -> str:
    if len(line) > MAX_LINE:
        what = f"a line of more than {MAX_LINE:,} characters"
        raise Malformed(what, number, 1, "this is no table of jobs; check the file")
    if "\0" in line:
        what = "the control character \\0 in a table"
        raise Malformed(what, number, line.index("\0") + 1, "save the file as text")
    return line.removesuffix("\r")


def _fields(number: int, text: str) -> tuple[str, ...]:
    """The fields of a line, without quotes and blanks around them. Raises Malformed."""
    if '"' not in text:
        return tuple(field.strip() for field in text.split(","))
    found = []
    for start in _starts(text):
        match = _FIELD.match(text, start)
        if match is None:
            what = "a quote that is not closed, or text behind one"
            raise Malformed(what, number, start + 1, 'write a quote in quotes as ""')
        quoted, plain = match.groups()
        found.append(plain.strip() if quoted is None else quoted.replace('""', '"'))
    return tuple(found)


def _starts(text: str) -> list[int]:
    """Where the fields of a line start, up to one that is malformed."""
    starts, at = [0], 0
    while (match := _FIELD.match(text, at)) is not None and match.group().endswith(","):
        at = match.end()
        starts.append(at)
    return starts
