"""KAI's PodGroup, named by an annotation of the pod: sub-groups, topology constraint, queue.

Promises: level names and aliases become labels through KAI's Topology objects. Called through
``gangs.table``; ``owner_asks`` also for controllers that carry KAI's annotations.

KAI and Run:ai: a reservation pod holds each GPU that fraction pods share.

Promises: facts of labels and annotations only. Called by the table of dialects in ``holdings`` and
by ``pods`` for the groups of fraction pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.read.findings import Remarks
from planner.read.kube.dialects.base import (
    Group,
    GroupDialect,
    Link,
    PodKey,
    Together,
    Told,
    told,
    written,
)
from planner.read.kube.dialects.hami import indices_of
from planner.read.kube.lookup import Tree, mapping, number, objects, text, whole
from planner.read.kube.records import KubeNode, KubeObject, KubePod, LevelAsk, Objects, SliceAsk

GROUP = "scheduling.run.ai"
KEY = "pod-group-name"
SUBGROUP = "kai.scheduler/subgroup-name"
TOPOLOGY = "kai.scheduler/topology"
REQUIRED = f"{TOPOLOGY}-required-placement"
PREFERRED = f"{TOPOLOGY}-preferred-placement"
SEGMENT_SIZE = "kai.scheduler/segment-size"
SEGMENT_REQUIRED = "kai.scheduler/segment-topology-required-placement"
UNKNOWN_LEVEL = "asks for a topology level that no KAI Topology names"
_SCHEDULER = "kai-scheduler"
_DEEPEST = 32


def claim(pod: KubePod) -> str | None:
    name = pod.annotations.get(KEY)
    if name or pod.scheduler != _SCHEDULER:
        return name or None
    # A key without a prefix is anybody's: as a label it is KAI's only on pods of KAI.
    return pod.labels.get(KEY) or None


def find(found: Objects, namespace: str, name: str) -> KubeObject | None:
    return found.named(GROUP, "PodGroup", namespace, name)


def describe(link: Link, pods: Sequence[KubePod], found: Objects, remarks: Remarks) -> Group:
    subgroup = {pod.key: name for pod in pods if (name := pod.labels.get(SUBGROUP))}
    made = find(found, link.namespace, link.name)
    if made is None:
        return Group(link, roles=subgroup)
    constraint = mapping(made.tree, "spec", "topologyConstraint")
    required, preferred, problems = _levels(constraint, found)
    parts: dict[str, Tree] = {}
    for part in objects(made.tree, "spec", "subGroups"):
        if (name := text(part, "name")) is not None:
            parts.setdefault(name, part)
    together: list[Together] = []
    for name, part in parts.items():
        inside, more = _part(name, part, parts, subgroup, found)
        together += inside
        problems += more
    if problems:
        remarks.add(made.subject, UNKNOWN_LEVEL)
    sizes = {name: size for name, part in parts.items() if (size := whole(part, "minMember"))}
    minimum = whole(made.tree, "spec", "minMember")
    if minimum is None and sizes:
        minimum = sum(size for size in sizes.values() if size > 0)
    return Group(
        link,
        made,
        minimum=minimum,
        minimums=sizes,
        required=required,
        preferred=preferred,
        together=tuple(together),
        queue=text(made.tree, "spec", "queue"),
        preemptible=text(made.tree, "spec", "preemptibility") == "preemptible",
        roles=subgroup,
        order=tuple(parts),
        problems=tuple(dict.fromkeys(problems)),
    )


def _part(
    name: str, part: Tree, parts: dict[str, Tree], subgroup: dict[PodKey, str], found: Objects
) -> tuple[list[Together], list[str]]:
    """What one sub-group asks of its pods and of those of the sub-groups below it."""
    required, preferred, problems = _levels(mapping(part, "topologyConstraint"), found)
    members = frozenset(key for key, own in subgroup.items() if _under(own, name, parts))
    what = f"sub-group {name}"
    asks = [(required, True), (preferred, False)]
    return [
        Together(members, level, hard, what) for level, hard in asks if level is not None
    ], problems


def _under(own: str | None, name: str, parts: dict[str, Tree]) -> bool:
    for _ in range(_DEEPEST):
        if own == name:
            return True
        if own is None or own not in parts:
            return False
        own = text(parts[own], "parent")
    return False


def _levels(constraint: Tree, found: Objects) -> tuple[LevelAsk | None, LevelAsk | None, list[str]]:
    """(required, preferred, problems) of a topologyConstraint."""
    topology = text(constraint, "topology")
    required, lost = _level(topology, text(constraint, "requiredTopologyLevel"), found)
    preferred, _ = _level(topology, text(constraint, "preferredTopologyLevel"), found)
    return required, preferred, [UNKNOWN_LEVEL] if lost else []


def _level(topology: str | None, name: str | None, found: Objects) -> tuple[LevelAsk | None, bool]:
    """The level of that name or alias, and whether it names nothing."""
    if name is None:
        return None, False
    made = found.named("kai.scheduler", "Topology", "", topology) if topology else None
    for level in objects(made.tree, "spec", "levels") if made is not None else []:
        label = text(level, "nodeLabel")
        if label is not None and name in (label, text(level, "alias")):
            return LevelAsk(label=label), False
    # Without the Topology a name with a prefix can only be a label.
    return (LevelAsk(label=name), False) if "/" in name else (None, True)


def owner_asks(
    notes: dict[str, str], found: Objects
) -> tuple[LevelAsk | None, LevelAsk | None, bool]:
    """(required, preferred, whether one names nothing) of KAI's annotations on a controller."""
    topology = notes.get(TOPOLOGY)
    required, lost = _level(topology, notes.get(REQUIRED) or None, found)
    preferred, _ = _level(topology, notes.get(PREFERRED) or None, found)
    return required, preferred, lost


def segments(notes: dict[str, str], found: Objects) -> tuple[SliceAsk | None, bool]:
    """The slices that KAI's annotations ask for, and whether their level names nothing."""
    size = number(notes.get(SEGMENT_SIZE))
    level, lost = _level(notes.get(TOPOLOGY), notes.get(SEGMENT_REQUIRED) or None, found)
    return (SliceAsk(size, level) if size and level is not None else None), lost


DIALECT = GroupDialect("KAI", claim, find, describe)


RESERVED = "run.ai/reserve_for_gpu_index"
GROUP_KAI = "runai-gpu-group"


def reserved(annotations: Mapping[str, str], node: KubeNode) -> Told | None:
    """The GPU of a reservation pod, by index or by uuid."""
    found = written(annotations, RESERVED)
    if found is None:
        return None
    index = number(found.strip())
    return told([indices_of(node).get(found.strip()) if index is None else index])


def groups(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Groups of fraction pods that a pod belongs to: each shares one GPU."""
    found = {labels[GROUP_KAI]: None} if labels.get(GROUP_KAI) else {}
    prefix = GROUP_KAI + "/"
    more = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    return tuple(found | dict.fromkeys(more))
