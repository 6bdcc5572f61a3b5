"""Koordinator's and ACK's gangs: labels and annotations of pods, or the old PodGroup they name.

Promises: gangs that name each other in ``groups`` start together; layers become labels through the
ClusterNetworkTopology. Called through ``gangs.table``.

Koordinator: the devices its scheduler allocated to a pod.

Promises: facts of the annotation only, nothing checked against the node. Called by the table of
dialects in ``holdings``.

ACK (Alibaba): which GPUs a pod sees, and on which one its share of memory lies.

Promises: facts of annotations only, nothing checked against the node. Called by the table of
dialects in ``holdings``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from planner.read.findings import Remarks
from planner.read.kube.dialects.base import (
    UNREADABLE,
    Group,
    GroupDialect,
    Link,
    Told,
    comma_list,
    marked,
    told,
    tree,
    written,
)
from planner.read.kube.lookup import Tree, items, number, objects, text, whole
from planner.read.kube.records import KubeNode, KubeObject, KubePod, LevelAsk, Objects

GROUP = "scheduling.sigs.k8s.io"
_GANG = "gang.scheduling.koordinator.sh/"
NAME = f"{_GANG}name"
MINIMUM = f"{_GANG}min-available"
TOGETHER = f"{_GANG}groups"
TOPOLOGY = f"{_GANG}network-topology-spec"
POD_GROUP = "pod-group.scheduling.sigs.k8s.io"
UNKNOWN_LAYER = "must gather in a topology layer that no ClusterNetworkTopology describes"
_NODE_LAYERS = frozenset({"node", "nodetopologylayer"})
_DEEPEST = 32


def claim(pod: KubePod) -> str | None:
    keys = (NAME, f"{POD_GROUP}/name", POD_GROUP)
    return next((name for key in keys if (name := marked(pod, key))), None)


def find(found: Objects, namespace: str, name: str) -> KubeObject | None:
    return found.named(GROUP, "PodGroup", namespace, name)


def describe(link: Link, pods: Sequence[KubePod], found: Objects, remarks: Remarks) -> Group:
    made = find(found, link.namespace, link.name)
    notes = [made.annotations] if made is not None else []
    notes += [pod.annotations for pod in pods] + [pod.labels for pod in pods]
    minimum = whole(made.tree, "spec", "minMember") if made is not None else None
    if minimum is None:
        stated = _first(notes, MINIMUM) or _first(notes, f"{POD_GROUP}/min-available")
        minimum = number(stated)
    required, preferred, lost = _levels(_first(notes, TOPOLOGY), found)
    partners = _partners(_first(notes, TOGETHER), link)
    group = Group(
        link,
        made,
        minimum=minimum,
        required=required,
        preferred=preferred,
        wider=partners[0] if partners else None,
        partners=partners,
        problems=(UNKNOWN_LAYER,) if lost else (),
    )
    if lost:
        remarks.add(group.subject, UNKNOWN_LAYER)
    return group


def _first(notes: Sequence[dict[str, str]], key: str) -> str | None:
    return next((value for note in notes if (value := note.get(key))), None)


def _partners(written: str | None, link: Link) -> tuple[str, ...]:
    """The gangs of this namespace that start together, in sort order; none if it starts alone."""
    names = sorted({name for name in _parsed_list(written) if isinstance(name, str)})
    own = (link.name, f"{link.namespace}/{link.name}")
    here = [name for name in names if name in own or name.startswith(f"{link.namespace}/")]
    if len(here) < 2 or not any(name in own for name in here):
        return ()
    return tuple(sorted({name.removeprefix(f"{link.namespace}/") for name in here}))


def _parsed_list(written: str | None) -> list[object]:
    return items({"found": _parsed(written)}, "found")


def _parsed(written: str | None) -> object:
    if written is None or len(written) > 65536:
        return None
    try:
        parsed: object = json.loads(written)
    except (ValueError, RecursionError):
        return None
    return parsed


def _levels(written: str | None, found: Objects) -> tuple[LevelAsk | None, LevelAsk | None, bool]:
    """(required, preferred, whether a layer is unknown); of several layers the nearest counts."""
    layers = _layers(found)
    hard: list[tuple[int, str]] = []
    soft: list[tuple[int, str]] = []
    lost = False
    for entry in objects(_parsed(written), "gatherStrategy"):
        layer, strategy = text(entry, "layer"), text(entry, "strategy")
        place = layers.get((layer or "").lower())
        if strategy == "MustGather":
            lost = lost or place is None
            hard += [place] if place is not None else []
        elif place is not None:
            soft.append(place)
    required = LevelAsk(label=max(hard)[1]) if hard else None
    preferred = LevelAsk(label=max(soft)[1]) if soft else None
    return required, preferred, lost


def _layers(found: Objects) -> dict[str, tuple[int, str]]:
    """(depth, label) by layer, in lower case."""
    layers = dict.fromkeys(_NODE_LAYERS, (_DEEPEST + 1, "kubernetes.io/hostname"))
    topologies = found.of("ClusterNetworkTopology", "scheduling.koordinator.sh")
    for made in sorted(topologies, key=lambda one: one.name):
        parts: dict[str, Tree] = {}
        for part in objects(made.tree, "spec", "networkTopologySpec"):
            parts.setdefault(text(part, "topologyLayer") or "", part)
        for name, part in parts.items():
            keys = [key for key in items(part, "labelKey") if isinstance(key, str) and key]
            if name and keys:
                layers.setdefault(name.lower(), (_depth(name, parts), keys[0]))
    return layers


def _depth(name: str | None, parts: dict[str, Tree]) -> int:
    for depth in range(_DEEPEST):
        if name is None or name not in parts:
            return depth
        name = text(parts[name], "parentTopologyLayer")
    return _DEEPEST


DIALECT = GroupDialect("Koordinator", claim, find, describe)


ALLOCATED = "scheduling.koordinator.sh/device-allocated"


def allocated(annotations: Mapping[str, str], node: KubeNode) -> Told | None:
    """``{"gpu": [{"minor": 0, "resources": {...}}], "rdma": [...]}``: minors are indices."""
    del node
    found = written(annotations, ALLOCATED)
    if found is None:
        return None
    devices = tree(found)
    if not isinstance(devices, dict):
        return UNREADABLE
    if "gpu" not in devices:
        return None
    return told(whole(entry, "minor") for entry in items(devices, "gpu"))


VISIBLE = "topology.kubernetes.io/gpu-visible"
GROUP_ACK = "topology.kubernetes.io/gpu-group"
SHARE = "scheduler.framework.gpushare.allocation"
OLD_SHARE = "ALIYUN_COM_GPU_MEM_IDX"


def visible(annotations: Mapping[str, str], node: KubeNode) -> Told | None:
    """``gpu-visible: "0,3"``; ``gpu-group`` in the same form where only that is written."""
    del node
    found = written(annotations, VISIBLE) or written(annotations, GROUP_ACK)
    return None if found is None else comma_list(found)


def share(annotations: Mapping[str, str], node: KubeNode) -> Told | None:
    """``{"0": {"1": 4}}``: container to GPU to memory; of old, one index as text."""
    del node
    found = written(annotations, SHARE)
    if found is None:
        found = written(annotations, OLD_SHARE)
        return None if found is None else comma_list(found)
    containers = tree(found)
    if not isinstance(containers, dict):
        return UNREADABLE
    indices: dict[int | None, None] = {}
    for gpus in containers.values():
        if not isinstance(gpus, dict):
            return UNREADABLE
        indices |= {number(index): None for index in gpus}
    return told(indices)
