"""Kueue: groups of plain pods, the topology that podset annotations ask for, and Workloads without pods.

A label names the group, an annotation counts its pods; the group needs all of them. The pod sets of a
Workload are the roles of pods that nothing but the Workload describes yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from models.instance.policy import KUEUE
from planner.read.findings import Remarks
from planner.read.kube.dialects import kueue_quotas, kueue_workloads
from planner.read.kube.dialects.base import (
    Controller,
    ControllerKey,
    ControllerReader,
    Dialect,
    GroupKey,
    GroupReader,
    PodGroup,
    RoleIndex,
    RoleSpec,
    allowed_range,
    count,
    json_value,
)
from planner.read.kube.dialects.made_pods import MadePod, PodSet, owned_by
from planner.read.kube.lookup import Tree, mapping, number, objects, text, whole
from planner.read.kube.records import KubeObject, KubePod, LevelAsk, Objects, SliceAsk

GROUP = kueue_quotas.GROUP
SCHEDULER = KUEUE
QUEUE = kueue_workloads.QUEUE
PRIORITY = kueue_workloads.PRIORITY

GATE = kueue_quotas.GATE
MULTIKUEUE = f"{GROUP}/multikueue"
"""Who manages a workload whose pods run in another cluster."""

PODSET = f"{GROUP}/podset"
PODSET_INDEX = f"{GROUP}/pod-group-pod-index"
NAME = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
_KEY = "kueue.x-k8s.io/podset-"
REQUIRED = f"{_KEY}required-topology"
PREFERRED = f"{_KEY}preferred-topology"
UNCONSTRAINED = f"{_KEY}unconstrained-topology"
SLICE_LEVEL = f"{_KEY}slice-required-topology"
SLICE_SIZE = f"{_KEY}slice-size"
SLICES = f"{_KEY}slice-required-topology-constraints"
PODSET_GROUP = f"{_KEY}group-name"
_KEYS = (REQUIRED, PREFERRED, UNCONSTRAINED, SLICE_LEVEL, SLICE_SIZE, SLICES, PODSET_GROUP)
_MAX_LAYERS = 3

BOTH = "asks for a required and a preferred topology, which Kueue refuses; both count"
FREE_AND_BOUND = "asks for a topology and for none, which Kueue refuses; the topology counts"
NO_SIZE = "asks for slices without a size"
NO_LEVEL = "asks for slices without a level"
BAD_SLICES = "asks for slices in a form that cannot be read"
DEEP_SLICES = "asks for more than three layers of slices, which Kueue refuses"
NOT_NESTED = "asks for slices whose sizes do not divide each other"


def group_name(pod: KubePod) -> str | None:
    return pod.labels.get(NAME) or None


def describe(
    key: GroupKey, group: KubeObject | None, pods: Sequence[KubePod], api: Objects, remarks: Remarks
) -> PodGroup:
    del group, api
    counts = {pod.annotations.get(TOTAL) for pod in pods} - {None}
    found = PodGroup(key, minimum=max((number(one) or 0 for one in counts), default=0) or None)
    if len(counts) > 1:
        remarks.add(found.subject, f"its pods disagree about {TOTAL}; the largest counts")
    return found


@dataclass(frozen=True, slots=True)
class PodSetTopology:
    """What podset annotations ask for. ``remarks``: contradictions; ``problems``: not supported."""

    required: LevelAsk | None = None
    preferred: LevelAsk | None = None
    slices: tuple[SliceAsk, ...] = ()
    group: str | None = None
    remarks: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


NOTHING = PodSetTopology()


def podset_topology(annotations: dict[str, str], job_size: int) -> PodSetTopology:
    """What a pod's annotations ask; ``job_size``: default size of slices, 0 if there is none."""
    values = tuple(annotations.get(key) for key in _KEYS)
    return _read(values, job_size) if any(value is not None for value in values) else NOTHING


@lru_cache(maxsize=4096)
def _read(values: tuple[str | None, ...], job_size: int) -> PodSetTopology:
    required, preferred, free, level, size, layers, group = values
    remarks = []
    if required and preferred:
        remarks.append(BOTH)
    if free is not None and free.lower() != "false" and (required or preferred):
        remarks.append(FREE_AND_BOUND)
    slices, problem = _slices(level, size, layers, job_size)
    return PodSetTopology(
        LevelAsk(label=required) if required else None,
        LevelAsk(label=preferred) if preferred else None,
        slices,
        group or None,
        tuple(remarks),
        (problem,) if problem else (),
    )


def _slices(
    level: str | None, size: str | None, layers: str | None, job_size: int
) -> tuple[tuple[SliceAsk, ...], str | None]:
    if layers is not None:
        return _layered(layers)
    if not level:
        return (), NO_LEVEL if size else None
    pods = number(size) if size is not None else job_size
    if not pods:
        return (), NO_SIZE if size is None else BAD_SLICES
    return (SliceAsk(pods, LevelAsk(label=level)),), None


