"""Kubernetes' own PodGroup (scheduling.k8s.io, 1.36 on): pods name it in spec.schedulingGroup.

Promises: what the PodGroup leaves out is taken from the template of its Workload; groups under one
composite start together. Called through ``gangs.table``.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.reading.kubernetes.forms import KubeObject, KubePod, LevelAsk, Objects
from planner.reading.kubernetes.gangs.forms import Group, GroupDialect, Link
from planner.reading.kubernetes.looking import Tree, at, mapping, objects, text, whole
from planner.reading.remarks import Remarks

GROUP = "scheduling.k8s.io"
COMPOSITE = "CompositePodGroup"
_DEEPEST = 16


def claim(pod: KubePod) -> str | None:
    return text(pod.object.tree, "spec", "schedulingGroup", "podGroupName")


def find(found: Objects, namespace: str, name: str) -> KubeObject | None:
    return found.named(GROUP, "PodGroup", namespace, name)


def describe(link: Link, pods: Sequence[KubePod], found: Objects, remarks: Remarks) -> Group:
    del pods
    made = find(found, link.namespace, link.name)
    if made is None:
        return Group(link)
    spec = mapping(made.tree, "spec")
    template = _template(spec, link.namespace, found)
    policy = mapping(spec, "schedulingPolicy") or mapping(template, "schedulingPolicy")
    required, more = asked_topology(mapping(spec, "schedulingConstraints"))
    if required is None:
        required, more = asked_topology(mapping(template, "schedulingConstraints"))
    if more:
        remarks.add(made.subject, "asks for several topology keys; the first one counts")
    gang, minimum = gang_policy(policy)
    wider = _widest(made, found)
    return Group(
        link,
        made,
        gang=gang,
        minimum=minimum,
        required=required,
        wider=wider,
        partners=_partners(wider, made.namespace, found) if wider is not None else (),
        around=_around(wider, made.namespace, found) if wider is not None else None,
    )


def gang_policy(policy: Tree) -> tuple[bool, int | None]:
    """Whether the pods start together, and how many at least."""
    minimum = whole(policy, "gang", "minCount")
    if "basic" in policy and not mapping(policy, "gang"):
        return False, None
    return True, minimum


def asked_topology(constraints: Tree) -> tuple[LevelAsk | None, bool]:
    """The level all pods share, and whether more were asked for than we take."""
    keys = [key for entry in objects(constraints, "topology") if (key := text(entry, "key"))]
    return (LevelAsk(label=keys[0]) if keys else None), len(keys) > 1


def _template(spec: Tree, namespace: str, found: Objects) -> Tree:
    """The template of the Workload that the PodGroup was made from; empty where there is none."""
    of = mapping(spec, "podGroupTemplateRef", "workload") or mapping(spec, "podGroupTemplateRef")
    workload, name = text(of, "workloadName"), text(of, "podGroupTemplateName")
    made = found.named(GROUP, "Workload", namespace, workload) if workload else None
    if made is None:
        return {}
    templates = objects(made.tree, "spec", "podGroupTemplates")
    return next((entry for entry in templates if text(entry, "name") == name), {})


def _widest(made: KubeObject, found: Objects) -> str | None:
    """The outermost composite group it stands under."""
    name = None
    spec: object = at(made.tree, "spec")
    for _ in range(_DEEPEST):
        parent = text(spec, "parentCompositePodGroupName")
        if parent is None or parent == name:
            break
        name = parent
        above = found.named(GROUP, COMPOSITE, made.namespace, parent)
        if above is None:
            break
        spec = at(above.tree, "spec")
    return name


def _around(wider: str, namespace: str, found: Objects) -> LevelAsk | None:
    """The level that the outermost composite asks of all groups under it."""
    made = found.named(GROUP, COMPOSITE, namespace, wider)
    tree = made.tree if made is not None else None
    return asked_topology(mapping(tree, "spec", "schedulingConstraints"))[0]


def _partners(wider: str, namespace: str, found: Objects) -> tuple[str, ...]:
    """All groups of the namespace under that composite."""
    groups = (one for one in found.of("PodGroup", GROUP) if one.namespace == namespace)
    return tuple(sorted(one.name for one in groups if _widest(one, found) == wider))


DIALECT = GroupDialect("PodGroup", claim, find, describe)
