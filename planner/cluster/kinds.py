"""The kinds that planning reads: where the API serves them and what is kept of each.

Promises: one entry a kind and group, in the order they are recorded: nodes, pods, then the rest.
Used by ``planner.cluster.discovery`` and ``planner.cluster.snapshot``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from planner.cluster.kept import controllers, groups, kueue, nodes
from planner.cluster.kept.pods import pod
from planner.cluster.pruning import Keep


@dataclass(frozen=True, slots=True)
class Kind:
    """``plural`` as in URLs; ``versions``: those whose fields are known, the best first.

    ``certain``: every server that serves the group in that version has the kind; no need to ask.
    """

    name: str
    plural: str
    group: str
    versions: tuple[str, ...]
    keep: Keep = field(repr=False, compare=False)
    namespaced: bool = True
    certain: bool = False

    @property
    def resource(self) -> str:
        """As kubectl and RBAC name it: ``pods``, ``jobsets.jobset.x-k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_Row = tuple[str, str, Keep]


def _kinds(
    group: str,
    versions: tuple[str, ...],
    *rows: _Row,
    wide: tuple[_Row, ...] = (),
    certain: bool = False,
) -> tuple[Kind, ...]:
    """Kinds of one group: ``wide`` ones belong to the cluster, ``rows`` to namespaces."""
    return tuple(
        Kind(name, plural, group, versions, keep, namespaced, certain)
        for some, namespaced in ((wide, False), (rows, True))
        for name, plural, keep in some
    )


(NODES,) = _kinds("", ("v1",), wide=(("Node", "nodes", nodes.NODE),), certain=True)
(PODS,) = _kinds("", ("v1",), ("Pod", "pods", pod), certain=True)
(NAMESPACES,) = _kinds(
    "", ("v1",), wide=(("Namespace", "namespaces", nodes.NAMESPACE),), certain=True
)
"""Only kube-system is asked for: its uid is the cluster's identity."""

_RESOURCE = ("v1", "v1beta2", "v1beta1")
_NATIVE = ("v1", "v1beta1", "v1alpha3", "v1alpha2", "v1alpha1")
_KUEUE = ("v1beta2", "v1beta1")

_BUILT_IN = (
    *_kinds(
        "scheduling.k8s.io",
        ("v1",),
        wide=(("PriorityClass", "priorityclasses", nodes.PRIORITY_CLASS),),
        certain=True,
    ),
    *_kinds(
        "apps",
        ("v1",),
        ("StatefulSet", "statefulsets", controllers.REPLICATED),
        ("ReplicaSet", "replicasets", controllers.REPLICATED),
        ("DaemonSet", "daemonsets", controllers.REPLICATED),
        certain=True,
    ),
    *_kinds("batch", ("v1",), ("Job", "jobs", controllers.JOB), certain=True),
    *_kinds(
        "",
        ("v1",),
        (
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            nodes.PERSISTENT_VOLUME_CLAIM,
        ),
        wide=(("PersistentVolume", "persistentvolumes", nodes.PERSISTENT_VOLUME),),
        certain=True,
    ),
    *_kinds(
        "storage.k8s.io",
        ("v1",),
        wide=(("StorageClass", "storageclasses", nodes.STORAGE_CLASS),),
        certain=True,
    ),
    *_kinds(
        "node.k8s.io",
        ("v1",),
        wide=(("RuntimeClass", "runtimeclasses", nodes.RUNTIME_CLASS),),
        certain=True,
    ),
    *_kinds(
        "resource.k8s.io",
        _RESOURCE,
        ("ResourceClaim", "resourceclaims", nodes.RESOURCE_CLAIM),
        ("ResourceClaimTemplate", "resourceclaimtemplates", nodes.RESOURCE_CLAIM_TEMPLATE),
        wide=(
            ("ResourceSlice", "resourceslices", nodes.RESOURCE_SLICE),
            ("DeviceClass", "deviceclasses", nodes.DEVICE_CLASS),
        ),
    ),
    *_kinds(
        "resource.k8s.io",
        ("v1", "v1beta2", "v1alpha3"),
        wide=(("DeviceTaintRule", "devicetaintrules", nodes.DEVICE_TAINT_RULE),),
    ),
    *_kinds(
        "scheduling.k8s.io",
        _NATIVE,
        ("PodGroup", "podgroups", groups.POD_GROUP),
        ("Workload", "workloads", groups.WORKLOAD),
        ("CompositePodGroup", "compositepodgroups", groups.COMPOSITE_POD_GROUP),
    ),
)

