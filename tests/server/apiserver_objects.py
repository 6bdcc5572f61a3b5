"""The stored objects, and each write to them: what a server fills in and refuses, as measured.

Stored trees are never changed in place. uids and versions depend on nothing but the order of writes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import apiserver_kinds as api
from apiserver_kinds import POD, ApiError, Call, Json, Kind, Place, Tree, status
from kube_arithmetic import labels_of, selects

_AS_BEFORE = ("resourceVersion", "generation", "creationTimestamp")
_AS_BEFORE += ("deletionTimestamp", "deletionGracePeriodSeconds")
Faults = list[tuple[str, str]]
"""Fields, and what is wrong with them."""


Policy = Callable[[str, Place, Tree | None, Tree | None, str], str | None]
"""Why admission refuses a write; None: it does not.

Of CREATE, UPDATE or DELETE, where, the object as it is, as it would be (for pods/eviction: as posted),
and who asks.
"""


class Objects:
    """``clock``: seconds since the epoch. ``listeners``: called with kind, object before and after.

    ``policies``: by name.
    """

    def __init__(self, kinds: api.Kinds, clock: Callable[[], float]) -> None:
        self.kinds, self.clock = kinds, clock
        self.revision = 100
        self.listeners: list[Callable[[Kind, Tree | None, Tree | None], None]] = []
        self.policies: dict[str, Policy] = {}
        self._objects: dict[Kind, dict[tuple[str, str], Tree]] = {}
        self._order: dict[Kind, list[tuple[str, str]]] = {}
        self._made = 0

    def now(self) -> str:
        """RFC 3339, whole seconds, as in creationTimestamp."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(self.clock())))

    def made(self) -> Tree:
        """The metadata of a new object."""
        self._made += 1
        uid = f"{self._made:08x}-0000-4000-8000-{self._made:012x}"
        return {"uid": uid, "creationTimestamp": self.now()}

    def find(self, kind: Kind, namespace: str, name: str) -> Tree | None:
        return self._objects.get(kind, {}).get((namespace, name))

    def get(self, kind: Kind, namespace: str, name: str) -> Tree:
        """Raises ApiError."""
        if (found := self.find(kind, namespace, name)) is None:
            raise ApiError(404, f'{kind.resource} "{name}" not found', kind, name)
        return found

    def all(self, kind: Kind, namespace: str = "") -> Iterator[Tree]:
        """By namespace and name, as they are now; of one namespace, or of all."""
        found = self._objects.get(kind, {})
        if kind not in self._order:
            self._order[kind] = sorted(found)
        return iter([found[key] for key in self._order[kind] if namespace in ("", key[0])])

    def keep(self, kind: Kind, new: Tree) -> Tree:
        """Store ``new`` under its name with the next resourceVersion."""
        key = (new["metadata"].get("namespace", ""), new["metadata"]["name"])
        objects = self._objects.setdefault(kind, {})
        old = objects.get(key)
        metadata = new["metadata"] | {"resourceVersion": str(self.revision + 1)}
        new = {"kind": kind.name, "apiVersion": kind.api_version} | new | {"metadata": metadata}
        objects[key] = new
        self._changed(kind, old, new)
        return new

    def drop(self, kind: Kind, old: Tree) -> None:
        """Remove it for good."""
        metadata = old["metadata"]
        self._objects[kind].pop((metadata.get("namespace", ""), metadata["name"]), None)
        self._changed(kind, old, None)

    def _changed(self, kind: Kind, old: Tree | None, new: Tree | None) -> None:
        self.revision += 1
        if old is None or new is None:
            self._order.pop(kind, None)
        for listener in self.listeners:
            listener(kind, old, new)

    def selected(self, kind: Kind, namespace: str, query: dict[str, str]) -> Tree:
        """The list that a query asks for, by fields and in pages."""
        items = list(self.all(kind, namespace))
        if phase := query.get("fieldSelector", "").removeprefix("status.phase!="):
            items = [item for item in items if item["status"].get("phase") != phase]
        return page(kind, items, query, str(self.revision))

    # ---- writing: all that follow raise ApiError

    def create(self, place: Place, body: Json, call: Call | None = None) -> Tree:
        kind = place.kind
        self._check_namespace(place)
        metadata = {k: v for k, v in body["metadata"].items() if k != "resourceVersion"}
        name = metadata["name"]
        if self.find(kind, place.namespace, name) is not None:
            raise api.conflict(kind, name, "it already exists", "AlreadyExists")
        metadata |= self.made() | ({"namespace": place.namespace} if place.namespace else {})
        metadata |= {"generation": 1} if "status" in kind.subs or kind.custom else {}
        new = body | {"metadata": metadata}
        if "status" in kind.subs and kind != api.NODE:
            new.pop("status", None)
        if kind == POD:
            new = self._filled_in(new)
        if faults := metadata_faults({}, metadata):
            raise api.invalid(kind, name, faults)
        self._admit("CREATE", place, call, None, new)
        head = {"kind": kind.name, "apiVersion": kind.api_version}
        return head | new if call and call.dry_run else self.keep(kind, new)

    def update(self, place: Place, body: Json, call: Call) -> Tree:
        kind, metadata = place.kind, body["metadata"]
        self._check_namespace(place)
        if kind == api.LEASE and self.find(kind, place.namespace, place.name) is None:
            raise api.conflict(kind, place.name, "the object that was meant is gone")
        old = self.get(kind, place.namespace, place.name)
        if kind == api.LEASE and metadata.get("resourceVersion", "") in ("", "0"):
            raise api.invalid(kind, place.name, [("metadata.resourceVersion", "must be specified")])
        _check(kind, old, metadata)
        kept = {k: v for k, v in old["metadata"].items() if k in ("uid", "name", "namespace")}
        return self._replaced(place, old, body | {"metadata": metadata | kept}, call)

    def patch(self, place: Place, body: Json, call: Call) -> Tree:
        old = self.get(place.kind, place.namespace, place.name)
        new = patched(old, body, call.content_type, custom=place.kind.custom)
        _check(place.kind, old, {"resourceVersion": new["metadata"].get("resourceVersion")})
        return self._replaced(place, old, new, call)

    def _replaced(self, place: Place, old: Tree, new: Tree, call: Call) -> Tree:
        """Put ``new`` in the place of ``old``, as far as the (sub)resource lets it."""
        kind, sub = place.kind, place.sub
        if "status" in kind.subs:
            part = "spec" if sub == "status" else "status"
            new = {k: v for k, v in new.items() if k != part}
            new |= {part: old[part]} if part in old else {}
            if sub == "status" and kind != POD:
                new["metadata"] = old["metadata"]
        metadata = {
            k: v for k, v in new["metadata"].items() if k not in _AS_BEFORE and v not in ({}, [])
        }
        metadata |= {k: old["metadata"][k] for k in _AS_BEFORE if k in old["metadata"]}
        new |= {"metadata": metadata}
        faults = metadata_faults(old["metadata"], metadata)
        if kind == POD:
            new["spec"] = {k: v for k, v in new["spec"].items() if v not in ([], {})}
            faults += changed_pod_faults(old["spec"], new["spec"])
        before, after = ((one.get("status") or {}).get("allocation") for one in (old, new))
        if kind == api.CLAIM and before and after and before != after:
            faults.append(("status.allocation", "field is immutable"))
        if faults:
            raise api.invalid(kind, place.name, faults)
        self._admit("UPDATE", place, call, old, new)
        if new == old:
            return old
        if "generation" in metadata and new.get("spec") != old.get("spec"):
            metadata["generation"] += 1
        return new if call.dry_run else self.keep(kind, new)

    def delete(self, place: Place, options: Json, call: Call) -> Tree:
        kind, options = place.kind, options or {}
        old = self.get(kind, place.namespace, place.name)
        _check(kind, old, options.get("preconditions") or {})
        self._admit("DELETE", place, call, old, None)
        grace = options.get("gracePeriodSeconds", call.query.get("gracePeriodSeconds"))
        gone = self.removed(kind, old, None if grace is None else int(grace))
        if kind == POD or "deletionTimestamp" in gone["metadata"]:
            return gone
        return status("Success", details={"name": place.name, "kind": kind.plural})

    def removed(self, kind: Kind, old: Tree, grace: int | None = None) -> Tree:
        """Delete it, or mark it as being deleted where a finalizer or a grace period asks for that."""
        metadata, seconds = old["metadata"], 0
        if kind == POD and old["spec"].get("nodeName") and is_alive(old):
            own = old["spec"].get("terminationGracePeriodSeconds", 30)
            seconds = own if grace is None else grace
        for other in self.kinds.all if kind == api.NAMESPACE else ():
            for tree in self.all(other, metadata["name"]) if other.namespaced else ():
                self.drop(other, tree)
        if not seconds and not metadata.get("finalizers"):
            self.drop(kind, old)
            return old
        marks = {"deletionTimestamp": self.now(), "deletionGracePeriodSeconds": seconds}
        return self.keep(kind, old | {"metadata": metadata | marks})

    def bind(self, pod: Tree, node: str) -> Tree:
        """Set the node of a pod, as the storage of bindings does."""
        new = pod | {"spec": pod["spec"] | {"nodeName": node}}
        return self.keep(POD, with_condition(new, "PodScheduled", "True", self.now()))

    def evicted(self, place: Place, body: Tree, call: Call) -> Tree:
        """POST to pods/POD/eviction."""
        pod, options = self.get(POD, place.namespace, place.name), body.get("deleteOptions") or {}
        _check(POD, pod, options.get("preconditions") or {})
        self._admit("CREATE", place, call, None, body)
        self._spend(pod, dry=call.dry_run)
        if not call.dry_run:
            self.removed(POD, pod, options.get("gracePeriodSeconds"))
        return status("Success", code=201)

    def scaled(self, place: Place, body: Json, call: Call) -> Tree:
        """GET or PATCH of a scale."""
        owner = self.get(place.kind, place.namespace, place.name)
        if call.method != "GET":
            new = patched(_scale_of(owner), body, call.content_type)
            _check(place.kind, owner, {"resourceVersion": new["metadata"]["resourceVersion"]})
            spec = owner["spec"] | {"replicas": new["spec"]["replicas"]}
            owner = self._replaced(replace(place, sub=""), owner, owner | {"spec": spec}, call)
        return _scale_of(owner)

    # ---- checks

    def _admit(
        self, what: str, place: Place, call: Call | None, old: Tree | None, new: Tree | None
    ) -> None:
        """422, as a denial is recorded by default."""
        user = (call and call.user) or "system:admin"
        for name, policy in self.policies.items():
            if (why := policy(what, place, old, new, user)) is not None:
                said = f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: {why}"
                # kubectl shows the causes of a 422, not its message.
                raise ApiError(422, f"forbidden: {said}", place.kind, causes=[{"message": said}])

    def _check_namespace(self, place: Place) -> None:
        if place.kind.namespaced:
            self.get(api.NAMESPACE, "", place.namespace)

    def _filled_in(self, pod: Tree) -> Tree:
        """A new pod as it is stored."""
        spec = {"terminationGracePeriodSeconds": 30, "schedulerName": "default-scheduler"}
        spec |= {"priority": 0, "restartPolicy": "Always"} | (pod.get("spec") or {})
        if name := spec.get("priorityClassName"):
            spec["priority"] = self.get(api.PRIORITY, "", name)["value"]
        new = pod | {"spec": spec, "status": {"phase": "Pending"}}
        said = "Scheduling is blocked due to non-empty scheduling gates"
        gated = {"reason": "SchedulingGated", "message": said}
        waits = spec.get("schedulingGates")
        return with_condition(new, "PodScheduled", "False", self.now(), **gated) if waits else new

    def _spend(self, pod: Tree, *, dry: bool) -> None:
        """Take one eviction off the budget of the pod, or 429.

        A dry run takes nothing off, so any number of dry runs is allowed where one is. No budget is asked for
        pods that do not run, or are going already.
        """
        phase, metadata = pod["status"].get("phase"), pod["metadata"]
        if phase in ("Pending", "Succeeded", "Failed") or "deletionTimestamp" in metadata:
            return
        for budget in budgets_of(self, pod):
            found = dict(budget["status"])
            healthy, desired = found["currentHealthy"], found["desiredHealthy"]
            always = budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
            if not is_ready(pod) and (always or healthy >= desired > 0):
                continue
            if found["disruptionsAllowed"] < 1:
                name = budget["metadata"]["name"]
                why = f"The disruption budget {name} needs {desired} healthy pods and has {healthy}"
                cause = {"reason": "DisruptionBudget", "message": f"{why} currently"}
                said = "Cannot evict pod as it would violate the pod's disruption budget."
                raise ApiError(429, said, causes=[cause])
            if not dry:
                found["disruptionsAllowed"] -= 1
                gone = {metadata["name"]: self.now()}
                found["disruptedPods"] = found.get("disruptedPods", {}) | gone
                self.keep(api.BUDGET, budget | {"status": found})


