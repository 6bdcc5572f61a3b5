"""The kinds that planning reads, a row each: where the API serves them and which fields are kept.

A row: resource, kind, versions with known fields (the best first), ``cluster`` if not namespaced,
``certain`` if every server has it; below it the fields, as ``planner.read.kube.pruning`` reads them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from planner.read.kube.decoders import Decode, Decoders
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
  name resourceClaimName resourceClaimTemplateName podGroupResourceClaim
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
  attributes[*] { string int bool version }
  capacity[*]=Capacity
  consumesCounters[] { counterSet counters[*]=Capacity }
  nodeName allNodes nodeSelector=NodeSelector taints[]=Taint
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
    config[] {
      requests[] opaque { driver parameters { apiVersion kind domainID allocationMode } }
    }
  }

# Groups and queues.
fragment GroupPolicy
  basic { } gang { minCount }
fragment Group
  schedulingPolicy=GroupPolicy schedulingConstraints { topology[] { key } }
  priorityClassName priority resourceClaims[]=PodResourceClaim
  parentCompositePodGroupName
fragment NetworkTopology
  mode highestTierAllowed highestTierName
fragment KaiTopology
  topology requiredTopologyLevel preferredTopologyLevel
fragment KueueQuotas
  flavors[] {
    name resources[] { name nominalQuota borrowingLimit lendingLimit }
  }
fragment KaiShare
  quota overQuotaWeight limit
fragment GrovePacking
  packConstraint { required preferred } topologyName

# Controllers.
fragment JobSpec
  parallelism completions completionMode suspend managedBy activeDeadlineSeconds
  template=PodTemplate
fragment RaySpec
  suspend managedBy enableInTreeAutoscaling
  headGroupSpec { template=PodTemplate }
  workerGroupSpecs[] {
    groupName replicas minReplicas maxReplicas numOfHosts suspend template=PodTemplate
  }
fragment KubeflowReplicas
  replicas restartPolicy template=PodTemplate
fragment KubeflowSpec
  runPolicy {
    suspend managedBy activeDeadlineSeconds
    schedulingPolicy {
      minAvailable queue minResources[*]=Quantity
    }
  }
  elasticPolicy { minReplicas maxReplicas metrics[] { type } }
  runLauncherAsWorker launcherCreationPolicy suspend
fragment TorchPolicy
  torch { elasticPolicy { minNodes maxNodes } }
fragment KubeflowStatus
  conditions[]=Condition replicaStatuses[*]=Counts

# Kubernetes itself.
nodes Node v1 cluster certain
  spec { unschedulable taints[]=Taint }
  status { capacity[*]=Quantity allocatable[*]=Quantity conditions[]=TimedCondition }
pods Pod v1 certain
  intentProven spec=PodSpec
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
    driver nodeName allNodes perDeviceNodeSelection nodeSelector=NodeSelector
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

# Schedulers and queues.
podgroups.scheduling.x-k8s.io PodGroup v1alpha1
  spec { minMember minResources[*]=Quantity } status { phase }
elasticquotas.scheduling.x-k8s.io ElasticQuota v1alpha1
  spec { min[*]=Quantity max[*]=Quantity }
queues.scheduling.volcano.sh Queue v1beta1 cluster
  spec {
    weight reclaimable parent priority type
    capability[*]=Quantity deserved[*]=Quantity guarantee { resource[*]=Quantity }
  }
  status { state }
podgroups.scheduling.volcano.sh PodGroup v1beta1
  spec {
    minMember queue priorityClassName minTaskMember[*]=Integer minResources[*]=Quantity
    networkTopology=NetworkTopology
    subGroupPolicy[] {
      name networkTopology=NetworkTopology subGroupSize
      labelSelector=Selector matchLabelKeys[]
    }
  }
  status { phase conditions[]=Condition }
hypernodes.topology.volcano.sh HyperNode v1alpha1 cluster
  spec {
    tier tierName
    members[+] {
      type
      selector {
        exactMatch { name } regexMatch { pattern=Long } labelMatch=Selector
      }
    }
  }

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
podgangs.scheduler.grove.io PodGang v1alpha1
  spec {
    priorityClassName topologyConstraint=GrovePacking
    podgroups[] {
      name minReplicas podReferences[+] { namespace name } topologyConstraint=GrovePacking
    }
  }
computedomains.resource.nvidia.com ComputeDomain v1beta1
  spec { channel { allocationMode resourceClaimTemplate { name } } }
  status { status nodes[+] { name index status } }

# Controllers of pods.
jobsets.jobset.x-k8s.io JobSet v1alpha2
  spec {
    suspend managedBy startupPolicy { startupPolicyOrder }
    replicatedJobs[] {
      name groupName replicas template { metadata=TemplateMetadata spec=JobSpec }
      dependsOn[] { name }
    }
  }
  status {
    conditions[]=Condition restarts terminalState
    replicatedJobsStatus[] { name ...Counts }
  }
leaderworkersets.leaderworkerset.x-k8s.io LeaderWorkerSet v1
  spec {
    replicas startupPolicy
    leaderWorkerTemplate {
      size restartPolicy leaderTemplate=PodTemplate workerTemplate=PodTemplate
      subGroupPolicy { subGroupSize type }
    }
  }
  status { replicas conditions[]=Condition }
jobs.batch.volcano.sh Job v1alpha1
  spec {
    minAvailable queue priorityClassName schedulerName
    networkTopology=NetworkTopology
    tasks[] {
      name replicas minAvailable template=PodTemplate
      partitionPolicy {
        partitionSize networkTopology=NetworkTopology
      }
    }
  }
  status {
    state { phase } minAvailable pending running succeeded failed terminating
  }
mpijobs.kubeflow.org MPIJob v2beta1 v1
  spec { mpiReplicaSpecs[*]=KubeflowReplicas ...KubeflowSpec } status=KubeflowStatus
pytorchjobs.kubeflow.org PyTorchJob v1
  spec { pytorchReplicaSpecs[*]=KubeflowReplicas ...KubeflowSpec } status=KubeflowStatus
tfjobs.kubeflow.org TFJob v1
  spec { tfReplicaSpecs[*]=KubeflowReplicas ...KubeflowSpec } status=KubeflowStatus
jaxjobs.kubeflow.org JAXJob v1
  spec { jaxReplicaSpecs[*]=KubeflowReplicas ...KubeflowSpec } status=KubeflowStatus
trainjobs.trainer.kubeflow.org TrainJob v1alpha1
  spec {
    suspend managedBy labels[*]=Label runtimeRef { apiGroup kind name }
  }
  status { conditions[]=Condition }
trainingruntimes.trainer.kubeflow.org TrainingRuntime v1alpha1
  spec { mlPolicy=TorchPolicy }
clustertrainingruntimes.trainer.kubeflow.org ClusterTrainingRuntime v1alpha1 cluster
  spec { mlPolicy=TorchPolicy }
rayclusters.ray.io RayCluster v1 v1alpha1
  spec=RaySpec status { state conditions[]=Condition }
rayjobs.ray.io RayJob v1 v1alpha1
  spec { suspend managedBy rayClusterSpec=RaySpec }
  status { jobStatus jobDeploymentStatus }
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """``plural`` as in URLs; ``versions``: those whose fields are known, the best first.

    ``certain``: every server that serves the group in that version has the kind, so discovery is
    not asked. ``fields``: what is kept in addition to the fragment ``Object``.
    """

    name: str
    plural: str
    group: str
    versions: tuple[str, ...]
    namespaced: bool
    certain: bool
    fields: str

    @property
    def resource(self) -> str:
        """The name in kubectl and RBAC: ``pods``, ``jobsets.jobset.x-k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def prune(self) -> Prune:
        """Reduces an object of this kind to the fields that are recorded."""
        return _recorded(self)

    @property
    def decode(self) -> Decode:
        """The same of an object in JSON, as a struct. Raises REFUSED where it has to be pruned."""
        return _decoded(self)

    def pruned_by(self, pruner: Pruner) -> Prune:
        """Reduces an object of this kind to the same fields by the rules of a pruner."""
        return pruner.compiled(f"...Object {self.fields}")

    def decoded_by(self, decoders: Decoders, more: str = "") -> Decode:
        """Decodes the same fields, and more, of an object in JSON."""
        return decoders.of(f"...Object {self.fields} {more}")


