"""Watches: what changed after a resourceVersion, in order, while the asker waits.

Promises: every change once; a watcher that comes late gets what it missed as far as it is kept. Called
by ``fake_http``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Condition, RLock
from time import monotonic

from fake_kinds import Kind, Place
from fake_selecting import by_fields, by_labels
from fake_store import Store
from fake_trees import Tree

_KEPT = 20_000


@dataclass(frozen=True, slots=True)
class _Change:
    revision: int
    kind: Kind
    old: Tree | None
    new: Tree | None


class Watching:
    """All changes of a store, kept for watchers. ``lock``: that of the cluster."""

    def __init__(self, store: Store, lock: RLock) -> None:
        self._store = store
        self._changes: deque[_Change] = deque(maxlen=_KEPT)
        self._arrived = Condition(lock)
        store.listeners.append(self._changed)

    def events(self, place: Place, query: dict[str, str], seconds: float) -> Iterator[Tree | None]:
        """Watch events until the time is over; None now and then, when nothing happens."""
        until = monotonic() + seconds
        passes = _filter(place, query)
        version = query.get("resourceVersion") or "0"
        with self._arrived:
            seen = int(version) if version != "0" else self._store.revision
            present = list(self._store.all(place.kind, place.namespace)) if version == "0" else []
        for tree in present:
            if passes(tree):
                yield {"type": "ADDED", "object": tree}
        while True:
            with self._arrived:
                due = [change for change in self._changes if change.revision > seen]
                if not due:
                    left = until - monotonic()
                    if left <= 0:
                        return
                    self._arrived.wait(min(left, 0.2))
                    due = [change for change in self._changes if change.revision > seen]
            if not due:
                yield None
            for change in due:
                seen = change.revision
                if (event := _event(change, place, passes)) is not None:
                    yield event

    def _changed(self, kind: Kind, old: Tree | None, new: Tree | None) -> None:
        with self._arrived:
            self._changes.append(_Change(self._store.revision, kind, old, new))
            self._arrived.notify_all()


Passes = Callable[[Tree], bool]


def _filter(place: Place, query: dict[str, str]) -> Passes:
    """Whether an object is among those that are watched."""
    tests = [
        by_labels(query.get("labelSelector") or ""),
        by_fields(place.kind, query.get("fieldSelector") or ""),
    ]
    if place.name:
        tests.append(lambda tree: tree["metadata"]["name"] == place.name)

    def passes(tree: Tree) -> bool:
        inside = not place.namespace or tree["metadata"].get("namespace") == place.namespace
        return inside and all(test(tree) for test in tests)

    return passes


def _event(change: _Change, place: Place, passes: Passes) -> Tree | None:
    """What a watcher is told of a change; None where it is not its business."""
    if change.kind != place.kind:
        return None
    was = change.old is not None and passes(change.old)
    now = change.new is not None and passes(change.new)
    if now:
        return {"type": "MODIFIED" if was else "ADDED", "object": change.new}
    if was and change.old is not None:
        last = change.new or change.old
        metadata = last["metadata"] | {"resourceVersion": str(change.revision)}
        return {"type": "DELETED", "object": last | {"metadata": metadata}}
    return None