def _check(kind: Kind, old: Tree, wanted: Tree) -> None:
    """409 where the uid or the resourceVersion is another."""
    for key in ("uid", "resourceVersion"):
        if wanted.get(key) not in (None, "", found := old["metadata"][key]):
            said = f"the {key} ({wanted[key]}) does not match the one in record ({found})"
            raise api.conflict(kind, old["metadata"]["name"], said)


def _scale_of(owner: Tree) -> Tree:
    keys = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    metadata, replicas = {key: owner["metadata"][key] for key in keys}, owner["spec"]["replicas"]
    tree = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata}
    current = (owner.get("status") or {}).get("replicas", replicas)
    return tree | {"spec": {"replicas": replicas}, "status": {"replicas": current}}


def page(kind: Kind, items: list[Tree], query: dict[str, str], version: str) -> Tree:
    """The part of a list that ``limit`` and ``continue`` ask for."""
    metadata: Tree = {"resourceVersion": version}
    if limit := int(query.get("limit") or 0):
        start = int(query.get("continue") or 0)
        left = len(items) - start - limit
        items = items[start : start + limit]
        if left > 0:
            metadata |= {"continue": str(start + limit), "remainingItemCount": left}
    if not kind.custom:
        drop = ("kind", "apiVersion")
        items = [{k: v for k, v in item.items() if k not in drop} for item in items]
    head = {"kind": f"{kind.name}List", "apiVersion": kind.api_version}
    return head | {"metadata": metadata, "items": items}


