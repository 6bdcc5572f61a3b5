"""Koordinator: gangs in labels and annotations or in the PodGroup they name, and allocated devices.

Gangs that list each other in ``groups`` start together; the ClusterNetworkTopology maps layers to labels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from planner.read.findings import Remarks
from planner.read.kube.dialects.base import (
    AnnotationBackend,
    Dialect,
    GroupKey,
    GroupReader,
    HoldingReader,
    PodGroup,
    annotation,
    gpu_indices,
    json_value,
    label_or_annotation,
)
from planner.read.kube.dialects.elastic_quotas import KOORDINATOR_QUOTAS
from planner.read.kube.lookup import Tree, items, number, objects, text, whole
from planner.read.kube.records import KubeNode, KubeObject, KubePod, LevelAsk, Objects

GROUP = "scheduling.sigs.k8s.io"
_GANG = "gang.scheduling.koordinator.sh/"
NAME = f"{_GANG}name"
MINIMUM = f"{_GANG}min-available"
SIBLINGS = f"{_GANG}groups"
TOPOLOGY = f"{_GANG}network-topology-spec"
POD_GROUP = "pod-group.scheduling.sigs.k8s.io"
_NAMES = (NAME, f"{POD_GROUP}/name", POD_GROUP)
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
UNKNOWN_LAYER = "must gather in a topology layer that no ClusterNetworkTopology describes"
_NODE_LAYERS = frozenset({"node", "nodetopologylayer"})
_MAX_DEPTH = 32
_WHOLE_GPU = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
"""A whole GPU in Koordinator's percents."""


def group_name(pod: KubePod) -> str | None:
    return next((name for key in _NAMES if (name := label_or_annotation(pod, key))), None)


def describe(
    key: GroupKey, group: KubeObject | None, pods: Sequence[KubePod], api: Objects, remarks: Remarks
) -> PodGroup:
    notes = [group.annotations] if group is not None else []
    notes += [pod.annotations for pod in pods] + [pod.labels for pod in pods]
    minimum = whole(group.tree, "spec", "minMember") if group is not None else None
    if minimum is None:
        minimum = number(_first(notes, MINIMUM) or _first(notes, f"{POD_GROUP}/min-available"))
    required, preferred, unknown = _levels(_first(notes, TOPOLOGY), api)
    siblings = _siblings(_first(notes, SIBLINGS), key)
    found = PodGroup(
        key,
        group,
        minimum=minimum,
        required=required,
        preferred=preferred,
        parent=siblings[0] if siblings else None,
        siblings=siblings,
        problems=(UNKNOWN_LAYER,) if unknown else (),
    )
    if unknown:
        remarks.add(found.subject, UNKNOWN_LAYER)
    return found


def _first(notes: Sequence[dict[str, str]], key: str) -> str | None:
    return next((value for note in notes if (value := note.get(key))), None)


def _siblings(written: str | None, key: GroupKey) -> tuple[str, ...]:
    """The gangs of this namespace that start together, sorted; none if it starts alone."""
    listed = items({"names": json_value(written)}, "names")
    own, prefix = (key.name, f"{key.namespace}/{key.name}"), f"{key.namespace}/"
    names = {name for name in listed if isinstance(name, str)}
    here = {name for name in names if name in own or name.startswith(prefix)}
    if len(here) < 2 or here.isdisjoint(own):
        return ()
    return tuple(sorted({name.removeprefix(prefix) for name in here}))


def _levels(written: str | None, api: Objects) -> tuple[LevelAsk | None, LevelAsk | None, bool]:
    """(required, preferred, whether a layer is unknown); of several layers the nearest counts."""
    layers = _layers(api)
    hard: list[tuple[int, str]] = []
    soft: list[tuple[int, str]] = []
    unknown = False
    for entry in objects(json_value(written), "gatherStrategy"):
        layer, strategy = text(entry, "layer"), text(entry, "strategy")
        place = layers.get((layer or "").lower())
        if place is not None:
            (hard if strategy == "MustGather" else soft).append(place)
        elif strategy == "MustGather":
            unknown = True
    required = LevelAsk(label=max(hard)[1]) if hard else None
    preferred = LevelAsk(label=max(soft)[1]) if soft else None
    return required, preferred, unknown


def _layers(api: Objects) -> dict[str, tuple[int, str]]:
    """(depth, label) by layer, in lower case."""
    layers = dict.fromkeys(_NODE_LAYERS, (_MAX_DEPTH + 1, "kubernetes.io/hostname"))
    topologies = api.of("ClusterNetworkTopology", "scheduling.koordinator.sh")
    for topology in sorted(topologies, key=lambda one: one.name):
        parts: dict[str, Tree] = {}
        for part in objects(topology.tree, "spec", "networkTopologySpec"):
            parts.setdefault(text(part, "topologyLayer") or "", part)
        for name, part in parts.items():
            keys = [key for key in items(part, "labelKey") if isinstance(key, str) and key]
            if name and keys:
                layers.setdefault(name.lower(), (_depth(name, parts), keys[0]))
    return layers


def _depth(name: str | None, parts: dict[str, Tree]) -> int:
    for depth in range(_MAX_DEPTH):
        if name is None or name not in parts:
            return depth
        name = text(parts[name], "parentTopologyLayer")
    return _MAX_DEPTH


def allocated(annotations: Mapping[str, str], node: KubeNode) -> tuple[int, ...] | None:
    """``{"gpu": [{"minor": 0, "resources": {...}}], "rdma": [...]}``: minors are indices."""
    del node
    found = annotation(annotations, ALLOCATED)
    if found is None:
        return None
    devices = json_value(found)
    if not isinstance(devices, dict):
        return ()
    if "gpu" not in devices:
        return None
    return gpu_indices(whole(entry, "minor") for entry in items(devices, "gpu"))


def _objection(scheduler: str) -> str | None:
    """Koordinator's own scheduler is recognised by its name, ``koord-scheduler``."""
    if "koord" not in scheduler.lower():
        return None
    return f"its scheduler {scheduler} chooses the GPUs by itself"


def _devices(gpus: Sequence[int], node: str, node_tree: Tree, pod_tree: Tree) -> str:
    del node, node_tree, pod_tree
    devices = [{"minor": index, "resources": _WHOLE_GPU} for index in gpus]
    return json.dumps({"gpu": devices}, sort_keys=True, separators=(",", ":"))


DIALECT = Dialect(
    "Koordinator",
    groups=(GroupReader("Koordinator", GROUP, group_name, describe),),
    holdings=(HoldingReader(f"annotation {ALLOCATED}", (ALLOCATED,), allocated),),
    backend=AnnotationBackend(
        name="koordinator",
        key=ALLOCATED,
        note=(
            f"{ALLOCATED} makes koordlet give a pod the GPUs that the plan chose; "
            "a node without koordlet ignores it"
        ),
        objection=_objection,
        chosen_by_owner="chooses devices already",
        value=_devices,
    ),
    quotas=KOORDINATOR_QUOTAS,
)
