"""Kubernetes' own gang scheduling: PodGroups (1.36) and the pod groups of a Workload (1.35).

A PodGroup takes from its Workload's template what it leaves out; groups under one composite start
together. Each replica key of a Workload is a group of its own.
"""

from __future__ import annotations

from planner.read.findings import Remarks
from planner.read.kube.dialects.base import Dialect, Grouped, GroupReader, PodGroup
from planner.read.kube.lookup import Tree, mapping, objects, text, whole
from planner.read.kube.records import KubeObject, LevelAsk, Objects, once

GROUP = "scheduling.k8s.io"
COMPOSITE = "CompositePodGroup"
_MAX_DEPTH = 16


def group_name(pod: KubeObject, api: Objects) -> str | None:
    del api
    return text(pod.tree, "spec", "schedulingGroup", "podGroupName")


def describe(of: Grouped) -> PodGroup:
    key, group, _, api, remarks = of
    if group is None:
        return PodGroup(key)
    spec = mapping(group.tree, "spec")
    template = _template(spec, key.namespace, api)
    gang, minimum = _policy(
        mapping(spec, "schedulingPolicy") or mapping(template, "schedulingPolicy")
    )
    required = _required(spec, group, remarks) or _required(template, group, remarks)
    parent = _outermost(group, api)
    composite = api.named(GROUP, COMPOSITE, group.namespace, parent or "")
    around = mapping(None if composite is None else composite.tree, "spec")
    return PodGroup(
        key,
        group,
        gang=gang,
        minimum=minimum,
        required=required,
        parent=parent,
        siblings=_composites(api)[group.namespace, parent] if parent else (),
        parent_required=_required(around, group, Remarks()),
    )


@once
def _composites(api: Objects) -> dict[tuple[str, str | None], tuple[str, ...]]:
    """The names of the groups under each outermost composite group, by its namespace and name."""
    found: dict[tuple[str, str | None], list[str]] = {}
    for one in api.of("PodGroup", GROUP):
        found.setdefault((one.namespace, _outermost(one, api)), []).append(one.name)
    return {key: tuple(sorted(names)) for key, names in found.items()}


def _policy(policy: Tree) -> tuple[bool, int | None]:
    if "basic" in policy and not mapping(policy, "gang"):
        return False, None
    return True, whole(policy, "gang", "minCount")


def _required(spec: Tree, group: KubeObject, remarks: Remarks) -> LevelAsk | None:
    entries = objects(spec, "schedulingConstraints", "topology")
    keys = [key for entry in entries if (key := text(entry, "key"))]
    if len(keys) > 1:
        remarks.add(group.subject, "asks for several topology keys; only the first one counts")
    return LevelAsk(label=keys[0]) if keys else None


def _template(spec: Tree, namespace: str, api: Objects) -> Tree:
    """The template of the Workload that the PodGroup was made from; empty if there is none."""
    of = mapping(spec, "podGroupTemplateRef", "workload") or mapping(spec, "podGroupTemplateRef")
    workload, name = text(of, "workloadName"), text(of, "podGroupTemplateName")
    made = api.named(GROUP, "Workload", namespace, workload) if workload else None
    if made is None:
        return {}
    templates = objects(made.tree, "spec", "podGroupTemplates")
    return next((entry for entry in templates if text(entry, "name") == name), {})


def _outermost(group: KubeObject, api: Objects) -> str | None:
    name = None
    above: KubeObject | None = group
    for _ in range(_MAX_DEPTH):
        parent = text(above.tree, "spec", "parentCompositePodGroupName") if above else None
        if parent is None or parent == name:
            break
        name = parent
        above = api.named(GROUP, COMPOSITE, group.namespace, parent)
    return name


def workload_group_name(pod: KubeObject, api: Objects) -> str | None:
    """``workload/group/replica key``."""
    del api
    reference = mapping(pod.tree, "spec", "workloadRef")
    name = text(reference, "name")
    if name is None:
        return None
    parts = [name, text(reference, "podGroup"), text(reference, "podGroupReplicaKey")]
    return "/".join(part for part in parts if part)


def describe_workload_group(of: Grouped) -> PodGroup:
    key, workload, _, _, remarks = of
    if workload is None:
        return PodGroup(key)
    parts = ("podGroups", "podGroupTemplates")
    groups = (entry for part in parts for entry in objects(workload.tree, "spec", part))
    name = [*key.name.split("/"), None][1]
    spec = next((entry for entry in groups if text(entry, "name") == name), None)
    if spec is None:
        remarks.add(workload.subject, "has no pod group of the name that its pods refer to")
        return PodGroup(key, workload)
    gang, minimum = _policy(mapping(spec, "policy") or mapping(spec, "schedulingPolicy"))
    required = _required(spec, workload, remarks)
    return PodGroup(key, workload, gang=gang, minimum=minimum, required=required)


_KINDS = """
fragment GroupPolicy
  basic { } gang { minCount }
fragment Group
  schedulingPolicy=GroupPolicy schedulingConstraints { topology[] { key } }
  priorityClassName priority resourceClaims[]=PodResourceClaim
  parentCompositePodGroupName
podgroups.scheduling.k8s.io PodGroup v1 v1beta1 v1alpha3 v1alpha2 v1alpha1
  spec {
    ...Group
    podGroupTemplateRef {
      workload { workloadName podGroupTemplateName } workloadName podGroupTemplateName
    }
  }
  status { conditions[]=Condition }
workloads.scheduling.k8s.io Workload v1 v1beta1 v1alpha3 v1alpha2 v1alpha1
  spec {
    controllerRef { apiGroup kind name }
    podGroupTemplates[] { name ...Group }
    podGroups[] { name policy=GroupPolicy }
  }
compositepodgroups.scheduling.k8s.io CompositePodGroup v1 v1beta1 v1alpha3 v1alpha2 v1alpha1
  spec=Group
"""

DIALECT = Dialect(
    "Kubernetes",
    precedence=50,
    groups=(
        GroupReader("PodGroup", GROUP, describe, fields=("schedulingGroup",), find=group_name),
        GroupReader(
            "Workload",
            GROUP,
            describe_workload_group,
            "Workload",
            fields=("workloadRef",),
            find=workload_group_name,
        ),
    ),
    annotations="scheduling.k8s.io/",
    kinds=_KINDS,
)
