"""The kinds that planning reads, a row each: where the API serves them and which fields are kept.

A row: resource, kind, versions with known fields (the best first), ``cluster`` if not namespaced,
``certain`` if every server has it, ``beside=GROUP`` if it is read only where that API group is served; below
it the fields, as ``planner.read.kube.pruning`` reads them.
Dialects have rows of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from planner.read.kube.decoders import Decode, Decoders
from planner.read.kube.dialect_registry import DIALECTS, kept_annotations
from planner.read.kube.pruning import Prune, Pruner

_TABLE = """
# Parts that several kinds share.
fragment Object
  apiVersion kind
  metadata {
    name namespace uid resourceVersion creationTimestamp deletionTimestamp generation
    labels[*]=Label annotations=Annotations
    ownerReferences[] { apiVersion kind name uid controller }
  }
fragment Condition
  type status reason
fragment TimedCondition
  ...Condition lastTransitionTime
fragment Requirement
  key operator values[+]
fragment Selector
  matchLabels[*]=Label matchExpressions[]=Requirement
fragment NodeTerm
  matchExpressions[]=Requirement matchFields[]=Requirement
fragment NodeSelector
  nodeSelectorTerms[]=NodeTerm
fragment Taint
  key value effect
fragment Toleration
  key operator value effect
fragment Counts
  active ready succeeded failed suspended

# Pods.
fragment Resources
  requests[*]=Quantity limits[*]=Quantity claims[] { name request }
fragment Container
  name resources=Resources restartPolicy
fragment ContainerStatus
  name allocatedResources[*]=Quantity resources=Resources
fragment PodResourceClaim
  name resourceClaimName resourceClaimTemplateName
fragment PodTerm
  labelSelector=Selector topologyKey namespaces[] namespaceSelector=Selector
  matchLabelKeys[] mismatchLabelKeys[]
fragment PodAffinity
  requiredDuringSchedulingIgnoredDuringExecution[]=PodTerm
  preferredDuringSchedulingIgnoredDuringExecution[] { weight podAffinityTerm=PodTerm }
fragment PodSpec
  nodeName schedulerName priority priorityClassName runtimeClassName
  restartPolicy activeDeadlineSeconds terminationGracePeriodSeconds
  nodeSelector[*]=Label tolerations[]=Toleration
  affinity {
    nodeAffinity {
      requiredDuringSchedulingIgnoredDuringExecution=NodeSelector
    }
    podAffinity=PodAffinity podAntiAffinity=PodAffinity
  }
  topologySpreadConstraints[] {
    maxSkew minDomains topologyKey whenUnsatisfiable nodeAffinityPolicy nodeTaintsPolicy
    labelSelector=Selector matchLabelKeys[]
  }
  schedulingGates[] { name }
  schedulingGroup { podGroupName }
  workloadRef { name podGroup podGroupReplicaKey }
  overhead[*]=Quantity resources=Resources resourceClaims[]=PodResourceClaim
  containers[]=Container initContainers[]=Container volumes=Volumes
fragment TemplateMetadata
  name labels[*]=Label annotations=Annotations
fragment PodTemplate
  metadata=TemplateMetadata spec=PodSpec

# Devices.
fragment Capacity
  value
fragment Device
  attributes[*] { string int version }
  capacity[*]=Capacity
  consumesCounters[] { counterSet counters[*]=Capacity }
  nodeName nodeSelector=NodeSelector taints[]=Taint
fragment DeviceSelector
  cel { expression=Long }
fragment DeviceRequest
  deviceClassName allocationMode count adminAccess
  selectors[]=DeviceSelector tolerations[]=Toleration capacity { requests[*]=Quantity }
fragment ClaimSpec
  devices {
    requests[] {
      name ...DeviceRequest exactly=DeviceRequest
      firstAvailable[] { name ...DeviceRequest }
    }
    constraints[] { requests[] }
  }
fragment JobSpec
  parallelism completions completionMode suspend managedBy activeDeadlineSeconds
  template=PodTemplate

# Kubernetes itself.
nodes Node v1 cluster certain
  spec { unschedulable taints[]=Taint }
  status { capacity[*]=Quantity allocatable[*]=Quantity conditions[]=TimedCondition }
pods Pod v1 certain
  gangplanStart=Long spec=PodSpec
  status {
    phase reason nominatedNodeName startTime resize conditions[]=Condition
    resources=Resources allocatedResources[*]=Quantity
    containerStatuses[]=ContainerStatus initContainerStatuses[]=ContainerStatus
    resourceClaimStatuses[] { name resourceClaimName }
    extendedResourceClaimStatus { resourceClaimName }
  }
namespaces Namespace v1 cluster certain
priorityclasses.scheduling.k8s.io PriorityClass v1 cluster certain
  value globalDefault
poddisruptionbudgets.policy PodDisruptionBudget v1 certain
  spec { selector=Selector unhealthyPodEvictionPolicy }
  status {
    observedGeneration disruptionsAllowed currentHealthy desiredHealthy conditions[]=Condition
  }
statefulsets.apps StatefulSet v1 certain
  spec { replicas ordinals { start } } status { replicas }
replicasets.apps ReplicaSet v1 certain
  spec { replicas } status { replicas }
daemonsets.apps DaemonSet v1 certain
  spec { replicas } status { replicas }
