"""Objects as the API server treats them: create, read, list, update, patch and delete.

Promises: resourceVersion and uid are honoured as measured; a dry run does everything but keep; what
is special about a kind is in modules of their own. Called by ``fake_cluster``.
"""

from __future__ import annotations

from collections.abc import Callable

import fake_claims
import fake_groups
import fake_pods
import fake_priorities
from fake_admission import Admission, Review
from fake_asking import Asking
from fake_deleting import Deleting
from fake_kinds import LEASE, NAMESPACE, NODE, POD, POD_GROUP, Kind, Place
from fake_lists import selected
from fake_meta import changed_metadata_faults, metadata_faults, name_faults
from fake_patching import STRATEGIC, patched, unknown_patch
from fake_statuses import ApiError, FieldError, conflict, exists, invalid, missing, wrong
from fake_store import Store
from fake_trees import Json, Tree
from fake_unknown import refuse_unknown

_CONDITIONAL = {"Lease", "PodDisruptionBudget", "ValidatingAdmissionPolicy"}
"""Kinds whose PUT needs a resourceVersion."""

_COUNTED = {
    "Pod",
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "PodDisruptionBudget",
}
"""Kinds with metadata.generation; custom resources have it too."""


class Objects(Deleting):
    """``allowed(asking, verb, kind, namespace, name, sub)``: the authorizer, for checks inside."""

    def __init__(self, store: Store, admission: Admission, *, groups: bool) -> None:
        self.store = store
        self.admission = admission
        self.groups = groups
        self.allowed: Callable[..., bool] = lambda *_, **__: True

    # ---- reading

    def get(self, kind: Kind, namespace: str, name: str) -> Tree:
        found = self.store.get(kind, namespace, name)
        if found is None:
            raise missing(kind, name)
        return found

    def listed(self, kind: Kind, namespace: str, query: dict[str, str]) -> Tree:
        return selected(self.store, kind, namespace, query)

    # ---- writing

    def create(self, place: Place, body: Json, asking: Asking) -> Tree:
        kind, body = place.kind, self._understood(place, body, asking)
        metadata = dict(body.get("metadata") or {})
        namespace = self.namespace(place, metadata)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{self.store.revision:05x}"
        name = metadata.get("name") or ""
        if not name:
            said = "Required value: name or generateName is required"
            raise invalid(kind, "", [FieldError("metadata.name", "FieldValueRequired", said)])
        if self.store.get(kind, namespace, name) is not None:
            raise exists(kind, name)
        now = self.store.now()
        for gone in ("resourceVersion", "deletionTimestamp", "managedFields", "selfLink"):
            metadata.pop(gone, None)
        metadata |= {"uid": self.store.uid(), "creationTimestamp": now}
        if namespace:
            metadata["namespace"] = namespace
        if kind.name in _COUNTED or kind.custom:
            metadata["generation"] = 1
        new = body | {"metadata": metadata}
        if "status" in kind.subs and kind != NODE:
            new.pop("status", None)
        new, faults = self._created(kind, new, now)
        label = kind == NAMESPACE
        faults = [*name_faults(name, label=label), *metadata_faults(metadata), *faults]
        if faults:
            raise invalid(kind, name, faults)
        self.admit("CREATE", place, name, namespace, None, new, asking)
        if asking.dry_run:
            return {"kind": kind.name, "apiVersion": kind.api_version} | new
        return self.store.keep(kind, new, manager=asking.manager)

    def update(self, place: Place, body: Json, asking: Asking) -> Tree:
        kind, name = place.kind, place.name
        body = self._understood(place, body, asking)
        metadata = body.get("metadata") or {}
        self.namespace(place, metadata)
        if metadata.get("name", name) != name:
            said = f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            raise ApiError(400, said)
        old = self.store.get(kind, place.namespace, name)
        version = metadata.get("resourceVersion") or ""
        if old is None:
            if kind == LEASE:
                return self.create(place, body, asking)
            raise missing(kind, name)
        if kind.name in _CONDITIONAL and version in ("", "0"):
            fault = wrong("metadata.resourceVersion", "0", "must be specified for an update")
            raise invalid(kind, name, [fault], said=kind.resource) from None
        if version and version != old["metadata"]["resourceVersion"]:
            raise conflict(kind, name)
        if metadata.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise precondition(kind, old, "UID", metadata["uid"], dry_run=asking.dry_run)
        filled = {
            key: old["metadata"][key]
            for key in ("uid", "creationTimestamp", "name", "namespace", "generation")
            if key in old["metadata"]
        }
        new = body | {"metadata": dict(metadata) | filled}
        return self.replaced(place, old, new, asking)

    def patch(self, place: Place, body: Json, content_type: str, asking: Asking) -> Tree:
        kind, name = place.kind, place.name
        old = self.get(kind, place.namespace, name)
        if kind.custom and content_type == STRATEGIC:
            raise unknown_patch(content_type)
        new = patched(_bare(old), body, content_type)
        if asking.strict:
            refuse_unknown(kind, new, patch=body)
        if new.get("metadata", {}).get("resourceVersion", "") not in (
            "",
            old["metadata"]["resourceVersion"],
        ):
            raise conflict(kind, name)
        return self.replaced(place, old, new, asking)

    def replaced(self, place: Place, old: Tree, new: Tree, asking: Asking) -> Tree:
        """Put ``new`` in the place of ``old``, as far as the (sub)resource lets it."""
        kind, sub = place.kind, place.sub
        if "status" in kind.subs:
            part = "spec" if sub == "status" else "status"
            new = {key: value for key, value in new.items() if key != part}
            if part in old:
                new[part] = old[part]
            if sub == "status" and kind != POD:
                kept = {k: v for k, v in old["metadata"].items() if k != "managedFields"}
                new["metadata"] = kept
        metadata = {
            key: value
            for key, value in (new.get("metadata") or {}).items()
            if value not in ({}, [])
        }
        for key in (
            "resourceVersion",
            "generation",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "creationTimestamp",
        ):
            _as_before(metadata, old["metadata"], key)
        metadata.pop("managedFields", None)
        new = _tidied(kind, new | {"metadata": metadata})
        faults = [*changed_metadata_faults(old["metadata"], metadata), *metadata_faults(metadata)]
        faults += self._updated(place, old, new, asking)
        if faults:
            raise invalid(kind, place.name, faults)
        self.admit("UPDATE", place, place.name, place.namespace, old, new, asking)
        if new == _bare(old):
            return old
        if "generation" in metadata and new.get("spec") != old.get("spec"):
            metadata["generation"] += 1
        if asking.dry_run:
            return new
        return self.kept(kind, old, new, manager=asking.manager, sub=sub)

    def namespace(self, place: Place, metadata: Tree) -> str:
        """The namespace of the URL. Raises ApiError where it is another one, or there is none."""
        if not place.kind.namespaced:
            return ""
        if metadata.get("namespace", place.namespace) != place.namespace:
            said = "the namespace of the provided object does not match the namespace sent on the request"
            raise ApiError(400, said)
        if self.store.get(NAMESPACE, "", place.namespace) is None:
            raise missing(NAMESPACE, place.namespace)
        return place.namespace

    def admit(
        self,
        operation: str,
        place: Place,
        name: str,
        namespace: str,
        old: Tree | None,
        new: Tree | None,
        asking: Asking,
        options: Tree | None = None,
    ) -> None:
        """Ask the admission policies. Raises ApiError where one refuses."""
        if self.admission.policies:
            self.admission.admit(
                Review(
                    operation=operation,
                    kind=place.kind,
                    sub=place.sub,
                    namespace=namespace,
                    name=name,
                    old=old,
                    new=new,
                    user=asking.user or "system:admin",
                    groups=asking.groups,
                    dry_run=asking.dry_run,
                    options=options or {},
                )
            )

    def _understood(self, place: Place, body: Json, asking: Asking) -> Tree:
        """The body, if it is of the kind. Raises ApiError."""
        kind = place.kind
        if not isinstance(body, dict):
            raise ApiError(
                400, f"the object provided is unrecognized (must be of type {kind.name})"
            )
        name, version = body.get("kind", kind.name), body.get("apiVersion", kind.api_version)
        if name != kind.name or version != kind.api_version:
            said = (
                f"the API version in the data ({version}) does not match the expected API version"
                f" ({kind.api_version})"
                if version != kind.api_version
                else f'{name} in version "{version}" cannot be handled as a {kind.name}:'
                f" no kind {name!r} is registered for the internal version"
            )
            raise ApiError(400, said)
        if asking.strict:
            refuse_unknown(kind, body)
        return body

    def _created(self, kind: Kind, new: Tree, now: str) -> tuple[Tree, list[Json]]:
        if kind == POD:
            new = fake_priorities.resolved(self.store, new)
            new = fake_pods.defaulted(new, groups=self.groups, time=now)
            return new, fake_pods.created_faults(new)
        if kind == NAMESPACE:
            return _namespace(new), []
        if kind == NODE:
            return {"spec": {}, "status": {}} | new, []
        if kind == POD_GROUP:
            return fake_groups.defaulted(new), fake_groups.created_faults(new)
        return new, []

    def _updated(self, place: Place, old: Tree, new: Tree, asking: Asking) -> list[Json]:
        kind = place.kind
        if kind == POD and place.sub != "status":
            return fake_pods.updated_faults(old, new)
        if kind == POD_GROUP:
            return fake_groups.updated_faults(old, new)
        if kind.name == "ResourceClaim":
            return fake_claims.updated_faults(old, new, place, asking, self.allowed)
        return []


