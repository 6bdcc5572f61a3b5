"""What the server fills in, and what it refuses: metadata, unknown fields, pods and claims, as measured."""

from __future__ import annotations

import re

from apiserver_errors import ApiError, Fault, barred, details, wrong
from apiserver_kinds import POD, PRIORITY, Json, Kind, Tree
from apiserver_store import Store

# ---- metadata

_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?{_NAME}")
_VALUE = re.compile(f"({_NAME})?")


def metadata_faults(old: Tree, new: Tree) -> list[Fault]:
    """Faults of labels and annotations; ``old``: what an update may not change, {} for a creation."""
    labels, notes = new.get("labels") or {}, new.get("annotations") or {}
    faults = [
        wrong(f"metadata.{field}", new.get(field, ""), "field is immutable")
        for field in ("uid", "name", "namespace")
        if field in old and new.get(field) != old[field]
    ]
    if not all(_KEY.fullmatch(k) and _VALUE.fullmatch(v) for k, v in labels.items()):
        faults.append(wrong("metadata.labels", labels, "a valid label must be ..."))
    if not all(_KEY.fullmatch(key) for key in notes):
        faults.append(wrong("metadata.annotations", [*notes], "name part must be ..."))
    if sum(len(key) + len(value) for key, value in notes.items()) > 256 * 1024:
        faults.append(wrong("metadata.annotations", "", "may not be more than 262144 bytes"))
    return faults


# ---- pods

_TOLERATED = [
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
]
_DEFAULTS = {
    "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
    "securityContext": {}, "schedulerName": "default-scheduler", "priority": 0,
    "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority",
}  # fmt: skip
_OF_CONTAINER = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "Always",
}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def condition(kind: str, status: str, time: str, **more: str) -> Tree:
    found = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": time}
    return found | more


def default_pod(store: Store, pod: Tree, *, groups: bool) -> Tree:
    """A new pod as it is stored. ``groups``: the API of pod groups is on. Raises ApiError."""
    spec = dict(pod.get("spec") or {})
    if name := spec.get("priorityClassName"):
        found = store.get(PRIORITY, "", name)
        if found is None:
            title = pod["metadata"]["name"]
            said = f'pods "{title}" is forbidden: no PriorityClass with name {name} was found'
            raise ApiError(403, said, details=details(POD, title))
        spec["priority"] = found["value"]
    spec = _DEFAULTS | spec
    spec["containers"] = [_OF_CONTAINER | _with_requests(one) for one in spec["containers"]]
    present = {one.get("key") for one in spec.get("tolerations") or []}
    added = [one for one in _TOLERATED if one["key"] not in present]
    spec["tolerations"] = [*(spec.get("tolerations") or []), *added]
    if not groups:
        spec.pop("schedulingGroup", None)
    status: Tree = {"phase": "Pending", "qosClass": _quality(spec)}
    if spec.get("schedulingGates"):
        said = "Scheduling is blocked due to non-empty scheduling gates"
        gated = {"reason": "SchedulingGated", "message": said}
        status["conditions"] = [condition("PodScheduled", "False", store.now(), **gated)]
    return pod | {"spec": spec, "status": status}


def _with_requests(container: Tree) -> Tree:
    resources = dict(container.get("resources") or {})
    if limits := resources.get("limits"):
        resources["requests"] = limits | (resources.get("requests") or {})
    return container | {"resources": resources}


def _quality(spec: Tree) -> str:
    found = [one["resources"] for one in spec["containers"]]
    if all({"cpu", "memory"} <= one.get("limits", {}).keys() for one in found):
        return "Guaranteed"
    return "Burstable" if any(one.get("requests") for one in found) else "BestEffort"


def changed_pod_faults(old: Tree, new: Tree) -> list[Fault]:
    """What an update may not do: a gated pod takes additions to selectors and terms, and loses gates."""
    before, after = old["spec"], new["spec"]
    gates, left = (spec.get("schedulingGates") or [] for spec in (before, after))
    faults = []
    if any(one not in gates for one in left):
        faults.append(barred(f"spec.schedulingGates[{len(left) - 1}].name", "only deletion"))
    free = {"schedulingGates", "activeDeadlineSeconds"}
    if all(one in (after.get("tolerations") or []) for one in before.get("tolerations") or []):
        free.add("tolerations")
    if gates:
        was, now = before.get("nodeSelector") or {}, after.get("nodeSelector") or {}
        if not was.items() <= now.items():
            faults.append(wrong("spec.nodeSelector", now, "only additions are allowed"))
        faults += _term_faults(_terms(before), _terms(after))
        free.add("nodeSelector")
    frozen = [
        {k: v for k, v in spec.items() if k not in free}
        | {"containers": [one | {"image": ""} for one in spec["containers"]]}
        | ({"affinity": _but_node_affinity(spec)} if gates else {})
        for spec in (before, after)
    ]
    if frozen[0] != frozen[1]:
        faults.append(barred("spec", "pod updates may not change fields other than ..."))
    return faults


