"""The stored objects with resourceVersion and managedFields; lists in pages, and watches.

Stored trees are never changed in place. uids and versions depend on nothing but the order of writes.
"""

from __future__ import annotations

import base64
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Condition, RLock
from time import monotonic

from apiserver_errors import ApiError
from apiserver_kinds import Json, Kind, Kinds, Place, Tree
from apiserver_selectors import by_fields, by_labels

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


_SERVERS = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "generateName",
    }
)
_LIST_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "schedulingGates": "name",
    "volumes": "name",
    "conditions": "type",
    "ownerReferences": "uid",
    "env": "name",
    "resourceClaims": "name",
    "reservedFor": "uid",
}


def managed(
    old: Tree | None, new: Tree, *, manager: str, sub: str, time: str, api_version: str
) -> list[Tree]:
    """The managedFields of ``new``, which ``manager`` makes of ``old`` (None: it is created)."""
    before = {} if old is None else old
    changed, gone = _compared(_own(before), _own(new))
    entries: list[Tree] = []
    mine: Tree | None = None
    for entry in before.get("metadata", {}).get("managedFields", []):
        if entry["manager"] == manager and entry.get("subresource", "") == sub:
            mine = entry
            continue
        left = _without(_without(entry.get("fieldsV1") or {}, changed), gone)
        if left:
            entries.append(entry if left is entry["fieldsV1"] else entry | {"fieldsV1": left})
    fields = _without(mine["fieldsV1"], gone) if mine else {}
    fields = _joined(fields, changed)
    if fields:
        if mine is not None and fields == mine["fieldsV1"]:
            entries.append(mine)
            return entries
        entry = {
            "manager": manager,
            "operation": "Update",
            "apiVersion": api_version,
            "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }
        entries.append(entry | ({"subresource": sub} if sub else {}))
    return entries


def _own(tree: Tree) -> Tree:
    """What managers own: neither the type nor what the server fills in itself."""
    metadata = tree.get("metadata") or {}
    kept = {key: value for key, value in metadata.items() if key not in _SERVERS}
    rest = {
        key: value for key, value in tree.items() if key not in ("metadata", "apiVersion", "kind")
    }
    return {"metadata": kept} | rest if kept else rest


def _compared(old: Json, new: Json, name: str = "") -> tuple[Tree, Tree]:
    """(changed or added, removed), as FieldsV1; {} where nothing is."""
    changed: Tree = {}
    gone: Tree = {}
    for key in new.keys() - old.keys():
        changed[f"f:{key}"] = _all(new[key], key)
    for key in old.keys() - new.keys():
        gone[f"f:{key}"] = _all(old[key], key)
    for key in new.keys() & old.keys():
        before, after = old[key], new[key]
        if before is after or before == after:
            continue
        label = f"f:{key}"
        if isinstance(before, list) and isinstance(after, list) and key in _LIST_KEYS:
            before, after = _keyed(before, key), _keyed(after, key)
            label = f"f:{key}"
            inner, lost = _compared_items(before, after)
        elif isinstance(before, dict) and isinstance(after, dict):
            inner, lost = _compared(before, after)
        else:
            inner, lost = {}, {}
            changed[label] = {}
            continue
        if inner:
            changed[label] = inner
        if lost:
            gone[label] = lost
    return changed, gone


def _compared_items(old: Tree, new: Tree) -> tuple[Tree, Tree]:
    changed: Tree = {}
    gone: Tree = {}
    for key, item in new.items():
        if key not in old:
            changed[key] = _all(item, "") | {".": {}}
        elif old[key] != item:
            inner, lost = _compared(old[key], item)
            if inner:
                changed[key] = inner
            if lost:
                gone[key] = lost
    for key, item in old.items():
        if key not in new:
            gone[key] = _all(item, "") | {".": {}}
    return changed, gone


def _all(value: Json, name: str) -> Tree:
    """Every path below a value."""
    if isinstance(value, dict) and value:
        return {".": {}} | {f"f:{key}": _all(inner, key) for key, inner in value.items()}
    if isinstance(value, list) and name in _LIST_KEYS:
        keyed = _keyed(value, name)
        return {".": {}} | {key: {".": {}} | _all(item, "") for key, item in keyed.items()}
    return {}


def _keyed(items: list[Tree], name: str) -> Tree:
    by = _LIST_KEYS[name]
    return {f"k:{json.dumps({by: item.get(by)}, separators=(',', ':'))}": item for item in items}


def _without(fields: Tree, taken: Tree) -> Tree:
    """``fields`` less ``taken``; the same object where nothing is taken."""
    if not any(key in fields for key in taken):
        return fields
    left: Tree = {}
    for key, inner in fields.items():
        if key not in taken:
            left[key] = inner
        elif inner and taken[key]:
            rest = _without(inner, taken[key])
            if rest:
                left[key] = rest
    return left


def _joined(fields: Tree, added: Tree) -> Tree:
    if not added:
        return fields
    new = dict(fields)
    for key, inner in added.items():
        new[key] = _joined(new[key], inner) if key in new else inner
    return new


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
