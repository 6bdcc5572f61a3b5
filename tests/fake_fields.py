"""managedFields: which field manager wrote which fields of an object.

Promises: a field belongs to the manager that changed it last; one entry per manager, operation and
subresource, with paths in the FieldsV1 form. Called by ``fake_store`` at every write.
"""

from __future__ import annotations

import json

from fake_trees import Json, Tree

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
        left = _without(_without(entry["fieldsV1"], changed), gone)
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