def _layered(written: str) -> tuple[tuple[SliceAsk, ...], str | None]:
    """Slices in slices, from the widest level to the nearest."""
    parsed = json_value(written)
    if not isinstance(parsed, list) or not parsed:
        return (), BAD_SLICES
    if len(parsed) > _MAX_LAYERS:
        return (), DEEP_SLICES
    found = []
    for entry in parsed:
        label, size = text(entry, "topology"), whole(entry, "size")
        if size is None:
            size = number(text(entry, "size"))
        if label is None or size is None or size < 1:
            return (), BAD_SLICES
        found.append(SliceAsk(size, LevelAsk(label=label)))
    if any(wide.size % near.size for wide, near in zip(found, found[1:], strict=False)):
        return (), NOT_NESTED
    return tuple(found), None


def workload_key(pod: KubePod, api: Objects) -> ControllerKey | None:
    """The Workload that a pod stands for; pods that exist belong to the controller that made them."""
    del api
    owner = pod.object.owner
    if owner is None or (owner.group, owner.kind) != (GROUP, "Workload"):
        return None
    return ControllerKey("KueueWorkload", pod.object.namespace, owner.name)


def describe_workload(key: ControllerKey, pods: Sequence[KubePod], api: Objects) -> Controller:
    del pods
    made = api.named(GROUP, "Workload", key.namespace, key.name)
    owner = None if made is None else made.owner
    kind, name = ("Workload", key.name) if owner is None else (owner.kind, owner.name)
    roles: dict[str, RoleSpec] = {}
    for podset in objects(None if made is None else made.tree, "spec", "podSets"):
        role, size = text(podset, "name") or "main", count(podset, "count", absent=1)
        allowed = allowed_range(whole(podset, "minCount"), size)
        roles.setdefault(role, RoleSpec(role, size, range=allowed))
    queue = None if made is None else text(made.tree, "spec", "queueName")
    return Controller(key, kind, name, made, tuple(roles.values()), queue=queue)


def workload_role(pod: KubePod, controller: Controller) -> RoleIndex:
    del controller
    return RoleIndex(pod.labels.get(PODSET) or "main", number(pod.labels.get(PODSET_INDEX)))


def workload_pods(workload: KubeObject) -> Iterator[PodSet]:
    """The pod sets of a Kueue Workload, for owners whose templates are not in the input."""
    owner = owned_by(workload)
    name = workload.name if workload.owner is None else workload.owner.name
    for podset in objects(workload.tree, "spec", "podSets"):
        role = text(podset, "name") or "main"
        pods = count(podset, "count", absent=1)
        made = partial(_workload_pod, f"{name}-{role}", role, owner)
        yield PodSet(mapping(podset, "template"), pods, made)


def _workload_pod(name: str, role: str, owner: Tree, number: int) -> MadePod:
    return MadePod(f"{name}-{number}", {PODSET: role, PODSET_INDEX: str(number)}, owner)


_KINDS = """
fragment KueueQuotas
  flavors[] {
    name resources[] { name nominalQuota borrowingLimit lendingLimit }
  }
topologies.kueue.x-k8s.io Topology v1beta2 v1beta1 cluster
  spec { levels[] { nodeLabel alias } }
resourceflavors.kueue.x-k8s.io ResourceFlavor v1beta2 v1beta1 cluster
  spec {
    nodeLabels[*]=Label tolerations[]=Toleration topologyName
  }
clusterqueues.kueue.x-k8s.io ClusterQueue v1beta2 v1beta1 cluster
  spec {
    cohort cohortName queueingStrategy stopPolicy namespaceSelector=Selector
    preemption { reclaimWithinCohort } fairSharing { weight }
    resourceGroups[]=KueueQuotas
  }
cohorts.kueue.x-k8s.io Cohort v1beta2 v1beta1 v1alpha1 cluster
  spec { parentName parent fairSharing { weight } resourceGroups[]=KueueQuotas }
workloadpriorityclasses.kueue.x-k8s.io WorkloadPriorityClass v1beta2 v1beta1 cluster
  value
localqueues.kueue.x-k8s.io LocalQueue v1beta2 v1beta1
  spec { clusterQueue stopPolicy }
workloads.kueue.x-k8s.io Workload v1beta2 v1beta1
  spec {
    queueName priority priorityClassName priorityClassSource active
    priorityClassRef { group kind name }
    podSets[] {
      name count minCount template=PodTemplate
    }
  }
  status {
    conditions[]=TimedCondition
    admission {
      clusterQueue
    }
  }
"""

DIALECT = Dialect(
    "Kueue",
    precedence=130,
    groups=(GroupReader("Kueue", None, group_name, describe),),
    controller=ControllerReader("KueueWorkload", workload_key, describe_workload, workload_role),
    quotas=kueue_quotas.QUOTAS,
    annotations="kueue.x-k8s.io/",
    kinds=_KINDS,
    without={
        f"workloadpriorityclasses.{GROUP}": (
            "suspended jobs that have no Workload yet count with the priorities of their templates"
        ),
        f"cohorts.{GROUP}": (
            "Cohorts of Kueue are not read: plans keep to the quotas of ClusterQueues alone"
        ),
    },
)
