"""JSON, merge and strategic merge patches, applied to a copy."""

from __future__ import annotations

from apiserver_errors import ApiError, rejected_patch
from apiserver_kinds import Json

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

_MERGE_KEYS = {
    ("spec", "containers"): "name",
    ("spec", "initContainers"): "name",
    ("spec", "ephemeralContainers"): "name",
    ("spec", "schedulingGates"): "name",
    ("spec", "volumes"): "name",
    ("spec", "imagePullSecrets"): "name",
    ("spec", "resourceClaims"): "name",
    ("spec", "topologySpreadConstraints"): "topologyKey",
    ("spec", "hostAliases"): "ip",
    ("status", "conditions"): "type",
    ("status", "addresses"): "type",
    ("status", "reservedFor"): "uid",
    ("status", "resourceClaimStatuses"): "name",
    ("metadata", "ownerReferences"): "uid",
    ("env",): "name",
    ("ports",): "containerPort",
    ("volumeMounts",): "mountPath",
}
_PRIMITIVE = {("metadata", "finalizers")}


def patched(old: Json, patch: Json, content_type: str) -> Json:
    """Raises ApiError: 422 for a JSON patch that fails, 415 for another kind of patch."""
    match content_type.partition(";")[0]:
        case "application/json-patch+json":
            return _by_operations(old, patch)
        case "application/merge-patch+json":
            return _merged(old, patch)
        case "application/strategic-merge-patch+json":
            return _strategic(old, patch, ())
        case other:
            raise unknown_patch(other)


def unknown_patch(content_type: str) -> ApiError:
    """415; custom resources know no strategic merge."""
    said = (
        "the body of the request was in an unknown format - accepted media types include: "
        f"{JSON_PATCH}, {MERGE} (it was {content_type})"
    )
    return ApiError(415, said)


def _merged(old: Json, patch: Json) -> Json:
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = _merged(new.get(key), value)
    return new


def _strategic(old: Json, patch: Json, path: tuple[str, ...]) -> Json:
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    new = dict(old) if isinstance(old, dict) and directive != "replace" else {}
    for key, value in patch.items():
        if key.startswith("$"):
            _removed_primitives(new, key, value)
            continue
        inner = (*path, key)
        if value is None:
            new.pop(key, None)
        elif isinstance(value, list):
            found = _strategic_list(new.get(key), value, inner)
            if found or not any(isinstance(one, dict) and "$patch" in one for one in value):
                new[key] = found
            else:
                new.pop(key, None)
        else:
            new[key] = _strategic(new.get(key), value, inner)
    return new


def _removed_primitives(new: dict[str, Json], key: str, gone: Json) -> None:
    """``$deleteFromPrimitiveList/finalizers: [...]``."""
    name = key.removeprefix("$deleteFromPrimitiveList/")
    if name != key and isinstance(new.get(name), list):
        new[name] = [value for value in new[name] if value not in gone]


def _strategic_list(old: Json, patch: list[Json], path: tuple[str, ...]) -> list[Json]:
    key = _MERGE_KEYS.get(path) or _MERGE_KEYS.get(path[-1:])
    if path in _PRIMITIVE:
        return [*(old or []), *(value for value in patch if value not in (old or []))]
    if key is None:
        return [value for value in patch if not (isinstance(value, dict) and "$patch" in value)]
    if any(one.get("$patch") == "replace" for one in patch):
        return [one for one in patch if "$patch" not in one]
    found = list(old or [])
    for one in patch:
        at = next((i for i, item in enumerate(found) if item.get(key) == one.get(key)), None)
        if one.get("$patch") == "delete":
            if at is not None:
                del found[at]
        elif at is None:
            found.append(_strategic({}, one, path))
        else:
            found[at] = _strategic(found[at], one, path)
    return found


def _by_operations(old: Json, operations: Json) -> Json:
    new = _copied(old)
    try:
        for one in operations:
            new = _operated(new, one)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise rejected_patch() from None
    return new


def _operated(tree: Json, one: dict[str, Json]) -> Json:
    """Raises whatever a path that leads nowhere raises."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in one["path"].split("/")[1:]]
    holder = tree
    for part in parts[:-1]:
        holder = holder[int(part)] if isinstance(holder, list) else holder[part]
    last: Json = parts[-1]
    if isinstance(holder, list) and last != "-":
        last = int(last)
    match one["op"]:
        case "test":
            if holder[last] != one["value"]:
                raise ValueError(last)
        case "remove":
            del holder[last]
        case "replace":
            del holder[last]  # it must be there
            _added(holder, last, one["value"])
        case "add":
            _added(holder, last, one["value"])
        case other:  # also move and copy, which no client here sends
            raise ValueError(other)
    return tree


def _added(holder: Json, last: Json, value: Json) -> None:
    if not isinstance(holder, list):
        holder[last] = value
        return
    if last != "-" and last > len(holder):
        raise IndexError(last)
    holder.insert(len(holder) if last == "-" else last, value)


def _copied(tree: Json) -> Json:
    if isinstance(tree, dict):
        return {key: _copied(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_copied(value) for value in tree]
    return tree
