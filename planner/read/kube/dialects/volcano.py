"""Volcano: the PodGroup that an annotation names, and the Job, whose tasks are roles.

A hard networkTopology asks for the tier it names, a soft one prefers the lowest tier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from models.instance.queue import Amount
from planner.read.findings import Remarks
from planner.read.kube.dialects import base
from planner.read.kube.dialects.gpus import GpuSystem
from planner.read.kube.dialects.quotas import (
    Quota,
    QuotaReader,
    QuotaSources,
    find_by_name,
    quota,
    weight,
)
from planner.read.kube.lookup import Tree, at, items, mapping, matches, number, objects, text, whole
from planner.read.kube.pods.requests import effective_requests, is_about_gpus
from planner.read.kube.records import (
    GroupKey,
    Key,
    KubeObject,
    KubePod,
    LevelAsk,
    Objects,
    SliceAsk,
    once,
)

MODE = "volcano.sh/network-topology-mode"
TIER = "volcano.sh/network-topology-highest-tier"
NO_TIER = "hard network topology without a tier, which Volcano does not support; it is ignored"
_MAX_TIER = 1000
MEMORY = "volcano.sh/gpu-memory"
LOWEST = LevelAsk(tier=0)

Topology = tuple[LevelAsk | None, LevelAsk | None, str | None]
"""(required, preferred, what is odd about it)"""

NO_TOPOLOGY: Topology = (None, None, None)


def _topology(tree: Tree, *path: str) -> Topology:
    found = mapping(tree, *path)
    if not found:
        return NO_TOPOLOGY
    tier = whole(found, "highestTierAllowed")
    return _levels(text(found, "mode") or "hard", tier, text(found, "highestTierName"))


def _annotated_topology(annotations: dict[str, str]) -> Topology:
    mode, tier = annotations.get(MODE), annotations.get(TIER)
    if mode is None and tier is None:
        return NO_TOPOLOGY
    return _levels(mode or "hard", number(tier), None if number(tier) is not None else tier)


def _levels(mode: str, tier: int | None, name: str | None) -> Topology:
    if mode == "soft":
        return None, LOWEST, None
    if mode != "hard":
        return None, None, f"network topology mode {mode[:40]!r} is unknown; it is ignored"
    if name is not None:
        return LevelAsk(tier_name=name), None, None
    if tier is None:
        return None, None, NO_TIER
    if not 0 <= tier <= _MAX_TIER:
        return None, None, f"network topology tier {tier} is out of range; it is ignored"
    return LevelAsk(tier=tier), None, None


ROOT = "root"
"""The queue above those that name no other."""

NOT_RECLAIMABLE = "is not reclaimable, which is not modelled: its preemptible gangs may be stopped"
GROUP = "scheduling.volcano.sh"
SCHEDULER = "volcano"
ANNOTATION = "scheduling.k8s.io/group-name"
NAMES = (ANNOTATION, "scheduling.volcano.sh/group-name")


def describe_group(of: base.Grouped) -> base.PodGroup:
    key, group, pods, _, remarks = of
    if group is None:
        return _group_of_pods(key, pods, remarks)
    topology = _topology(group.tree, "spec", "networkTopology")
    if topology == NO_TOPOLOGY:
        topology = _annotated_topology(group.annotations)
    required, preferred, odd = topology
    if odd is not None:
        remarks.add(group.subject, odd)
    minimum = whole(group.tree, "spec", "minMember")
    by_task = mapping(group.tree, "spec", "minTaskMember")
    tasks = {task: size for task in by_task if (size := whole(by_task, task)) is not None}
    colocations = [
        one
        for policy in objects(group.tree, "spec", "subGroupPolicy")
        for one in _sub_groups(policy, group, pods, remarks)
    ]
    return base.PodGroup(
        key,
        group,
        minimum=minimum,
        minimums=_kept_minimums(minimum, tasks),
        required=required,
        preferred=preferred,
        colocations=tuple(colocations),
        queue=text(group.tree, "spec", "queue"),
    )


def _kept_minimums(minimum: int | None, tasks: dict[str, int]) -> dict[str, int]:
    """The minimums of tasks, unless they are more together than the group needs: Volcano drops them then."""
    return tasks if minimum is None or sum(tasks.values()) <= minimum else {}


def _group_of_pods(key: GroupKey, pods: Sequence[KubePod], remarks: Remarks) -> base.PodGroup:
    for pod in pods:
        required, preferred, odd = _annotated_topology(pod.annotations)
        if odd is not None:
            remarks.add(pod.subject, odd)
        if required is not None or preferred is not None:
            return base.PodGroup(key, required=required, preferred=preferred)
    return base.PodGroup(key)


def _sub_groups(
    policy: Tree, group: KubeObject, pods: Sequence[KubePod], remarks: Remarks
) -> list[base.Colocation]:
    """Every ``subGroupSize`` pods, or those with equal labels, share a domain."""
    name = text(policy, "name") or "sub-group"
    required, preferred, odd = _topology(policy, "networkTopology")
    if odd is not None:
        remarks.add(group.subject, odd)
    level = required or preferred
    if level is None:
        return []
    selector = mapping(policy, "labelSelector")
    keys = [key for key in items(policy, "matchLabelKeys") if isinstance(key, str)]
    size = whole(policy, "subGroupSize")
    by_labels: dict[tuple[str | None, ...], list[KubePod]] = {}
    for pod in pods:
        if matches(selector, pod.labels):
            # Without keys all selected pods are alike, and only the size separates sub-groups.
            by_labels.setdefault(tuple(pod.labels.get(key) for key in keys), []).append(pod)
    return [
        base.Colocation(
            frozenset(pod.key for pod in members),
            level,
            required is not None,
            f"sub-group policy {name}",
            size if size is not None and size > 0 else None,
            partial=bool(keys),
        )
        for members in by_labels.values()
    ]


JOB_GROUP = "batch.volcano.sh"
KIND = "VCJob"
_KEY = "volcano.sh/"
NAME = f"{_KEY}job-name"
TASK = f"{_KEY}task-spec"
INDEX = f"{_KEY}task-index"


def describe_job(of: base.Controlled) -> base.Controller:
    key, job, pods, _ = of
    if job is None:
        return base.Controller(key, KIND, key.name)
    sets = list(volcano_pods(job))
    minimums: dict[str, int] = {}
    here = {base.mark(pod, TASK) for pod in pods}
    total = 0
    for task, role in zip(_tasks(job), (one.role for one in sets), strict=True):
        if not role.later or role.name in here:
            minimums[role.name] = base.count(task, "minAvailable", absent=role.size) or 0
            total += role.size or 0
    required, preferred, _ = _topology(job.tree, "spec", "networkTopology")
    minimum = min(whole(job.tree, "spec", "minAvailable") or sum(minimums.values()), total)
    return base.Controller(
        key,
        KIND,
        key.name,
        job,
        base.roles_of(sets),
        required=required,
        preferred=preferred,
        queue=text(job.tree, "spec", "queue"),
        minimum=minimum,
        minimums=_kept_minimums(minimum, minimums),
    )


def _partitions(task: Tree) -> tuple[SliceAsk, ...]:
    """Partitions of a task that each require one domain; preferences are not modelled."""
    policy = mapping(task, "partitionPolicy")
    size = whole(policy, "partitionSize")
    required, _, _ = _topology(policy, "networkTopology")
    return (SliceAsk(size, required),) if size is not None and size > 0 and required else ()


def read_queues(sources: QuotaSources) -> Iterable[Quota]:
    """Volcano's queues. What a queue deserves it gets back from others, so that is promised as well."""
    made = sources.api.of("Queue", GROUP)
    rooted = any(one.name == ROOT for one in made)
    found = [_queue(one, sources, rooted=rooted) for one in made]
    if any(one.guarantee.gpus for one in found):  # else nobody takes anything back
        for one in made:
            if one.name != ROOT and at(one.tree, "spec", "reclaimable") is False:  # root never is
                sources.remarks.add(one.where, NOT_RECLAIMABLE)
    return found


