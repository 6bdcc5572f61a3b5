"""KAI and Run:ai: the PodGroup that a pod annotation names, topology annotations, parts of GPUs, queues.

KAI's Topology objects map level names and aliases to node labels. Parts:
https://github.com/kai-scheduler/KAI-Scheduler, ``pkg/common/resources/gpu_sharing.go``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import ceil

from msgspec import structs

from models.gpu_shares import CORES, MOST_GPUS, Part
from models.instance.policy import KubernetesPolicy
from models.instance.queue import Amount
from planner.read.kube.dialects import base
from planner.read.kube.dialects.gpus import (
    MALFORMED,
    MOST_MIB,
    Ask,
    GpuSystem,
    indices_by_uuid,
    is_taken,
    share,
)
from planner.read.kube.dialects.quotas import (
    Quota,
    QuotaReader,
    QuotaSources,
    find_by_name,
    quota,
    weight,
)
from planner.read.kube.lookup import Tree, mapping, number, objects, text, whole
from planner.read.kube.records import (
    Group,
    KubeNode,
    KubeObject,
    KubePod,
    LevelAsk,
    Objects,
    Share,
    SliceAsk,
)

GROUP = "scheduling.run.ai"
KEY = "pod-group-name"
SUBGROUP = "kai.scheduler/subgroup-name"
TOPOLOGY = "kai.scheduler/topology"
REQUIRED = f"{TOPOLOGY}-required-placement"
PREFERRED = f"{TOPOLOGY}-preferred-placement"
SEGMENT_SIZE = "kai.scheduler/segment-size"
SEGMENT_REQUIRED = "kai.scheduler/segment-topology-required-placement"
RESERVED = "run.ai/reserve_for_gpu_index"
GPU_GROUP = "runai-gpu-group"
_GROUPS = f"{GPU_GROUP}/"
_UUID = "GPU-"
FRACTION, MEMORY, DEVICES = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"
"""Annotations that ask for a part of a GPU, and of how many."""
_MOST_DIGITS = 40
NO_RESERVATION = (
    "requests a part of a GPU from KAI, and no pod reserves one for it on its node; it holds none"
)
UNKNOWN_LEVEL = "asks for a topology level that no KAI Topology defines"
RESERVATIONS = ("kai-resource-reservation", "runai-reservation")
"""Namespaces of the reservation pods, each of which holds the GPU of one group of fraction pods."""

UNLIMITED = -1
"""A quota or limit without an end."""

SCHEDULERS = ("kai-scheduler", "runai-scheduler")
_MAX_DEPTH = 32


def group_name(pod: KubeObject, api: Objects) -> str | None:
    del api
    name = pod.annotations.get(KEY)
    if name or text(pod.tree, "spec", "schedulerName") != "kai-scheduler":
        return name or None
    # The key has no prefix: as a label it is KAI's only on pods of KAI.
    return pod.labels.get(KEY) or None


def describe(of: base.Grouped) -> base.PodGroup:
    key, group, pods, api, remarks = of
    subgroup = {pod.key: name for pod in pods if (name := pod.labels.get(SUBGROUP))}
    if group is None:
        return base.PodGroup(key, roles=subgroup)
    constraint = mapping(group.tree, "spec", "topologyConstraint")
    required, preferred, unknown = _levels(constraint, _FIELDS, api)
    subgroups: dict[str, Tree] = {}
    for tree in objects(group.tree, "spec", "subGroups"):
        if (name := text(tree, "name")) is not None:
            subgroups.setdefault(name, tree)
    colocations: list[base.Colocation] = []
    for name, tree in subgroups.items():
        *levels, lost = _levels(mapping(tree, "topologyConstraint"), _FIELDS, api)
        members = frozenset(pod for pod, own in subgroup.items() if _under(own, name, subgroups))
        colocations += [
            base.Colocation(members, level, hard, f"sub-group {name}")
            for level, hard in zip(levels, (True, False), strict=True)
            if level is not None
        ]
        unknown = unknown or lost
    if unknown:
        remarks.add(group.subject, UNKNOWN_LEVEL)
    sizes = {name: size for name, part in subgroups.items() if (size := whole(part, "minMember"))}
    minimum = whole(group.tree, "spec", "minMember")
    if minimum is None and sizes:
        minimum = sum(size for size in sizes.values() if size > 0)
    return base.PodGroup(
        key,
        group,
        minimum=minimum,
        minimums=sizes,
        required=required,
        preferred=preferred,
        colocations=tuple(colocations),
        queue=text(group.tree, "spec", "queue"),
        preemptible=text(group.tree, "spec", "preemptibility") == "preemptible",
        roles=subgroup,
        order=tuple(subgroups),
        problems=(UNKNOWN_LEVEL,) if unknown else (),
    )


def _under(own: str | None, name: str, subgroups: dict[str, Tree]) -> bool:
    for _ in range(_MAX_DEPTH):
        if own == name:
            return True
        if own is None or own not in subgroups:
            return False
        own = text(subgroups[own], "parent")
    return False


_FIELDS = ("topology", "requiredTopologyLevel", "preferredTopologyLevel")


def _levels(
    tree: Mapping[str, object], names: Sequence[str], api: Objects
) -> tuple[LevelAsk | None, LevelAsk | None, bool]:
    """(required, preferred, whether the required one is unknown) of a topologyConstraint or annotations."""
    topology, required, preferred = (text(tree, name) for name in names)
    found = _level(topology, required, api)
    return found, _level(topology, preferred, api), found is None and bool(required)


def _level(topology: str | None, name: str | None, api: Objects) -> LevelAsk | None:
    if not name:
        return None
    made = api.named("kai.scheduler", "Topology", "", topology) if topology else None
    for level in objects(made.tree, "spec", "levels") if made is not None else []:
        label = text(level, "nodeLabel")
        if label is not None and name in (label, text(level, "alias")):
            return LevelAsk(label=label)
    # Without the Topology a name with a prefix can only be a label.
    return LevelAsk(label=name) if "/" in name else None


def topology(controller: Mapping[str, str], api: Objects) -> base.Asked:
    """What the annotations of a controller ask for its gang."""
    if TOPOLOGY not in controller:
        return base.ASKS_NOTHING
    required, preferred, unknown = _levels(controller, (TOPOLOGY, REQUIRED, PREFERRED), api)
    return base.Asked(required, preferred, problems=(UNKNOWN_LEVEL,) if unknown else ())


def segments(
    pod: Mapping[str, str], controller: Mapping[str, str], api: Objects
) -> tuple[SliceAsk | None, str | None]:
    """The slices that a pod, else its controller, asks for its role, and what is wrong with them."""
    annotations = pod if SEGMENT_SIZE in pod else controller
    size, name = number(annotations.get(SEGMENT_SIZE)), annotations.get(SEGMENT_REQUIRED)
    level = _level(annotations.get(TOPOLOGY), name, api)
    unknown = UNKNOWN_LEVEL if level is None and name else None
    return (SliceAsk(size, level) if size and level else None), unknown


def _asks(amounts: Mapping[str, int], annotations: Mapping[str, str]) -> Ask | None:
    del amounts
    if annotations.keys().isdisjoint((FRACTION, MEMORY, DEVICES)):
        return None
    return share(number(annotations.get(DEVICES)) or 1, FRACTION)


def _shares(pod: KubeObject) -> bool:
    asks = FRACTION in pod.annotations or MEMORY in pod.annotations
    return asks and text(pod.tree, "spec", "schedulerName") in SCHEDULERS


def _part(ask: Ask, pod: KubeObject, scheduler: str) -> Ask | None:
    """``gpu-fraction`` counts before ``gpu-memory``, which is in MiB."""
    if ask.by != FRACTION or scheduler not in SCHEDULERS:
        return None
    gpus = number(pod.annotations.get(DEVICES) or "1")
    fraction, amount = pod.annotations.get(FRACTION), number(pod.annotations.get(MEMORY))
    part = None
    if fraction:
        permille = _permille(fraction)
        part = None if permille is None else Part.fraction(permille)
    elif amount and amount <= MOST_MIB:
        part = Part.memory(amount, 0)
    if part is None or not gpus or gpus > MOST_GPUS:
        return ask.with_problem(MALFORMED)
    return structs.replace(ask, part=replace(part, gpus=gpus), resource=FRACTION)


def _permille(written: str) -> int | None:
    """Thousandths of a GPU, rounded up; None for what is no part of one."""
    if len(written) > _MOST_DIGITS or not written.isascii():
        return None
    try:
        fraction = Decimal(written)
    except InvalidOperation:
        return None
    if not fraction.is_finite() or not 0 < fraction < 1:
        return None
    permille = ceil(1000 * Fraction(fraction)) if fraction.adjusted() > -_MOST_DIGITS else 1
    return permille if permille < CORES else None


def _missing(
    pod: KubePod, ask: Ask, there: Collection[Group], policy: KubernetesPolicy
) -> tuple[str, ...] | None:
    """A part is there once a pod reserves a GPU for each of its groups."""
    del policy
    if ask.by != FRACTION or pod.scheduler not in SCHEDULERS:
        return None
    groups = gpu_groups(pod.object)
    granted = len(groups) == ask.shares and all(is_taken(one, there) for one in groups)
    return () if granted else (NO_RESERVATION,)


def _held(pod: KubePod) -> tuple[Share, ...] | None:
    if pod.scheduler not in SCHEDULERS:
        return ()  # no scheduler of this pod reads the annotation
    return gpu_groups(pod.object) or None


def reserved(annotations: Mapping[str, str], node: KubeNode) -> tuple[int, ...] | None:
    """The GPU of a reservation pod, by index or by uuid; None if its node names no such uuid."""
    found = (base.annotation(annotations, RESERVED) or "").strip()
    index = number(found)
    if index is None and found.startswith(_UUID):
        index = indices_by_uuid(node).get(found)
        return None if index is None else (index,)
    return base.gpu_indices([index]) if found else None


def is_empty_reservation(pod: KubePod) -> bool:
    """Whether a pod reserves a GPU for a group, and the pods of the group hold it."""
    reserves = pod.object.namespace in RESERVATIONS and bool(pod.labels.get(GPU_GROUP))
    return reserves and pod.holds_room and not pod.gpus


def gpu_groups(pod: KubeObject) -> tuple[Group, ...]:
    """Groups of fraction pods that a pod belongs to: each shares one GPU."""
    own, labels = "" if pod.namespace in RESERVATIONS else pod.namespace, pod.labels
    found = [labels[GPU_GROUP]] if labels.get(GPU_GROUP) else []
    if _GROUPS in " ".join(labels):  # of few pods
        found += sorted(key[len(_GROUPS) :] for key in labels if key.startswith(_GROUPS))
    return tuple((own, group) for group in dict.fromkeys(found))


def read_queues(sources: QuotaSources) -> Iterable[Quota]:
    """KAI's queues. A quota or a limit of -1 has no end: such a quota promises every GPU there is."""
    for made in sources.api.of("Queue", GROUP):
        gpu = mapping(made.tree, "spec", "resources", "gpu")
        kept, limit = gpu.get("quota"), gpu.get("limit")
        promised = None if kept in (None, UNLIMITED) else sources.whole(kept, made.where)
        yield quota(
            made,
            "kai",
            parent=text(made.tree, "spec", "parentQueue"),
            guarantee=Amount(sources.installed if kept == UNLIMITED else promised),
            limit=Amount(None if limit in (None, UNLIMITED) else sources.whole(limit, made.where)),
            weight=weight(gpu.get("overQuotaWeight")),
        )


