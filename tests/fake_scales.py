"""The subresource ``scale`` of controllers.

Promises: reads and sets the number of replicas where a kind says it keeps it, with resourceVersion as
precondition. Called by ``fake_cluster``.
"""

from __future__ import annotations

from dataclasses import replace

from fake_asking import Asking
from fake_kinds import Kind, Place
from fake_objects import Objects
from fake_patching import patched
from fake_statuses import ApiError, conflict
from fake_trees import Json, Tree


def scale_of(kind: Kind, owner: Tree) -> Tree:
    """The Scale of an object."""
    metadata = {
        key: owner["metadata"][key]
        for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if key in owner["metadata"]
    }
    replicas = _at(owner, kind.replicas)
    status = {"replicas": (owner.get("status") or {}).get("replicas", replicas)}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": replicas},
        "status": status,
    }


def scaled(
    objects: Objects, place: Place, method: str, body: Json, content_type: str, asking: Asking
) -> Tree:
    """GET, PUT or PATCH of a scale. Raises ApiError."""
    kind = place.kind
    owner = objects.get(kind, place.namespace, place.name)
    old = scale_of(kind, owner)
    if method == "GET":
        return old
    new = patched(old, body, content_type) if method == "PATCH" else body
    version = (new.get("metadata") or {}).get("resourceVersion") or ""
    if version not in ("", owner["metadata"]["resourceVersion"]):
        raise conflict(kind, place.name)
    uid = (new.get("metadata") or {}).get("uid", owner["metadata"]["uid"])
    if uid != owner["metadata"]["uid"]:
        raise ApiError(
            409,
            f"uid mismatch: the provided object specified uid {uid}, and no existing object was found",
        )
    replicas = (new.get("spec") or {}).get("replicas", 0)
    if replicas < 0:
        why = f"spec.replicas: Invalid value: {replicas}: must be greater than or equal to 0"
        raise ApiError(422, f'Scale.autoscaling "{place.name}" is invalid: {why}')
    set_to = _with(owner, kind.replicas, replicas)
    metadata = {k: v for k, v in owner["metadata"].items() if k != "managedFields"}
    whole = replace(place, sub="")
    made = objects.replaced(whole, owner, set_to | {"metadata": metadata}, asking)
    return scale_of(kind, made)


def _at(tree: Tree, path: tuple[str, ...]) -> int:
    found: Json = tree
    for part in path:
        found = (found or {}).get(part)
    return found or 0


def _with(tree: Tree, path: tuple[str, ...], value: int) -> Tree:
    if len(path) == 1:
        return tree | {path[0]: value}
    return tree | {path[0]: _with(tree.get(path[0]) or {}, path[1:], value)}