def _queue(made: KubeObject, sources: QuotaSources, *, rooted: bool) -> Quota:
    """``rooted``: the queue above those that name no other is among the objects."""
    spec = mapping(made.tree, "spec")
    kept = sources.gpus(mapping(spec, "guarantee", "resource"), made.where)
    deserved = sources.gpus(mapping(spec, "deserved"), made.where)
    promised = [gpus for gpus in (kept, deserved) if gpus is not None]
    parent = text(spec, "parent") or ROOT
    return quota(
        made,
        "volcano",
        parent=None if made.name == ROOT or (parent == ROOT and not rooted) else parent,
        guarantee=Amount(max(promised, default=None)),
        limit=Amount(sources.gpus(mapping(spec, "capability"), made.where)),
        weight=weight(spec.get("weight")),
    )


SERVICES = ("Pod", "ReplicaSet", "StatefulSet", "DaemonSet")
"""What Volcano makes PodGroups for that are no gangs."""


@once
def groups_by_owner(api: Objects) -> Mapping[Key, KubeObject]:
    found: dict[Key, KubeObject] = {}
    for one in api.of("PodGroup", GROUP):
        found.setdefault(one.owner_key or one.key, one)
    return found


def may_be_alone(api: Objects, owner: Key) -> bool:
    """Whether a group may stand for an owner that is not in the input: of a kind that is, it is gone."""
    group, kind, *_ = owner
    return (group, kind) == (GROUP, "PodGroup") or (
        kind not in SERVICES and not api.of(kind, group)
    )


