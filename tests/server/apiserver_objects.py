"""Create, update, patch and delete: preconditions, dry run, admission policies, finalizers, as measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from apiserver_errors import (
    ApiError,
    FieldError,
    barred,
    conflict,
    details,
    exists,
    invalid,
    missing,
    wrong,
)
from apiserver_kinds import (
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    POD_GROUP,
    Json,
    Kind,
    Place,
    RequestInfo,
    Tree,
)
from apiserver_patch import STRATEGIC, patched, unknown_patch
from apiserver_pods import changed_pod_faults, default_pod, new_pod_faults, with_priority
from apiserver_store import Store, selected
from apiserver_validation import (
    changed_metadata_faults,
    metadata_faults,
    name_faults,
    refuse_unknown,
)

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


class Objects:
    """``allowed(info, verb, kind, namespace, name, sub)``: the authorizer, for checks inside."""

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

    def create(self, place: Place, body: Json, info: RequestInfo) -> Tree:
        kind, body = place.kind, self._understood(place, body, info)
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
        self.admit("CREATE", place, name, namespace, None, new, info)
        if info.dry_run:
            return {"kind": kind.name, "apiVersion": kind.api_version} | new
        return self.store.keep(kind, new, manager=info.manager)

    def update(self, place: Place, body: Json, info: RequestInfo) -> Tree:
        kind, name = place.kind, place.name
        body = self._understood(place, body, info)
        metadata = body.get("metadata") or {}
        self.namespace(place, metadata)
        if metadata.get("name", name) != name:
            said = f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            raise ApiError(400, said)
        old = self.store.get(kind, place.namespace, name)
        version = metadata.get("resourceVersion") or ""
        if old is None:
            if kind != LEASE:
                raise missing(kind, name)
            if uid := metadata.get("uid"):
                said = f"the provided object specified uid {uid}, and no existing object was found"
                raise conflict(kind, name, f"uid mismatch: {said}")
            return self.create(place, body, info)
        if kind.name in _CONDITIONAL and version in ("", "0"):
            fault = wrong("metadata.resourceVersion", "0", "must be specified for an update")
            raise invalid(kind, name, [fault], said=kind.resource) from None
        if version and version != old["metadata"]["resourceVersion"]:
            raise conflict(kind, name)
        if metadata.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise precondition(kind, old, "UID", metadata["uid"], dry_run=info.dry_run)
        filled = {
            key: old["metadata"][key]
            for key in ("uid", "creationTimestamp", "name", "namespace", "generation")
            if key in old["metadata"]
        }
        new = body | {"metadata": dict(metadata) | filled}
        return self.replaced(place, old, new, info)

    def patch(self, place: Place, body: Json, content_type: str, info: RequestInfo) -> Tree:
        kind, name = place.kind, place.name
        old = self.get(kind, place.namespace, name)
        if kind.custom and content_type == STRATEGIC:
            raise unknown_patch(content_type)
        new = patched(_bare(old), body, content_type)
        if info.strict:
            refuse_unknown(kind, new, patch=body)
        if new.get("metadata", {}).get("resourceVersion", "") not in (
            "",
            old["metadata"]["resourceVersion"],
        ):
            raise conflict(kind, name)
        return self.replaced(place, old, new, info)

    def replaced(self, place: Place, old: Tree, new: Tree, info: RequestInfo) -> Tree:
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
        faults += self._updated(place, old, new, info)
        if faults:
            raise invalid(kind, place.name, faults)
        self.admit("UPDATE", place, place.name, place.namespace, old, new, info)
        if new == _bare(old):
            return old
        if "generation" in metadata and new.get("spec") != old.get("spec"):
            metadata["generation"] += 1
        if info.dry_run:
            return new
        return self.kept(kind, old, new, manager=info.manager, sub=sub)

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

    def delete(self, place: Place, options: Json, info: RequestInfo) -> Tree:
        kind, name = place.kind, place.name
        old = self.get(kind, place.namespace, name)
        options = options or {}
        check_preconditions(kind, old, options.get("preconditions") or {})
        self.admit("DELETE", place, name, place.namespace, old, None, info)
        grace = options.get("gracePeriodSeconds", info.query.get("gracePeriodSeconds"))
        dry = info.dry_run or options.get("dryRun") == ["All"]
        gone = self.removed(kind, old, None if grace is None else int(grace), dry_run=dry)
        if kind == POD or "deletionTimestamp" in gone["metadata"]:
            return gone
        about = details(kind, name) | {"uid": old["metadata"]["uid"]}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": about,
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
        info: RequestInfo,
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
                    user=info.user or "system:admin",
                    groups=info.groups,
                    dry_run=info.dry_run,
                    options=options or {},
                )
            )

    def _understood(self, place: Place, body: Json, info: RequestInfo) -> Tree:
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
        if info.strict:
            refuse_unknown(kind, body)
        return body

    def _created(self, kind: Kind, new: Tree, now: str) -> tuple[Tree, list[Json]]:
        if kind == POD:
            new = with_priority(self.store, new)
            new = default_pod(new, groups=self.groups, time=now)
            return new, new_pod_faults(new)
        if kind == NAMESPACE:
            return _namespace(new), []
        if kind == NODE:
            return {"spec": {}, "status": {}} | new, []
        if kind == POD_GROUP:
            return default_pod_group(new), new_pod_group_faults(new)
        return new, []

    def _updated(self, place: Place, old: Tree, new: Tree, info: RequestInfo) -> list[Json]:
        kind = place.kind
        if kind == POD and place.sub != "status":
            return changed_pod_faults(old, new)
        if kind == POD_GROUP:
            return changed_pod_group_faults(old, new)
        if kind.name == "ResourceClaim":
            return changed_claim_faults(old, new, place, info, self.allowed)
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


@dataclass(frozen=True, slots=True)
class Review:
    """One write. ``operation``: CREATE, UPDATE, DELETE or CONNECT. ``sub``: subresource, or empty.

    ``new``: the object as it would be stored (for pods/binding and pods/eviction: what was posted);
    ``old``: as it is stored; None where there is none.
    """

    operation: str
    kind: Kind
    sub: str
    namespace: str
    name: str
    old: Tree | None
    new: Tree | None
    user: str
    groups: tuple[str, ...] = ()
    dry_run: bool = False
    options: Tree = field(default_factory=dict)


Policy = Callable[[Review], str | None]
"""Why it refuses; None: it does not. The text follows ``ValidatingAdmissionPolicy ... denied request: ``
where the policy is given as ``(name, binding, policy)``."""


class Admission:
    """All policies, in order."""

    def __init__(self) -> None:
        self.policies: list[tuple[str, str, Policy]] = []

    def add(self, policy: Policy, *, name: str = "policy", binding: str = "binding") -> None:
        self.policies.append((name, binding, policy))

    def admit(self, review: Review) -> None:
        """Raises ApiError 422, as a denial is recorded by default."""
        for name, binding, policy in self.policies:
            why = policy(review)
            if why is not None:
                kind = review.kind
                cause = (
                    f"ValidatingAdmissionPolicy '{name}' with binding '{binding}' "
                    f"denied request: {why}"
                )
                said = f'{kind.resource} "{review.name}" is forbidden: {cause}'
                # kubectl shows the causes of a 422, not its message.
                about = details(kind, review.name) | {"causes": [{"message": cause}]}
                raise ApiError(422, said, details=about)


_REQUEST = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)


def changed_claim_faults(
    old: Tree, new: Tree, place: Place, info: Json, allowed: Callable[..., bool]
) -> list[FieldError]:
    """``allowed``: the authorizer; a change of the allocation asks for resourceclaims/binding."""
    if place.sub != "status":
        if old.get("spec") != new.get("spec"):
            return [wrong("spec", json.dumps(new.get("spec")), "field is immutable")]
        return []
    before, after = old.get("status") or {}, new.get("status") or {}
    changed = any(before.get(name) != after.get(name) for name in ("allocation", "reservedFor"))
    if changed and not allowed(info, "patch", place.kind, place.namespace, "", "binding"):
        said = (
            'changing status.allocation or status.reservedFor requires resource="resourceclaims/binding",'
            f' verb="patch" permission: resourceclaims.resource.k8s.io is forbidden: User "{info.user}"'
            ' cannot patch resource "resourceclaims/binding" in API group "resource.k8s.io" at the'
            " cluster scope"
        )
        return [barred("status.allocation", said)]
    faults: list[FieldError] = []
    requests = {one["name"] for one in ((new["spec"].get("devices") or {}).get("requests") or [])}
    allocation = after.get("allocation")
    results = ((allocation or {}).get("devices") or {}).get("results") or []
    for index, result in enumerate(results):
        if result.get("request", "").partition("/")[0] not in requests:
            field = f"status.allocation.devices.results[{index}].request"
            faults.append(wrong(field, json.dumps(result.get("request")), _REQUEST))
    if before.get("allocation") and allocation and before["allocation"] != allocation:
        value = json.dumps(allocation, separators=(",", ":"))
        faults.append(wrong("status.allocation", value, "field is immutable"))
    if after.get("reservedFor") and not allocation:
        faults.append(
            barred("status.reservedFor", "may not be specified when `allocated` is not set")
        )
    return faults


PROTECTION = "scheduling.k8s.io/podgroup-protection"


def default_pod_group(group: Tree) -> Tree:
    metadata = group["metadata"]
    finalizers = metadata.get("finalizers") or []
    if PROTECTION not in finalizers:
        metadata["finalizers"] = [*finalizers, PROTECTION]
    return group | {"spec": {"disruptionMode": "Pod", "priority": 0} | (group.get("spec") or {})}


def with_group_condition(group: Tree, *, placed: bool, placements: int, time: str) -> Tree:
    """The group with its condition as kube-scheduler writes it; the same object if it is so already."""
    why = ""
    if not placed:
        bound = (group["spec"].get("schedulingConstraints") or {}).get("topology")
        helpless = (
            "workload aware preemption is not supported for pod groups with scheduling constraints"
            if bound
            else "No preemption victims found for incoming preemptor"
        )
        why = (
            f"0/{placements} placements are available, first placement status: "
            f"pod group is unschedulable, {helpless}"
        )
    condition = {
        "type": "PodGroupScheduled",
        "status": "True" if placed else "False",
        "lastTransitionTime": time,
        "reason": "Scheduled" if placed else "Unschedulable",
        "message": why,
    }
    old = ((group.get("status") or {}).get("conditions") or [{}])[0]
    if {**old, "lastTransitionTime": time} == condition:
        return group
    return group | {"status": {"conditions": [condition]}}


def new_pod_group_faults(group: Tree) -> list[FieldError]:
    spec = group.get("spec") or {}
    keys = (spec.get("schedulingConstraints") or {}).get("topology") or []
    if len(keys) > 1:
        said = f"Too many: {len(keys)}: must have at most 1 item"
        return [FieldError("spec.schedulingConstraints.topology", "FieldValueTooMany", said)]
    return []


def changed_pod_group_faults(old: Tree, new: Tree) -> list[FieldError]:
    before, after = old.get("spec") or {}, new.get("spec") or {}
    return [
        wrong(f"spec.{name}", "null", "field is immutable")
        for name in ("schedulingPolicy", "podGroupTemplateRef", "schedulingConstraints")
        if before.get(name) != after.get(name)
    ]
