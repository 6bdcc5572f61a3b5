"""What the server fills in, and what it refuses: metadata, unknown fields, pods and claims, as measured."""

from __future__ import annotations

import copy
import json
import re

from apiserver_errors import ApiError, Fault, barred, details, wrong
from apiserver_kinds import POD, PRIORITY, Json, Kind, Tree
from apiserver_store import Store

# ---- metadata and unknown fields

_LABEL = r"([a-z0-9]([-a-z0-9]*[a-z0-9])?\.?)*(?<!\.)"
_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(f"({_LABEL}/)?{_NAME}")
_VALUE = re.compile(f"({_NAME})?")


def metadata_faults(metadata: Tree) -> list[Fault]:
    """Faults of labels and annotations."""
    field, faults = "metadata.labels", []
    for key, value in (metadata.get("labels") or {}).items():
        if not _KEY.fullmatch(key):
            faults.append(wrong(field, json.dumps(key), "name part must consist of ..."))
        if not _VALUE.fullmatch(value):
            faults.append(wrong(field, json.dumps(value), "a valid label must be ..."))
    notes = (metadata.get("annotations") or {}).items()
    for key, _ in notes:
        if not _KEY.fullmatch(key.lower()):
            said = "name part must consist of ..."
            faults.append(wrong("metadata.annotations", json.dumps(key), said))
    if sum(len(key) + len(value) for key, value in notes) > 256 * 1024:
        said = "Too long: may not be more than 262144 bytes"
        faults.append(("metadata.annotations", "FieldValueTooLong", said))
    return faults


def changed_metadata_faults(old: Tree, new: Tree) -> list[Fault]:
    """What an update may not change; the server says each of these twice."""
    return [
        wrong(f"metadata.{field}", json.dumps(new.get(field, "")), "field is immutable")
        for field in ("uid", "name", "namespace")
        if new.get(field) != old.get(field)
        for _ in range(2)
    ]


_KNOWN = {
    "metadata": """annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp
        finalizers generateName generation labels managedFields name namespace ownerReferences
        resourceVersion uid""",
    "Pod": "metadata spec status",
    "Pod.spec": """activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig
        dnsPolicy enableServiceLinks ephemeralContainers hostAliases hostIPC hostNetwork hostPID
        hostUsers hostname imagePullSecrets initContainers nodeName nodeSelector os overhead
        preemptionPolicy priority priorityClassName readinessGates resourceClaims resources
        restartPolicy runtimeClassName schedulerName schedulingGates schedulingGroup securityContext
        serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain
        terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes""",
    "Eviction": "metadata deleteOptions",
    "Lease": "metadata spec",
    "Lease.spec": "acquireTime holderIdentity leaseDurationSeconds leaseTransitions renewTime",
}


def refuse_unknown(kind: str, tree: Tree) -> None:
    """Raises ApiError 400 for fields that the kind has not, of those that are known here."""
    inner = {f"{kind}.spec": tree.get("spec"), "metadata": tree.get("metadata"), kind: tree}
    for where, fields in inner.items():
        if where in _KNOWN and isinstance(fields, dict):
            known = {"kind", "apiVersion", *_KNOWN[where].split()}
            for field in fields.keys() - known:
                said = f'strict decoding error: unknown field "{where}.{field}"'
                raise ApiError(400, f"{kind} cannot be handled as a {kind}: {said}")


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
_FROZEN = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)\n@@"
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"


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


def new_pod_faults(pod: Tree) -> list[Fault]:
    if pod["spec"].get("schedulingGates") and pod["spec"].get("nodeName"):
        said = "cannot be set until all schedulingGates have been cleared"
        return [barred("spec.nodeName", said)]
    return []


def changed_pod_faults(old: Tree, new: Tree) -> list[Fault]:
    """What an update of the main resource may not do."""
    before, after = old["spec"], new["spec"]
    gates = [gate["name"] for gate in before.get("schedulingGates") or []]
    faults = [
        barred(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate['name']}'",
        )
        for index, gate in enumerate(after.get("schedulingGates") or [])
        if gate["name"] not in gates
    ]
    for index, one in enumerate(after["containers"]):
        resources = one.get("resources") or {}
        for name, limit in (resources.get("limits") or {}).items():
            asked = str((resources.get("requests") or {}).get(name))
            if "/" in name and asked != str(limit):
                said = f"must be equal to {name} limit of {limit}"
                field = f"spec.containers[{index}].resources.requests"
                faults.append(wrong(field, json.dumps(asked), said))
    free = {"schedulingGates", "activeDeadlineSeconds"}
    if all(one in (after.get("tolerations") or []) for one in before.get("tolerations") or []):
        free.add("tolerations")
    if gates:
        faults += [*_selector_faults(before, after), *_affinity_faults(before, after)]
        free |= {"nodeSelector", "affinity"}
    frozen = [
        {k: v for k, v in spec.items() if k not in free}
        | {"containers": [one | {"image": ""} for one in spec["containers"]]}
        for spec in (before, after)
    ]
    if gates:
        frozen += [_but_node_affinity(before), _but_node_affinity(after)]
    if frozen[::2] != frozen[1::2]:
        faults.append(barred("spec", _FROZEN))
    return faults


def _but_node_affinity(spec: Tree) -> Tree:
    return {k: v for k, v in (spec.get("affinity") or {}).items() if k != "nodeAffinity"}


