"""Trees to Kubernetes objects. A tree that looks like an object becomes one, or a remark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from models.units import shown
from planner.read.findings import Remarks
from planner.read.kube.dialect_registry import names
from planner.read.kube.lookup import Tree, items, mapping, objects, text, texts, time_of
from planner.read.kube.object_bounds import ObjectReducer
from planner.read.kube.pods.constraints import AffinityStore
from planner.read.kube.pods.placement import FINISHED
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


PAST_BOUNDS = "more than one object may have; what is past the bound is left out"


class Gatherer(Struct):
    """Collects the objects of one input. A pod without a name counts, for it may hold GPUs.

    ``reducer``: what is kept of each; None: all. Finished pods that belong to nothing are dropped.
    ``made``: objects by the identity of their trees, which are kept for that: a tree is read once.
    """

    remarks: Remarks
    reducer: ObjectReducer | None = None
    made: dict[int, tuple[Tree, KubeObject]] | None = None
    objects: Objects = msgspec.field(default_factory=Objects)
    unnamed: int = 0
    affinities: AffinityStore = msgspec.field(default_factory=AffinityStore)

    def add(
        self, tree: Tree, where: str, oddities: Sequence[str] = (), *, listed: bool = False
    ) -> None:
        """Keep an object or the items of a typed list.

        ``where``: the file it comes from. ``oddities``: what is wrong with its text, in words.
        ``listed``: the items of the list came one by one, before it.
        """
        inside = typed_list(tree)
        if inside is None:
            self._one(tree, str(tree["kind"]), str(tree["apiVersion"]), where, oddities)
            return
        self.objects.lists.add(str(tree["kind"]).removesuffix("List"))
        if text(tree, "metadata", "continue"):
            what = "one page of a longer list; pods on other pages are not counted"
            hint = "record all of it: gangplan snapshot"
            self.remarks.add(f"{tree['kind']} in {where}", what, hint)
        for number, item in enumerate(() if listed else inside):
            self.add_item(item, tree, number, where)

    def add_item(
        self,
        item: object,
        listing: Tree,
        number: int | str,
        where: str,
        oddities: Sequence[str] = (),
    ) -> None:
        """Keep an item of a typed list."""
        kind, version = str(listing["kind"]), str(listing["apiVersion"])
        if isinstance(item, dict):
            self._one(item, kind.removesuffix("List"), version, where, oddities)
        else:
            self.remarks.add(
                f"item {number} of the {kind} in {where}", "not an object that can be read; ignored"
            )

    def add_json(self, written: bytes, kind: str, version: str, where: str) -> bool:
        """Keep an object in JSON; False, and nothing is kept, if it has to be read field by field."""
        assert self.reducer is not None
        tree = self.reducer.decode(written, version.rpartition("/")[0], kind)
        own = kind, version
        if tree is None or (tree.get("kind", kind), tree.get("apiVersion", version)) != own:
            return False
        self.add_reduced(tree, kind, version, where)
        return True

    def _one(
        self, tree: Tree, kind: str, version: str, where: str, oddities: Sequence[str]
    ) -> None:
        own_kind, own_version = text(tree, "kind") or kind, text(tree, "apiVersion") or version
        lost: Sequence[str] = ()
        if self.reducer is not None:
            group = own_version.rpartition("/")[0]
            tree = self.reducer.reduce(tree, group, own_kind)
            lost = tuple(self.reducer.lost)
        self.add_reduced(tree, own_kind, own_version, where, oddities, lost)

    def add_reduced(
        self,
        tree: Tree,
        own_kind: str,
        own_version: str,
        where: str,
        oddities: Sequence[str] = (),
        lost: Sequence[str] = (),
    ) -> None:
        """Keep what an object was reduced to. ``lost``: its fields that passed a bound."""
        if self.made is not None and id(tree) in self.made:
            self._add(self.made[id(tree)][1], oddities, lost)
            return
        before, metadata = tree, mapping(tree, "metadata")
        if text(metadata, "name") is None:
            if own_kind != "Pod":
                self.remarks.add(f"a {own_kind} in {where}", "has no name; ignored")
                return
            self.unnamed += 1
            name = f"unnamed-{self.unnamed}"
            self.remarks.add(f"Pod {name} in {where}", "has no name; this one is used")
            before = tree = {**tree, "metadata": {**metadata, "name": name}}
        if self.reducer is not None and own_kind == "Pod" and belongs_to_nothing(tree):
            return
        if own_kind == "Pod" and "affinity" in mapping(tree, "spec"):
            namespace = text(metadata, "namespace") or ""
            kept = self.affinities.keep(mapping(tree, "spec", "affinity"), namespace)
            tree = {**tree, "spec": {**tree["spec"], "affinity": kept}}
        created = self._created(tree, own_kind)
        found = kube_object(tree, own_kind, own_version, created)
        if found is None:
            return
        if self.made is not None and created is not None:
            self.made[id(before)] = before, found
        self._add(found, oddities, lost)

    def _add(self, found: KubeObject, oddities: Sequence[str], lost: Sequence[str]) -> None:
        if not self.objects.add(found):
            self.remarks.add(found.subject, "appears twice in the input; the first one counts")
            return
        for what in oddities:
            self.remarks.add(found.subject, what)
        if lost:
            self.remarks.add(found.subject, f"{', '.join(lost)}: {PAST_BOUNDS}")

    def _created(self, tree: Tree, kind: str) -> int | None:
        written = text(tree, "metadata", "creationTimestamp")
        created = time_of(written)
        if written is not None and created is None:
            what = f"creationTimestamp {shown(written)} is not a time; ignored"
            self.remarks.add(f"{kind} {text(tree, 'metadata', 'name')}", what)
        return created


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
        labels=_texts(metadata, "labels"),
        annotations=_texts(metadata, "annotations"),
        created=created,
        owner=_owner(objects(metadata, "ownerReferences")),
    )


def _texts(metadata: object, name: str) -> dict[str, str]:
    """The text values; the same object if there are no others, which saves memory."""
    found = mapping(metadata, name)
    return found if {str}.issuperset(map(type, found.values())) else texts(metadata, name)


def belongs_to_nothing(pod: Tree) -> bool:
    """Whether a pod has finished and no controller or group has it: nobody misses it."""
    if text(pod, "status", "phase") not in FINISHED or items(pod, "metadata", "ownerReferences"):
        return False
    found = kube_object(pod, "Pod", "v1", None)
    if found is None:
        return True
    return names(Objects()).of(found) == ((), None)


def _owner(references: Iterable[Tree]) -> Owner | None:
    found = None
    for reference in references:
        kind, name, uid = (text(reference, field_) for field_ in ("kind", "name", "uid"))
        if kind is None or name is None:
            continue
        group = (text(reference, "apiVersion") or "").rpartition("/")[0]
        controls = reference.get("controller") is True
        owner = Owner(kind, name, uid or "", group, controls)
        if controls:
            return owner
        found = found or owner
    return found