jobs.batch Job v1 certain
  spec=JobSpec
  status {
    ...Counts startTime
    conditions[]=Condition
  }
persistentvolumes PersistentVolume v1 cluster certain
  spec {
    claimRef { namespace name uid }
    nodeAffinity { required=NodeSelector }
  }
  status { phase }
persistentvolumeclaims PersistentVolumeClaim v1 certain
  spec { storageClassName volumeName } status { phase }
storageclasses.storage.k8s.io StorageClass v1 cluster certain
  volumeBindingMode
runtimeclasses.node.k8s.io RuntimeClass v1 cluster certain
  scheduling { nodeSelector[*]=Label tolerations[]=Toleration }
resourceslices.resource.k8s.io ResourceSlice v1 v1beta2 v1beta1 cluster
  spec {
    driver nodeName nodeSelector=NodeSelector
    pool { name generation resourceSliceCount }
    devices[] { name basic=Device ...Device }
  }
deviceclasses.resource.k8s.io DeviceClass v1 v1beta2 v1beta1 cluster
  spec { selectors[]=DeviceSelector extendedResourceName }
resourceclaims.resource.k8s.io ResourceClaim v1 v1beta2 v1beta1
  spec=ClaimSpec
  status {
    allocation {
      allocationTimestamp nodeSelector=NodeSelector
      devices {
        results[] {
          request driver pool device adminAccess shareID consumedCapacity[*]=Quantity
        }
      }
    }
    reservedFor[] { apiGroup resource name uid }
  }
resourceclaimtemplates.resource.k8s.io ResourceClaimTemplate v1 v1beta2 v1beta1
  spec { spec=ClaimSpec }
devicetaintrules.resource.k8s.io DeviceTaintRule v1 v1beta2 v1alpha3 cluster
  spec {
    taint=Taint
    deviceSelector { driver pool device deviceClassName selectors[]=DeviceSelector }
  }
computedomains.resource.nvidia.com ComputeDomain v1beta1
  spec { channel { allocationMode resourceClaimTemplate { name } } }
  status { status nodes[+] { name index status } }
"""


@dataclass(frozen=True)
class Kind:
    """``plural`` as in URLs; ``versions``: those whose fields are known, the best first.

    ``certain``: every server that serves the group in that version has the kind, so discovery is
    not asked. ``fields``: what is kept in addition to the fragment ``Object``. ``beside``: the API group with
    which it is read; else its own.
    """

    name: str
    plural: str
    group: str
    versions: tuple[str, ...]
    namespaced: bool
    certain: bool
    fields: str
    beside: str

    @property
    def resource(self) -> str:
        """The name in kubectl and RBAC: ``pods``, ``jobsets.jobset.x-k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def kept(self) -> str:
        """All fields that are kept."""
        return f"...Object {self.fields}"

    @cached_property
    def prune(self) -> Prune:
        """Reduces an object of this kind to the fields that are recorded."""
        return Pruner(FRAGMENTS, annotation_keys(), recording=True).compiled(self.kept)

    @cached_property
    def decode(self) -> Decode:
        """The same of an object in JSON, as a struct. Raises REFUSED where it has to be pruned."""
        return Decoders(FRAGMENTS, annotation_keys(), recording=True).of(self.kept)


def _rows(table: str) -> Iterator[tuple[list[str], str]]:
    text = re.sub(r"(?m)^#.*$", "", table).strip()
    for row in re.split(r"\n(?=\S)", text) if text else ():
        head, _, fields = row.partition("\n")
        yield head.split(), fields


def _kind(words: list[str], fields: str) -> Kind:
    resource, name, *rest = words
    plural, _, group = resource.partition(".")
    flags = {word for word in rest if word in ("cluster", "certain") or "=" in word}
    versions = tuple(word for word in rest if word not in flags)
    beside = next((word.partition("=")[2] for word in flags if "=" in word), group)
    namespaced, certain = "cluster" not in flags, "certain" in flags
    return Kind(name, plural, group, versions, namespaced, certain, fields, beside)


_ROWS = [row for table in (_TABLE, *(one.kinds for one in DIALECTS)) for row in _rows(table)]

FRAGMENTS = {words[1]: fields for words, fields in _ROWS if words[0] == "fragment"}

_ANNOTATIONS = """
topograph.run/ network.topology.nvidia.com/ resource.kubernetes.io/pod-claim-name
"""
"""Those of no dialect that are read. Never kubectl's last-applied one."""


def annotation_keys() -> frozenset[str]:
    """Keys of annotations that are kept, and domains with a slash."""
    return kept_annotations().union(_ANNOTATIONS.split())


ALL = tuple(_kind(words, fields) for words, fields in _ROWS if words[0] != "fragment")
"""In the order they are recorded."""

NODES, PODS, NAMESPACES, *_others = ALL
OTHERS = tuple(_others)
"""All but nodes, pods and namespaces, which every plan needs."""

BY_RESOURCE = {kind.resource: kind for kind in ALL}

_BY_PLURAL = Counter(kind.plural for kind in ALL)


def file_name(kind: Kind) -> str:
    """``pods.json``; with the group where a kind outside the core groups shares its plural."""
    alone = _BY_PLURAL[kind.plural] == 1 or kind.group in {"", "apps", "batch"}
    return f"{kind.plural if alone else kind.resource}.json"


FILE_NAMES = frozenset(map(file_name, ALL))
