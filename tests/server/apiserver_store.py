"""The stored objects with resourceVersion and managedFields, and lists in pages.

Stored trees are never changed in place. uids and versions depend on nothing but the order of writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import lru_cache

from apiserver_kinds import Kind, Kinds, Tree

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


@lru_cache(maxsize=4096)
def stamp(seconds: int) -> str:
    """``2026-11-20T08:00:00Z``."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


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
        return stamp(int(self.clock()))

    def uid(self) -> str:
        self._made += 1
        return f"{self._made:08x}-0000-4000-8000-{self._made:012x}"

    def get(self, kind: Kind, namespace: str, name: str) -> Tree | None:
        return self._objects.get(kind, {}).get((namespace, name))

    def all(self, kind: Kind, namespace: str = "") -> Iterator[Tree]:
        """By namespace and name; of one namespace, or of all."""
        found = self._objects.get(kind, {})
        if kind not in self._order:
            self._order[kind] = sorted(found)
        return (found[key] for key in self._order[kind] if namespace in ("", key[0]))

    def keep(self, kind: Kind, new: Tree, *, manager: str = "", sub: str = "") -> Tree:
        """Store ``new`` under its name with the next resourceVersion. ``manager``: who wrote it."""
        key = (new["metadata"].get("namespace", ""), new["metadata"]["name"])
        objects = self._objects.setdefault(kind, {})
        old = objects.get(key)
        self.revision += 1
        metadata = new["metadata"] | {"resourceVersion": str(self.revision)}
        new = {"kind": kind.name, "apiVersion": kind.api_version} | new | {"metadata": metadata}
        metadata["managedFields"] = _managed(old, new, (manager or "unknown", sub), self.now())
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


_OWNED = ("labels", "annotations")


def _managed(old: Tree | None, new: Tree, writer: tuple[str, str], now: str) -> list[Tree]:
    """Who wrote each label and annotation last, and with what subresource; no other fields."""
    before = {} if old is None else old["metadata"]
    there = {(part, key) for part in _OWNED for key in new["metadata"].get(part) or {}}
    changed = {
        (part, key)
        for part, key in there
        if (before.get(part) or {}).get(key) != new["metadata"][part][key]
    }
    entries = {(e["manager"], e.get("subresource", "")): e for e in before.get("managedFields", ())}
    found = []
    for who in entries if writer in entries else [*entries, writer]:
        was = _fields(entries[who]) if who in entries else set()
        owns = there & (was | changed if who == writer else was - changed)
        if who in entries and owns == was:
            found.append(entries[who])
        elif owns:
            fields: Tree = {}
            for part, key in sorted(owns):
                fields.setdefault(f"f:{part}", {})[f"f:{key}"] = {}
            entry = {"manager": who[0], "operation": "Update", "apiVersion": new["apiVersion"]}
            entry |= {"time": now, "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": fields}}
            found.append(entry | ({"subresource": who[1]} if who[1] else {}))
    return found


def _fields(entry: Tree) -> set[tuple[str, str]]:
    owned = entry["fieldsV1"]["f:metadata"].items()
    return {(part[2:], key[2:]) for part, keys in owned for key in keys}


def selected(store: Store, kind: Kind, namespace: str, query: dict[str, str]) -> Tree:
    """The list that a query asks for, by fields and in pages."""
    items = list(store.all(kind, namespace))
    for test in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, value = test.partition("=")
        names, wanted = path.rstrip("!").split("."), not path.endswith("!")
        items = [item for item in items if (str(_at(item, names)) == value) is wanted]
    return page(kind, items, query, str(store.revision), typed=kind.custom)


def _at(tree: Tree, names: list[str]) -> object:
    for name in names[:-1]:
        tree = tree.get(name) or {}
    return tree.get(names[-1], "")


def page(
    kind: Kind, items: list[Tree], query: dict[str, str], version: str, *, typed: bool = True
) -> Tree:
    """The part of a list that ``limit`` and ``continue`` ask for. ``typed``: items keep their kind."""
    metadata: Tree = {"resourceVersion": version}
    if limit := int(query.get("limit") or 0):
        start = int(query.get("continue") or 0)
        left = len(items) - start - limit
        items = items[start : start + limit]
        if left > 0:
            metadata |= {"continue": str(start + limit), "remainingItemCount": left}
    if not typed:
        items = [
            {k: v for k, v in item.items() if k not in ("kind", "apiVersion")} for item in items
        ]
    api = {"kind": f"{kind.name}List", "apiVersion": kind.api_version}
    return api | {"metadata": metadata, "items": items}
