"""Each controller dialect: name, role, index and sizes of its gangs."""

from __future__ import annotations

from typing import Any

import pytest
from kube import pod
from kube_gangs import owned, read, seats, sizes, thing

from planner.read.kube.records import LevelAsk, SliceAsk

RACK = LevelAsk(label="example.com/rack")


def waiting(name: str, labels: dict[str, str], gpus: int = 1, **more: object) -> dict[str, Any]:
    return pod(name, gpus=gpus, gated=True, labels=labels, **more)


def jobset_pod(job: int, index: int, *, role: str = "worker", **more: object) -> dict[str, Any]:
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "js",
        "jobset.sigs.k8s.io/replicatedjob-name": role,
        "jobset.sigs.k8s.io/replicatedjob-replicas": "2",
        "jobset.sigs.k8s.io/job-index": str(job),
        "batch.kubernetes.io/job-completion-index": str(index),
        "batch.kubernetes.io/job-name": f"js-{role}-{job}",
    }
    tree = waiting(f"js-{role}-{job}-{index}", labels, **more)
    return owned(tree, "Job", "batch/v1", f"js-{role}-{job}")


def jobset(*roles: tuple[str, int, int], **metadata: object) -> dict[str, Any]:
    replicated = [
        {
            "name": name,
            "replicas": jobs,
            "template": {"spec": {"parallelism": each, "completions": each}},
        }
        for name, jobs, each in roles
    ]
    spec = {"replicatedJobs": replicated}
    return thing("JobSet", "jobset.x-k8s.io/v1alpha2", "js", spec, **metadata)


def test_pods_of_a_jobset_are_numbered_across_its_jobs() -> None:
    pods = [jobset_pod(job, index) for job in range(2) for index in range(3)]
    gangs, _ = read(jobset(("worker", 2, 3)), *pods)
    # Job 1, completion index 2: 1 x 3 + 2.
    assert seats(gangs["js"])["js-worker-1-2"] == ("worker", 5)
    assert sizes(gangs["js"]) == [("worker", 6, 0)]
    assert gangs["js"].kind == "JobSet"


def test_exclusive_topology_of_a_jobset_is_a_slice_a_job() -> None:
    made = jobset(
        ("worker", 2, 2),
        annotations={"alpha.jobset.sigs.k8s.io/exclusive-topology": "example.com/rack"},
    )
    gangs, _ = read(made, *[jobset_pod(job, n) for job in range(2) for n in range(2)])
    assert gangs["js"].roles[0].slices == (SliceAsk(2, RACK),)


