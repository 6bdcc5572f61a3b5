"""PodGroups (scheduling.k8s.io/v1alpha2): what the server fills in and refuses.

Promises: as measured on 1.36: one topology key at most, the policy never changes. Called by
``fake_objects``.
"""

from __future__ import annotations

from fake_statuses import FieldError, wrong
from fake_trees import Tree

PROTECTION = "scheduling.k8s.io/podgroup-protection"


def defaulted(group: Tree) -> Tree:
    metadata = group["metadata"]
    finalizers = metadata.get("finalizers") or []
    if PROTECTION not in finalizers:
        metadata["finalizers"] = [*finalizers, PROTECTION]
    return group | {"spec": {"disruptionMode": "Pod", "priority": 0} | (group.get("spec") or {})}


def stated(group: Tree, *, placed: bool, placements: int, time: str) -> Tree:
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


def created_faults(group: Tree) -> list[FieldError]:
    spec = group.get("spec") or {}
    keys = (spec.get("schedulingConstraints") or {}).get("topology") or []
    if len(keys) > 1:
        said = f"Too many: {len(keys)}: must have at most 1 item"
        return [FieldError("spec.schedulingConstraints.topology", "FieldValueTooMany", said)]
    return []


def updated_faults(old: Tree, new: Tree) -> list[FieldError]:
    before, after = old.get("spec") or {}, new.get("spec") or {}
    return [
        wrong(f"spec.{name}", "null", "field is immutable")
        for name in ("schedulingPolicy", "podGroupTemplateRef", "schedulingConstraints")
        if before.get(name) != after.get(name)
    ]
