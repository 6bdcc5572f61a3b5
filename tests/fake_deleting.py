"""Deletions: preconditions, grace periods, finalizers, and namespaces with all that is in them.

Promises: an object with finalizers, or a bound pod with a grace period, is only marked; it goes when
nothing holds it any more. Part of ``Objects`` in ``fake_objects``.
"""

from __future__ import annotations

from fake_asking import Asking
from fake_kinds import NAMESPACE, POD, Kind, Place
from fake_statuses import ApiError, details
from fake_store import Store
from fake_trees import Json, Tree


class Deleting:
    """What of ``Objects`` ends objects."""

    store: Store

    def get(self, kind: Kind, namespace: str, name: str) -> Tree:
        raise NotImplementedError

    def admit(
        self,
        operation: str,
        place: Place,
        name: str,
        namespace: str,
        old: Tree | None,
        new: Tree | None,
        asking: Asking,
    ) -> None:
        raise NotImplementedError

    def kept(self, kind: Kind, old: Tree, new: Tree, *, manager: str, sub: str = "") -> Tree:
        """Keep an update; an object that waited for its last finalizer goes."""
        metadata = new["metadata"]
        metadata["managedFields"] = old["metadata"].get("managedFields", [])
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            waits = kind == POD and metadata.get("deletionGracePeriodSeconds", 0) > 0
            if not waits:
                self.store.drop(kind, old)
                return new
        return self.store.keep(kind, new, manager=manager, sub=sub)

    def delete(self, place: Place, options: Json, asking: Asking) -> Tree:
        kind, name = place.kind, place.name
        old = self.get(kind, place.namespace, name)
        options = options or {}
        check_preconditions(kind, old, options.get("preconditions") or {})
        self.admit("DELETE", place, name, place.namespace, old, None, asking)
        grace = options.get("gracePeriodSeconds", asking.query.get("gracePeriodSeconds"))
        dry = asking.dry_run or options.get("dryRun") == ["All"]
        gone = self.removed(kind, old, None if grace is None else int(grace), dry_run=dry)
        if kind == POD or "deletionTimestamp" in gone["metadata"]:
            return gone
        told = details(kind, name) | {"uid": old["metadata"]["uid"]}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": told,
        }

    def removed(self, kind: Kind, old: Tree, grace: int | None, *, dry_run: bool = False) -> Tree:
        """Delete it, or mark it as being deleted where a finalizer or a grace period asks for that."""
        metadata = old["metadata"]
        seconds = 0
        if kind == POD:
            ended = old["status"].get("phase") in ("Succeeded", "Failed")
            own = old["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else grace
            seconds = 0 if ended or not old["spec"].get("nodeName") else own
        if dry_run:
            return old
        if kind == NAMESPACE:
            self._emptied(metadata["name"])
        if not seconds and not metadata.get("finalizers"):
            self.store.drop(kind, old)
            return old
        if (
            "deletionTimestamp" in metadata
            and metadata.get("deletionGracePeriodSeconds", 0) <= seconds
        ):
            return old
        marks = {"deletionTimestamp": self.store.now(), "deletionGracePeriodSeconds": seconds}
        return self.store.keep(kind, old | {"metadata": metadata | marks}, manager="kube-apiserver")

    def _emptied(self, namespace: str) -> None:
        """What the namespace controller does, at once."""
        for kind in self.store.kinds.all:
            if kind.namespaced:
                for tree in list(self.store.all(kind, namespace)):
                    self.store.drop(kind, tree)


def check_preconditions(kind: Kind, old: Tree, wanted: Tree) -> None:
    """Raises ApiError 409 where the uid or the resourceVersion is another."""
    for key, label, what in (
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ):
        if wanted.get(key) not in (None, old["metadata"][key]):
            name = old["metadata"]["name"]
            said = (
                f'Operation cannot be fulfilled on {kind.group_kind} "{name}": the {label} in the '
                f"precondition ({wanted[key]}) does not match the {label} in record "
                f"({old['metadata'][key]}). The object might have been {what}"
            )
            raise ApiError(409, said, details=details(kind, name, singular=True))
