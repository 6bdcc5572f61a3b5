"""Objects as the API server treats them: create, read, list, update, patch and delete.

Promises: resourceVersion and uid are honoured as measured; a dry run does everything but keep; what
is special about a kind is in modules of their own. Called by ``fake_cluster``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field

import fake_claims
import fake_groups
import fake_pods
from fake_admission import Admission, Review
from fake_kinds import LEASE, NAMESPACE, POD, POD_GROUP, Kind, Place
from fake_meta import changed_metadata_faults, metadata_faults, name_faults
from fake_patching import patched
from fake_selecting import by_fields, by_labels
from fake_statuses import ApiError, conflict, details, exists, invalid, missing, wrong
from fake_store import Store
from fake_trees import Json, Tree
from fake_unknown import refuse_unknown

_TYPE = ("kind", "apiVersion")

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


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks, and how. ``user`` None: everything is allowed. ``manager``: field manager."""

    user: str | None = None
    groups: tuple[str, ...] = ()
    manager: str = "unknown"
    dry_run: bool = False
    strict: bool = False
    query: dict[str, str] = field(default_factory=dict)


class Objects:
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

    def list(self, kind: Kind, namespace: str, query: dict[str, str]) -> Tree:
        items = list(self.store.all(kind, namespace))
        if selector := query.get("labelSelector"):
            items = list(filter(by_labels(selector), items))
        if selector := query.get("fieldSelector"):
            items = list(filter(by_fields(kind, selector), items))
        metadata: Tree = {"resourceVersion": str(self.store.revision)}
        if limit := int(query.get("limit") or 0):
            start = _start(query.get("continue"))
            left = len(items) - start - limit
            items = items[start : start + limit]
            if left > 0:
                metadata |= {"continue": _token(start + limit), "remainingItemCount": left}
        if not kind.custom:  # items of built-in kinds do not say what they are
            items = [{key: item[key] for key in item if key not in _TYPE} for item in items]
        return {
            "kind": f"{kind.name}List",
            "apiVersion": kind.api_version,
            "metadata": metadata,
            "items": items,
        }

    # ---- writing

    def create(self, place: Place, body: Json, asking: Asking) -> Tree:
        kind, body = place.kind, self._understood(place, body, asking)
        metadata = dict(body.get("metadata") or {})
        namespace = self.namespace(place, metadata)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{self.store.revision:05x}"
        name = metadata.get("name") or ""
        if not name:
            fault = "name or generateName is required"
            said = wrong("metadata.name", '""', fault)
            raise invalid(
                kind,
                "",
                [type(said)("metadata.name", "FieldValueRequired", f"Required value: {fault}")],
            )
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
        if "status" in kind.subs:
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
            part, other = ("spec", "status") if sub == "status" else ("status", "spec")
            new = {key: value for key, value in new.items() if key != part}
            if part in old:
                new[part] = old[part]
            if sub == "status" and kind != POD:
                kept = {k: v for k, v in old["metadata"].items() if k != "managedFields"}
                new["metadata"] = kept
            _ = other
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
        wanted = options.get("preconditions") or {}
        for key, label, what in (
            ("uid", "UID", "deleted and then recreated"),
            ("resourceVersion", "ResourceVersion", "modified"),
        ):
            if wanted.get(key) not in (None, old["metadata"][key]):
                why = (
                    f"the {label} in the precondition ({wanted[key]}) does not match the {label} in "
                    f"record ({old['metadata'][key]}). The object might have been {what}"
                )
                said = f'Operation cannot be fulfilled on {kind.group_kind} "{name}": {why}'
                raise ApiError(409, said, details=details(kind, name, singular=True))
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
            new = fake_pods.defaulted(new, groups=self.groups, time=now)
            return new, fake_pods.created_faults(new)
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
