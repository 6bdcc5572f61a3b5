"""Pods: defaults, priorities, and what a creation and an update may contain, as measured."""

from __future__ import annotations

import json

from apiserver_errors import ApiError, FieldError, barred, details, wrong
from apiserver_kinds import POD, PRIORITY, Json, Tree
from apiserver_store import Store

_TOLERATED = [
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
]
_FROZEN = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)
_ADDITIONS = "only additions are allowed (no mutations or deletions)"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_AFFINITY = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"


def default_pod(pod: Tree, *, groups: bool, time: str) -> Tree:
    """A new pod as it is stored. ``groups``: the API of pod groups is on."""
    spec = dict(pod.get("spec") or {})
    spec["containers"] = [_container(one) for one in spec.get("containers") or []]
    for name, value in (
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", 30),
        ("dnsPolicy", "ClusterFirst"),
        ("securityContext", {}),
        ("schedulerName", "default-scheduler"),
        ("priority", 0),
        ("enableServiceLinks", True),
        ("preemptionPolicy", "PreemptLowerPriority"),
    ):
        spec.setdefault(name, value)
    present = {one.get("key") for one in spec.get("tolerations") or []}
    spec["tolerations"] = [
        *(spec.get("tolerations") or []),
        *(one for one in _TOLERATED if one["key"] not in present),
    ]
    if not groups:
        spec.pop("schedulingGroup", None)
    if not spec.get("schedulingGates"):
        spec.pop("schedulingGates", None)
    status: Tree = {"phase": "Pending", "qosClass": _quality(spec)}
    if "schedulingGates" in spec:
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": time,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    return pod | {"spec": spec, "status": status}


def new_pod_faults(pod: Tree) -> list[FieldError]:
    spec = pod["spec"]
    faults: list[FieldError] = []
    if not spec["containers"]:
        faults.append(FieldError("spec.containers", "FieldValueRequired", "Required value"))
    faults += _spec_faults(spec)
    if spec.get("schedulingGates") and spec.get("nodeName"):
        faults.append(
            barred("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
        )
    return faults


def changed_pod_faults(old: Tree, new: Tree) -> list[FieldError]:
    """What an update of the main resource may not do."""
    before, after = old["spec"], new["spec"]
    if before is after:
        return []
    faults = [*_spec_faults(after), *_gate_faults(before, after)]
    left = dict(after)
    _same(left, before, "schedulingGates")
    _same(left, before, "activeDeadlineSeconds")
    if before.get("schedulingGates"):
        faults += _selector_faults(before, after)
        faults += _affinity_faults(before, after)
        _same(left, before, "nodeSelector")
        left["affinity"] = _but_node_affinity(after.get("affinity"), before.get("affinity"))
        if left["affinity"] is None:
            del left["affinity"]
    if all(one in (after.get("tolerations") or []) for one in before.get("tolerations") or []):
        _same(left, before, "tolerations")
    _same_images(left, before)
    if left != before:
        faults.append(barred("spec", f"{_FROZEN}\n{_difference(before, left)}"))
    return faults


def _gate_faults(before: Tree, after: Tree) -> list[FieldError]:
    names = [gate["name"] for gate in before.get("schedulingGates") or []]
    return [
        barred(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate['name']}'",
        )
        for index, gate in enumerate(after.get("schedulingGates") or [])
        if gate["name"] not in names
    ]


def _same_images(left: Tree, before: Tree) -> None:
    """Images may change: the containers of ``left`` get those of ``before``."""
    for name in ("containers", "initContainers"):
        if len(left.get(name) or []) == len(before.get(name) or []):
            left[name] = [
                one | {"image": was.get("image")}
                for one, was in zip(left.get(name) or [], before.get(name) or [], strict=True)
            ]
            if not left[name] and name not in before:
                del left[name]


def _container(container: Tree) -> Tree:
    resources = dict(container.get("resources") or {})
    if limits := resources.get("limits"):
        resources["requests"] = dict(limits) | (resources.get("requests") or {})
    return {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
    } | (container | {"resources": resources})


def _quality(spec: Tree) -> str:
    resources = [one.get("resources") or {} for one in spec["containers"]]
    names = ("cpu", "memory")
    if all(
        one.get("limits", {}).get(name) and one["limits"][name] == one["requests"].get(name)
        for one in resources
        for name in names
    ):
        return "Guaranteed"
    some = any(name in (one.get("requests") or {}) for one in resources for name in names)
    return "Burstable" if some else "BestEffort"


