"""YAML text as events with places, without YAML 1.1's surprises.

Promises: only true, false, null, decimal integers and decimal fractions are anything but text
(``NO``, ``on``, ``010``, ``12:30`` and dates stay text); no tags, no Python objects.
Called by ``parsing`` and ``locating``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import yaml

from models.quantities import shown
from planner.reading.events import MAX_NUMBER_DIGITS, Event, Malformed, too_long_a_number

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
# A dot is what makes a number: 12e45 may well be a name or a uid.
_DECIMAL = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | None] = {
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
    if text in _WORDS:
        return _WORDS[text]
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