def precondition(kind: Kind, old: Tree, what: str, wanted: str, *, dry_run: bool) -> ApiError:
    """409 for a uid or resourceVersion that is not the object's. ``what``: UID or ResourceVersion."""
    metadata = old["metadata"]
    root = "" if dry_run else "/registry"
    key = "/".join(
        part for part in (kind.plural, metadata.get("namespace"), metadata["name"]) if part
    )
    found = metadata["uid" if what == "UID" else "resourceVersion"]
    why = (
        f"StorageError: invalid object, Code: 4, Key: {root}/{key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: {what} in precondition: {wanted}, "
        f"{what} in object meta: {found}"
    )
    return conflict(kind, metadata["name"], why)


def _bare(tree: Tree) -> Tree:
    """Without managedFields, which patches do not touch."""
    metadata = {key: value for key, value in tree["metadata"].items() if key != "managedFields"}
    return tree | {"metadata": metadata}


def _as_before(metadata: Tree, old: Tree, key: str) -> None:
    if key in old:
        metadata[key] = old[key]
    else:
        metadata.pop(key, None)


def _tidied(kind: Kind, new: Tree) -> Tree:
    """Without empty fields, as they are stored."""
    if kind != POD:
        return new
    spec = new.get("spec") or {}
    empty = [
        key
        for key in ("schedulingGates", "nodeSelector", "tolerations")
        if key in spec and not spec[key]
    ]
    if empty:
        new = new | {"spec": {key: value for key, value in spec.items() if key not in empty}}
    return new


def _namespace(new: Tree) -> Tree:
    """A namespace with what the server fills in."""
    metadata = new["metadata"]
    labels = metadata.get("labels") or {}
    metadata["labels"] = labels | {"kubernetes.io/metadata.name": metadata["name"]}
    return new | {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