def _spec_faults(spec: Tree) -> list[FieldError]:
    faults: list[FieldError] = []
    for index, container in enumerate(spec.get("containers") or []):
        field = f"spec.containers[{index}]"
        faults += [
            FieldError(f"{field}.{name}", "FieldValueRequired", "Required value")
            for name in ("name", "image")
            if not container.get(name)
        ]
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name, limit in limits.items():
            if "/" in name and str(requests.get(name)) != str(limit):
                said = f"must be equal to {name} limit of {limit}"
                value = json.dumps(str(requests.get(name)))
                faults.append(wrong(f"{field}.resources.requests", value, said))
    return faults


def _selector_faults(before: Tree, after: Tree) -> list[FieldError]:
    old, new = before.get("nodeSelector") or {}, after.get("nodeSelector") or {}
    if all(new.get(key) == value for key, value in old.items()):
        return []
    said = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
    return [wrong("spec.nodeSelector", _json(new), said)]


def _affinity_faults(before: Tree, after: Tree) -> list[FieldError]:
    old, new = _terms(before), _terms(after)
    if not old:
        return []
    field = f"{_AFFINITY}.nodeSelectorTerms"
    if len(old) != len(new):
        said = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [wrong(field, _json([_worded(term) for term in new]), said)]
    faults = []
    for index, (was, now) in enumerate(zip(old, new, strict=True)):
        kept = all(
            (now.get(part) or [])[: len(was.get(part) or [])] == (was.get(part) or [])
            for part in ("matchExpressions", "matchFields")
        )
        empty = not (was.get("matchExpressions") or was.get("matchFields"))
        if not kept or (empty and was != now):
            faults.append(wrong(f"{field}[{index}]", _json(_worded(now)), _ADDITIONS))
    return faults


def _terms(spec: Tree) -> list[Tree]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []


def _but_node_affinity(new: Tree | None, old: Tree | None) -> Tree | None:
    """``new`` with the node affinity of ``old``: that part was judged on its own."""
    left = {key: value for key, value in (new or {}).items() if key != "nodeAffinity"}
    if old and "nodeAffinity" in old:
        left["nodeAffinity"] = old["nodeAffinity"]
    if not left and old is None:
        return None
    return left


def _same(left: Tree, before: Tree, name: str) -> None:
    if name in before:
        left[name] = before[name]
    else:
        left.pop(name, None)


def _worded(term: Tree) -> Tree:
    """A term in the server's inner spelling."""

    def spelled(items: list[Tree] | None) -> list[Tree] | None:
        return items and [
            {"Key": one["key"], "Operator": one["operator"], "Values": one.get("values")}
            for one in items
        ]

    return {
        "MatchExpressions": spelled(term.get("matchExpressions")),
        "MatchFields": spelled(term.get("matchFields")),
    }


def _difference(before: Tree, after: Tree) -> str:
    """What differs, key by key; the server prints a diff of its own structures here."""
    keys = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    return "\n".join(
        line
        for key in keys
        for line in (f"- {key}: {_json(before.get(key))}", f"+ {key}: {_json(after.get(key))}")
    )


def _json(tree: Json) -> str:
    return json.dumps(tree, separators=(",", ":"), sort_keys=False)


_BUILT_IN = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def with_priority(store: Store, pod: Tree) -> Tree:
    """The pod with the priority of its class. Raises ApiError.

    A priority that no class gives is taken as it is, as helpers of tests write it.
    """
    spec = pod.get("spec") or {}
    name = spec.get("priorityClassName")
    if not name:
        default = next((one for one in store.all(PRIORITY) if one.get("globalDefault")), None)
        if default is None or "priority" in spec:
            return pod
        more = {"priorityClassName": default["metadata"]["name"], "priority": default["value"]}
        return pod | {"spec": spec | more}
    found = store.get(PRIORITY, "", name)
    if found is None and name not in _BUILT_IN:
        said = f"no PriorityClass with name {name} was found"
        title = pod["metadata"]["name"]
        raise ApiError(403, f'pods "{title}" is forbidden: {said}', details=details(POD, title))
    value = _BUILT_IN[name] if found is None else found["value"]
    more = {"priority": value}
    if found is not None and "preemptionPolicy" in found:
        more["preemptionPolicy"] = found["preemptionPolicy"]
    return pod | {"spec": spec | more}
