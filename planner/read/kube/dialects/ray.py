"""Ray clusters: the head and every worker group are roles.

Promises: a worker of several hosts counts as that many pods; the cluster of a RayJob goes by the
name of the job, for its own is drawn anew at every start. Called through ``gangs.table``.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.read.kube.dialects.base import (
    Maker,
    MakerDialect,
    MakerKey,
    RolePlan,
    Seat,
    counted,
    times,
)
from planner.read.kube.lookup import number, objects, text
from planner.read.kube.records import KubeObject, KubePod, Objects

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


def claim(pod: KubePod, found: Objects) -> MakerKey | None:
    del found
    owner = pod.object.owner
    name = pod.labels.get(NAME)
    if not name and owner is not None and owner.kind == KIND and owner.group == GROUP:
        name = owner.name
    return MakerKey(KIND, pod.object.namespace, name) if name else None


def describe(key: MakerKey, pods: Sequence[KubePod], found: Objects) -> Maker:
    made = found.named(GROUP, KIND, key.namespace, key.name)
    plans = {HEAD: RolePlan(HEAD, 1)} | (_from_object(made) if made is not None else {})
    for role in sorted({_role(pod) for pod in pods}):
        plans.setdefault(role, RolePlan(role, None))
    job = _job(made, pods)
    kind, name = (KIND, key.name) if job is None else (JOB, job)
    speaker = found.named(GROUP, JOB, key.namespace, job) if job is not None else None
    roles = tuple(plans.values())
    return Maker(key, kind, name, speaker or made, roles, ranks=_ranks(pods))


def _job(made: KubeObject | None, pods: Sequence[KubePod]) -> str | None:
    """The RayJob that the cluster was made for."""
    if made is not None and made.owner is not None and made.owner.kind == JOB:
        return made.owner.name
    labels = made.labels if made is not None else next((pod.labels for pod in pods), {})
    return (labels.get(ORIGIN_NAME) or None) if labels.get(ORIGIN_KIND) == JOB else None


def _ranks(pods: Sequence[KubePod]) -> dict[str, int]:
    """Order of the replicas of several hosts that have names and no index, by name in each group."""
    names: dict[str, set[str]] = {}
    for pod in pods:
        name = pod.labels.get(REPLICA_NAME)
        if name and number(pod.labels.get(REPLICA)) is None:
            names.setdefault(_role(pod), set()).add(name)
    return {name: rank for group in names.values() for rank, name in enumerate(sorted(group))}


def _from_object(made: KubeObject) -> dict[str, RolePlan]:
    plans: dict[str, RolePlan] = {}
    for group in objects(made.tree, "spec", "workerGroupSpecs"):
        name = text(group, "groupName") or "worker"
        least = counted(group, "minReplicas", absent=0)
        replicas = counted(group, "replicas", absent=least)
        hosts = counted(group, "numOfHosts", absent=1)
        if name != HEAD:
            plans.setdefault(
                name, RolePlan(name, times(replicas, hosts), stride=max(hosts or 1, 1))
            )
    return plans


def _role(pod: KubePod) -> str:
    if pod.labels.get(NODE_TYPE) == HEAD:
        return HEAD
    return pod.labels.get(WORKER_GROUP) or "worker"


def seat(pod: KubePod, maker: Maker) -> Seat:
    role = _role(pod)
    if role == HEAD:
        return Seat(role, 0)
    plan = maker.role(role)
    replica, host = number(pod.labels.get(REPLICA)), number(pod.labels.get(HOST))
    if replica is None:
        replica = maker.ranks.get(pod.labels.get(REPLICA_NAME, ""))
    if replica is None or plan is None:
        return Seat(role, None)
    return Seat(role, replica * plan.stride + min(host or 0, plan.stride - 1))


DIALECT = MakerDialect(KIND, claim, describe, seat)
