"""Ray clusters: the head and every worker group are roles.

Promises: a worker of several hosts counts as that many pods. Called through ``gangs.table``.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.reading.kubernetes.forms import KubeObject, KubePod, Objects
from planner.reading.kubernetes.gangs.counting import counted, times
from planner.reading.kubernetes.gangs.forms import Maker, MakerDialect, MakerKey, RolePlan, Seat
from planner.reading.kubernetes.looking import number, objects, text

GROUP = "ray.io"
KIND = "RayCluster"
_KEY = "ray.io/"
NAME = f"{_KEY}cluster"
NODE_TYPE = f"{_KEY}node-type"
WORKER_GROUP = f"{_KEY}group"
HOST = f"{_KEY}replica-host-index"
REPLICA = f"{_KEY}worker-group-replica-index"
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
    return Maker(key, KIND, key.name, made, tuple(plans.values()))


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
    if replica is None or plan is None:
        return Seat(role, None)
    return Seat(role, replica * plan.stride + min(host or 0, plan.stride - 1))


DIALECT = MakerDialect(KIND, claim, describe, seat)
