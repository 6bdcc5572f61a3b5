"""Trees to Kubernetes objects: what is one, what of it is read, and what is left aside.

Promises: a tree that looks like an object becomes one or a remark; a pod without a name still
counts, for it may hold GPUs. Called by ``planner.reading.dialects``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from models.documents.base import API_VERSION
from models.quantities import Refused, epoch_seconds, shown
from planner.reading.kubernetes.forms import Objects, kube_object
from planner.reading.kubernetes.looking import Tree, items, mapping, text
from planner.reading.remarks import Remarks

OWN_GROUP = API_VERSION.partition("/")[0]

COMPACT_KINDS = frozenset({"Cluster", "Gang", "Policy", "Plan"})
"""Kinds of ours: read as Kubernetes objects only if their group says so beyond doubt."""


def is_object(tree: Tree) -> bool:
    """Whether a document is a Kubernetes object, or a typed list of them, and no document of ours."""
    kind, version = tree.get("kind"), tree.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str) or not kind or not version:
        return False
    group = version.rpartition("/")[0]
    if group == OWN_GROUP:
        return False
    return kind not in COMPACT_KINDS or group.endswith(".k8s.io")


def is_of_ours(tree: Tree) -> bool:
    """Whether a document says, by its group or its kind, that it is one of ours."""
    group = (text(tree, "apiVersion") or "").rpartition("/")[0]
    return group == OWN_GROUP or text(tree, "kind") in COMPACT_KINDS


def guessed(tree: Tree) -> Tree | None:
    """A Pod or a Node that does not say so, by what it holds; None for anything else."""
    if is_object(tree) or is_of_ours(tree):
        return None
    kind = text(tree, "kind")
    if kind not in ("Pod", "Node"):
        if kind is not None:
            return None
        if items(tree, "spec", "containers"):
            kind = "Pod"
        elif mapping(tree, "status", "allocatable") or mapping(tree, "status", "capacity"):
            kind = "Node"
        else:
            return None
    return {**tree, "kind": kind, "apiVersion": "v1"}


def subject_of(tree: Tree) -> str:
    """How messages name a document that may be no object."""
    kind, namespace = text(tree, "kind") or "object", text(tree, "metadata", "namespace")
    name = text(tree, "metadata", "name") or "without a name"
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def typed_list(tree: Tree) -> list[object] | None:
    """The items of a list such as PodList; None for anything else."""
    kind = tree.get("kind")
    if not isinstance(kind, str) or not kind.endswith("List") or kind == "List":
        return None
    found = tree.get("items")
    if isinstance(found, list):
        return found
    return [] if "items" in tree else None


@dataclass(slots=True)
class Gatherer:
    """Collects the objects of one input."""

    remarks: Remarks
    objects: Objects = field(default_factory=Objects)
    unnamed: int = 0

    def add(self, tree: Tree, where: str) -> None:
        """Keep a document for which ``is_object`` holds; ``where`` is the file it stands in."""
        kind, version = str(tree["kind"]), str(tree["apiVersion"])
        inside = typed_list(tree)
        if inside is None:
            self._one(tree, kind, version, where)
            return
        for number, item in enumerate(inside):
            if isinstance(item, dict):
                self._one(item, kind.removesuffix("List"), version, where)
            else:
                self.remarks.add(
                    f"item {number} of the {kind} in {where}", "no object; it is left out"
                )

    def _one(self, tree: Tree, kind: str, version: str, where: str) -> None:
        own_kind, own_version = text(tree, "kind") or kind, text(tree, "apiVersion") or version
        metadata = mapping(tree, "metadata")
        if text(metadata, "name") is None:
            if own_kind != "Pod":
                self.remarks.add(f"a {own_kind} in {where}", "without a name; it is left out")
                return
            self.unnamed += 1
            name = f"unnamed-{self.unnamed}"
            self.remarks.add(f"Pod {name} in {where}", "without a name; it counts under this one")
            tree = {**tree, "metadata": {**metadata, "name": name}}
        created = self._created(tree, own_kind)
        found = kube_object(tree, own_kind, own_version, created)
        if found is not None and not self.objects.add(found):
            self.remarks.add(found.subject, "stands in the input twice; the first one counts")

    def _created(self, tree: Tree, kind: str) -> int | None:
        written = text(tree, "metadata", "creationTimestamp")
        if written is None:
            return None
        try:
            return epoch_seconds(written)
        except Refused:
            name = text(tree, "metadata", "name")
            what = f"creationTimestamp {shown(written)} is no time; it is ignored"
            self.remarks.add(f"{kind} {name}", what)
            return None
