"""LeaderWorkerSet: every group is a gang of its own, a leader and its workers.

Promises: the gang is named ``<set>-<group>``, or as the set where it has one group; workers are
numbered from 1. Called through ``gangs.table``.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.read.kube.dialects.base import Maker, MakerDialect, MakerKey, RolePlan, Seat, counted
from planner.read.kube.lookup import number, text
from planner.read.kube.records import KubeObject, KubePod, LevelAsk, Objects

GROUP = "leaderworkerset.x-k8s.io"
_KEY = "leaderworkerset.sigs.k8s.io/"
NAME = f"{_KEY}name"
GROUP_INDEX = f"{_KEY}group-index"
WORKER_INDEX = f"{_KEY}worker-index"
SIZE = f"{_KEY}size"
LEADER_NAME = f"{_KEY}leader-name"
EXCLUSIVE = f"{_KEY}exclusive-topology"
SUBGROUP_EXCLUSIVE = f"{_KEY}subgroup-exclusive-topology"
SUBGROUPS = "asks for a domain of its own for every sub-group, which is not modelled"


def claim(pod: KubePod, found: Objects) -> MakerKey | None:
    del found
    name = pod.labels.get(NAME)
    if not name:
        return None
    part = number(pod.labels.get(GROUP_INDEX))
    if part is None:
        part = _part_of_leader(pod, name)
    return MakerKey("LeaderWorkerSet", pod.object.namespace, name, str(part or 0))


def _part_of_leader(pod: KubePod, name: str) -> int | None:
    """The group by the name of its leader, ``<set>-<group>``: a worker's own name begins so."""
    leader = pod.annotations.get(LEADER_NAME) or pod.name
    rest = leader.removeprefix(f"{name}-")
    return number(rest.partition("-")[0])


def describe(key: MakerKey, pods: Sequence[KubePod], found: Objects) -> Maker:
    made = found.named(GROUP, "LeaderWorkerSet", key.namespace, key.name)
    leaders = found.named("apps", "StatefulSet", key.namespace, key.name)
    of = made if made is not None else leaders
    replicas = counted(of.tree, "spec", "replicas", absent=1) if of is not None else None
    # A group beside a set of one group is a rolling update's surge: it keeps its number.
    name = key.name if replicas == 1 and key.part == "0" else f"{key.name}-{key.part}"
    size = _size(made, pods)
    # LeaderReady: workers are made once their leader is ready.
    of_spec = made.tree if made is not None else None
    later = text(of_spec, "spec", "startupPolicy") == "LeaderReady"
    roles = [RolePlan("leader", 1)]
    if size is None:
        roles.append(RolePlan("worker", None, first_index=1))
    elif size > 1:
        roles.append(RolePlan("worker", size - 1, first_index=1, later=later))
    label = _annotation(EXCLUSIVE, made, pods)
    level = LevelAsk(label=label) if label else None
    problems = (SUBGROUPS,) if _annotation(SUBGROUP_EXCLUSIVE, made, pods) else ()
    kind = "LeaderWorkerSet"
    return Maker(key, kind, name, made, tuple(roles), required=level, problems=problems)


def _size(made: KubeObject | None, pods: Sequence[KubePod]) -> int | None:
    if made is not None:
        size = counted(made.tree, "spec", "leaderWorkerTemplate", "size", absent=1)
        if size is not None:
            return size
    return max((number(pod.annotations.get(SIZE)) or 0 for pod in pods), default=0) or None


def _annotation(key: str, made: KubeObject | None, pods: Sequence[KubePod]) -> str | None:
    """Of the set, which is where people write it, or of the pods, where it is copied to."""
    if made is not None and made.annotations.get(key):
        return made.annotations[key]
    return next((pod.annotations[key] for pod in pods if pod.annotations.get(key)), None)


def seat(pod: KubePod, maker: Maker) -> Seat:
    del maker
    index = number(pod.labels.get(WORKER_INDEX))
    if index is None:
        return Seat("worker" if pod.annotations.get(LEADER_NAME) else "leader", None)
    return Seat("leader" if index == 0 else "worker", index)


DIALECT = MakerDialect("LeaderWorkerSet", claim, describe, seat)
