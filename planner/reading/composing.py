"""Events to plain trees (dict, list, str, int, Decimal, bool, None), and places in the text.

Promises: bounded depth and size (aliases counted as often as they are used), duplicates reported,
shared values never copied. Called by ``parsing`` to read and by ``locating`` to find a place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from models.documents.base import MAX_FIELDS
from models.quantities import shown
from planner.reading.events import MAX_DEPTH, Event, Malformed, too_deep

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
