"""The values of a JSON text one at a time: the items of a list, each before the next is read.

A text of any length takes the memory of its largest item. An item that is nested too deep is passed over.
What else is odd about an item is said with it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import msgspec

from models.documents.base import MAX_FIELDS, Path
from planner.read.parser import (
    MAX_DEPTH,
    MAX_NUMBER_DIGITS,
    ODD,
    TOO_DEEP,
    Item,
    Parsed,
    YamlReader,
    check_characters,
    decimal,
    is_json,
    json_fault,
    json_form,
    match_end,
    nested_too_deep,
    parse_json,
)
from planner.read.sources import MAX_BYTES, Malformed, Source, whole

MAX_OBJECT = 32 * 2**20
"""Longest item of a long text that is read whole. An API server stores at most 1.5 MiB of an object,
which JSON may write ten times as long."""

MAX_ITEM_MARKS = 1_000_000
"""Most brackets and commas of such an item: more than the 1.5 MiB of an object can have."""

MAX_JSON_MARKS = 8_000_000
"""Most brackets and commas of one document of a long text, counted before any value is built."""

MAX_BLANK = 2**20
"""Most blanks between two values."""

_BLANK = re.compile(r"[ \t\n\r]*+")
_BRACKETS_OR_QUOTE = re.compile(r'[\[{]+|[\]}]+|"')
_TEXT = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*("?)', re.DOTALL)
_TRAILING = re.compile(r"trailing characters \(byte ([0-9]+)\)")
"""What msgspec says of a text that goes on after a value: where it goes on, counted from 1."""

_WINDOWS = (2**10, 2**11, 2**12, 2**13, 2**14, 2**16, 2**18, 2**20, 2**21)
"""Characters of a text in which the next value is looked for, from that which held the last one on. An API
server stores at most 1.5 MiB of an object."""

_MAX_UNTAKEN = 100
"""Values in a row that nobody took, after which a text is no longer looked at so: it is of something else."""

_ESCAPE = 12
"""Characters of the longest escape, a surrogate pair: an error so near the end may be a cut."""


Take = Callable[[dict[str, Any], bytes], bool]
"""Called with a list as far as it has been read, and the JSON of an item; whether that is all to do."""


def read_items(source: Source, take: Take) -> Iterator[Item]:
    """Every document of a text: the items of a list, then the list without them; else the document.

    An item that ``take`` takes is left out. An item is valid until the next is asked for.
    Raises Malformed, MissingPathError.
    """
    if is_json(source):
        return _JsonItems(source, take).read()
    check_characters(source)  # before the rest of a long text is read
    return YamlReader(whole(source)).items()


class _JsonItems:
    """``text``: what is held of the source, from ``line`` and ``column`` on; ``at``: read so far."""

    def __init__(self, source: Source, take: Take) -> None:
        self.source = source
        self._take = take
        self.text = source.text
        self.at = 0
        self._rest = source.rest
        self._counted, self._line, self._column = 0, 1, 1
        self._marks = self._item_marks = 0
        self._forgot = False
        self._untaken = self._window = 0
        self._odd = self._wide = False
        self._strict = json.JSONDecoder(
            object_pairs_hook=self._fields, parse_float=decimal, parse_constant=self._constant
        ).raw_decode
        self._lenient = json.JSONDecoder(
            object_pairs_hook=self._fields,
            parse_float=self._number,
            parse_int=self._number,
            parse_constant=self._constant,
            strict=False,
        ).raw_decode

    def read(self) -> Iterator[Item]:
        if self._next() == "{":
            yield from self._document()
        else:
            tree, oddities = self._value(item=False)
            yield self._item(tree, oddities, 0, (0,))
        if self._next():
            raise self._malformed("Extra data")

    def _document(self) -> Iterator[Item]:
        tree: dict[str, Any] = {}
        oddities: dict[str, None] = {}
        listed = False
        for _ in self._each("}"):
            if self._next() != '"':
                raise self._malformed("Expecting property name enclosed in double quotes")
            name, _ = self._value(item=False)
            if self._next() != ":":
                raise self._malformed("Expecting ':' delimiter")
            self.at += 1
            if name in tree:
                oddities[ODD] = None
            in_list = name == "items" and str(tree.get("kind", "List")).endswith("List")
            if self._next() == "[" and in_list and not listed:
                listed = True
                tree[name] = []
                wide = self._wide
                yield from self._items(tree)
                self._wide = wide
            else:
                tree[name], found = self._value(item=False)
                oddities.update(dict.fromkeys(found))
        found_item = self._item(tree, tuple(oddities), 0, (0,))
        found_item.listed = listed
        yield found_item

    def _each(self, end: str) -> Iterator[int]:
        """The number of every field or item up to a closing bracket; it is read before the next is asked."""
        self.at += 1
        number, following = 0, self._next()
        if following == end:
            self.at += 1
        while following != end:
            yield number
            number, following = number + 1, self._next()
            if following not in (",", end):
                raise self._malformed("Expecting ',' delimiter")
            self.at += 1

    def _items(self, header: dict[str, Any]) -> Iterator[Item]:
        for number in self._each("]"):
            self._next()
            self._forget()
            start, self._wide = self.at, False
            written = self._sound_value()
            if written is not None and self._take(header, written):
                ascii_ = written.isascii()
                self.at += len(written if ascii_ else written.decode("utf-8", "surrogatepass"))
                self._untaken = 0
            else:
                self._untaken += 1
                tree, oddities = self._value(item=True)
                item = self._item(tree, oddities, start, (0, "items", number))
                item.header = header
                yield item

    def _item(self, tree: object, oddities: tuple[str, ...], start: int, path: Path) -> Item:
        end = self.at

        def part() -> Source:
            if path == (0,) and (self.source.rest is None or self._forgot):
                return self.source  # of a long list its beginning
            line, column = self._place(start)
            name, named = self.source.name, self.source.named
            text = self.text[start:end]
            return Source(name, text, "json", named, line=line, column=column, path=path)

        doubtful = bool(oddities) or self._wide
        if doubtful and self._forgot and path == (0,):
            fault = Malformed(
                f"a list that {ODD}", *self._place(end), "put it into a file of its own"
            )
            return Item(tree, path, lambda: self.source, oddities, lambda: Parsed([], [fault]))
        return Item(tree, path, part, oddities, (lambda: json_form(part())) if doubtful else None)

    def _sound_value(self) -> bytes | None:
        """The JSON of the next value without building it; None if it is long, or perhaps not sound."""
        for size in _WINDOWS[self._window :] if self._untaken < _MAX_UNTAKEN else ():
            window = self.text[self.at : self.at + size]
            raw = window.encode("utf-8", "surrogatepass")
            try:
                msgspec.json.decode(raw, type=msgspec.Raw)
            except msgspec.DecodeError as error:
                found = _TRAILING.search(str(error))
                if found is not None:
                    self._window = bisect(_WINDOWS[:-1], int(found[1]))
                    return raw[: int(found[1]) - 1]
            except RecursionError:
                break
            if len(window) < size and not self._grow(item=True):
                break
        return None

    def _value(self, *, item: bool) -> tuple[Any, tuple[str, ...]]:
        """The next value and what is odd about it."""
        decode = self._strict
        self._item_marks = 0
        while True:
            self._odd = False
            try:
                tree, end = decode(self.text, self.at)
            except json.JSONDecodeError as error:
                if error.pos >= len(self.text) - _ESCAPE or error.msg.startswith("Unterminated"):
                    large = len(self.text) - self.at > MAX_OBJECT
                    if item and (large or self._item_marks > MAX_ITEM_MARKS):
                        raise self._too_large() from None
                    if self._grow(item=item):
                        continue
                elif "control character" in error.msg and decode is self._strict:
                    decode = self._lenient
                    continue
                raise self._malformed(error.msg, error.pos) from None
            except ValueError:  # a number beyond Python's limits
                decode = self._lenient
                continue
            except RecursionError:
                self._pass_over()
                return None, (TOO_DEEP,)
            if end == len(self.text) and self.text[end - 1] not in '}]"' and self._grow(item=item):
                continue  # half a number
            self.at = end
            return tree, (ODD,) if self._odd or decode is self._lenient else ()

    def _pass_over(self) -> None:
        """Move behind the value, which is nested too deep to be read. Raises Malformed without an end."""
        at = too_deep = self.at
        depth = brackets = 0
        while brackets <= MAX_ITEM_MARKS and len(self.text) - self.at <= MAX_OBJECT:
            found = _BRACKETS_OR_QUOTE.search(self.text, at)
            word = "" if found is None else found.group()
            if found is not None and word == '"':
                found = _TEXT.match(self.text, found.start())
            if found is None or (word == '"' and not found.group(1)):  # perhaps cut off
                at = len(self.text) if found is None else found.start()
                if not self._grow(item=True):
                    break
                continue
            at, size = found.end(), 0 if word == '"' else len(word)
            brackets += size
            depth += size if word[0] in "[{" else -size
            if depth >= MAX_DEPTH + 2 and too_deep == self.at:
                too_deep = at - 1 - (depth - MAX_DEPTH - 2)
            if depth <= 0:
                self.at = at + depth
                return
        raise nested_too_deep(*self._place_from(too_deep))

    def _too_large(self) -> Malformed:
        """The fault of an item without end."""
        what = (
            f"an item of more than {MAX_ITEM_MARKS:,} values or {MAX_OBJECT // 2**20} Mi characters"
        )
        hint = "leave it out: no object of an API server is so large"
        return Malformed(what, *self._place_from(self.at), hint)

    def _next(self) -> str:
        """The next character that is not blank; "" at the end."""
        while True:
            end = match_end(_BLANK, self.text, self.at)
            if end < len(self.text):
                self.at = end
                return self.text[end]
            if end - self.at > MAX_BLANK:
                raise self._malformed("too many blanks")
            if not self._grow(item=True):
                self.at = end
                return ""

    def _grow(self, *, item: bool) -> bool:
        """Hold as much again; False at the end of the text."""
        if self._rest is None:
            return False
        pieces, wanted = [self.text], len(self.text) - self.at
        while wanted >= 0:
            if (piece := next(self._rest, None)) is None:
                self._rest = None
                break
            pieces.append(piece)
            wanted -= len(piece)
            marks = sum(piece.count(mark) for mark in ",[{")
            self._item_marks += marks
            self._marks += 0 if item else marks
        self.text = "".join(pieces)
        if not item and (self._marks > MAX_JSON_MARKS or len(self.text) > MAX_BYTES):
            much = f"{MAX_JSON_MARKS:,} values or {MAX_BYTES // 2**20} MiB"
            raise Malformed(f"a document of more than {much}", 1, 1, "split it, or use host ranges")
        return len(pieces) > 1

    def _forget(self) -> None:
        """Drop what has been read of a long text."""
        if self._rest is not None and self.at > MAX_BLANK:
            self._count(self.at)
            self.text = self.text[self.at :]
            self._counted = self.at = 0
            self._forgot = True

    def _count(self, at: int) -> None:
        """Move the known place to an offset of the text that is held."""
        self._line, self._column = self._place_from(at)
        self._counted = at

    def _place_from(self, at: int) -> tuple[int, int]:
        """Line and column of an offset behind the known place."""
        lines = self.text.count("\n", self._counted, at)
        if lines:
            return self._line + lines, at - self.text.rindex("\n", self._counted, at)
        return self._line, self._column + at - self._counted

    def _place(self, at: int) -> tuple[int, int]:
        if at < self._counted:  # only of a text of which nothing was forgotten
            self._counted, self._line, self._column = 0, 1, 1
        self._count(at)
        return self._line, self._column

    def _malformed(self, message: str, at: int | None = None) -> Malformed:
        """The fault of the text; of one that is held whole what ``json`` says."""
        if self.source.rest is None and (faults := parse_json(self.source.text).faults):
            return faults[0]
        return json_fault(message, *self._place(self.at if at is None else at))

    def _fields(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) != len(pairs):
            self._odd = True
        if len(fields) > MAX_FIELDS:
            self._wide = True
        return fields

    def _constant(self, _: str) -> None:
        self._odd = True

    def _number(self, text: str) -> int | Decimal | None:
        """None for a number that cannot be read."""
        if len(text) <= MAX_NUMBER_DIGITS:
            try:
                return int(text) if text.lstrip("-").isdigit() else decimal(text)
            except ValueError:
                pass  # an exponent beyond what Decimal holds
        self._odd = True
        return None
