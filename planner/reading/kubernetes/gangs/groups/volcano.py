"""Volcano's PodGroup, named by an annotation: minimums, network topology, sub-groups.

Promises: a sub-group policy asks of every so many pods, or of those with equal labels, that they
share a domain. Called through ``gangs.table``.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.reading.kubernetes.forms import KubeObject, KubePod, Objects
from planner.reading.kubernetes.gangs import tiers
from planner.reading.kubernetes.gangs.forms import Group, GroupDialect, Link, Together
from planner.reading.kubernetes.looking import Tree, items, mapping, objects, text, whole
from planner.reading.kubernetes.selecting import matches
from planner.reading.remarks import Remarks

GROUP = "scheduling.volcano.sh"
ANNOTATION = "scheduling.k8s.io/group-name"
VOLCANO_ANNOTATION = "scheduling.volcano.sh/group-name"


def claim(pod: KubePod) -> str | None:
    return pod.annotations.get(ANNOTATION) or pod.annotations.get(VOLCANO_ANNOTATION) or None


def find(found: Objects, namespace: str, name: str) -> KubeObject | None:
    return found.named(GROUP, "PodGroup", namespace, name)


def describe(link: Link, pods: Sequence[KubePod], found: Objects, remarks: Remarks) -> Group:
    made = find(found, link.namespace, link.name)
    if made is None:
        return _annotated(Group(link), pods, remarks)
    required, preferred, odd = tiers.asked(made.tree, "spec", "networkTopology")
    if required is None and preferred is None and odd is None:
        required, preferred, odd = tiers.annotated(made.annotations)
    if odd is not None:
        remarks.add(made.subject, odd)
    minimums = mapping(made.tree, "spec", "minTaskMember")
    together = [
        one
        for policy in objects(made.tree, "spec", "subGroupPolicy")
        for one in _sub_groups(policy, made, pods, remarks)
    ]
    return Group(
        link,
        made,
        minimum=whole(made.tree, "spec", "minMember"),
        minimums={task: size for task in minimums if (size := whole(minimums, task)) is not None},
        required=required,
        preferred=preferred,
        together=tuple(together),
        queue=text(made.tree, "spec", "queue"),
    )


def _annotated(group: Group, pods: Sequence[KubePod], remarks: Remarks) -> Group:
    """The group as its pods alone tell of it."""
    for pod in pods:
        required, preferred, odd = tiers.annotated(pod.annotations)
        if odd is not None:
            remarks.add(pod.subject, odd)
        if required is not None or preferred is not None:
            return Group(group.link, required=required, preferred=preferred)
    return group


def _sub_groups(
    policy: Tree, made: KubeObject, pods: Sequence[KubePod], remarks: Remarks
) -> list[Together]:
    name = text(policy, "name") or "sub-group"
    required, preferred, odd = tiers.asked(policy, "networkTopology")
    if odd is not None:
        remarks.add(made.subject, odd)
    level = required or preferred
    if level is None:
        return []
    selector = mapping(policy, "labelSelector")
    keys = [key for key in items(policy, "matchLabelKeys") if isinstance(key, str)]
    size = whole(policy, "subGroupSize")
    by_labels: dict[tuple[str | None, ...], list[KubePod]] = {}
    for pod in pods:
        if matches(selector, pod.labels):
            # Without keys all selected pods are alike, and only the size tells sub-groups apart.
            by_labels.setdefault(tuple(pod.labels.get(key) for key in keys), []).append(pod)
    return [
        Together(
            frozenset(pod.key for pod in members),
            level,
            required is not None,
            f"sub-group policy {name}",
            size if size is not None and size > 0 else None,
            apart=bool(keys),
        )
        for members in by_labels.values()
    ]


DIALECT = GroupDialect("Volcano", claim, find, describe)