def _but_node_affinity(spec: Tree) -> Tree:
    return {k: v for k, v in (spec.get("affinity") or {}).items() if k != "nodeAffinity"}


def _term_faults(old: list[Tree], new: list[Tree]) -> list[Fault]:
    field = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    if old and len(old) != len(new):
        return [wrong(field, new, "no additions or deletions of terms are allowed")]
    return [
        wrong(f"{field}[{index}]", now, "only additions are allowed")
        for index, (was, now) in enumerate(zip(old, new, strict=False))
        if any((now.get(part) or [])[: len(found)] != found for part, found in was.items())
    ]


def _terms(spec: Tree) -> list[Tree]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []


# ---- claims


def changed_claim_faults(old: Tree, new: Tree, *, sub: str, barred_from: bool) -> list[Fault]:
    """``barred_from``: who asks may not change allocations."""
    if sub != "status":
        same = old.get("spec") == new.get("spec")
        return [] if same else [wrong("spec", new.get("spec"), "field is immutable")]
    before, after, faults = old.get("status") or {}, new.get("status") or {}, []
    if barred_from and any(before.get(k) != after.get(k) for k in ("allocation", "reservedFor")):
        said = 'changing it requires resource="resourceclaims/binding", verb="patch" permission'
        return [barred("status.allocation", said)]
    requests = {one["name"] for one in new["spec"]["devices"]["requests"]}
    allocation = after.get("allocation") or {}
    for index, one in enumerate((allocation.get("devices") or {}).get("results") or []):
        if one["request"] not in requests:
            field = f"status.allocation.devices.results[{index}].request"
            faults.append(wrong(field, one["request"], "must be the name of a request"))
    if before.get("allocation") and allocation and before["allocation"] != allocation:
        faults.append(wrong("status.allocation", allocation, "field is immutable"))
    if after.get("reservedFor") and not allocation:
        faults.append(barred("status.reservedFor", "may not be specified without an allocation"))
    return faults


def changed_faults(kind: Kind, old: Tree, new: Tree, *, sub: str, barred_from: bool) -> list[Fault]:
    faults = metadata_faults(old["metadata"], new["metadata"])
    if kind == POD and sub != "status" and old["spec"] != new["spec"]:
        return faults + changed_pod_faults(old, new)
    if kind.name == "ResourceClaim":
        return faults + changed_claim_faults(old, new, sub=sub, barred_from=barred_from)
    return faults


# ---- patches

_MERGE_KEYS = {
    **dict.fromkeys(["containers", "schedulingGates", "resourceClaims"], "name"),
    **dict.fromkeys(["reservedFor", "ownerReferences"], "uid"),
    "conditions": "type",
}
"""By which field the items of a list are told apart in a strategic merge."""


def patched(old: Json, patch: Json, content_type: str, *, custom: bool = False) -> Json:
    """A merge patch, or a strategic one, applied. Raises ApiError 415 for another kind of patch."""
    kinds = ("merge",) if custom else ("merge", "strategic-merge")
    for kind in kinds:
        if content_type == f"application/{kind}-patch+json":
            return _merged(old, patch, strategic=kind != "merge")
    raise ApiError(415, f"the body of the request was in an unknown format (it was {content_type})")


def _merged(old: Json, patch: Json, *, strategic: bool) -> Json:
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif strategic and isinstance(value, list) and key in _MERGE_KEYS:
            new[key] = _merged_list(new.get(key) or [], value, _MERGE_KEYS[key])
            if not new[key] and value:
                del new[key]
        else:
            new[key] = _merged(new.get(key), value, strategic=strategic)
    return new


def _merged_list(old: list[Json], patch: list[Json], key: str) -> list[Json]:
    found = {one[key]: one for one in old}
    for one in patch:
        if one.get("$patch") == "delete":
            found.pop(one[key], None)
        else:
            found[one[key]] = _merged(found.get(one[key]), one, strategic=True)
    return list(found.values())