_SCHEDULERS = (
    *_kinds(
        "scheduling.x-k8s.io", ("v1alpha1",), ("PodGroup", "podgroups", groups.PLUGIN_POD_GROUP)
    ),
    *_kinds(
        "scheduling.sigs.k8s.io", ("v1alpha1",), ("PodGroup", "podgroups", groups.PLUGIN_POD_GROUP)
    ),
    *_kinds(
        "scheduling.volcano.sh",
        ("v1beta1",),
        ("PodGroup", "podgroups", groups.VOLCANO_POD_GROUP),
        wide=(("Queue", "queues", groups.VOLCANO_QUEUE),),
    ),
    *_kinds(
        "topology.volcano.sh", ("v1alpha1",), wide=(("HyperNode", "hypernodes", nodes.HYPER_NODE),)
    ),
    *_kinds("scheduling.run.ai", ("v2alpha2",), ("PodGroup", "podgroups", groups.KAI_POD_GROUP)),
    *_kinds("scheduling.run.ai", ("v2",), wide=(("Queue", "queues", groups.KAI_QUEUE),)),
    *_kinds("kai.scheduler", ("v1alpha1",), wide=(("Topology", "topologies", nodes.TOPOLOGY),)),
    *_kinds(
        "kueue.x-k8s.io",
        _KUEUE,
        ("LocalQueue", "localqueues", kueue.LOCAL_QUEUE),
        ("Workload", "workloads", kueue.WORKLOAD),
        wide=(
            ("Topology", "topologies", nodes.TOPOLOGY),
            ("ResourceFlavor", "resourceflavors", kueue.RESOURCE_FLAVOR),
            ("ClusterQueue", "clusterqueues", kueue.CLUSTER_QUEUE),
        ),
    ),
    *_kinds(
        "scheduling.koordinator.sh",
        ("v1alpha1",),
        wide=(
            ("Device", "devices", nodes.DEVICE),
            (
                "ClusterNetworkTopology",
                "clusternetworktopologies",
                nodes.CLUSTER_NETWORK_TOPOLOGY,
            ),
        ),
    ),
    *_kinds("scheduler.grove.io", ("v1alpha1",), ("PodGang", "podgangs", groups.POD_GANG)),
    *_kinds(
        "resource.nvidia.com",
        ("v1beta1",),
        ("ComputeDomain", "computedomains", nodes.COMPUTE_DOMAIN),
    ),
)

_CONTROLLERS = (
    *_kinds("jobset.x-k8s.io", ("v1alpha2",), ("JobSet", "jobsets", controllers.JOB_SET)),
    *_kinds(
        "leaderworkerset.x-k8s.io",
        ("v1",),
        ("LeaderWorkerSet", "leaderworkersets", controllers.LEADER_WORKER_SET),
    ),
    *_kinds("batch.volcano.sh", ("v1alpha1",), ("Job", "jobs", controllers.VOLCANO_JOB)),
    *_kinds(
        "kubeflow.org",
        ("v2beta1", "v1"),
        ("MPIJob", "mpijobs", controllers.kubeflow("mpiReplicaSpecs")),
    ),
    *_kinds(
        "kubeflow.org",
        ("v1",),
        ("PyTorchJob", "pytorchjobs", controllers.kubeflow("pytorchReplicaSpecs")),
        ("TFJob", "tfjobs", controllers.kubeflow("tfReplicaSpecs")),
        ("XGBoostJob", "xgboostjobs", controllers.kubeflow("xgbReplicaSpecs")),
        ("PaddleJob", "paddlejobs", controllers.kubeflow("paddleReplicaSpecs")),
        ("JAXJob", "jaxjobs", controllers.kubeflow("jaxReplicaSpecs")),
        ("MXJob", "mxjobs", controllers.kubeflow("mxReplicaSpecs")),
    ),
    *_kinds(
        "trainer.kubeflow.org", ("v1alpha1",), ("TrainJob", "trainjobs", controllers.TRAIN_JOB)
    ),
    *_kinds(
        "ray.io",
        ("v1", "v1alpha1"),
        ("RayCluster", "rayclusters", controllers.RAY_CLUSTER),
        ("RayJob", "rayjobs", controllers.RAY_JOB),
    ),
)

OTHERS: tuple[Kind, ...] = _BUILT_IN + _SCHEDULERS + _CONTROLLERS
ALL: tuple[Kind, ...] = (NODES, PODS, NAMESPACES, *OTHERS)

_NAMESAKES = Counter(kind.plural for kind in ALL)


def file_name(kind: Kind) -> str:
    """``pods.json``; with the group where another kind has the same plural and this one is no core."""
    alone = _NAMESAKES[kind.plural] == 1 or kind.group in {"", "apps", "batch"}
    return f"{kind.plural if alone else kind.resource}.json"


FILE_NAMES = frozenset(map(file_name, ALL))
