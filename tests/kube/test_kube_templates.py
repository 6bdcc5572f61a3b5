"""Workloads that wait and have no pods: each is a gang once, as its controller would make it."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from bundles import load_all
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kube import node
from kube_gangs import owned, thing
from kube_mutations import ODD, broken, places, recorded

from models.instance.gang import Gang, Role
from planner.read.instance_builder import LoadedInput
from planner.read.kube.kinds import ALL as ALL_KINDS
from planner.read.kube.templates import waiting

Tree = dict[str, Any]

ALL = {
    "apiVersion": "gangplan.dev/v1alpha1",
    "kind": "Policy",
    "spec": {"kubernetes": {"schedulerNames": ["*"]}},
}
KINDS = ("Job", "JobSet", "LeaderWorkerSet", "MPIJob", "PyTorchJob")
KUEUE, VOLCANO = "kueue.x-k8s.io/v1beta2", "scheduling.volcano.sh/v1beta1"


def planned(*objects: Tree, policy: Tree = ALL) -> LoadedInput:
    return load_all([policy, *(node(f"n{n}") for n in range(1, 9)), *objects])


def gangs(*objects: Tree, policy: Tree = ALL) -> dict[str, Gang]:
    """Every gang by ``namespace/name``."""
    return {"/".join(one.key): one for one in planned(*objects, policy=policy).instance.gangs}


def template(gpus: int = 8, **spec: object) -> Tree:
    """A pod template with what no plan may hold, too."""
    env = [{"name": "TOKEN", "value": "secret"}]
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    container = {"name": "main", "command": ["train"], "env": env, "resources": resources}
    return {"metadata": {"labels": {"app": "vit"}}, "spec": {"containers": [container], **spec}}


def job(suspend: bool = True, pods: int = 4, **metadata: object) -> Tree:
    spec = {
        "suspend": suspend,
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "template": template(priorityClassName="high"),
    }
    return thing("Job", "batch/v1", "vit", spec, **metadata)


def jobset(**metadata: object) -> Tree:
    nodes = {
        "parallelism": 2,
        "completions": 2,
        "completionMode": "Indexed",
        "template": template(),
    }
    head = {"parallelism": 1, "completions": 1, "template": template(0)}
    replicated = [
        {"name": "head", "replicas": 1, "template": {"spec": head}},
        {"name": "node", "replicas": 2, "template": {"spec": nodes}},
    ]
    spec = {"suspend": True, "replicatedJobs": replicated}
    return thing("JobSet", "jobset.x-k8s.io/v1alpha2", "vit", spec, **metadata)


def training(kind: str, field: str, suspend: bool = True, **replicas: int) -> Tree:
    types = {
        role.capitalize(): {"replicas": count, "template": template(8 * (role != "launcher"))}
        for role, count in replicas.items()
    }
    version = "kubeflow.org/v2beta1" if kind == "MPIJob" else "kubeflow.org/v1"
    return thing(kind, version, "vit", {field: types, "runPolicy": {"suspend": suspend}})


def ray_spec() -> Tree:
    group = {"groupName": "gpu", "replicas": 2, "numOfHosts": 2, "maxReplicas": 4}
    group |= {"minReplicas": 1, "template": template()}
    return {"headGroupSpec": {"template": template(0)}, "workerGroupSpecs": [group]}


def volcano_job(phase: str = "Pending", **spec: object) -> Tree:
    tasks = [
        {"name": "master", "replicas": 1, "template": template(0)},
        {"name": "worker", "replicas": 4, "template": template()},
    ]
    made = thing("Job", "batch.volcano.sh/v1alpha1", "vit", {"tasks": tasks, "queue": "q", **spec})
    return made | {"status": {"state": {"phase": phase}}}


def podgroup(phase: str = "Pending", name: str = "vit-uid", **spec: object) -> Tree:
    return thing("PodGroup", VOLCANO, name, spec) | {"status": {"phase": phase}}


def workload(kind: str, version: str, *conditions: str, **spec: object) -> Tree:
    """Kueue's Workload of an object ``vit``."""
    podset = {"name": "main", "count": 4, "template": template()}
    made = thing("Workload", KUEUE, f"{kind.lower()}-vit-1", {"podSets": [podset], **spec})
    true = [{"type": one, "status": "True"} for one in conditions]
    return owned(made | {"status": {"conditions": true}}, kind, version, "vit")


HIGH = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
HIGH |= {"metadata": {"name": "high"}, "value": 50}