def test_a_trainjob_has_the_pods_of_its_jobset() -> None:
    train = thing("TrainJob", "trainer.kubeflow.org/v1alpha1", "js", {})
    made = owned(jobset(("node", 1, 2)), "TrainJob", "trainer.kubeflow.org/v1alpha1", "js")
    group = thing("PodGroup", "scheduling.x-k8s.io/v1alpha1", "js", {"minMember": 2})
    pods = [jobset_pod(0, index, role="node") for index in range(2)]
    for tree in pods:
        tree["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "js"
    gangs, _ = read(train, made, group, *pods)
    assert {name: gang.kind for name, gang in gangs.items()} == {"js": "TrainJob"}
    assert sizes(gangs["js"]) == [("node", 2, 0)]


def lws_pod(group: int, worker: int, **more: object) -> dict[str, Any]:
    labels = {
        "leaderworkerset.sigs.k8s.io/name": "lws",
        "leaderworkerset.sigs.k8s.io/group-index": str(group),
        "leaderworkerset.sigs.k8s.io/worker-index": str(worker),
    }
    name = f"lws-{group}" + (f"-{worker}" if worker else "")
    size = {"leaderworkerset.sigs.k8s.io/size": "3"}
    return waiting(name, labels, annotations=size, **more)


def lws(replicas: int, size: int = 3, **metadata: object) -> dict[str, Any]:
    spec = {"replicas": replicas, "leaderWorkerTemplate": {"size": size}}
    return thing("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", "lws", spec, **metadata)


def test_every_group_of_a_leaderworkerset_is_a_gang() -> None:
    gangs, _ = read(lws(2), *[lws_pod(group, n) for group in range(2) for n in range(3)])
    assert list(gangs) == ["lws-0", "lws-1"]
    assert sizes(gangs["lws-1"]) == [("leader", 1, 0), ("worker", 2, 1)]
    assert seats(gangs["lws-1"]) == {
        "lws-1": ("leader", 0),
        "lws-1-1": ("worker", 1),
        "lws-1-2": ("worker", 2),
    }


def test_a_leaderworkerset_waits_for_its_workers_by_object_or_by_annotation() -> None:
    told = "worker 2 has not been created (2 of 3 pods exist)"
    gangs, _ = read(lws(1), lws_pod(0, 0), lws_pod(0, 1))
    assert gangs["lws"].missing == told
    gangs, _ = read(lws_pod(0, 0), lws_pod(0, 1))
    assert gangs["lws-0"].missing == told


def training_pod(role: str, index: int | None, operator: str = "mpi-operator") -> dict[str, Any]:
    labels = {
        "training.kubeflow.org/job-name": "train",
        "training.kubeflow.org/operator-name": operator,
        "training.kubeflow.org/replica-type": role,
    }
    if index is not None:
        labels["training.kubeflow.org/replica-index"] = str(index)
    return waiting(f"train-{role}-{'x7k2p' if index is None else index}", labels)


def mpijob(**spec: object) -> dict[str, Any]:
    replicas = {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}
    return thing("MPIJob", "kubeflow.org/v2beta1", "train", {"mpiReplicaSpecs": replicas, **spec})


def test_the_launcher_of_an_mpijob_is_of_it_though_a_job_made_it() -> None:
    launcher = owned(training_pod("launcher", None), "Job", "batch/v1", "train-launcher")
    between = owned(
        thing("Job", "batch/v1", "train-launcher", {"parallelism": 1}),
        "MPIJob",
        "kubeflow.org/v2beta1",
        "train",
    )
    workers = [training_pod("worker", index) for index in range(2)]
    gangs, _ = read(mpijob(), between, launcher, *workers)
    assert {name: gang.kind for name, gang in gangs.items()} == {"train": "MPIJob"}
    assert sizes(gangs["train"]) == [("launcher", 1, 0), ("worker", 2, 0)]
    launcher["metadata"]["labels"] = {}  # then its owner's owner tells
    gangs, _ = read(mpijob(), between, launcher, *workers)
    assert seats(gangs["train"])["train-launcher-x7k2p"] == ("launcher", 0)


@pytest.mark.parametrize(("start", "first"), [(1, 1), (0, 0)])
def test_workers_beside_a_launcher_that_works_may_count_from_one(start: int, first: int) -> None:
    workers = [training_pod("worker", start + index) for index in range(2)]
    gangs, _ = read(mpijob(runLauncherAsWorker=True), training_pod("launcher", None), *workers)
    assert sizes(gangs["train"]) == [("launcher", 1, 0), ("worker", 2, first)]
    assert gangs["train"].missing is None


@pytest.mark.parametrize(
    ("kind", "field", "operator", "roles"),
    [
        ("PyTorchJob", "pytorchReplicaSpecs", "pytorchjob-controller", ("master", "worker")),
        ("TFJob", "tfReplicaSpecs", "tfjob-controller", ("chief", "ps", "worker", "evaluator")),
        ("JAXJob", "jaxReplicaSpecs", "jaxjob-controller", ("worker",)),
    ],
)
def test_replica_types_of_training_jobs_are_roles(
    kind: str, field: str, operator: str, roles: tuple[str, ...]
) -> None:
    types = {role.capitalize(): {"replicas": 2} for role in reversed(roles)}
    made = thing(kind, "kubeflow.org/v1", "train", {field: types})
    pods = [training_pod(role, index, operator) for role in roles for index in range(2)]
    gangs, _ = read(made, *pods)
    assert gangs["train"].kind == kind
    assert sizes(gangs["train"]) == [(role, 2, 0) for role in roles]
    gangs, _ = read(*pods)  # without the object: its operator tells the kind
    assert gangs["train"].kind == kind
    assert sizes(gangs["train"]) == [(role, 2, 0) for role in roles]


def job_pod(name: str, index: int | None = None, **more: object) -> dict[str, Any]:
    labels = {"batch.kubernetes.io/job-name": "sweep"}
    if index is not None:
        labels["batch.kubernetes.io/job-completion-index"] = str(index)
    return owned(waiting(name, labels, **more), "Job", "batch/v1", "sweep")


def job(parallelism: int, completions: int | None = None, **more: object) -> dict[str, Any]:
    spec = {"parallelism": parallelism, **more}
    spec |= {} if completions is None else {"completions": completions}
    return thing("Job", "batch/v1", "sweep", spec)


def test_an_indexed_job_says_which_pod_is_which() -> None:
    made = job(2, 2, completionMode="Indexed")
    gangs, _ = read(made, job_pod("sweep-1-abcde", 1), job_pod("sweep-0-vwxyz", 0))
    assert seats(gangs["sweep"]) == {"sweep-0-vwxyz": ("worker", 0), "sweep-1-abcde": ("worker", 1)}


def test_a_job_that_works_through_more_than_it_runs_needs_only_what_runs_at_once() -> None:
    made = job(2, 10, completionMode="Indexed")
    made["status"] = {"succeeded": 3}
    done = job_pod("sweep-0", 0)
    done["status"]["phase"] = "Succeeded"
    gangs, remarks = read(made, done, job_pod("sweep-3", 3), job_pod("sweep-4", 4))
    assert seats(gangs["sweep"]) == {"sweep-3": ("worker", 0), "sweep-4": ("worker", 1)}
    assert gangs["sweep"].missing is None
    made["status"] = {"succeeded": 9}  # one is left
    gangs, _ = read(made, job_pod("sweep-9", 9))
    assert sizes(gangs["sweep"]) == [("worker", 1, 0)]
    assert remarks.lines() == []


def test_a_retried_pod_has_the_index_of_the_failed_one() -> None:
    failed, retried = job_pod("sweep-1-a", 1), job_pod("sweep-1-b", 1)
    failed["status"]["phase"] = "Failed"
    made = job(2, 2, completionMode="Indexed")
    gangs, remarks = read(made, failed, retried, job_pod("sweep-0", 0))
    assert seats(gangs["sweep"]) == {"sweep-0": ("worker", 0), "sweep-1-b": ("worker", 1)}
    assert (gangs["sweep"].missing, remarks.lines()) == (None, [])


def test_partitions_of_a_volcano_task_are_slices() -> None:
    partition = {
        "totalPartitions": 2,
        "partitionSize": 2,
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    tasks = [{"name": "t0", "replicas": 4, "partitionPolicy": partition}]
    topology = {"mode": "hard", "highestTierAllowed": 2}
    made = thing(
        "Job", "batch.volcano.sh/v1alpha1", "vc", {"tasks": tasks, "networkTopology": topology}
    )
    pods = [
        waiting(
            f"vc-t0-{index}",
            {
                "volcano.sh/job-name": "vc",
                "volcano.sh/task-spec": "t0",
                "volcano.sh/task-index": str(index),
            },
        )
        for index in range(4)
    ]
    gangs, _ = read(made, *pods)
    assert gangs["vc"].required == LevelAsk(tier=2)
    assert gangs["vc"].roles[0].slices == (SliceAsk(2, LevelAsk(tier=1)),)


def ray_pod(group: str, replica: int, host: int = 0) -> dict[str, Any]:
    head = group == "head"
    labels = {
        "ray.io/cluster": "ray",
        "ray.io/node-type": "head" if head else "worker",
        "ray.io/group": "headgroup" if head else group,
    }
    if not head:
        labels["ray.io/worker-group-replica-index"] = str(replica)
        labels["ray.io/replica-host-index"] = str(host)
    return waiting(f"ray-{group}-{replica}-{host}", labels)


def test_a_ray_cluster_has_a_head_and_its_worker_groups() -> None:
    groups = [
        {"groupName": "big", "replicas": 2, "numOfHosts": 2},
        {"groupName": "none", "replicas": 0},
    ]
    made = thing("RayCluster", "ray.io/v1", "ray", {"workerGroupSpecs": groups})
    pods = [ray_pod("big", replica, host) for replica in range(2) for host in range(2)]
    gangs, _ = read(made, ray_pod("head", 0), *pods)
    assert sizes(gangs["ray"]) == [("head", 1, 0), ("big", 4, 0)]
    # Replica 1, host 1, of two hosts each: 1 x 2 + 1.
    assert seats(gangs["ray"])["ray-big-1-1"] == ("big", 3)
    gangs, _ = read(ray_pod("head", 0), *pods)
    assert sizes(gangs["ray"]) == [("head", 1, 0), ("big", 4, 0)]


def test_a_pod_gang_of_grove_has_its_cliques_as_roles() -> None:
    parts = [
        {"name": "serve-0-prefill", "podReferences": [{"name": "a"}, {"name": "b"}]},
        {"name": "serve-0-decode", "podReferences": [{"name": "c"}]},
    ]
    packed = {"packConstraint": {"required": "example.com/rack"}}
    made = thing(
        "PodGang",
        "scheduler.grove.io/v1alpha1",
        "serve-0",
        {"podgroups": parts, "topologyConstraint": packed},
    )
    pods = [
        waiting(
            f"{clique}-{index}",
            {
                "grove.io/podgang": "serve-0",
                "grove.io/podclique": f"serve-0-{clique}",
                "grove.io/podclique-pod-index": str(index),
            },
        )
        for clique, index in (("prefill", 0), ("prefill", 1), ("decode", 0))
    ]
    gangs, _ = read(made, *pods)
    assert sizes(gangs["serve-0"]) == [("prefill", 2, 0), ("decode", 1, 0)]
    assert gangs["serve-0"].required == RACK


@pytest.mark.parametrize("owner", ["ReplicaSet", "StatefulSet", "DaemonSet", None])
def test_pods_of_no_gang_are_gangs_of_one_if_they_hold_gpus_or_are_ours(owner: str | None) -> None:
    pods = [
        pod("gpu", gpus=2, on="n1"),
        pod("cpu", on="n1"),
        pod("ours", gated=True),
        pod("theirs", gpus=1),
    ]
    if owner is not None:
        pods = [owned(tree, owner, "apps/v1", "web") for tree in pods]
    gangs, _ = read(*pods)
    assert {name: (gang.kind, sizes(gang)) for name, gang in gangs.items()} == {
        "gpu": ("Pod", [("worker", 1, 0)]),
        "ours": ("Pod", [("worker", 1, 0)]),
    }


def test_pods_that_are_made_once_others_run_are_not_missing_before() -> None:
    # The worker Job of this JobSet is made when the initializer is complete.
    made = jobset(("init", 1, 1), ("worker", 1, 2))
    made["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "init", "status": "Complete"}]
    gangs, _ = read(made, jobset_pod(0, 0, role="init"))
    assert (sizes(gangs["js"]), gangs["js"].missing) == ([("init", 1, 0)], None)
    gangs, _ = read(made, jobset_pod(0, 0, role="init"), jobset_pod(0, 1))
    assert gangs["js"].missing == "worker 0 has not been created (2 of 3 pods exist)"


def test_startup_in_order_makes_the_later_roles_later() -> None:
    made = jobset(("ps", 1, 1), ("worker", 1, 2))
    made["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    gangs, _ = read(made, jobset_pod(0, 0, role="ps"))
    assert (sizes(gangs["js"]), gangs["js"].missing) == ([("ps", 1, 0)], None)


def test_workers_that_wait_for_a_ready_leader_are_not_missing_before() -> None:
    made = lws(1)
    made["spec"]["startupPolicy"] = "LeaderReady"
    gangs, _ = read(made, lws_pod(0, 0))
    assert (sizes(gangs["lws"]), gangs["lws"].missing) == ([("leader", 1, 0)], None)
