"""Volcano's networkTopology as the levels it asks for.

Promises: hard asks for the tier it names, soft prefers the lowest there is. Called by the Volcano
dialects of groups and of controllers.

Volcano's PodGroup, named by an annotation: minimums, network topology, sub-groups.

Promises: a sub-group policy asks of every so many pods, or of those with equal labels, that they
share a domain. Called through ``gangs.table``.

Volcano's Job: its tasks are roles, their partitions slices.

Promises: sizes from spec.tasks. Called through ``gangs.table``.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.read.findings import Remarks
from planner.read.kube.dialects.base import (
    Group,
    GroupDialect,
    Link,
    Maker,
    MakerDialect,
    MakerKey,
    RolePlan,
    Seat,
    Together,
    counted,
)
from planner.read.kube.lookup import Tree, items, mapping, matches, number, objects, text, whole
from planner.read.kube.records import KubeObject, KubePod, LevelAsk, Objects, SliceAsk

MODE = "volcano.sh/network-topology-mode"
TIER = "volcano.sh/network-topology-highest-tier"
NO_TIER = "hard network topology without a tier; Volcano does not honour it, and it is ignored"
_TIERS = 1000

LOWEST = LevelAsk(tier=0)


def asked(tree: Tree, *path: str) -> tuple[LevelAsk | None, LevelAsk | None, str | None]:
    """(required, preferred, what is odd) of the networkTopology below the path."""
    found = mapping(tree, *path)
    if not found:
        return None, None, None
    tier = whole(found, "highestTierAllowed")
    return _levels(text(found, "mode") or "hard", tier, text(found, "highestTierName"))


def annotated(notes: dict[str, str]) -> tuple[LevelAsk | None, LevelAsk | None, str | None]:
    """The same from annotations."""
    mode, tier = notes.get(MODE), notes.get(TIER)
    if mode is None and tier is None:
        return None, None, None
    return _levels(mode or "hard", number(tier), None if number(tier) is not None else tier)


def _levels(
    mode: str, tier: int | None, name: str | None
) -> tuple[LevelAsk | None, LevelAsk | None, str | None]:
    if mode == "soft":
        return None, LOWEST, None
    if mode != "hard":
        return None, None, f"network topology mode {mode[:40]!r} is unknown; it is ignored"
    if name is not None:
        return LevelAsk(tier_name=name), None, None
    if tier is None:
        return None, None, NO_TIER
    if not 0 <= tier <= _TIERS:
        return None, None, f"network topology tier {tier} is no tier; it is ignored"
    return LevelAsk(tier=tier), None, None


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
    required, preferred, odd = asked(made.tree, "spec", "networkTopology")
    if required is None and preferred is None and odd is None:
        required, preferred, odd = annotated(made.annotations)
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
        required, preferred, odd = annotated(pod.annotations)
        if odd is not None:
            remarks.add(pod.subject, odd)
        if required is not None or preferred is not None:
            return Group(group.link, required=required, preferred=preferred)
    return group


def _sub_groups(
    policy: Tree, made: KubeObject, pods: Sequence[KubePod], remarks: Remarks
) -> list[Together]:
    name = text(policy, "name") or "sub-group"
    required, preferred, odd = asked(policy, "networkTopology")
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


GROUP_VOLCANO = "batch.volcano.sh"
KIND = "VCJob"
_KEY = "volcano.sh/"
NAME = f"{_KEY}job-name"
TASK = f"{_KEY}task-spec"
INDEX = f"{_KEY}task-index"


def claim_of_volcano(pod: KubePod, found: Objects) -> MakerKey | None:
    del found
    owner = pod.object.owner
    name = pod.labels.get(NAME) or pod.annotations.get(NAME)
    if not name and owner is not None and owner.kind == "Job" and owner.group == GROUP_VOLCANO:
        name = owner.name
    return MakerKey(KIND, pod.object.namespace, name) if name else None


def describe_of_volcano(key: MakerKey, pods: Sequence[KubePod], found: Objects) -> Maker:
    made = found.named(GROUP_VOLCANO, "Job", key.namespace, key.name)
    if made is None:
        seen = sorted({_task(pod) for pod in pods})
        return Maker(key, KIND, key.name, None, tuple(RolePlan(task, None) for task in seen))
    plans: dict[str, RolePlan] = {}
    for number_, task in enumerate(objects(made.tree, "spec", "tasks")):
        name = text(task, "name") or f"default{number_}"
        size = counted(task, "replicas", absent=1)
        plans.setdefault(
            name, RolePlan(name, size, later=bool(task.get("dependsOn")), slices=_parts(task))
        )
    required, preferred, _ = asked(made.tree, "spec", "networkTopology")
    return Maker(
        key,
        KIND,
        key.name,
        made,
        tuple(plans.values()),
        required=required,
        preferred=preferred,
        queue=text(made.tree, "spec", "queue"),
    )


def _parts(task: Tree) -> tuple[SliceAsk, ...]:
    """Partitions of a task that each need one domain; what they only prefer is not modelled."""
    policy = mapping(task, "partitionPolicy")
    size = whole(policy, "partitionSize")
    required, _, _ = asked(policy, "networkTopology")
    return (SliceAsk(size, required),) if size is not None and size > 0 and required else ()


def _task(pod: KubePod) -> str:
    return pod.labels.get(TASK) or pod.annotations.get(TASK) or "worker"


def seat(pod: KubePod, maker: Maker) -> Seat:
    del maker
    return Seat(_task(pod), number(pod.labels.get(INDEX) or pod.annotations.get(INDEX)))


DIALECT_VOLCANO = MakerDialect(KIND, claim_of_volcano, describe_of_volcano, seat)