# ---- what each controller would make


LABELS = {
    "jobset.sigs.k8s.io/jobset-name": "JobSet",
    "training.kubeflow.org/job-name": "kubeflow.org",
    "leaderworkerset.sigs.k8s.io/name": "LeaderWorkerSet",
    "volcano.sh/job-name": "batch.volcano.sh",
    "batch.kubernetes.io/job-name": "Job",
}


def makers(one: Tree) -> set[tuple[str, str, str]]:
    """(kind or API group, namespace, name) of the controllers that the labels of a pod name."""
    labels, namespace = one["metadata"].get("labels", {}), one["metadata"]["namespace"]
    return {(LABELS[key], namespace, name) for key, name in labels.items() if key in LABELS}


def maker(one: Tree) -> tuple[str, str, str]:
    """The same of a controller."""
    group, kind = one["apiVersion"].partition("/")[0], one["kind"]
    named = group if group in LABELS.values() else kind
    return (named, one["metadata"]["namespace"], one["metadata"]["name"])


def admitted(role: Role) -> Role:
    """The role without the tolerations that API servers give to every pod."""
    kept = tuple(one for one in role.tolerations if one.effect != "NoExecute")
    return replace(role, tolerations=kept)


@pytest.mark.parametrize(
    ("name", "fewest"),
    [("v100-mpi", 8), ("nvl72", 20), pytest.param("h100-gke", 40, marks=pytest.mark.slow)],
)
def test_a_recorded_gang_without_its_pods_is_the_same_gang(name: str, fewest: int) -> None:
    """Every controller whose pods all wait is suspended, and loses them. No flavor adds tolerations."""
    trees = [copy.deepcopy(one) for one in recorded(name) if one["kind"] != "LocalQueue"]
    pods = [one for one in trees if one["kind"] == "Pod"]
    wanted: set[tuple[str, str, str]] = set()
    started: set[tuple[str, str, str]] = set()
    for one in pods:
        waits = "nodeName" not in one["spec"] and one["status"]["phase"] == "Pending"
        (wanted if waits else started).update(makers(one))
    wanted -= started
    chosen = [one for one in trees if one["kind"] in KINDS and maker(one) in wanted]
    assert len(chosen) >= fewest
    before = {one.key: one for one in load_all([ALL, *trees]).instance.gangs}
    gone = set(map(maker, chosen))
    for one in chosen:
        if one["apiVersion"].startswith("batch.volcano.sh"):
            one["status"] = {"state": {"phase": "Pending"}}
        elif one["kind"] != "LeaderWorkerSet":
            one["spec"] |= {"suspend": True, "runPolicy": {"suspend": True}}
    kept = [one for one in trees if one["kind"] != "Pod" or gone.isdisjoint(makers(one))]
    after = {one.key: one for one in load_all([ALL, *kept]).instance.gangs}
    assert before.keys() == after.keys()
    for key, gang in before.items():
        found = after[key]
        assert tuple(map(admitted, found.roles)) == tuple(map(admitted, gang.roles)), key
        for field in ("priority", "queue", "required", "preferred", "preemptible", "service"):
            assert getattr(found, field) == getattr(gang, field), (key, field)
    # A gang that lacks pods is whole from its template.
    assert sum(after[key].hold != gang.hold for key, gang in before.items()) == 1


def test_a_recorded_cluster_has_the_same_gangs_and_no_secrets() -> None:
    """Recording keeps of a template what it keeps of a pod, and the claims of its volumes."""
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    token = {"name": "token", "secret": {"secretName": "token"}}
    tied = job()
    tied["spec"]["template"]["spec"]["volumes"] = [claim, token]
    tied["metadata"]["name"] = "tied"
    objects = [
        tied,
        jobset(),
        *(HIGH, volcano_job()),
        owned(podgroup(minMember=3), "Job", "batch.volcano.sh/v1alpha1", "vit"),
        workload("AppWrapper", "workload.codeflare.dev/v1beta2", priority=7),
        thing("RayJob", "ray.io/v1", "ray", {"suspend": True, "rayClusterSpec": ray_spec()}),
    ]
    kinds = {(kind.group, kind.name): kind for kind in ALL_KINDS}
    kept = [
        {**one, **kinds[one["apiVersion"].rpartition("/")[0], one["kind"]].prune(one)}
        for one in objects
    ]
    claims = {"apiVersion": "v1", "kind": "PersistentVolumeClaimList", "items": []}
    before, after = planned(*objects, claims), planned(*kept, claims)
    assert before.instance.gangs == after.instance.gangs
    assert len(before.instance.gangs) == 5
    (waits,) = [one for one in after.instance.gangs if one.name == "tied"]
    assert waits.hold is not None
    assert waits.hold.message == "PersistentVolumeClaim data does not exist"
    assert not any(word in str(kept) for word in ("TOKEN", "train'", "secretName"))