# ---- pods


def with_condition(pod: Tree, kind: str, word: str, time: str, **more: str) -> Tree:
    new = {"type": kind, "status": word, "lastProbeTime": None, "lastTransitionTime": time} | more
    found = pod["status"].get("conditions") or []
    others = [one for one in found if one["type"] != kind]
    return pod | {"status": pod["status"] | {"conditions": [*others, new]}}


def is_alive(pod: Tree) -> bool:
    return pod["status"].get("phase") not in ("Succeeded", "Failed")


def is_ready(pod: Tree) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def budgets_of(objects: Objects, pod: Tree) -> list[Tree]:
    own = objects.all(api.BUDGET, pod["metadata"]["namespace"])
    return [one for one in own if selects(one["spec"]["selector"], labels_of(pod))]


# ---- what is refused

_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?{_NAME}")
_VALUE = re.compile(f"({_NAME})?")


def metadata_faults(old: Tree, new: Tree) -> Faults:
    """Faults of labels and annotations; ``old``: what an update may not change, {} for a creation."""
    labels, notes = new.get("labels") or {}, new.get("annotations") or {}
    fixed = (field for field in ("uid", "name", "namespace") if field in old)
    faults = [(f"metadata.{f}", "is immutable") for f in fixed if new.get(f) != old[f]]
    if not all(_KEY.fullmatch(k) and _VALUE.fullmatch(v) for k, v in labels.items()):
        faults.append(("metadata.labels", "a valid label must be ..."))
    size = sum(len(key) + len(value) for key, value in notes.items())
    if size > 256 * 1024 or not all(map(_KEY.fullmatch, notes)):
        faults.append(("metadata.annotations", "name part must be ..."))
    return faults


