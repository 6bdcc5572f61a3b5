"""The pods that each controller makes from its templates: how many, their names, labels and owners.

As the controllers do it, so that a gang reads the same before and after its pods exist. Nothing here raises,
and nothing takes longer because a number is large.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from planner.read.kube.dialects import jobset, kubeflow, leaderworkerset, ray, volcano
from planner.read.kube.dialects.base import count, product
from planner.read.kube.dialects.job import INDEX, parallel_pods
from planner.read.kube.dialects.kueue import PODSET, PODSET_INDEX
from planner.read.kube.lookup import Tree, flag, mapping, objects, text, whole
from planner.read.kube.pods.requests import effective_requests, is_about_gpus
from planner.read.kube.records import KubeObject

JOB_NAME = "batch.kubernetes.io/job-name"


class MadePod(NamedTuple):
    """What sets one pod apart: its name, the labels its controller adds, and an owner reference."""

    name: str
    labels: Mapping[str, str]
    owner: Tree


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one template. ``count``: None if it cannot be read; ``made``: by their number, from 0.

    ``scheduler``, ``priority_class``: for templates that name none.
    """

    template: Tree
    count: int | None
    made: Callable[[int], MadePod]
    scheduler: str | None = None
    priority_class: str | None = None


def owned_by(one: KubeObject) -> Tree:
    """A reference to the controller."""
    version = f"{one.group}/{one.version}" if one.group else one.version
    return _reference(version, one.kind, one.name, one.uid)


def _reference(version: str, kind: str, name: str, uid: str | None = None) -> Tree:
    found: Tree = {"apiVersion": version, "kind": kind, "name": name, "controller": True}
    return found if uid is None else {**found, "uid": uid}


def job_pods(job: KubeObject, done: frozenset[int] = frozenset()) -> Iterator[PodSet]:
    """``done``: completion indexes of the pods that succeeded."""
    spec = mapping(job.tree, "spec")
    wanted, completions = parallel_pods(spec), count(spec, "completions", absent=None)
    if wanted is not None and completions is not None:
        wanted = max(0, min(wanted, completions - (whole(job.tree, "status", "succeeded") or 0)))
    indexed, owner = text(spec, "completionMode") == "Indexed", owned_by(job)
    left_before = [index - place for place, index in enumerate(sorted(done))]

    def made(number: int) -> MadePod:
        number += bisect_right(left_before, number)  # the indexes that are left, in order
        labels = {JOB_NAME: job.name, "job-name": job.name}
        labels |= {INDEX: str(number)} if indexed else {}
        return MadePod(f"{job.name}-{number}", labels, owner)

    yield PodSet(mapping(spec, "template"), wanted, made)


def jobset_pods(one: KubeObject) -> Iterator[PodSet]:
    for replicated in objects(one.tree, "spec", "replicatedJobs"):
        name = text(replicated, "name") or ""
        jobs = count(replicated, "replicas", absent=1)
        spec = mapping(replicated, "template", "spec")
        each = parallel_pods(spec)
        made = partial(_jobset_pod, one, name, jobs, each or 1)
        yield PodSet(mapping(spec, "template"), product(jobs, each), made)


def _jobset_pod(one: KubeObject, role: str, jobs: int | None, each: int, number: int) -> MadePod:
    job, index = divmod(number, each)
    name = f"{one.name}-{role}-{job}"
    labels = {
        jobset.NAME: one.name,
        jobset.ROLE: role,
        jobset.REPLICAS: str(jobs),
        jobset.JOB_INDEX: str(job),
        JOB_NAME: name,
        INDEX: str(index),
    }
    return MadePod(f"{name}-{index}", labels, _reference("batch/v1", "Job", name))


def training_pods(job: KubeObject) -> Iterator[PodSet]:
    """The pods of a job of Kubeflow's operators; the launcher of an MPIJob too, whenever it starts."""
    spec = mapping(job.tree, "spec")
    launched = job.kind == "MPIJob" and flag(spec, "runLauncherAsWorker")
    for kind, replica in kubeflow.replica_types(job):
        role = kind.lower()
        made = partial(_training_pod, job, role, int(launched and role == "worker"))
        pods = count(replica, "replicas", absent=1)
        yield PodSet(mapping(replica, "template"), pods, made)


def _training_pod(job: KubeObject, role: str, first: int, number: int) -> MadePod:
    index = str(number + first)
    labels = {kubeflow.NAME: job.name, kubeflow.ROLE: role, kubeflow.INDEX: index}
    return MadePod(f"{job.name}-{role}-{number}", labels, owned_by(job))