# ---- whatever a stranger writes


def test_a_namespace_has_so_many_pods_without_existence_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "MAX_NAMESPACE_PODS", 8)
    jobs = [job(), job(), job()]
    for n, one in enumerate(jobs):
        one["metadata"] |= {"name": f"vit-{n}", "creationTimestamp": f"2026-11-2{n}T06:00:00Z"}
    other = job()
    other["metadata"]["namespace"] = "other"
    loaded = planned(*jobs, other)
    assert ["/".join(one.key) for one in loaded.instance.gangs] == [
        "default/vit-0", "default/vit-1", "other/vit",
    ]  # fmt: skip
    assert sum("1 waiting workloads without pods" in line for line in loaded.remarks) == 1


@pytest.mark.parametrize("value", [None, "x", -1, [], {}, 1.5, True, 10**30])
def test_malformed_templates_and_sizes_are_remarks(value: object) -> None:
    wrong = [
        thing("Job", "batch/v1", "a", {"suspend": True, "parallelism": value, "template": template()}),
        thing("Job", "batch/v1", "b", {"suspend": True, "template": value}),
        thing("JobSet", "jobset.x-k8s.io/v1alpha2", "c", {"suspend": True, "replicatedJobs": value}),
        thing("RayJob", "ray.io/v1", "d", {"suspend": True, "rayClusterSpec": value}),
        thing("RayCluster", "ray.io/v1", "e", {"suspend": True, "workerGroupSpecs": [value]}),
        thing("Job", "batch.volcano.sh/v1alpha1", "f", {"tasks": [{"replicas": value}]}),
        thing("PyTorchJob", "kubeflow.org/v1", "g",
              {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Worker": value}}),
        thing("Workload", KUEUE, "h", {"podSets": [{"count": value, "template": value}]}),
        thing("PodGroup", VOLCANO, "i", {"minMember": value, "minResources": {"cpu": "1"}}),
        thing("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", "j", {"replicas": value}),
    ]  # fmt: skip
    conditions = [{"type": value, "status": "True"}, {"type": "Ready", "status": value}]
    status = {"conditions": conditions, "jobStatus": value, "terminalState": value, "state": value}
    wrong += [one | {"status": status} for one in wrong]
    for one in wrong[len(wrong) // 2 :]:
        one["metadata"] = {**one["metadata"], "name": f"{one['metadata']['name']}-2"}
    found = gangs(*wrong, job())
    assert "default/vit" in found
    assert all(gang.roles for gang in found.values())


@cache
def alone() -> Gang:
    """The gang of ``job()`` where there is nothing else."""
    return gangs(job())["default/vit"]


@settings(max_examples=examples(300, 10), deadline=None)
@given(data=st.data())
def test_whatever_a_stranger_breaks_changes_no_gang_of_others(data: st.DataObject) -> None:
    theirs = [
        jobset(),
        volcano_job(minAvailable=3),
        owned(podgroup(minMember=3), "Job", "batch.volcano.sh/v1alpha1", "vit"),
        training("MPIJob", "mpiReplicaSpecs", launcher=1, worker=4),
        thing("RayJob", "ray.io/v1", "ray", {"suspend": True, "rayClusterSpec": ray_spec()}),
        workload("AppWrapper", "workload.codeflare.dev/v1beta2", priority=7),
        podgroup(name="alone", minMember=4, minResources={"nvidia.com/gpu": "32"}),
    ]
    for one in theirs:
        one["metadata"]["namespace"] = "theirs"
    for _ in range(data.draw(st.integers(1, 3))):
        i = data.draw(st.sampled_from(range(len(theirs))))
        path = data.draw(st.sampled_from(places(theirs[i])))
        how = data.draw(st.sampled_from(["remove", "replace", "replace", "rename", "double"]))
        if path not in (("metadata",), ("metadata", "namespace"), ("metadata", "name")):
            theirs[i] = broken(theirs[i], path, data.draw(st.sampled_from(ODD)), how)
    assert gangs(*theirs, job())["default/vit"] == alone()