def changed_pod_faults(old: Tree, new: Tree) -> Faults:
    """What an update may not do: a gated pod loses gates, and takes more selectors and node affinity."""
    gates, left = (spec.get("schedulingGates") or [] for spec in (old, new))
    free, faults = {"schedulingGates", "activeDeadlineSeconds"}, []
    if any(one not in gates for one in left):
        faults.append(("spec.schedulingGates", "only deletion is allowed"))
    if all(one in (new.get("tolerations") or []) for one in old.get("tolerations") or []):
        free.add("tolerations")
    if gates:
        free.add("nodeSelector")
        if not (old.get("nodeSelector") or {}).items() <= (new.get("nodeSelector") or {}).items():
            faults.append(("spec.nodeSelector", "only additions are allowed"))
        terms, more = _terms(old), _terms(new)
        kept = (
            (one.get(part) or [])[: len(found)] == found
            for term, one in zip(terms, more, strict=False)
            for part, found in term.items()
        )
        if terms and not (len(terms) == len(more) and all(kept)):
            faults.append(("spec.affinity", "only additions are allowed"))
    frozen = [{k: v for k, v in spec.items() if k not in free} for spec in (old, new)]
    for spec in frozen:
        affinity = (spec.pop("affinity", None) or {}).items()
        spec["containers"] = [one | {"image": ""} for one in spec["containers"]]
        spec["affinity"] = {k: v for k, v in affinity if not (gates and k == "nodeAffinity")}
    if frozen[0] != frozen[1]:
        faults.append(("spec", "pod updates may not change fields other than ..."))
    return faults


