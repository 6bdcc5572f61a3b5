"""LeaderWorkerSet: each group is a gang, a leader and its workers, which count from 1.

The gang is named ``<set>-<group>``, or like the set if it has one group.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.read.kube.dialects import base
from planner.read.kube.lookup import mapping, number, text
from planner.read.kube.records import KubeObject, KubePod, LevelAsk

GROUP = "leaderworkerset.x-k8s.io"
KIND = "LeaderWorkerSet"
_KEY = "leaderworkerset.sigs.k8s.io/"
NAME = f"{_KEY}name"
GROUP_INDEX = f"{_KEY}group-index"
WORKER_INDEX = f"{_KEY}worker-index"
SIZE = f"{_KEY}size"
LEADER_NAME = f"{_KEY}leader-name"
EXCLUSIVE = f"{_KEY}exclusive-topology"
SUBGROUP_EXCLUSIVE = f"{_KEY}subgroup-exclusive-topology"
SUBGROUPS = "asks for a domain of its own for every sub-group, which is not modelled"


def group_of(pod: KubeObject, name: str) -> str:
    """Which group of the set a pod is in."""
    part = number(pod.labels.get(GROUP_INDEX))
    if part is None:
        # The leader is named ``<set>-<group>``, and names of workers begin with that.
        leader = pod.annotations.get(LEADER_NAME) or pod.name
        part = number(leader.removeprefix(f"{name}-").partition("-")[0])
    return str(part or 0)


def describe(of: base.Controlled) -> base.Controller:
    key, made, pods, api = of
    leaders = api.named("apps", "StatefulSet", key.namespace, key.name)
    sized = made if made is not None else leaders
    replicas = base.count(sized.tree, "spec", "replicas", absent=1) if sized is not None else None
    # A second group in a set of one group is the surge of a rolling update: it keeps its number.
    name = key.name if replicas == 1 and key.part == "0" else f"{key.name}-{key.part}"
    size = _size(made, pods)
    # LeaderReady: the controller creates workers once their leader is ready.
    later = made is not None and text(made.tree, "spec", "startupPolicy") == "LeaderReady"
    roles = [base.RoleSpec("leader", 1)]
    if size is None:
        roles.append(base.RoleSpec("worker", None, first_index=1))
    elif size > 1:
        roles.append(base.RoleSpec("worker", size - 1, first_index=1, later=later))
    label = _annotation(EXCLUSIVE, made, pods)
    return base.Controller(
        key,
        KIND,
        name,
        made,
        {role.name: role for role in roles},
        required=LevelAsk(label=label) if label else None,
        problems=(SUBGROUPS,) if _annotation(SUBGROUP_EXCLUSIVE, made, pods) else (),
    )


def _size(made: KubeObject | None, pods: Sequence[KubePod]) -> int | None:
    if made is not None:
        size = base.count(made.tree, "spec", "leaderWorkerTemplate", "size", absent=1)
        if size is not None:
            return size
    return max((number(pod.annotations.get(SIZE)) or 0 for pod in pods), default=0) or None


def _annotation(key: str, made: KubeObject | None, pods: Sequence[KubePod]) -> str | None:
    """People write it on the set; the controller copies it to the pods."""
    if made is not None and made.annotations.get(key):
        return made.annotations[key]
    return next((pod.annotations[key] for pod in pods if pod.annotations.get(key)), None)


def role_index(pod: KubePod, controller: base.Controller) -> base.RoleIndex:
    del controller
    index = number(pod.labels.get(WORKER_INDEX))
    if index is None:
        return base.RoleIndex("worker" if pod.annotations.get(LEADER_NAME) else "leader", None)
    return base.RoleIndex("leader" if index == 0 else "worker", index)


def leader_worker_pods(one: KubeObject) -> list[base.PodSet]:
    groups = base.count(one.tree, "spec", "replicas", absent=1)
    template = mapping(one.tree, "spec", "leaderWorkerTemplate")
    size = base.count(template, "size", absent=1)
    workers = mapping(template, "workerTemplate")
    leaders = mapping(template, "leaderTemplate") or workers
    others = None if size is None else max(0, size - 1)

    def leader(number: int) -> base.MadePod:
        labels = {NAME: one.name, GROUP_INDEX: str(number), WORKER_INDEX: "0"}
        owner = base.reference("apps/v1", "StatefulSet", one.name)
        return base.MadePod(f"{one.name}-{number}", labels, owner)

    def worker(number: int) -> base.MadePod:
        group, place = divmod(number, others or 1)
        of, index = f"{one.name}-{group}", str(place + 1)
        labels = {NAME: one.name, GROUP_INDEX: str(group), WORKER_INDEX: index}
        return base.MadePod(f"{of}-{index}", labels, base.reference("apps/v1", "StatefulSet", of))

    return [
        base.PodSet(base.RoleSpec("leader", groups), leaders, leader),
        base.PodSet(base.RoleSpec("worker", base.product(groups, others)), workers, worker),
    ]


_KINDS = """
leaderworkersets.leaderworkerset.x-k8s.io LeaderWorkerSet v1
  spec {
    replicas startupPolicy
    leaderWorkerTemplate {
      size restartPolicy leaderTemplate=PodTemplate workerTemplate=PodTemplate
      subGroupPolicy { subGroupSize type }
    }
  }
  status { replicas conditions[]=Condition }
"""

DIALECT = base.Dialect(
    KIND,
    precedence=20,
    controller=base.ControllerReader(
        KIND, describe, role_index, group_of, replaces=True, labels=(NAME,), owners=((GROUP, KIND),)
    ),
    annotations="leaderworkerset.sigs.k8s.io/",
    kinds=_KINDS,
    makes={(GROUP, KIND): base.Makes(leader_worker_pods, waits=lambda _: True)},
)
