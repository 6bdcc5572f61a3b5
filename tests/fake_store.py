"""What a cluster holds: objects by kind, namespace and name, each write with a new resourceVersion.

Promises: stored trees are never changed in place; every change is told to the listeners, in order;
uids and versions depend on nothing but the order of writes. Called by ``fake_objects``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from fake_fields import managed
from fake_kinds import Kind, Kinds
from fake_trees import Tree

Key = tuple[str, str]
Listener = Callable[[Kind, Tree | None, Tree | None], None]
"""(kind, before, after): None before a creation and after a removal."""

START = 1_795_161_600.0
"""2026-11-20T08:00:00Z: where a cluster's own clock starts."""


class Clock:
    """A clock that stands still until somebody moves it."""

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