def _selector_faults(before: Tree, after: Tree) -> list[Fault]:
    old, new = before.get("nodeSelector") or {}, after.get("nodeSelector") or {}
    if old.items() <= new.items():
        return []
    said = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
    return [wrong("spec.nodeSelector", _json(new), said)]


def _affinity_faults(before: Tree, after: Tree) -> list[Fault]:
    old, new = _terms(before), _terms(after)
    if old and len(old) != len(new):
        said = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [wrong(_TERMS, _json([_spelled(term) for term in new]), said)]
    parts, said = (
        ("matchExpressions", "matchFields"),
        "only additions are allowed (no mutations or deletions)",
    )
    return [
        wrong(f"{_TERMS}[{index}]", _json(_spelled(now)), said)
        for index, (was, now) in enumerate(zip(old, new, strict=False))
        if not all((now.get(p) or [])[: len(was.get(p) or [])] == (was.get(p) or []) for p in parts)
    ]


def _terms(spec: Tree) -> list[Tree]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []


def _spelled(term: Tree) -> Tree:
    """A term in the server's inner spelling."""
    return {
        part[0].upper() + part[1:]: term.get(part)
        and [
            {"Key": one["key"], "Operator": one["operator"], "Values": one.get("values")}
            for one in term[part]
        ]
        for part in ("matchExpressions", "matchFields")
    }


def _json(tree: Json) -> str:
    return json.dumps(tree, separators=(",", ":"))


# ---- claims


def changed_claim_faults(old: Tree, new: Tree, *, sub: str, user: str | None) -> list[Fault]:
    """``user``: who may not change allocations; None: may."""
    if sub != "status":
        same = old.get("spec") == new.get("spec")
        return [] if same else [wrong("spec", _json(new.get("spec")), "field is immutable")]
    before, after = old.get("status") or {}, new.get("status") or {}
    if user and any(before.get(k) != after.get(k) for k in ("allocation", "reservedFor")):
        said = (
            'changing status.allocation or status.reservedFor requires resource="resourceclaims/binding"'
            f', verb="patch" permission: resourceclaims.resource.k8s.io is forbidden: User "{user}"'
            ' cannot patch resource "resourceclaims/binding" in API group "resource.k8s.io" at the'
            " cluster scope"
        )
        return [barred("status.allocation", said)]
    faults = []
    requests = {one["name"] for one in new["spec"]["devices"]["requests"]}
    allocation = after.get("allocation") or {}
    for index, result in enumerate((allocation.get("devices") or {}).get("results") or []):
        if result["request"] not in requests:
            field = f"status.allocation.devices.results[{index}].request"
            said = (
                "must be the name of a request in the claim or the name of a request and a"
                " subrequest separated by '/'"
            )
            faults.append(wrong(field, json.dumps(result["request"]), said))
    if before.get("allocation") and allocation and before["allocation"] != allocation:
        faults.append(wrong("status.allocation", _json(allocation), "field is immutable"))
    if after.get("reservedFor") and not allocation:
        said = "may not be specified when `allocated` is not set"
        faults.append(barred("status.reservedFor", said))
    return faults


def changed_faults(kind: Kind, old: Tree, new: Tree, *, sub: str, user: str | None) -> list[Fault]:
    faults = [*changed_metadata_faults(old["metadata"], new["metadata"])]
    faults += metadata_faults(new["metadata"])
    if kind == POD and sub != "status" and old["spec"] != new["spec"]:
        return faults + changed_pod_faults(old, new)
    if kind.name == "ResourceClaim":
        return faults + changed_claim_faults(old, new, sub=sub, user=user)
    return faults


# ---- patches

_MERGE_KEYS = {
    **dict.fromkeys(["containers", "schedulingGates", "resourceClaims"], "name"),
    **dict.fromkeys(["reservedFor", "ownerReferences"], "uid"),
    "conditions": "type",
}
"""By which field the items of a list are told apart in a strategic merge."""


def patched(old: Json, patch: Json, content_type: str, *, custom: bool = False) -> Json:
    """Raises ApiError: 422 for a JSON patch that fails, 415 for another kind of patch."""
    match content_type.partition(";")[0]:
        case "application/json-patch+json":
            new = copy.deepcopy(old)
            try:
                for one in patch:
                    _operate(new, one)
            except (KeyError, IndexError, TypeError, ValueError):
                said = "the server rejected our request due to an error in our request"
                raise ApiError(422, said, details={}) from None
            return new
        case "application/merge-patch+json":
            return _merged(old, patch, strategic=False)
        case "application/strategic-merge-patch+json" if not custom:
            return _merged(old, patch, strategic=True)
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


def _operate(holder: Json, one: dict[str, Json]) -> None:
    """``test``, ``add``, ``replace`` or ``remove`` in place. Raises what a wrong path raises."""
    *parts, last = (p.replace("~1", "/").replace("~0", "~") for p in one["path"].split("/")[1:])
    for part in parts:
        holder = holder[int(part)] if isinstance(holder, list) else holder[part]
    at: Json = last
    if isinstance(holder, list):
        at = len(holder) if last == "-" else int(last)
    match one["op"]:
        case "test":
            if holder[at] != one["value"]:
                raise ValueError(last)
        case "add" if isinstance(holder, list):
            holder.insert(at, one["value"])
        case "add":
            holder[at] = one["value"]
        case "replace":
            holder[at] = [holder[at], one["value"]][1]  # it must be there
        case "remove":
            del holder[at]
