"""Ray clusters: the head and every worker group are roles.

A worker of several hosts counts as that many pods. The cluster of a RayJob takes the name of the job,
because its own changes at every start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from planner.read.kube.dialects import base
from planner.read.kube.lookup import Tree, flag, mapping, number, objects, text
from planner.read.kube.records import KubeObject, KubePod, ReplicaRange

GROUP = "ray.io"
KIND = "RayCluster"
_KEY = "ray.io/"
NAME = f"{_KEY}cluster"
NODE_TYPE = f"{_KEY}node-type"
WORKER_GROUP = f"{_KEY}group"
HOST = f"{_KEY}replica-host-index"
REPLICA = f"{_KEY}worker-group-replica-index"
REPLICA_NAME = f"{_KEY}worker-group-replica-name"
ORIGIN_KIND = f"{_KEY}originated-from-crd"
ORIGIN_NAME = f"{_KEY}originated-from-cr-name"
JOB = "RayJob"
HEAD = "head"


def describe(of: base.Controlled) -> base.Controller:
    key, cluster, pods, api = of
    name = _job_name(cluster, pods)
    job = api.named(GROUP, JOB, key.namespace, name) if name is not None else None
    # A job that waits has no cluster yet.
    made = cluster if job is None or cluster is not None else job
    roles = {HEAD: base.RoleSpec(HEAD, 1)} | ({} if made is None else base.roles_of(ray_pods(made)))
    kind, name = (KIND, key.name) if name is None else (JOB, name)
    return base.Controller(key, kind, name, job or cluster, roles, ranks=_ranks(pods))


def _job_name(cluster: KubeObject | None, pods: Sequence[KubePod]) -> str | None:
    if cluster is not None and cluster.owner is not None and cluster.owner.kind == JOB:
        return cluster.owner.name
    labels = cluster.labels if cluster is not None else next((pod.labels for pod in pods), {})
    return (labels.get(ORIGIN_NAME) or None) if labels.get(ORIGIN_KIND) == JOB else None


def _ranks(pods: Sequence[KubePod]) -> dict[str, int]:
    """Order of the replicas of several hosts that have names and no index, by name in each group."""
    names: dict[str, set[str]] = {}
    for pod in pods:
        name = pod.labels.get(REPLICA_NAME)
        if name and number(pod.labels.get(REPLICA)) is None:
            names.setdefault(_role(pod), set()).add(name)
    return {name: rank for group in names.values() for rank, name in enumerate(sorted(group))}


def group_replicas(group: Tree) -> int | None:
    """Workers that the operator makes of a group; None if their number is malformed."""
    if flag(group, "suspend"):
        return 0
    least = base.count(group, "minReplicas", absent=0)
    wanted, most = (
        base.count(group, "replicas", absent=least),
        base.count(group, "maxReplicas", absent=None),
    )
    if wanted is None:
        return None
    return max(wanted, least or 0) if most is None else min(max(wanted, least or 0), most)


def _allowed(group: Tree, hosts: int | None, *, scales: bool) -> ReplicaRange | None:
    """The numbers of pods of a group; a minimum of 0, which the API fills in, counts only if Ray scales."""
    least, most = (base.count(group, f"{bound}Replicas", absent=None) for bound in ("min", "max"))
    if not least and not scales:
        return None
    return base.allowed_range(
        base.product(max(least or 0, 1), hosts), base.product(most, hosts), hosts
    )


def _role(pod: KubePod) -> str:
    if pod.labels.get(NODE_TYPE) == HEAD:
        return HEAD
    return pod.labels.get(WORKER_GROUP) or "worker"


def role_index(pod: KubePod, controller: base.Controller) -> base.RoleIndex:
    role = _role(pod)
    if role == HEAD:
        return base.RoleIndex(role, 0)
    spec = controller.roles.get(role)
    replica, host = number(pod.labels.get(REPLICA)), number(pod.labels.get(HOST))
    if replica is None:
        replica = controller.ranks.get(pod.labels.get(REPLICA_NAME, ""))
    if replica is None:
        return base.RoleIndex(role, None)
    stride = 1 if spec is None else spec.stride
    return base.RoleIndex(role, replica * stride + min(host or 0, stride - 1))


def ray_pods(one: KubeObject) -> Iterator[base.PodSet]:
    """The head and the workers of a RayCluster, or of the one that a RayJob will have."""
    spec, name, labels = mapping(one.tree, "spec"), one.name, {NAME: one.name}
    owner = base.owned_by(one)
    if one.kind == JOB:
        spec = mapping(spec, "rayClusterSpec")
        cluster = f"{name}-raycluster"  # not its own name, which a RayCluster may have
        labels = {NAME: cluster, ORIGIN_KIND: JOB, ORIGIN_NAME: name}
        owner = base.reference("ray.io/v1", KIND, cluster)

    head = base.MadePod(f"{name}-head", {**labels, NODE_TYPE: HEAD}, owner)
    yield base.PodSet(
        base.RoleSpec(HEAD, 1), mapping(spec, "headGroupSpec", "template"), lambda _: head
    )
    scales = flag(spec, "enableInTreeAutoscaling")
    for group in objects(spec, "workerGroupSpecs"):
        hosts = base.count(group, "numOfHosts", absent=1)
        role = text(group, "groupName") or "worker"
        size, stride = base.product(group_replicas(group), hosts), max(hosts or 1, 1)
        allowed = _allowed(group, hosts, scales=scales) if size else None
        marks = {**labels, NODE_TYPE: "worker", WORKER_GROUP: role}
        made = partial(_worker, base.MadePod(f"{name}-{role}-worker", marks, owner), stride)
        spec_ = base.RoleSpec(role, size, stride=stride, range=allowed)
        yield base.PodSet(spec_, mapping(group, "template"), made)


def _worker(of: base.MadePod, hosts: int, number: int) -> base.MadePod:
    replica, host = divmod(number, hosts)
    labels = {**of.labels, REPLICA: str(replica), HOST: str(host)}
    return base.MadePod(f"{of.name}-{number}", labels, of.owner)


_KINDS = """
fragment RaySpec
  suspend managedBy enableInTreeAutoscaling
  headGroupSpec { template=PodTemplate }
  workerGroupSpecs[] {
    groupName replicas minReplicas maxReplicas numOfHosts suspend template=PodTemplate
  }
rayclusters.ray.io RayCluster v1 v1alpha1
  spec=RaySpec status { state conditions[]=Condition }
rayjobs.ray.io RayJob v1 v1alpha1
  spec { suspend managedBy rayClusterSpec=RaySpec }
  status { jobStatus jobDeploymentStatus }
"""

DIALECT = base.Dialect(
    "Ray",
    precedence=80,
    controller=base.ControllerReader(
        KIND, describe, role_index, replaces=True, labels=(NAME,), owners=((GROUP, KIND),)
    ),
    kinds=_KINDS,
    makes={(GROUP, kind): base.Makes(ray_pods) for kind in (KIND, JOB)},
)