def _rows(table: str) -> Iterator[tuple[list[str], str]]:
    """The words of each first line, and the lines below it."""
    text = re.sub(r"(?m)^#.*$", "", table)
    for row in re.split(r"\n(?=\S)", text.strip()):
        head, _, fields = row.partition("\n")
        yield head.split(), fields


def _kind(words: list[str], fields: str) -> Kind:
    resource, name, *rest = words
    plural, _, group = resource.partition(".")
    flags = {"cluster", "certain"} & set(rest)
    versions = tuple(word for word in rest if word not in flags)
    return Kind(name, plural, group, versions, "cluster" not in flags, "certain" in flags, fields)


FRAGMENTS = {words[1]: fields for words, fields in _rows(_TABLE) if words[0] == "fragment"}


@cache
def _recorded(kind: Kind) -> Prune:
    return kind.pruned_by(Pruner(FRAGMENTS, recording=True))


@cache
def _decoded(kind: Kind) -> Decode:
    return kind.decoded_by(Decoders(FRAGMENTS, recording=True))


ALL = tuple(_kind(words, fields) for words, fields in _rows(_TABLE) if words[0] != "fragment")
"""In the order they are recorded."""

NODES, PODS, NAMESPACES, *_others = ALL
OTHERS = tuple(_others)
"""All but nodes, pods and namespaces, which every plan needs."""

_BY_PLURAL = Counter(kind.plural for kind in ALL)


def file_name(kind: Kind) -> str:
    """``pods.json``; with the group where a kind outside the core groups shares its plural."""
    alone = _BY_PLURAL[kind.plural] == 1 or kind.group in {"", "apps", "batch"}
    return f"{kind.plural if alone else kind.resource}.json"


FILE_NAMES = frozenset(map(file_name, ALL))
