"""YAML and JSON texts as plain values, and the line and column of a path inside them.

Values come from ``json.loads`` and from PyYAML's events. Only when there is something to report is a text
read again to find its place, JSON as the YAML that it is, too. Nothing here knows what a document means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any

import yaml
from msgspec import Struct

from models.documents.base import MAX_FIELDS, Path
from models.units import shown
from planner.errors import Fault, InputError
from planner.read.sources import Source

MAX_DEPTH = 64
"""Deepest nesting of lists and objects."""

MAX_SKIPPED_DEPTH = 1_000
"""Deepest nesting of YAML that is passed over; since libyaml 0.2.6 also the deepest that it reads."""

_TOO_DEEP = "exceeded maximum nesting depth"
"""What libyaml says of it, where it reads ahead."""

MAX_NUMBER_DIGITS = 40
"""Longest number; real ones have at most 15 digits."""

MAX_VALUES = 2_000_000
"""Most values of one YAML document, and of one item of a list."""

MAX_ALIASED = 100_000
"""Most values that aliases may add to it."""

MAX_ANCHORS = 10_000
"""Most anchors of one YAML document."""

ODD = "has parts that no API server writes, such as a field twice; what cannot be read is left out"
TOO_DEEP = "is nested too deep to be read; it is left out"

_JSON_START = re.compile(r"\s*[\[{]")
_SURELY_JSON = re.compile(r'\s*[\[{]\s*["\[{\]}]')


class Parsed(Struct):
    """The documents of a text and the faults of its form."""

    documents: list[object] = []
    faults: list[Fault] = []


class Item(Struct, eq=False):
    """One document, or an item of a list that is one. Valid until the next is asked for.

    ``path``: in the documents of the text. ``part``: makes the source that the path starts in.
    ``oddities``: in words, what an object of an API server would not have. ``form``: the same as
    faults, None if there is none. ``header``: of the list it is in, as far as that has been read.
    ``listed``: its items came before it.
    """

    tree: object
    path: Path
    part: Callable[[], Source]
    oddities: tuple[str, ...] = ()
    form: Callable[[], Parsed] | None = None
    header: dict[str, Any] | None = None
    listed: bool = False


Visit = Callable[[Path, bool, int, int], None]
"""Called with (path, whether the place is the field's name, line, column)."""


def parse(source: Source) -> Parsed:
    """Every document of a whole text, or the faults. Never raises."""
    if source.format == "json" or _JSON_START.match(source.text):
        parsed = parse_json(source)
        if not parsed.faults or must_be_json(source):
            return parsed
    return YamlReader(source).parsed()


def places(
    source: Source, wanted: Iterable[tuple[Path, bool]]
) -> dict[tuple[Path, bool], tuple[int, int]]:
    """(line, column) of every wanted (path, at its field name), or of the nearest value around it."""
    missing = set(wanted)
    start = (source.line, source.column)
    result = dict.fromkeys(missing, start)
    needed = {path[:length] for path, _ in missing for length in range(1, len(path) + 1)}
    found: dict[tuple[Path, bool], tuple[int, int]] = {}

    def visit(path: Path, at_key: bool, line: int, column: int) -> None:  # noqa: FBT001
        if path in needed:
            found.setdefault((path, at_key), (line, column))
            missing.discard((path, at_key))
            if not missing:
                raise _AllFoundError

    with suppress(_AllFoundError):
        YamlReader(source, visit, json=is_json(source)).parsed()
    for path, at_key in result:
        around = [(path, True)] if at_key else []
        around += [(path[:length], False) for length in range(len(path), 0, -1)]
        result[path, at_key] = next((found[one] for one in around if one in found), start)
    return result


class _AllFoundError(Exception):
    """Every place is known; the rest of the text need not be read."""


def must_be_json(source: Source) -> bool:
    """Whether a text that is not valid JSON cannot be a YAML flow collection instead."""
    if source.format == "either":
        return _SURELY_JSON.match(source.text) is not None
    return source.format == "json"


def is_json(source: Source) -> bool:
    """Whether the text is read as JSON. Of a long one the beginning decides."""
    if must_be_json(source):
        return True
    if source.rest is not None:
        return _SURELY_JSON.match(source.text) is not None
    if _JSON_START.match(source.text) is None:
        return False
    try:
        json.loads(source.text, strict=False, parse_int=len, parse_float=len)
    except (ValueError, RecursionError):
        return False
    return True


def parse_json(source: Source) -> Parsed:
    """The one document of a JSON text, or of a part of one, or the faults."""
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

    value = None
    try:
        value = json.loads(
            source.text, object_pairs_hook=build, parse_float=decimal, parse_constant=constant
        )
    except json.JSONDecodeError as error:
        return Parsed([], [json_fault(error.msg, source, source.place(error.lineno, error.colno))])
    except RecursionError:
        return Parsed([], [nested_too_deep(source, _too_deep(source))])
    except ValueError:  # a number beyond Python's limits
        doubtful = True
    if not doubtful:
        return Parsed([value])
    form = YamlReader(source, json=True).parsed()
    return Parsed([value] if form.documents else [], form.faults)


def _too_deep(source: Source) -> tuple[int, int]:
    depth = 0
    for found in _outside(_BRACKET, source.text):
        depth += (found.group() in "[{") - (found.group() in "]}")
        if depth > MAX_DEPTH + 1:
            return source.place(*line_and_column(source.text, found.start()))
    return source.line, source.column


_BRACKET = re.compile(r'\\.|["\[\]{}]', re.DOTALL)
_WORD = re.compile(r'\\.|"|[^\s\[\]{},:"\\]+', re.DOTALL)


def _outside(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """What a pattern, which finds quotes and escapes, too, finds outside of strings."""
    inside = False
    for found in pattern.finditer(text):
        if found.group() == '"':
            inside = not inside
        elif not inside:
            yield found


def json_fault(message: str, source: Source, place: tuple[int, int]) -> Fault:
    """The fault of a text that is not JSON; ``message``: of ``json``."""
    reason = message[0].lower() + message[1:].removesuffix(" at")
    hint = "check the commas, quotes and brackets near this place"
    return source.fault(f"not JSON: {reason}", place, hint)


def place_of_word(text: str, word: str) -> tuple[int, int]:
    """Line and column of the first number or constant of a JSON text that is written so."""
    found = (one.start() for one in _outside(_WORD, text) if one.group() == word)
    return line_and_column(text, next(found, 0))


def line_and_column(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def decimal(text: str) -> Decimal:
    """Raises ValueError."""
    try:
        return Decimal(text)
    except ArithmeticError:  # an exponent beyond what Decimal holds
        raise ValueError from None


def _wrong_number(word: str) -> tuple[str, str] | None:
    """(what, hint) of a number that is too long, or beyond what Decimal holds."""
    if len(word) > MAX_NUMBER_DIGITS:
        return f"a number of {len(word):,} characters", f"the most is {MAX_NUMBER_DIGITS}"
    try:
        Decimal(word)
    except ArithmeticError:
        return "a number with too large an exponent", "write it in full"
    return None


_FIRST, _LATER = ("apiVersion", "kind"), frozenset({"metadata", "spec"})
"""Fields that a document starts with, and those that come after them."""
_NEXT_DOCUMENT = "a second document starts here, and the line '---' before it is missing"


def nested_too_deep(source: Source, place: tuple[int, int]) -> Fault:
    what = f"nested more than {MAX_DEPTH} levels deep"
    return source.fault(what, place, "no document needs so many")


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
_NO_YAML = re.compile(
    r"[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
"""Characters that libyaml refuses, or takes for the end of a line."""
_HALF = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
"""An escape of half a character, which libyaml refuses."""
_STRING_TAGS = ("!", "tag:yaml.org,2002:str")
_COLLECTION_TAGS = ("!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


def check_characters(source: Source) -> None:
    """Raises InputError for a character that no YAML has, in what is here of the text."""
    if (bad := _FORBIDDEN.search(source.text)) is not None:
        what = f"not YAML: the control character {shown(bad.group())}"
        hint = "remove it, or write it as an escape in double quotes"
        raise InputError(source.fault(what, line_and_column(source.text, bad.start()), hint))


class YamlReader:
    """Builds every document of a YAML text: bounded depth and size, no tags, no Python objects.

    What cannot be read is left out and becomes a fault; the reading goes on behind it. ``json``: the text
    is one that ``json`` accepts, at least up to where it gave up; its faults and places are asked for,
    not its values.
    """

    def __init__(self, source: Source, visit: Visit | None = None, *, json: bool = False) -> None:
        self.source = source
        self.visit = visit
        self.json = json
        self.faults: list[Fault] = []
        self.odd = self.fatal = False
        """Whether something is there that no API server writes; whether something was left out."""
        self.anchors: dict[str, tuple[object, int] | None] = {}
        """Value and number of values of each anchor; None while it is being built."""
        self.values = 0
        self.aliased = 0

    def parsed(self) -> Parsed:
        """Every document before the first fault that ends the reading."""
        result = Parsed()
        try:
            for item in self._read():
                form = item.form() if item.form is not None else Parsed([None])
                result.documents += [item.tree] if form.documents else []
                result.faults += form.faults
                if not form.documents:
                    break
        except InputError as error:
            result.faults += error.faults
        return result

    def items(self) -> Iterator[Item]:
        """Every document, those in a list one at a time. Raises InputError."""
        return self._read(item_by_item=True)

    def _read(self, *, item_by_item: bool = False) -> Iterator[Item]:
        if not self.json:
            check_characters(self.source)
        try:
            yield from self._documents(item_by_item=item_by_item)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = self.source.place(mark.line + 1, mark.column + 1) if mark else (1, 1)
            if error.problem == _TOO_DEEP:
                raise InputError(nested_too_deep(self.source, place)) from None
            what = _one_line(error.problem or error.context or "cannot be read")
            hint = next(hint for said, hint in _HINTS.items() if said in what)
            raise InputError(self.source.fault(f"not YAML: {what}", place, hint)) from None
        except yaml.YAMLError as error:
            what = f"not YAML: {_one_line(str(error))}"
            raise InputError(self.source.fault(what, (1, 1))) from None

    def _documents(self, *, item_by_item: bool) -> Iterator[Item]:
        text = self.source.text
        if self.json:  # what stands in texts is of no matter, as long as no place is another
            text = _HALF.sub(r"\\ufffd", _NO_YAML.sub(" ", text))
        self.next_event: Callable[[], Any] = yaml.CSafeLoader(text).get_event
        number = 0
        while (event := self.next_event()) is not None:
            if type(event) is yaml.DocumentStartEvent:
                self.anchors.clear()
                event = self.next_event()
                if item_by_item and type(event) is yaml.MappingStartEvent:
                    yield from self._listed(event, (number,))
                else:
                    path = (number,) if number else self.source.path
                    yield self._item(self._whole(event, path, 0), path)
                number += 1

    def _listed(self, event: Any, path: Path) -> Iterator[Item]:  # noqa: ANN401
        """The items of a list, and the document without them; or the document."""
        self._begin()
        fields: dict[str, object] = {}
        listed = False
        for name, value in self._fields(event, path, 0, fields):
            streams = name == "items" and type(value) is yaml.SequenceStartEvent and not listed
            if not streams or value.anchor is not None or value.tag is not None:
                fields[name] = self._value(value, (*path, name), 1)
                continue
            listed = True
            fields[name] = []
            outside = (self.values, self.faults, self.odd, self.fatal)
            number = 0
            while type(event := self.next_event()) is not yaml.SequenceEndEvent:
                where = (*path, name, number)
                item = self._item(self._whole(event, where, 2), where)
                item.header = fields
                yield item
                number += 1
            self.values, self.faults, self.odd, self.fatal = outside
        item = self._item(fields, path)
        item.listed = listed
        yield item

    def _begin(self) -> None:
        self.values = self.aliased = 0
        self.faults, self.odd, self.fatal = [], False, False

    def _whole(self, event: Any, path: Path, depth: int) -> object:  # noqa: ANN401
        self._begin()
        return self._value(event, path, depth)

    def _item(self, tree: object, path: Path) -> Item:
        faults, fatal = self.faults, self.fatal
        if not faults:
            return Item(tree, path, lambda: self.source)
        form = Parsed([] if fatal else [None], faults)
        return Item(tree, path, lambda: self.source, (ODD,) * self.odd, lambda: form)

    def _value(self, event: Any, path: Path, depth: int) -> object:  # noqa: ANN401  # untyped
        self.values += 1
        if self.values > MAX_VALUES and not self.json:
            if self.values == MAX_VALUES + 1:
                what = f"more than {MAX_VALUES:,} values in one document"
                self._left_out(event, what, "use host ranges, or write JSON")
            self._skip(event)
            return None
        if self.visit is not None:
            self.visit(path, False, *self._place(event))  # noqa: FBT003
        kind = type(event)
        if kind is yaml.ScalarEvent:
            value = self._scalar(event)
            if event.anchor is not None:
                self._anchor(event, (value, 1))
            return value
        return (
            self._alias(event) if kind is yaml.AliasEvent else self._collection(event, path, depth)
        )

    def _collection(self, event: Any, path: Path, depth: int) -> object:  # noqa: ANN401
        tagged = event.tag is not None and event.tag not in _COLLECTION_TAGS
        if depth > MAX_DEPTH or tagged:
            if depth > MAX_DEPTH:
                self._report(nested_too_deep(self.source, self._place(event)))
            else:
                self._left_out(event, *_tagged(event.tag))
            self._skip(event)
            return None
        before = self.values + self.aliased
        if event.anchor is not None:
            self._anchor(event, None)
        value: object
        if type(event) is yaml.MappingStartEvent:
            value = fields = dict[str, object]()
            for name, start in self._fields(event, path, depth, fields):
                fields[name] = self._value(start, (*path, name), depth + 1)
        else:
            value = items = list[object]()
            while type(start := self.next_event()) is not yaml.SequenceEndEvent:
                items.append(self._value(start, (*path, len(items)), depth + 1))
        if event.anchor is not None:
            self._anchor(event, (value, self.values + self.aliased - before + 1))
        return value

    def _anchor(self, event: Any, value: tuple[object, int] | None) -> None:  # noqa: ANN401
        if len(self.anchors) < MAX_ANCHORS or event.anchor in self.anchors:
            self.anchors[event.anchor] = value

    def _skip(self, event: Any) -> None:  # noqa: ANN401
        depth = 0
        while True:
            if depth > MAX_SKIPPED_DEPTH:  # libyaml's time is quadratic in it
                raise InputError(nested_too_deep(self.source, self._place(event)))
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if not depth:
                return
            event = self.next_event()

    def _scalar(self, event: Any) -> object:  # noqa: ANN401
        text: str = event.value
        if event.tag is not None and event.tag not in _STRING_TAGS:
            self._left_out(event, *_tagged(event.tag))
            return None
        plain = event.tag is None and not event.style
        if plain and text in _CONSTANTS:
            return _CONSTANTS[text]
        if plain and self.json and text.lstrip("-") in ("NaN", "Infinity"):
            self._left_out(event, f"not JSON: {text} is no number", "write a finite number")
        if not plain or text[0] not in "+-.0123456789":
            return text
        number = int if _INTEGER.fullmatch(text) else Decimal if _DECIMAL.fullmatch(text) else None
        number = Decimal if self.json else number
        if number is None:
            return text
        if (wrong := _wrong_number(text)) is not None:
            self._left_out(event, *wrong)
            return None
        return number(text)

    def _place(self, event: Any) -> tuple[int, int]:  # noqa: ANN401
        mark = event.start_mark
        return self.source.place(mark.line + 1, mark.column + 1)

    def _left_out(self, event: Any, what: str, hint: str) -> None:  # noqa: ANN401
        self._report(self.source.fault(what, self._place(event), hint))

    def _report(self, fault: Fault, *, odd: bool = True) -> None:
        """The first such fault is reported: others may follow from it."""
        if not self.fatal:
            self.faults.append(fault)
            self.odd |= odd
        self.fatal = True

    def _twice(self, event: Any, document: Collection[str]) -> None:  # noqa: ANN401
        """A field that was there before. ``document``: the fields before it at the top of a document."""
        if event.value in _FIRST and not _LATER.isdisjoint(document):
            self._left_out(event, _NEXT_DOCUMENT, "write --- on a line of its own above")
        elif not self.fatal and len(self.faults) < _MOST_FAULTS:
            self.odd, what = True, f"the field {shown(event.value)} appears twice"
            self.faults.append(self.source.fault(what, self._place(event), "remove one of the two"))

    def _fields(
        self,
        event: Any,  # noqa: ANN401
        path: Path,
        depth: int,
        fields: dict[str, object],
    ) -> Iterator[tuple[str, Any]]:
        """(name, event that starts the value) of every field; adds those that are merged."""
        merged: list[dict[str, object]] = []
        while type(event := self.next_event()) is not yaml.MappingEndEvent:
            if type(event) is not yaml.ScalarEvent:
                hint = "put a name that starts with a bracket, '*' or '&' in quotes"
                self._left_out(event, "a field name must be text", hint)
                self._skip(event)
                self._skip(self.next_event())
                continue
            name: str = event.value
            if name == "<<" and event.tag is None and not event.style:
                merged += self._merge(self.next_event(), path, depth)
                continue
            self._scalar(event)  # checks its tag and the length of a number
            if len(fields) == MAX_FIELDS:
                what = f"an object of more than {MAX_FIELDS:,} fields"
                fault = self.source.fault(what, self._place(event), "use a list")
                self._report(fault, odd=False)  # an API server may have written it
            if name in fields:
                self._twice(event, fields if not depth and not self.json else ())
            if self.visit is not None:
                self.visit((*path, name), True, *self._place(event))  # noqa: FBT003
            yield name, self.next_event()
        for more in merged:  # own fields win, then those of the first object merged
            for name, value in more.items():
                fields.setdefault(name, value)

    def _merge(self, event: Any, path: Path, depth: int) -> list[dict[str, object]]:  # noqa: ANN401
        value = self._value(event, (*path, "<<"), depth + 1)
        sources = value if isinstance(value, list) else [value]
        found = [source for source in sources if isinstance(source, dict)]
        if len(found) != len(sources):
            self._left_out(event, "'<<' merges objects only", "remove it")
        return found

    def _alias(self, event: Any) -> object:  # noqa: ANN401
        target = self.anchors.get(event.anchor)
        if target is None:
            what = "an alias inside itself:" if (event.anchor in self.anchors) else "unknown alias"
            hint = "an alias repeats an anchor (&name) written in full before it"
            self._left_out(event, f"{what} {shown(event.anchor)}", hint)
            return None
        value, size = target
        if self.aliased + size > MAX_ALIASED:
            what = f"aliases of more than {MAX_ALIASED:,} values"
            self._left_out(event, what, "write the values out")
            return None
        self.aliased += size
        return value


_MOST_FAULTS = 20
"""Most faults kept of one document."""


def _tagged(tag: str) -> tuple[str, str]:
    short = tag.replace("tag:yaml.org,2002:", "!!")
    return f"the tag {shown(short)} is not supported", "remove the tag"


def _one_line(text: str) -> str:
    return shown(" ".join(text.split()))[1:-1]


_HINTS = {
    "cannot start any token": "indent with blanks, not tabs, and put special characters in quotes",
    "mapping values are not allowed": "check the indentation, or put text that holds ': ' in quotes",
    "": "check the indentation, the quotes and the brackets near this place",
}
"""By what libyaml says."""
