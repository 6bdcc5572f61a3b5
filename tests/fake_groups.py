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
    return group


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
