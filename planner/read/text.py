"""A text to its documents, and a path inside a document back to its line and column.

Promises: good JSON goes through ``json`` at full speed; everything else, and every search for a
place, goes through events. Called by ``planner.read.inputs`` and by ``findings``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any

from models.documents.base import MAX_FIELDS
from planner.read.positions import (
    Composed,
    Event,
    Malformed,
    Path,
    compose,
    json_events,
    yaml_events,
)
from planner.read.sources import Source

MAX_JSON_MARKS = 8_000_000
"""Most brackets and commas of one JSON text: bounds its values before any is built."""

_JSON_START = re.compile(r"\s*[\[{]")
_SURELY_JSON = re.compile(r'\s*[\[{]\s*["\[{\]}]')


class _AllFoundError(Exception):
    """Every place is known; the rest of the text need not be read."""


class _SlowError(ValueError):
    """The text is not for the fast path."""


def parse(source: Source) -> Composed:
    """Every document of the text and what is wrong with its form. Never raises."""
    if source.format == "json" or _JSON_START.match(source.text):
        marks = sum(source.text.count(mark) for mark in ",[{")
        if marks > MAX_JSON_MARKS:
            what = f"more than {MAX_JSON_MARKS:,} values in one file"
            return Composed([], [Malformed(what, 1, 1, "split it into several files")])
        try:
            return Composed([_json(source.text)], [])
        except (ValueError, RecursionError):
            pass  # read again below, with the place of what is wrong
    return compose(_events(source))


def _json(text: str) -> object:
    """Plain JSON, strictly. Raises ValueError or RecursionError."""
    return json.loads(
        text, object_pairs_hook=_unique, parse_float=Decimal, parse_constant=_no_number
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs) or len(fields) > MAX_FIELDS:
        raise _SlowError
    return fields


def _no_number(_: str) -> float:
    raise _SlowError


def _events(source: Source) -> Iterator[Event]:
    if source.format == "json":
        return json_events(source.text)
    if source.format == "either" and _SURELY_JSON.match(source.text):
        return json_events(source.text)
    return yaml_events(source.text)


def places(
    source: Source, wanted: Iterable[tuple[Path, bool]]
) -> dict[tuple[Path, bool], tuple[int, int]]:
    """(line, column) of every wanted (path, at its field name), or of what is nearest around it."""
    asked = set(wanted)
    needed = {path[:length] for path, _ in asked for length in range(1, len(path) + 1)}
    found: dict[tuple[Path, bool], tuple[int, int]] = {}

    def seen(path: Path, event: Event, at_key: bool) -> None:  # noqa: FBT001
        if path in needed:
            found.setdefault((path, at_key), (event.line, event.column))
            missing.discard((path, at_key))
            if not missing:
                raise _AllFoundError

    missing = set(asked)
    with suppress(_AllFoundError):
        compose(_events_for_places(source), seen)
    return {(path, at_key): _nearest(found, path, at_key) for path, at_key in asked}


def _events_for_places(source: Source) -> Iterator[Event]:
    """JSON under another suffix was read by ``json``: read it as JSON again, if it is that."""
    if source.format != "json" and _JSON_START.match(source.text):
        try:
            _json(source.text)
        except (ValueError, RecursionError):
            return _events(source)
        return json_events(source.text)
    return _events(source)


def _nearest(
    found: dict[tuple[Path, bool], tuple[int, int]],
    path: Path,
    at_key: bool,  # noqa: FBT001
) -> tuple[int, int]:
    if at_key and (path, True) in found:
        return found[path, True]
    for length in range(len(path), 0, -1):
        if (place := found.get((path[:length], False))) is not None:
            return place
    return 1, 1
