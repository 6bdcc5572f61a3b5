"""Kubernetes' own PodGroup (scheduling.k8s.io, 1.36 on): pods name it in spec.schedulingGroup.

Promises: what the PodGroup leaves out is taken from the template of its Workload; groups under one
composite start together. Called through ``gangs.table``.

Kubernetes 1.35: pods name a Workload and a pod group inside it in spec.workloadRef.

Promises: every replica key is a group of its own. Called through ``gangs.table``.

Jobs of the batch group: one role, ``worker``; Indexed Jobs say which pod is which.

Promises: asked last, for what is made of Jobs has its own dialect. Called through ``gangs.table``.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.read.findings import Remarks
from planner.read.kube.dialects.base import (
    Group,
    GroupDialect,
    Link,
    Maker,
    MakerDialect,
    MakerKey,
    RolePlan,
    Seat,
    counted,
)
from planner.read.kube.lookup import Tree, at, mapping, number, objects, text, whole
from planner.read.kube.records import KubeObject, KubePod, LevelAsk, Objects

GROUP = "scheduling.k8s.io"
COMPOSITE = "CompositePodGroup"
_DEEPEST = 16


def claim(pod: KubePod) -> str | None:
    return text(pod.object.tree, "spec", "schedulingGroup", "podGroupName")


def find(found: Objects, namespace: str, name: str) -> KubeObject | None:
    return found.named(GROUP, "PodGroup", namespace, name)


def describe(link: Link, pods: Sequence[KubePod], found: Objects, remarks: Remarks) -> Group:
    del pods
    made = find(found, link.namespace, link.name)
    if made is None:
        return Group(link)
    spec = mapping(made.tree, "spec")
    template = _template(spec, link.namespace, found)
    policy = mapping(spec, "schedulingPolicy") or mapping(template, "schedulingPolicy")
    required, more = asked_topology(mapping(spec, "schedulingConstraints"))
    if required is None:
        required, more = asked_topology(mapping(template, "schedulingConstraints"))
    if more:
        remarks.add(made.subject, "asks for several topology keys; the first one counts")
    gang, minimum = gang_policy(policy)
    wider = _widest(made, found)
    return Group(
        link,
        made,
        gang=gang,
        minimum=minimum,
        required=required,
        wider=wider,
        partners=_partners(wider, made.namespace, found) if wider is not None else (),
        around=_around(wider, made.namespace, found) if wider is not None else None,
    )


def gang_policy(policy: Tree) -> tuple[bool, int | None]:
    """Whether the pods start together, and how many at least."""
    minimum = whole(policy, "gang", "minCount")
    if "basic" in policy and not mapping(policy, "gang"):
        return False, None
    return True, minimum


def asked_topology(constraints: Tree) -> tuple[LevelAsk | None, bool]:
    """The level all pods share, and whether more were asked for than we take."""
    keys = [key for entry in objects(constraints, "topology") if (key := text(entry, "key"))]
    return (LevelAsk(label=keys[0]) if keys else None), len(keys) > 1


def _template(spec: Tree, namespace: str, found: Objects) -> Tree:
    """The template of the Workload that the PodGroup was made from; empty where there is none."""
    of = mapping(spec, "podGroupTemplateRef", "workload") or mapping(spec, "podGroupTemplateRef")
    workload, name = text(of, "workloadName"), text(of, "podGroupTemplateName")
    made = found.named(GROUP, "Workload", namespace, workload) if workload else None
    if made is None:
        return {}
    templates = objects(made.tree, "spec", "podGroupTemplates")
    return next((entry for entry in templates if text(entry, "name") == name), {})


def _widest(made: KubeObject, found: Objects) -> str | None:
    """The outermost composite group it stands under."""
    name = None
    spec: object = at(made.tree, "spec")
    for _ in range(_DEEPEST):
        parent = text(spec, "parentCompositePodGroupName")
        if parent is None or parent == name:
            break
        name = parent
        above = found.named(GROUP, COMPOSITE, made.namespace, parent)
        if above is None:
            break
        spec = at(above.tree, "spec")
    return name


def _around(wider: str, namespace: str, found: Objects) -> LevelAsk | None:
    """The level that the outermost composite asks of all groups under it."""
    made = found.named(GROUP, COMPOSITE, namespace, wider)
    tree = made.tree if made is not None else None
    return asked_topology(mapping(tree, "spec", "schedulingConstraints"))[0]


def _partners(wider: str, namespace: str, found: Objects) -> tuple[str, ...]:
    """All groups of the namespace under that composite."""
    groups = (one for one in found.of("PodGroup", GROUP) if one.namespace == namespace)
    return tuple(sorted(one.name for one in groups if _widest(one, found) == wider))


DIALECT = GroupDialect("PodGroup", claim, find, describe)


def claim_of_workload(pod: KubePod) -> str | None:
    reference = mapping(pod.object.tree, "spec", "workloadRef")
    name = text(reference, "name")
    if name is None:
        return None
    parts = [name, text(reference, "podGroup"), text(reference, "podGroupReplicaKey")]
    return "/".join(part for part in parts if part)


def find_of_workload(found: Objects, namespace: str, name: str) -> KubeObject | None:
    return found.named(GROUP, "Workload", namespace, name.partition("/")[0])


def describe_of_workload(
    link: Link, pods: Sequence[KubePod], found: Objects, remarks: Remarks
) -> Group:
    del pods
    made = find_of_workload(found, link.namespace, link.name)
    if made is None:
        return Group(link)
    parts = link.name.split("/")
    groups = objects(made.tree, "spec", "podGroups")
    groups += objects(made.tree, "spec", "podGroupTemplates")
    inside = parts[1] if len(parts) > 1 else None
    of = next((entry for entry in groups if text(entry, "name") == inside), None)
    if of is None:
        remarks.add(made.subject, "has no pod group of the name that its pods give")
        return Group(link, made)
    gang, minimum = gang_policy(mapping(of, "policy") or mapping(of, "schedulingPolicy"))
    required, more = asked_topology(mapping(of, "schedulingConstraints"))
    if more:
        remarks.add(made.subject, "asks for several topology keys; the first one counts")
    return Group(link, made, gang=gang, minimum=minimum, required=required)


DIALECT_WORKLOAD = GroupDialect(
    "Workload", claim_of_workload, find_of_workload, describe_of_workload
)


ROLE = "worker"
INDEX = "batch.kubernetes.io/job-completion-index"
_NAMES = ("batch.kubernetes.io/job-name", "job-name")


def pods_at_once(spec: Tree) -> int | None:
    """Pods of a Job that run together; 1 where nothing is said, None where nonsense is."""
    wanted = counted(spec, "parallelism", absent=1)
    completions = counted(spec, "completions", absent=None)
    return wanted if wanted is None or completions is None else min(wanted, completions)


def completion_index(pod: KubePod) -> int | None:
    return number(pod.labels.get(INDEX) or pod.annotations.get(INDEX))


def claim_of_job(pod: KubePod, found: Objects) -> MakerKey | None:
    del found
    owner = pod.object.owner
    if owner is not None:
        if owner.kind != "Job" or owner.group != "batch":
            return None
        return MakerKey("Job", pod.object.namespace, owner.name)
    name = next((pod.labels[key] for key in _NAMES if pod.labels.get(key)), None)
    return MakerKey("Job", pod.object.namespace, name) if name else None


def describe_of_job(key: MakerKey, pods: Sequence[KubePod], found: Objects) -> Maker:
    made = found.named("batch", "Job", key.namespace, key.name)
    if made is None:
        return Maker(key, "Job", key.name, None, (RolePlan(ROLE, None),))
    size = pods_at_once(mapping(made.tree, "spec"))
    completions = counted(made.tree, "spec", "completions", absent=None)
    over_time = completions is not None and size is not None and completions > size
    if completions is not None and size is not None and completions > size:
        # Towards the end fewer pods run at once: those that succeeded are not made again.
        left = completions - (whole(made.tree, "status", "succeeded") or 0)
        standing = sum(pod.finished is None for pod in pods)
        size = max(min(size, left), standing)
    plan = RolePlan(ROLE, size, queue_like=over_time)
    return Maker(key, "Job", key.name, made, (plan,))


def seat(pod: KubePod, maker: Maker) -> Seat:
    del maker
    return Seat(ROLE, completion_index(pod))


DIALECT_JOB = MakerDialect("Job", claim_of_job, describe_of_job, seat)