_KINDS = """
fragment KaiTopology
  topology requiredTopologyLevel preferredTopologyLevel
fragment KaiShare
  quota overQuotaWeight limit
podgroups.scheduling.run.ai PodGroup v2alpha2
  spec {
    minMember queue priorityClassName preemptibility
      topologyConstraint=KaiTopology
    subGroups[] { name minMember parent topologyConstraint=KaiTopology }
  }
  status { phase conditions[]=Condition }
queues.scheduling.run.ai Queue v2 cluster
  spec {
    parentQueue priority
    resources { gpu=KaiShare cpu=KaiShare memory=KaiShare }
  }
topologies.kai.scheduler Topology v1alpha1 cluster
  spec { levels[] { nodeLabel alias } }
"""

DIALECT = base.Dialect(
    "KAI",
    precedence=90,
    quotas=QuotaReader(
        read_queues, find_by_name, dict.fromkeys(SCHEDULERS, "default-queue"), precedence=10
    ),
    groups=(
        base.GroupReader(
            "KAI", GROUP, describe, labels=(KEY,), annotations=(KEY,), find=group_name
        ),
    ),
    holdings=(base.HoldingReader(f"annotation {RESERVED}", (RESERVED,), reserved),),
    gpus=(
        GpuSystem(
            name=FRACTION,
            annotations=(FRACTION, MEMORY, DEVICES),
            hints={DEVICES: f"{DEVICES} needs {FRACTION} or {MEMORY} beside it"},
            alone=_asks,
            asks=_shares,
            part=_part,
            missing=_missing,
            groups=gpu_groups,
            shares=_held,
            is_empty=is_empty_reservation,
            any_node=True,
        ),
    ),
    queue_keys={"kai.scheduler/queue": 3},
    preemptible={"kai.scheduler/preemptibility": "preemptible"},
    controller_topology=topology,
    segments=segments,
    topologies=base.TopologyReader("kai.scheduler", "KAI"),
    annotations="kai.scheduler/ scheduling.run.ai/ pod-group-name gpu-fraction "
    "gpu-fraction-num-devices gpu-memory runai-gpu-group",
    kinds=_KINDS,
)
