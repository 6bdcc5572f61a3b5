"""JobSet and TrainJob (which runs a JobSet): replicated Jobs are roles.

Promises: index = job index x pods of one Job + completion index; sizes from the JobSet object, else
from labels. Called through ``gangs.table``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.read.kube.dialects.base import (
    Maker,
    MakerDialect,
    MakerKey,
    RolePlan,
    Seat,
    counted,
    times,
)
from planner.read.kube.dialects.kubernetes import completion_index, pods_at_once
from planner.read.kube.lookup import Tree, items, mapping, number, objects, text
from planner.read.kube.records import KubeObject, KubePod, LevelAsk, Objects, SliceAsk

GROUP = "jobset.x-k8s.io"
TRAINER = "trainer.kubeflow.org"
_KEY = "jobset.sigs.k8s.io/"
NAME = f"{_KEY}jobset-name"
ROLE = f"{_KEY}replicatedjob-name"
REPLICAS = f"{_KEY}replicatedjob-replicas"
JOB_INDEX = f"{_KEY}job-index"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def claim(pod: KubePod, found: Objects) -> MakerKey | None:
    name = pod.labels.get(NAME) or pod.annotations.get(NAME) or _owner_name(pod, found)
    return MakerKey("JobSet", pod.object.namespace, name) if name else None


def _owner_name(pod: KubePod, found: Objects) -> str | None:
    job = found.owner_of(pod.object)
    if job is None or job.owner is None or job.owner.kind != "JobSet":
        return None
    return job.owner.name


def describe(key: MakerKey, pods: Sequence[KubePod], found: Objects) -> Maker:
    made = found.named(GROUP, "JobSet", key.namespace, key.name)
    train = found.named(TRAINER, "TrainJob", key.namespace, key.name)
    if made is not None and made.owner is not None and made.owner.kind == "TrainJob":
        owner = found.owner_of(made)
        train = owner if owner is not None else train
        name, kind = made.owner.name, "TrainJob"
    else:
        name, kind = key.name, "JobSet" if train is None else "TrainJob"
    plans = {plan.name: plan for plan in _from_object(made)} if made is not None else {}
    for plan in _from_labels(pods, found):
        # The labels of pods fill in what no object says.
        if plan.name not in plans or plans[plan.name].size is None:
            plans[plan.name] = plan
    return Maker(key, kind, name, train if train is not None else made, tuple(plans.values()))


def _from_object(made: KubeObject) -> tuple[RolePlan, ...]:
    everywhere = made.annotations.get(EXCLUSIVE)
    in_order = text(made.tree, "spec", "startupPolicy", "startupPolicyOrder") == "InOrder"
    plans: dict[str, RolePlan] = {}
    for replicated in objects(made.tree, "spec", "replicatedJobs"):
        name = text(replicated, "name")
        if name is None:
            continue
        jobs = counted(replicated, "replicas", absent=1)
        each = pods_at_once(mapping(replicated, "template", "spec"))
        label = text(replicated, "template", "metadata", "annotations", EXCLUSIVE) or everywhere
        later = bool(items(replicated, "dependsOn")) or (in_order and bool(plans))
        plans.setdefault(name, replace(_plan(name, jobs, each, label), later=later))
    return tuple(plans.values())


def _plan(name: str, jobs: int | None, each: int | None, exclusive: str | None) -> RolePlan:
    """A role of so many Jobs; each Job has a domain of the exclusive label."""
    level = LevelAsk(label=exclusive) if exclusive else None
    stride = max(each or 1, 1)
    return RolePlan(
        name,
        times(jobs, each),
        stride=stride,
        required=level if jobs == 1 else None,
        slices=(SliceAsk(stride, level),) if level is not None and jobs != 1 and stride > 1 else (),
    )


def _from_labels(pods: Sequence[KubePod], found: Objects) -> list[RolePlan]:
    """Roles that only pods tell of: Jobs from their labels, pods of one from its Job or the pods."""
    by_role: dict[str, list[KubePod]] = {}
    for pod in pods:
        by_role.setdefault(_role(pod), []).append(pod)
    plans = []
    for role, members in sorted(by_role.items()):
        jobs = max((number(pod.labels.get(REPLICAS)) or 1 for pod in members), default=1)
        each = max(_pods_of_job(pod, found) or 1 for pod in members)
        highest = max((completion_index(pod) or 0 for pod in members), default=0)
        plans.append(RolePlan(role, jobs * max(each, highest + 1), stride=max(each, highest + 1)))
    return plans


def _pods_of_job(pod: KubePod, found: Objects) -> int | None:
    job = found.owner_of(pod.object)
    if job is None or job.kind != "Job":
        return None
    spec: Tree = mapping(job.tree, "spec")
    return pods_at_once(spec)


def _role(pod: KubePod) -> str:
    return pod.labels.get(ROLE) or pod.annotations.get(ROLE) or "worker"


def seat(pod: KubePod, maker: Maker) -> Seat:
    role = _role(pod)
    plan = maker.role(role)
    inside = completion_index(pod)
    if inside is None:
        return Seat(role, None)
    job = number(pod.labels.get(JOB_INDEX) or pod.annotations.get(JOB_INDEX))
    if plan is None or job is None:
        jobs = 1 if plan is None or plan.size is None else plan.size // max(plan.stride, 1)
        return Seat(role, inside if jobs <= 1 else None)
    return Seat(role, job * plan.stride + inside) if inside < plan.stride else Seat(role, None)


DIALECT = MakerDialect("JobSet", claim, describe, seat)
