"""The stored objects with resourceVersion and managedFields, and lists in pages.

Stored trees are never changed in place. uids and versions depend on nothing but the order of writes.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator

from apiserver_errors import ApiError
from apiserver_kinds import Kind, Kinds, Tree
from apiserver_selectors import by_fields, by_labels

Key = tuple[str, str]
Listener = Callable[[Kind, Tree | None, Tree | None], None]
"""(kind, before, after): None before a creation and after a removal."""

START = 1_795_161_600.0
"""2026-11-20T08:00:00Z: where a cluster's own clock starts."""


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Store:
    """``clock``: seconds since the epoch."""

    def __init__(self, kinds: Kinds, clock: Callable[[], float]) -> None:
        self.kinds = kinds
        self.clock = clock
        self.revision = 100
        self.listeners: list[Listener] = []
        self._objects: dict[Kind, dict[Key, Tree]] = {}
        self._order: dict[Kind, list[Key]] = {}
        self._made = 0

    def now(self) -> str:
        """RFC 3339, whole seconds, as in creationTimestamp."""
        return stamp(self.clock())

    def uid(self) -> str:
        self._made += 1
        return f"{self._made:08x}-0000-4000-8000-{self._made:012x}"

    def get(self, kind: Kind, namespace: str, name: str) -> Tree | None:
        found = self._objects.get(kind)
        return found.get((namespace, name)) if found is not None else None

    def all(self, kind: Kind, namespace: str = "") -> Iterator[Tree]:
        """By namespace and name; of one namespace, or of all."""
        found = self._objects.get(kind)
        if not found:
            return
        order = self._order.get(kind)
        if order is None:
            order = self._order[kind] = sorted(found)
        for key in order:
            if not namespace or key[0] == namespace:
                yield found[key]

    def everything(self) -> Iterator[Tree]:
        """Objects of all kinds."""
        for found in self._objects.values():
            yield from found.values()

    def keep(self, kind: Kind, new: Tree, *, manager: str = "", sub: str = "") -> Tree:
        """Store ``new`` under its name with the next resourceVersion. ``manager``: who wrote it."""
        metadata = dict(new["metadata"])
        key = (metadata.get("namespace", ""), metadata["name"])
        objects = self._objects.setdefault(kind, {})
        old = objects.get(key)
        self.revision += 1
        metadata["resourceVersion"] = str(self.revision)
        new = {"kind": kind.name, "apiVersion": kind.api_version} | new | {"metadata": metadata}
        metadata["managedFields"] = managed(
            old,
            new,
            manager=manager or "unknown",
            sub=sub,
            time=self.now(),
            api_version=kind.api_version,
        )
        objects[key] = new
        if old is None:
            self._order.pop(kind, None)
        for listener in self.listeners:
            listener(kind, old, new)
        return new

    def drop(self, kind: Kind, old: Tree) -> None:
        """Remove it for good."""
        metadata = old["metadata"]
        self._objects[kind].pop((metadata.get("namespace", ""), metadata["name"]), None)
        self._order.pop(kind, None)
        self.revision += 1
        for listener in self.listeners:
            listener(kind, old, None)


_stamps: dict[int, str] = {}


def stamp(seconds: float) -> str:
    """``2026-11-20T08:00:00Z``."""
    whole = int(seconds)
    found = _stamps.get(whole)
    if found is None:
        found = _stamps[whole] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(whole))
    return found


_OWNED = ("labels", "annotations")


def managed(
    old: Tree | None, new: Tree, *, manager: str, sub: str, time: str, api_version: str
) -> list[Tree]:
    """The managedFields of ``new``: who wrote each label and annotation last, and no other fields."""
    before = {} if old is None else old["metadata"]
    there = {(part, key) for part in _OWNED for key in new["metadata"].get(part) or {}}
    changed = {
        (part, key)
        for part, key in there
        if (before.get(part) or {}).get(key) != new["metadata"][part][key]
    }
    writer = (manager, sub)
    entries = {
        (entry["manager"], entry.get("subresource", "")): entry
        for entry in before.get("managedFields") or []
    }
    found = []
    for who in entries if writer in entries else [*entries, writer]:
        was = _fields(entries.get(who, {}))
        now = there & (was | changed if who == writer else was - changed)
        if who in entries and now == was:
            found.append(entries[who])
        elif now:
            entry = {
                "manager": who[0],
                "operation": "Update",
                "apiVersion": api_version,
                "time": time,
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": _tree(now)},
            }
            found.append(entry | ({"subresource": who[1]} if who[1] else {}))
    return found


def _fields(entry: Tree) -> set[tuple[str, str]]:
    owned = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
    return {
        (part, key)
        for part in _OWNED
        for key in (name.removeprefix("f:") for name in owned.get(f"f:{part}") or {})
    }


def _tree(fields: set[tuple[str, str]]) -> Tree:
    found: Tree = {}
    for part, key in sorted(fields):
        found.setdefault(f"f:{part}", {})[f"f:{key}"] = {}
    return found


_TYPE = ("kind", "apiVersion")


def selected(store: Store, kind: Kind, namespace: str, query: dict[str, str]) -> Tree:
    """The list that a query asks for. Raises ApiError."""
    items = list(store.all(kind, namespace))
    if selector := query.get("labelSelector"):
        items = list(filter(by_labels(selector), items))
    if selector := query.get("fieldSelector"):
        items = list(filter(by_fields(kind, selector), items))
    return page(kind, items, query, str(store.revision), typed=kind.custom)


def page(
    kind: Kind, items: list[Tree], query: dict[str, str], version: str, *, typed: bool = True
) -> Tree:
    """The part of a list that ``limit`` and ``continue`` ask for. ``typed``: items keep their kind."""
    metadata: Tree = {"resourceVersion": version}
    if limit := int(query.get("limit") or 0):
        start = _start(query.get("continue"))
        left = len(items) - start - limit
        items = items[start : start + limit]
        if left > 0:
            metadata |= {"continue": _token(start + limit), "remainingItemCount": left}
    if not typed:
        items = [{key: item[key] for key in item if key not in _TYPE} for item in items]
    return {
        "kind": f"{kind.name}List",
        "apiVersion": kind.api_version,
        "metadata": metadata,
        "items": items,
    }


def _token(start: int) -> str:
    return base64.b64encode(json.dumps({"v": "meta.k8s.io/v1", "start": start}).encode()).decode()


def _start(token: str | None) -> int:
    """Raises ApiError for a token that is none of ours."""
    if not token:
        return 0
    try:
        return int(json.loads(base64.b64decode(token))["start"])
    except (ValueError, KeyError, TypeError):
        raise ApiError(400, f"continue key is not valid: {token}") from None
