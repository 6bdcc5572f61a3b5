"""Marks of ours on pods: which of them a run wrote, and which anybody with a right to the pod could have.

Promises: pure; a mark that no run wrote moves nothing and holds no room. Called by ``live``, ``sending``
and ``recording``.
"""

from __future__ import annotations

from models.applying.fence import Fence
from models.applying.intents import GPUS, KEYS, MANAGER, PLAN, SEAL, Intent, read_intent
from models.quantities import Refused, epoch_seconds
from planner.cluster.wire import Tree
from planner.reading.kubernetes.looking import mapping, objects, text, texts


def is_ours(tree: Tree, intent: Intent, fence: Fence | None) -> bool:
    """Whether a run wrote the intent that this pod carries. ``fence`` None: managedFields decide."""
    metadata = mapping(tree, "metadata")
    if not written_by_us(metadata, intent):
        return False
    if fence is None:
        return True
    namespace, name, uid = (text(metadata, key) or "" for key in ("namespace", "name", "uid"))
    seal = texts(metadata, "annotations").get(SEAL, "")
    return fence.holds(namespace, name, uid, intent, seal, _created(metadata))


def believable(tree: Tree, fence: Fence | None) -> Tree:
    """The pod without marks of ours that no run wrote."""
    metadata = mapping(tree, "metadata")
    labels, notes = mapping(metadata, "labels"), mapping(metadata, "annotations")
    if PLAN not in labels and notes.keys().isdisjoint(KEYS):
        return tree
    intent = read_intent(texts(metadata, "labels"), texts(metadata, "annotations"))
    if intent is not None and is_ours(tree, intent, fence):
        return tree
    kept = {key: value for key, value in notes.items() if key not in KEYS}
    plain = {key: value for key, value in labels.items() if key != PLAN}
    return {**tree, "metadata": {**metadata, "labels": plain, "annotations": kept}}


def standing(tree: Tree, fence: Fence | None) -> Tree:
    """The same for planning, which takes a bound pod's word for its GPUs, as for every back end's."""
    found = believable(tree, fence)
    if found is tree or not text(tree, "spec", "nodeName"):
        return found
    gpus = texts(tree, "metadata", "annotations").get(GPUS)
    if gpus is not None:
        found["metadata"]["annotations"][GPUS] = gpus
    return found


def written_by_us(metadata: Tree, intent: Intent) -> bool:
    """Whether managedFields name our field manager for the label and every annotation of the intent.

    A field belongs to whoever changed it last, so an intent that somebody else touched is not ours.
    """
    labels: set[str] = set()
    annotations: set[str] = set()
    for entry in objects(metadata, "managedFields"):
        if text(entry, "manager") == MANAGER and text(entry, "subresource") is None:
            owned = mapping(entry, "fieldsV1", "f:metadata")
            labels.update(mapping(owned, "f:labels"))
            annotations.update(mapping(owned, "f:annotations"))
    return all(f"f:{key}" in annotations for key in intent.annotations()) and f"f:{PLAN}" in labels


def owned_annotations(tree: Tree) -> tuple[str, ...]:
    """Annotations of a pod that are ours to take off: those of an intent, and what else we wrote."""
    metadata = mapping(tree, "metadata")
    owned = {
        key.removeprefix("f:")
        for entry in objects(metadata, "managedFields")
        if text(entry, "manager") == MANAGER and text(entry, "subresource") is None
        for key in mapping(entry, "fieldsV1", "f:metadata", "f:annotations")
        if key.startswith("f:")
    }
    return tuple(sorted(texts(metadata, "annotations").keys() & (owned | set(KEYS))))


def _created(metadata: Tree) -> int | None:
    try:
        return epoch_seconds(text(metadata, "creationTimestamp") or "")
    except Refused:
        return None