def set_terms(
    terms: base.Terms, api: Objects, line: Sequence[KubeObject], group: KubeObject | None
) -> None:
    """The pods of a group are Volcano's, and start together."""
    del api, line
    if group is not None:
        terms.default_scheduler, terms.together = SCHEDULER, True
        terms.annotations = {ANNOTATION: group.name}


_PENDING = (None, "Pending", "Inqueue")
"""States of what it holds back."""


def is_pending(group: KubeObject) -> bool:
    """Whether Volcano holds the pods of a group back."""
    return text(group.tree, "status", "phase") in _PENDING


def volcano_pods(job: KubeObject) -> Iterator[base.PodSet]:
    scheduler = text(job.tree, "spec", "schedulerName") or SCHEDULER
    priority = text(job.tree, "spec", "priorityClassName")
    for place, task in enumerate(_tasks(job)):
        name, size = text(task, "name") or f"default{place}", base.count(task, "replicas", absent=1)
        later = bool(task.get("dependsOn"))
        role = base.RoleSpec(name, size, later=later, slices=_partitions(task))
        labels = {NAME: job.name, TASK: name}
        made = base.numbered(f"{job.name}-{name}", labels, base.owned_by(job), INDEX)
        yield base.PodSet(role, mapping(task, "template"), made, scheduler, priority)


def _tasks(job: KubeObject) -> list[Tree]:
    return objects(job.tree, "spec", "tasks")


def group_pods(group: KubeObject) -> Sequence[base.PodSet]:
    """The pods that a PodGroup needs: each an equal share of what it says that they need together."""
    stated = mapping(group.tree, "spec", "minResources")
    quota = {name.removeprefix("requests."): amount for name, amount in stated.items()}
    requests = {
        name: amount
        for name, amount in {**quota, **stated}.items()
        if not name.startswith(("requests.", "limits.", "count/")) and name != "pods"
    }
    needed = effective_requests(_one_container(requests))[0]
    pods = whole(group.tree, "spec", "minMember")
    template: Tree = {}
    divided = pods or 1
    if needed and divided > 0 and not any(is_about_gpus(n) and needed[n] % divided for n in needed):
        share = {name: -(-amount // divided) for name, amount in needed.items()}
        template = _one_container(
            {name: f"{one}m" if name == "cpu" else str(one) for name, one in share.items()}
        )
    name = group.name if group.owner is None else group.owner.name
    priority = text(group.tree, "spec", "priorityClassName")
    role = base.RoleSpec("worker", pods)
    return [
        base.PodSet(role, template, lambda n: base.MadePod(f"{name}-{n}", {}, {}), None, priority)
    ]


def _one_container(requests: Tree) -> Tree:
    return {"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}


_KINDS = """
fragment NetworkTopology
  mode highestTierAllowed highestTierName
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
"""

DIALECT = base.Dialect(
    "Volcano",
    precedence=60,
    gpus=(GpuSystem(name=MEMORY, parts=(MEMORY,), counter="volcano.sh/gpu-number"),),
    quotas=QuotaReader(read_queues, find_by_name, {SCHEDULER: "default"}, precedence=20),
    queue_keys={"volcano.sh/queue-name": 1, "scheduling.volcano.sh/queue-name": 2},
    preemptible={"volcano.sh/preemptable": "true"},
    groups=(base.GroupReader("Volcano", GROUP, describe_group, annotations=NAMES),),
    controller=base.ControllerReader(
        KIND,
        describe_job,
        base.marked_role(TASK, INDEX, "worker"),
        labels=(NAME,),
        annotations=(NAME,),
        owners=((JOB_GROUP, "Job"),),
    ),
    holder=base.Holder(
        GROUP,
        "PodGroup",
        groups_by_owner,
        is_pending,
        group_pods,
        set_terms,
        may_be_alone,
        annotations=NAMES,
        keeps=True,
    ),
    annotations="volcano.sh/ scheduling.volcano.sh/ topology.volcano.sh/",
    kinds=_KINDS,
    makes={
        (JOB_GROUP, "Job"): base.Makes(
            volcano_pods,
            lambda job: text(job.tree, "status", "state", "phase") in (*_PENDING, "Restarting"),
        )
    },
)
