"""Trees to Kubernetes objects. A tree that looks like an object becomes one, or a remark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from models.units import InvalidValueError, epoch_seconds, shown
from planner.read.findings import Remarks
from planner.read.kube.lookup import Tree, mapping, objects, text, texts
from planner.read.kube.pods.constraints import AffinityStore
from planner.read.kube.records import KubeObject, Objects, Owner


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
    """Collects the objects of one input. A pod without a name counts, for it may hold GPUs."""

    remarks: Remarks
    objects: Objects = field(default_factory=Objects)
    unnamed: int = 0
    affinities: AffinityStore = field(default_factory=AffinityStore)

    def add(self, tree: Tree, where: str) -> None:
        """Keep an object or the items of a typed list; ``where``: the file it comes from."""
        kind, version = str(tree["kind"]), str(tree["apiVersion"])
        inside = typed_list(tree)
        if inside is None:
            self._one(tree, kind, version, where)
            return
        if text(tree, "metadata", "continue"):
            what = "one page of a longer list; pods on other pages are not counted"
            self.remarks.add(f"{kind} in {where}", what, "record all of it: gangplan snapshot")
        for number, item in enumerate(inside):
            if isinstance(item, dict):
                self._one(item, kind.removesuffix("List"), version, where)
            else:
                self.remarks.add(
                    f"item {number} of the {kind} in {where}", "not an object; ignored"
                )

    def _one(self, tree: Tree, kind: str, version: str, where: str) -> None:
        own_kind, own_version = text(tree, "kind") or kind, text(tree, "apiVersion") or version
        metadata = mapping(tree, "metadata")
        if text(metadata, "name") is None:
            if own_kind != "Pod":
                self.remarks.add(f"a {own_kind} in {where}", "has no name; ignored")
                return
            self.unnamed += 1
            name = f"unnamed-{self.unnamed}"
            self.remarks.add(f"Pod {name} in {where}", "has no name; this one is used")
            tree = {**tree, "metadata": {**metadata, "name": name}}
        if own_kind == "Pod" and "affinity" in mapping(tree, "spec"):
            namespace = text(metadata, "namespace") or ""
            kept = self.affinities.keep(mapping(tree, "spec", "affinity"), namespace)
            tree = {**tree, "spec": {**tree["spec"], "affinity": kept}}
        created = self._created(tree, own_kind)
        found = kube_object(tree, own_kind, own_version, created)
        if found is not None and not self.objects.add(found):
            self.remarks.add(found.subject, "appears twice in the input; the first one counts")

    def _created(self, tree: Tree, kind: str) -> int | None:
        written = text(tree, "metadata", "creationTimestamp")
        if written is None:
            return None
        try:
            return epoch_seconds(written)
        except InvalidValueError:
            name = text(tree, "metadata", "name")
            what = f"creationTimestamp {shown(written)} is not a time; ignored"
            self.remarks.add(f"{kind} {name}", what)
            return None


def kube_object(tree: Tree, kind: str, api_version: str, created: int | None) -> KubeObject | None:
    """The object of a tree; None without a name."""
    metadata = tree.get("metadata")
    name = text(metadata, "name")
    if name is None:
        return None
    group, _, version = api_version.rpartition("/")
    return KubeObject(
        kind=kind,
        group=group,
        version=version,
        namespace=text(metadata, "namespace") or "",
        name=name,
        uid=text(metadata, "uid"),
        tree=tree,
        labels=texts(metadata, "labels"),
        annotations=texts(metadata, "annotations"),
        created=created,
        owner=_owner(objects(metadata, "ownerReferences")),
    )


def _owner(references: Iterable[Tree]) -> Owner | None:
    """The reference marked as controller, else the first one that is whole."""
    found = None
    for reference in references:
        kind, name, uid = (text(reference, field_) for field_ in ("kind", "name", "uid"))
        if kind is None or name is None:
            continue
        group = (text(reference, "apiVersion") or "").rpartition("/")[0]
        owner = Owner(kind, name, uid or "", group)
        if reference.get("controller") is True:
            return owner
        found = found or owner
    return found