def _terms(spec: Tree) -> list[Tree]:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return (affinity.get(required) or {}).get("nodeSelectorTerms") or []


# ---- patches

_MERGE_KEYS = {
    **dict.fromkeys(["containers", "schedulingGates", "resourceClaims"], "name"),
    **dict.fromkeys(["reservedFor", "ownerReferences"], "uid"),
    "conditions": "type",
}
"""By which field the items of a list are told apart in a strategic merge."""


def patched(old: Json, patch: Json, content_type: str, *, custom: bool = False) -> Json:
    """A merge patch, or a strategic one, applied. Raises ApiError 415 for another kind of patch."""
    kind = content_type.removeprefix("application/").removesuffix("-patch+json")
    if kind != "merge" and (kind != "strategic-merge" or custom):
        raise ApiError(415, f"the body of the request was in an unknown format: {content_type}")
    return _merged(old, patch, strategic=kind != "merge")


def _merged(old: Json, patch: Json, *, strategic: bool) -> Json:
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        by = _MERGE_KEYS.get(key) if strategic and isinstance(value, list) else None
        if value is None:
            new.pop(key, None)
        elif by is None:
            new[key] = _merged(new.get(key), value, strategic=strategic)
        else:
            found = {one[by]: one for one in new.get(key) or []}
            for one in value:
                if one.get("$patch") == "delete":
                    found.pop(one[by], None)
                else:
                    found[one[by]] = _merged(found.get(one[by]), one, strategic=True)
            new[key] = list(found.values())
    return new
