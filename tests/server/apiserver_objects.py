"""Create, update, patch and delete, and the subresources: preconditions, dry run, admission, as measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from apiserver_errors import ApiError, conflict, details, exists, invalid, missing, status, wrong
from apiserver_kinds import (
    BUDGET,
    CLAIM,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    Json,
    Kind,
    Place,
    RequestInfo,
    Tree,
)
from apiserver_rules import changed_faults, condition, default_pod, metadata_faults, patched
from apiserver_store import Store
from kube_arithmetic import labels_of, selects

_CONDITIONAL = {"Lease", "PodDisruptionBudget", "ValidatingAdmissionPolicy"}
"""Kinds whose PUT needs a resourceVersion."""

_AS_BEFORE = ("resourceVersion", "generation", "creationTimestamp")
_AS_BEFORE += ("deletionTimestamp", "deletionGracePeriodSeconds")


@dataclass(frozen=True, slots=True)
class Review:
    """One write. ``operation``: CREATE, UPDATE or DELETE. ``sub``: subresource, or empty.

    ``new``: the object as it would be stored (for pods/binding and pods/eviction: what was posted);
    ``old``: as it is stored; None where there is none.
    """

    operation: str
    kind: Kind
    sub: str
    old: Tree | None
    new: Tree | None
    user: str
    groups: tuple[str, ...] = ()


Policy = Callable[[Review], str | None]
"""Why it refuses; None: it does not."""


class Objects:
    """``may_allocate(info)``: whether who asks may change the allocation of claims.

    ``policies``: by name, of admission.
    """

    def __init__(self, store: Store, *, groups: bool) -> None:
        self.store, self.groups = store, groups
        self.policies: dict[str, Policy] = {}
        self.may_allocate: Callable[[RequestInfo], bool] = lambda _: True

    def get(self, kind: Kind, namespace: str, name: str) -> Tree:
        found = self.store.get(kind, namespace, name)
        if found is None:
            raise missing(kind, name)
        return found

    # ---- writing

    def create(self, place: Place, body: Json, info: RequestInfo) -> Tree:
        kind, body = place.kind, self._understood(place, body)
        metadata = {k: v for k, v in body["metadata"].items() if k != "resourceVersion"}
        name = metadata["name"]
        if self.store.get(kind, place.namespace, name) is not None:
            raise exists(kind, name)
        metadata |= {"uid": self.store.uid(), "creationTimestamp": self.store.now()}
        metadata |= {"namespace": place.namespace} if place.namespace else {}
        metadata |= {"generation": 1} if "status" in kind.subs or kind.custom else {}
        faults, new = metadata_faults({}, metadata), body | {"metadata": metadata}
        if "status" in kind.subs and kind != NODE:
            new.pop("status", None)
        if kind == POD:
            new = default_pod(self.store, new, groups=self.groups)
        elif kind == NODE:
            new = {"spec": {}, "status": {}} | new
        if faults:
            raise invalid(kind, name, faults)
        self._admit("CREATE", place, info, None, new)
        if info.dry_run:
            return {"kind": kind.name, "apiVersion": kind.api_version} | new
        return self.store.keep(kind, new, manager=info.manager)

    def update(self, place: Place, body: Json, info: RequestInfo) -> Tree:
        kind, name = place.kind, place.name
        body = self._understood(place, body)
        metadata, old = body["metadata"], self.store.get(kind, place.namespace, name)
        version = metadata.get("resourceVersion") or ""
        if old is None:
            if kind != LEASE:
                raise missing(kind, name)
            if "uid" in metadata:
                raise conflict(kind, name, "the object that was meant is gone")
            return self.create(place, body, info)
        if kind.name in _CONDITIONAL and version in ("", "0"):
            fault = wrong("metadata.resourceVersion", version, "must be specified for an update")
            raise invalid(kind, name, [fault])
        _check_version(place, old, version)
        _check_preconditions(kind, old, {"uid": metadata.get("uid")})
        kept = {k: v for k, v in old["metadata"].items() if k in ("uid", "name", "namespace")}
        return self.replaced(place, old, body | {"metadata": metadata | kept}, info)

    def patch(self, place: Place, body: Json, content_type: str, info: RequestInfo) -> Tree:
        old = self.get(place.kind, place.namespace, place.name)
        new = patched(_bare(old), body, content_type, custom=place.kind.custom)
        _check_version(place, old, new["metadata"].get("resourceVersion") or "")
        return self.replaced(place, old, new, info)

    def replaced(self, place: Place, old: Tree, new: Tree, info: RequestInfo) -> Tree:
        """Put ``new`` in the place of ``old``, as far as the (sub)resource lets it."""
        kind, sub = place.kind, place.sub
        if "status" in kind.subs:
            part = "spec" if sub == "status" else "status"
            new = {k: v for k, v in new.items() if k != part}
            new |= {part: old[part]} if part in old else {}
            if sub == "status" and kind != POD:
                new["metadata"] = old["metadata"]
        dropped = {*_AS_BEFORE, "managedFields"}
        metadata = {
            k: v for k, v in new["metadata"].items() if k not in dropped and v not in ({}, [])
        }
        metadata |= {k: old["metadata"][k] for k in _AS_BEFORE if k in old["metadata"]}
        new |= {"metadata": metadata}
        if kind == POD:
            tidied = {k: v for k, v in new["spec"].items() if v not in ([], {})}
            new["spec"] = tidied | {"securityContext": new["spec"].get("securityContext", {})}
        barred_from = kind == CLAIM and not self.may_allocate(info)
        if faults := changed_faults(kind, old, new, sub=sub, barred_from=barred_from):
            raise invalid(kind, place.name, faults)
        self._admit("UPDATE", place, info, old, new)
        if new == _bare(old):
            return old
        if "generation" in metadata and new.get("spec") != old.get("spec"):
            metadata["generation"] += 1
        return new if info.dry_run else self.kept(kind, old, new, manager=info.manager, sub=sub)

    def kept(self, kind: Kind, old: Tree, new: Tree, *, manager: str, sub: str = "") -> Tree:
        """Keep an update; an object that waited for its last finalizer goes."""
        metadata = new["metadata"]
        waits = kind == POD and metadata.get("deletionGracePeriodSeconds", 0) > 0
        if "deletionTimestamp" in metadata and not metadata.get("finalizers") and not waits:
            self.store.drop(kind, old)
            return new
        return self.store.keep(kind, new, manager=manager, sub=sub)

    def delete(self, place: Place, options: Json, info: RequestInfo) -> Tree:
        kind, options = place.kind, options or {}
        old = self.get(kind, place.namespace, place.name)
        _check_preconditions(kind, old, options.get("preconditions") or {})
        self._admit("DELETE", place, info, old, None)
        grace = options.get("gracePeriodSeconds", info.query.get("gracePeriodSeconds"))
        gone = self.removed(kind, old, None if grace is None else int(grace))
        if kind == POD or "deletionTimestamp" in gone["metadata"]:
            return gone
        about = details(kind, place.name) | {"uid": old["metadata"]["uid"]}
        return status("Success", details=about)

    def removed(self, kind: Kind, old: Tree, grace: int | None = None) -> Tree:
        """Delete it, or mark it as being deleted where a finalizer or a grace period asks for that."""
        metadata, seconds = old["metadata"], 0
        if kind == POD and old["spec"].get("nodeName") and is_alive(old):
            own = old["spec"].get("terminationGracePeriodSeconds", 30)
            seconds = own if grace is None else grace
        if kind == NAMESPACE:
            for other in self.store.kinds.all:
                if other.namespaced:
                    for tree in list(self.store.all(other, metadata["name"])):
                        self.store.drop(other, tree)
        if not seconds and not metadata.get("finalizers"):
            self.store.drop(kind, old)
            return old
        if metadata.get("deletionGracePeriodSeconds", 10**9) <= seconds:
            return old
        marks = {"deletionTimestamp": self.store.now(), "deletionGracePeriodSeconds": seconds}
        return self.store.keep(kind, old | {"metadata": metadata | marks}, manager="kube-apiserver")

    # ---- subresources

    def bind(self, pod: Tree, node: str, *, manager: str) -> Tree:
        """Set the node of a pod, as the storage of bindings does."""
        found = {k: v for k, v in pod["status"].items() if k != "nominatedNodeName"}
        new = pod | {"spec": pod["spec"] | {"nodeName": node}, "status": found}
        new = with_condition(new, condition("PodScheduled", "True", self.store.now()))
        return self.store.keep(POD, new, manager=manager, sub="binding")

    def evicted(self, place: Place, body: Tree, info: RequestInfo) -> Tree:
        """POST to pods/POD/eviction."""
        pod, options = self.get(POD, place.namespace, place.name), body.get("deleteOptions") or {}
        _check_preconditions(POD, pod, options.get("preconditions") or {})
        self._admit("CREATE", place, info, None, body)
        spend(self.store, pod, dry=info.dry_run)
        if not info.dry_run:
            self.removed(POD, pod, options.get("gracePeriodSeconds"))
        return status("Success", code=201)

    def scaled(
        self, place: Place, method: str, body: Json, content_type: str, info: RequestInfo
    ) -> Tree:
        """GET or PATCH of a scale."""
        owner = self.get(place.kind, place.namespace, place.name)
        old = _scale_of(owner)
        if method == "GET":
            return old
        new = patched(old, body, content_type)
        _check_version(place, owner, new["metadata"]["resourceVersion"] or "")
        spec = owner["spec"] | {"replicas": new["spec"]["replicas"]}
        made = self.replaced(replace(place, sub=""), owner, owner | {"spec": spec}, info)
        return _scale_of(made)

    # ---- checks

    def _admit(
        self, operation: str, place: Place, info: RequestInfo, old: Tree | None, new: Tree | None
    ) -> None:
        """Raises ApiError 422, as a denial is recorded by default."""
        kind, user = place.kind, info.user or "system:admin"
        review = Review(operation, kind, place.sub, old, new, user, info.groups)
        for name, policy in self.policies.items():
            if (why := policy(review)) is not None:
                title = place.name or (new or {})["metadata"]["name"]
                said = f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: {why}"
                # kubectl shows the causes of a 422, not its message.
                about = details(kind, title) | {"causes": [{"message": said}]}
                raise ApiError(
                    422, f'{kind.resource} "{title}" is forbidden: {said}', details=about
                )

    def _understood(self, place: Place, body: Json) -> Tree:
        """The body, if its namespace is there. Raises ApiError."""
        if place.kind.namespaced and self.store.get(NAMESPACE, "", place.namespace) is None:
            raise missing(NAMESPACE, place.namespace)
        return dict(body)


def _check_version(place: Place, old: Tree, version: str) -> None:
    if version not in ("", old["metadata"]["resourceVersion"]):
        raise conflict(place.kind, place.name)


def _check_preconditions(kind: Kind, old: Tree, wanted: Tree) -> None:
    """Raises ApiError 409 where the uid or the resourceVersion is another."""
    for key, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        found = old["metadata"][key]
        if wanted.get(key) not in (None, found):
            said = f"the {label} in the precondition ({wanted[key]}) does not match the {label} in"
            said += f" record ({found})"
            raise conflict(kind, old["metadata"]["name"], said)


def _bare(tree: Tree) -> Tree:
    """Without managedFields, which patches do not touch."""
    metadata = {k: v for k, v in tree["metadata"].items() if k != "managedFields"}
    return tree | {"metadata": metadata}


def _scale_of(owner: Tree) -> Tree:
    keys = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    metadata = {key: owner["metadata"][key] for key in keys}
    api = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata}
    replicas = owner["spec"].get("replicas", 0)
    current = (owner.get("status") or {}).get("replicas", replicas)
    return api | {"spec": {"replicas": replicas}, "status": {"replicas": current}}


def with_condition(pod: Tree, new: Tree) -> Tree:
    found = pod["status"].get("conditions") or []
    others = [one for one in found if one["type"] != new["type"]]
    return pod | {"status": pod["status"] | {"conditions": [*others, new]}}


def is_alive(pod: Tree) -> bool:
    return pod["status"].get("phase") not in ("Succeeded", "Failed")


def is_ready(pod: Tree) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


# ---- what budgets allow


def spend(store: Store, pod: Tree, *, dry: bool) -> None:
    """Take one eviction off the budget of the pod. Raises ApiError if that is not allowed.

    A dry run takes nothing off, so any number of dry runs is allowed where one is. No budget is asked for
    pods that do not run, or are going already.
    """
    phase, metadata = pod["status"].get("phase"), pod["metadata"]
    if phase in ("Pending", "Succeeded", "Failed") or "deletionTimestamp" in metadata:
        return
    mine = [
        budget
        for budget in store.all(BUDGET, metadata["namespace"])
        if selects(budget["spec"]["selector"], labels_of(pod))
    ]
    if len(mine) > 1:
        raise ApiError(500, "This pod has more than one budget.", reason="InternalError")
    for budget in mine:
        found = dict(budget.get("status") or {})
        healthy, desired = found.get("currentHealthy", 0), found.get("desiredHealthy", 0)
        always = budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        if not is_ready(pod) and (always or healthy >= desired > 0):
            continue
        name = budget["metadata"]["name"]
        if found["disruptionsAllowed"] < 1:
            said = "Cannot evict pod as it would violate the pod's disruption budget."
            why = f"The disruption budget {name} needs {desired} healthy pods and has {healthy}"
            cause = {"reason": "DisruptionBudget", "message": f"{why} currently"}
            raise ApiError(429, said, details={"causes": [cause]})
        if not dry:
            found["disruptionsAllowed"] -= 1
            gone = {metadata["name"]: store.now()}
            found["disruptedPods"] = found.get("disruptedPods", {}) | gone
            store.keep(BUDGET, budget | {"status": found}, manager="kube-apiserver", sub="status")
