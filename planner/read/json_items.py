"""The values of a JSON text one at a time: the items of a list, each before the next is read.

A text of any length takes the memory of its largest item. An item that is nested too deep is passed over.
What else is odd about an item is said with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any

import msgspec

from models.documents.base import MAX_FIELDS, Path
from planner.errors import Fault, InputError
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
    nested_too_deep,
    parse_json,
)
from planner.read.sources import MAX_BYTES, Source, whole

MAX_OBJECT = 32 * 2**20
"""Longest item of a long text that is read whole. An API server stores at most 1.5 MiB of an object,
which JSON may write ten times as long."""

MAX_ITEM_MARKS = 1_000_000
"""Most brackets and commas of such an item: more than the 1.5 MiB of an object can have."""

MAX_JSON_MARKS = 8_000_000
"""Most brackets and commas of one document of a long text, counted before any value is built."""

MAX_BLANK = 2**20
"""Most blanks between two values."""

_BLANK = re.compile(rb"[ \t\n\r]*+")
_BRACKETS_OR_QUOTE = re.compile(rb'[\[{]+|[\]}]+|"')
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)', re.DOTALL)
_SCALAR = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s,\]}]*', re.DOTALL)
_TRAILING = re.compile(r"trailing characters \(byte ([0-9]+)\)")
"""What msgspec says of a text that goes on after a value: where it goes on, counted from 1."""
_CUT = "truncated"
"""What it says of one that ends inside a value."""


Take = Callable[[dict[str, Any], bytes], bool]
"""Called with a list as far as it has been read, and the JSON of an item; whether that is all to do."""


def read_items(source: Source, take: Take) -> Iterator[Item]:
    """Every document of a text: the items of a list, then the list without them; else the document.

    An item that ``take`` takes is left out. An item is valid until the next is asked for.
    Raises InputError, MissingPathError.
    """
    if is_json(source):
        return _JsonItems(source, take).read()
    check_characters(source)  # before the rest of a long text is read
    return YamlReader(whole(source)).items()


class _JsonItems:
    """``data``: what is held of the source, from ``line`` and ``column`` on; ``at``: read so far.

    ``sound``: the JSON of the next items, as far as it is known to be sound, the last first. ``fresh``: more
    has been held since these were looked for.
    """

    def __init__(self, source: Source, take: Take) -> None:
        self.source = source
        self._take = take
        self.data = _bytes(source.text)
        self.at = 0
        self._rest = source.rest
        self._counted, self._line, self._column = 0, 1, 1
        self._marks = 0
        self._forgot = self._odd = self._wide = False
        self._fresh = True
        self._sound: list[msgspec.Raw] = []
        hooks: dict[str, Any] = {
            "object_pairs_hook": self._fields, "parse_constant": self._constant
        }  # fmt: skip
        self._strict = json.JSONDecoder(parse_float=decimal, **hooks).raw_decode
        self._lenient = json.JSONDecoder(
            parse_float=self._number, parse_int=self._number, strict=False, **hooks
        ).raw_decode

    def read(self) -> Iterator[Item]:
        if self._next() == "{":
            yield from self._document()
        else:
            tree, oddities = self._value()
            yield self._item(tree, oddities, 0, (0,))
        if self._next():
            raise InputError(self._malformed("Extra data"))

    def _document(self) -> Iterator[Item]:
        tree: dict[str, Any] = {}
        oddities: dict[str, None] = {}
        listed = False
        for _ in self._each("}"):
            if self._next() != '"':
                raise InputError(
                    self._malformed("Expecting property name enclosed in double quotes")
                )
            name, _ = self._value()
            if self._next() != ":":
                raise InputError(self._malformed("Expecting ':' delimiter"))
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
                tree[name], found = self._value()
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
                raise InputError(self._malformed("Expecting ',' delimiter"))
            self.at += 1

    def _items(self, header: dict[str, Any]) -> Iterator[Item]:
        ended = self.at
        for number in self._each("]"):
            self._next()
            if self._fresh and number:
                self._find_sound(self.data[ended : self.data.find(b":", self.at) + 1])
            self._forget()
            start, self._wide = self.at, False
            sound = bytes(self._sound.pop() if self._sound else self._sound_value(item=True) or b"")
            if sound and self._take(header, sound):
                self.at += len(sound)
            else:
                tree, oddities = self._read_value(sound)
                item = self._item(tree, oddities, start, (0, "items", number))
                item.header = header
                yield item
            ended = self.at

    def _find_sound(self, beginning: bytes) -> None:
        """Pass over all items at once before the last that begins like this one, with what separates them.

        A text that is a list if it is cut off there has all these items: none of them ends later.
        """
        self._fresh = False
        end = self.data.rfind(beginning, self.at)
        # One is odd, or a part of the last begins so: they are read one by one.
        with suppress(msgspec.DecodeError, RecursionError):
            listed = b"[%b]" % self.data[self.at : end]
            self._sound = msgspec.json.decode(listed, type=list[msgspec.Raw])[::-1]

    def _item(self, tree: object, oddities: tuple[str, ...], start: int, path: Path) -> Item:
        end = self.at

        def part() -> Source:
            if path == (0,) and (self.source.rest is None or self._forgot):
                return self.source  # of a long list its beginning
            line, column = self._place(start)
            name, named = self.source.name, self.source.named
            text = _text(self.data[start:end])
            return Source(name, text, "json", named, line=line, column=column, path=path)

        doubtful = bool(oddities) or self._wide
        if doubtful and self._forgot and path == (0,):
            hint = "put it into a file of its own"
            fault = self.source.fault(f"a list that {ODD}", self._place(end), hint)
            return Item(tree, path, lambda: self.source, oddities, lambda: Parsed([], [fault]))
        return Item(tree, path, part, oddities, (lambda: parse_json(part())) if doubtful else None)

    def _sound_value(self, *, item: bool) -> memoryview | None:
        """The JSON of the next value, which is passed over, not built; None if it is perhaps not sound."""
        while True:
            written = memoryview(self.data)[self.at :]
            try:
                msgspec.json.decode(written, type=msgspec.Raw)
            except msgspec.DecodeError as error:
                if (found := _TRAILING.search(str(error))) is not None:
                    return written[: int(found[1]) - 1]
                whole = None
                if _CUT not in str(error):
                    return None
            except RecursionError:
                return None
            else:
                whole = written  # or half a number
            if item and self._beyond():
                raise self._too_large()
            if not self._grow(item=item):
                return whole

    def _beyond(self) -> bool:
        marks = sum(self.data.count(mark, self.at) for mark in (b",", b"[", b"{"))
        return len(self.data) - self.at > MAX_OBJECT or marks > MAX_ITEM_MARKS

    def _value(self) -> tuple[Any, tuple[str, ...]]:
        return self._read_value(self._sound_value(item=False) or b"")

    def _read_value(self, sound: bytes | memoryview) -> tuple[Any, tuple[str, ...]]:
        """The next value; ``sound``: its JSON, if it is known to be sound."""
        written = _text(sound or self._unsound_value())
        for decode in (self._strict, self._lenient):
            self._odd = decode is self._lenient
            try:
                tree, end = decode(written)
                break
            except json.JSONDecodeError as error:
                if self._odd or "control character" not in error.msg:
                    at = self.at + len(_bytes(written[: error.pos]))
                    raise InputError(self._malformed(error.msg, at)) from None
            except RecursionError:
                self.at += len(_bytes(written))
                return None, (TOO_DEEP,)
            except ValueError:  # a number beyond Python's limits
                continue
        self.at += len(_bytes(written[:end]))
        return tree, (ODD,) if self._odd else ()

    def _unsound_value(self) -> bytes:
        """The next value up to where its brackets are closed. Raises InputError if that is nowhere."""
        at = too_deep = self.at
        if self.data[at : at + 1] not in (b"[", b"{"):
            found = _SCALAR.match(self.data, at)
            return b"" if found is None else found.group()
        depth = brackets = 0
        while True:
            found = _BRACKETS_OR_QUOTE.search(self.data, at)
            if found is not None and found.group() == b'"':
                found = _TEXT.match(self.data, found.start())
            word = b"" if found is None else found.group()
            if found is None or (word[:1] == b'"' and not found.group(1)):  # perhaps cut off
                at = len(self.data) if found is None else found.start()
                if not self._beyond() and self._grow(item=True):
                    continue
                if too_deep > self.at:
                    raise InputError(nested_too_deep(self.source, self._place_from(too_deep)))
                return self.data[self.at :]
            at, size = found.end(), 0 if word[:1] == b'"' else len(word)
            brackets += size
            depth += size if word[:1] in (b"[", b"{") else -size
            if depth >= MAX_DEPTH + 2 and too_deep == self.at:
                too_deep = at - 1 - (depth - MAX_DEPTH - 2)
            if depth <= 0:
                return self.data[self.at : at + depth]
            if brackets > MAX_ITEM_MARKS:
                raise InputError(nested_too_deep(self.source, self._place_from(too_deep)))

    def _too_large(self) -> InputError:
        what = (
            f"an item of more than {MAX_ITEM_MARKS:,} values or {MAX_OBJECT // 2**20} Mi characters"
        )
        hint = "leave it out: no object of an API server is so large"
        return InputError(self.source.fault(what, self._place_from(self.at), hint))

    def _next(self) -> str:
        """The next character that is not blank; "" at the end."""
        while True:
            end = self.at + len(_match(_BLANK, self.data, self.at))
            if end < len(self.data):
                self.at = end
                return chr(self.data[end])
            if end - self.at > MAX_BLANK:
                raise InputError(self._malformed("too many blanks"))
            if not self._grow(item=True):
                self.at = end
                return ""

    def _grow(self, *, item: bool) -> bool:
        """Hold as much again; False at the end of the text."""
        if self._rest is None:
            return False
        pieces, wanted = [self.data], len(self.data) - self.at
        while wanted >= 0:
            if (piece := next(self._rest, None)) is None:
                self._rest = None
                break
            pieces.append(_bytes(piece))
            wanted -= len(piece)
            self._marks += 0 if item else sum(piece.count(mark) for mark in ",[{")
        self.data, self._fresh = b"".join(pieces), True
        if not item and (self._marks > MAX_JSON_MARKS or len(self.data) > MAX_BYTES):
            much = f"{MAX_JSON_MARKS:,} values or {MAX_BYTES // 2**20} MiB"
            hint = "split it, or use host ranges"
            raise InputError(self.source.fault(f"a document of more than {much}", (1, 1), hint))
        return len(pieces) > 1

    def _forget(self) -> None:
        if self._rest is not None and self.at > MAX_BLANK:
            self._count(self.at)
            self.data = self.data[self.at :]
            self._counted = self.at = 0
            self._forgot = True

    def _count(self, at: int) -> None:
        self._line, self._column = self._place_from(at)
        self._counted = at

    def _place_from(self, at: int) -> tuple[int, int]:
        lines = self.data.count(b"\n", self._counted, at)
        start = self.data.rindex(b"\n", self._counted, at) + 1 if lines else self._counted
        column = len(_text(self.data[start:at])) + (1 if lines else self._column)
        return self._line + lines, column

    def _place(self, at: int) -> tuple[int, int]:
        if at < self._counted:  # only of a text of which nothing was forgotten
            self._counted, self._line, self._column = 0, 1, 1
        self._count(at)
        return self._line, self._column

    def _malformed(self, message: str, at: int | None = None) -> Fault:
        """The fault of the text; of one that is held whole what ``json`` says."""
        if self.source.rest is None and (faults := parse_json(self.source).faults):
            return faults[0]
        return json_fault(message, self.source, self._place(self.at if at is None else at))

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


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(written: bytes | memoryview) -> str:
    return str(written, "utf-8", "surrogatepass")


def _match(pattern: re.Pattern[bytes], data: bytes, at: int) -> bytes:
    """What the pattern, which matches nothing, too, finds there."""
    found = pattern.match(data, at)
    return b"" if found is None else found.group()