def ray_pods(one: KubeObject) -> Iterator[PodSet]:
    """The head and the workers of a RayCluster, or of the one that a RayJob will have."""
    spec, name, labels = mapping(one.tree, "spec"), one.name, {ray.NAME: one.name}
    owner = owned_by(one)
    if one.kind == ray.JOB:
        spec = mapping(spec, "rayClusterSpec")
        cluster = f"{name}-raycluster"  # not its own name, which a RayCluster may have
        labels = {ray.NAME: cluster, ray.ORIGIN_KIND: ray.JOB, ray.ORIGIN_NAME: name}
        owner = _reference("ray.io/v1", ray.KIND, cluster)

    head = MadePod(f"{name}-head", {**labels, ray.NODE_TYPE: ray.HEAD}, owner)
    yield PodSet(mapping(spec, "headGroupSpec", "template"), 1, lambda _: head)
    for group in objects(spec, "workerGroupSpecs"):
        hosts = count(group, "numOfHosts", absent=1)
        role = text(group, "groupName") or "worker"
        marks = {**labels, ray.NODE_TYPE: "worker", ray.WORKER_GROUP: role}
        pods = product(ray.group_replicas(group), hosts)
        made = partial(_ray_worker, f"{name}-{role}-worker", marks, owner, hosts or 1)
        yield PodSet(mapping(group, "template"), pods, made)


def _ray_worker(
    name: str, labels: Mapping[str, str], owner: Tree, hosts: int, number: int
) -> MadePod:
    replica, host = divmod(number, hosts)
    marks = {**labels, ray.REPLICA: str(replica), ray.HOST: str(host)}
    return MadePod(f"{name}-{number}", marks, owner)


def leader_worker_pods(one: KubeObject) -> Iterator[PodSet]:
    groups = count(one.tree, "spec", "replicas", absent=1)
    template = mapping(one.tree, "spec", "leaderWorkerTemplate")
    size = count(template, "size", absent=1)
    workers = mapping(template, "workerTemplate")
    leaders = mapping(template, "leaderTemplate") or workers
    yield PodSet(leaders, groups, partial(_leader_worker_pod, one, 1, 0))
    if size is None or size > 1:
        others = None if size is None else size - 1
        made = partial(_leader_worker_pod, one, others or 1, 1)
        yield PodSet(workers, product(groups, others), made)


def _leader_worker_pod(one: KubeObject, each: int, first: int, number: int) -> MadePod:
    """``each``: pods of a group, which count from ``first``."""
    group, index = divmod(number, each)
    leader = f"{one.name}-{group}"
    labels = {
        leaderworkerset.NAME: one.name,
        leaderworkerset.GROUP_INDEX: str(group),
        leaderworkerset.WORKER_INDEX: str(index + first),
    }
    owner = _reference("apps/v1", "StatefulSet", leader if first else one.name)
    return MadePod(f"{leader}-{index + first}" if first else leader, labels, owner)


def volcano_pods(job: KubeObject) -> Iterator[PodSet]:
    scheduler = text(job.tree, "spec", "schedulerName") or volcano.SCHEDULER
    priority = text(job.tree, "spec", "priorityClassName")
    for place, task in enumerate(objects(job.tree, "spec", "tasks")):
        made = partial(_volcano_pod, job, text(task, "name") or f"default{place}")
        pods = count(task, "replicas", absent=1)
        yield PodSet(mapping(task, "template"), pods, made, scheduler, priority)


def _volcano_pod(job: KubeObject, task: str, number: int) -> MadePod:
    labels = {volcano.NAME: job.name, volcano.TASK: task, volcano.INDEX: str(number)}
    return MadePod(f"{job.name}-{task}-{number}", labels, owned_by(job))


def workload_pods(workload: KubeObject) -> Iterator[PodSet]:
    """The pod sets of a Kueue Workload, for owners whose templates are not in the input."""
    owner = owned_by(workload)
    name = workload.name if workload.owner is None else workload.owner.name
    for podset in objects(workload.tree, "spec", "podSets"):
        role = text(podset, "name") or "main"
        pods = count(podset, "count", absent=1)
        made = partial(_workload_pod, f"{name}-{role}", role, owner)
        yield PodSet(mapping(podset, "template"), pods, made)


def _workload_pod(name: str, role: str, owner: Tree, number: int) -> MadePod:
    return MadePod(f"{name}-{number}", {PODSET: role, PODSET_INDEX: str(number)}, owner)


def group_pods(group: KubeObject) -> Sequence[PodSet]:
    """The pods that a PodGroup needs: each an equal share of what it says that they need together."""
    stated = mapping(group.tree, "spec", "minResources")
    quota = {name.removeprefix("requests."): amount for name, amount in stated.items()}
    requests = {
        name: amount
        for name, amount in {**quota, **stated}.items()
        if not name.startswith(("requests.", "limits.", "count/")) and name != "pods"
    }
    needed = effective_requests(_one_container(requests)).amounts
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
    return [
        PodSet(template, pods, lambda n: MadePod(f"{name}-{n}", {}, {}), priority_class=priority)
    ]


def _one_container(requests: Tree) -> Tree:
    return {"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}


CONTROLLERS: dict[tuple[str, ...], Callable[[KubeObject], Iterator[PodSet]]] = {
    ("batch", "Job"): job_pods,
    ("jobset.x-k8s.io", "JobSet"): jobset_pods,
    ("ray.io", "RayCluster"): ray_pods,
    ("ray.io", "RayJob"): ray_pods,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): leader_worker_pods,
    (volcano.JOB_GROUP, "Job"): volcano_pods,
    **{("kubeflow.org", kind): training_pods for kind in kubeflow.KINDS.values()},
}
"""By API group and kind."""
