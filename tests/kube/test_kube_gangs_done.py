"""Pods that have succeeded: whose controllers make them again, and what they mean for a gang that runs."""

from __future__ import annotations

from typing import Any

import pytest
from kube import pod
from kube_gangs import owned, read, seats, sizes, thing

Tree = dict[str, Any]

JOBSET = "jobset.sigs.k8s.io"
KUBEFLOW = "training.kubeflow.org"
INDEX = "batch.kubernetes.io/job-completion-index"


def ended(tree: Tree, phase: str = "Succeeded") -> Tree:
    return {**tree, "status": {"phase": phase}}


def of_jobset(name: str, role: str, index: int, **more: object) -> Tree:
    """A pod of the only Job of a ReplicatedJob, as JobSet labels it."""
    labels = {
        f"{JOBSET}/jobset-name": name,
        f"{JOBSET}/replicatedjob-name": role,
        f"{JOBSET}/replicatedjob-replicas": "1",
        f"{JOBSET}/job-index": "0",
        INDEX: str(index),
    }
    tree = pod(f"{name}-{role}-0-{index}-x7k2p", labels=labels, **more)  # type: ignore[arg-type]
    return owned(tree, "Job", "batch/v1", f"{name}-{role}-0")


def train_job(nodes: list[str], **status: int) -> list[Tree]:
    """TrainJob v2 and its JobSet after both initialisers have succeeded; ``status``: Jobs that did."""

    def replicated(role: str, pods: int, *after: str) -> Tree:
        job = {"parallelism": pods, "completions": pods, "completionMode": "Indexed"}
        depends = [{"name": one, "status": "Complete"} for one in after]
        return {
            "name": role,
            "replicas": 1,
            "template": {"spec": job},
            **({"dependsOn": depends} if depends else {}),
        }

    initialisers = ("dataset-initializer", "model-initializer")
    jobs = [replicated(initialisers[0], 1), replicated(initialisers[1], 1, initialisers[0])]
    jobs.append(replicated("node", len(nodes), *initialisers))
    jobset = thing("JobSet", "jobset.x-k8s.io/v1alpha2", "llama", {"replicatedJobs": jobs})
    jobset["status"] = {
        "replicatedJobsStatus": [
            {"name": name.replace("_", "-"), "succeeded": count, "ready": 0, "active": 0}
            for name, count in status.items()
        ]
    }
    spec = {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": len(nodes)}}
    return [
        thing("TrainJob", "trainer.kubeflow.org/v1alpha1", "llama", spec),
        owned(jobset, "TrainJob", "trainer.kubeflow.org/v1alpha1", "llama"),
        *(of_jobset("llama", "node", n, gpus=8, on=on) for n, on in enumerate(nodes)),
    ]


def initialised(*roles: str) -> list[Tree]:
    return [ended(of_jobset("llama", role, 0, on="n1")) for role in roles]


def job(size: int, **status: object) -> Tree:
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed"}
    return thing("Job", "batch/v1", "sweep", spec) | {"status": status}


def of_job(index: int, on: str | None = "n3") -> Tree:
    tree = pod(f"sweep-{index}-x7k2p", gpus=2, on=on, labels={INDEX: str(index)})
    return owned(tree, "Job", "batch/v1", "sweep")


def training(kind: str, **pods: list[Tree]) -> list[Tree]:
    """A job of Kubeflow's operator, ``mpi``, and its pods by role."""
    field = {"PyTorchJob": "pytorchReplicaSpecs", "MPIJob": "mpiReplicaSpecs"}[kind]
    types = {role.capitalize(): {"replicas": len(own)} for role, own in pods.items()}
    made = thing(kind, "kubeflow.org/v1", "mpi", {field: types})
    for role, own in pods.items():
        for index, one in enumerate(own):
            one["metadata"]["labels"] |= {
                f"{KUBEFLOW}/job-name": "mpi",
                f"{KUBEFLOW}/replica-type": role,
                f"{KUBEFLOW}/replica-index": str(index),
            }
    return [
        made,
        *(owned(one, kind, "kubeflow.org/v1", "mpi") for own in pods.values() for one in own),
    ]


def test_initialisers_that_are_done_leave_the_gang_that_trains_whole() -> None:
    done = initialised("dataset-initializer", "model-initializer")
    gangs, remarks = read(*train_job(["n1", "n2"]), *done)
    assert (gangs["llama"].kind, gangs["llama"].missing) == ("TrainJob", None)
    assert sizes(gangs["llama"]) == [("node", 2, 0)]
    assert remarks.lines() == []
    # `kubectl get nodes,pods` has no JobSet: the labels of the pods say the same.
    pods = train_job(["n1", "n2"])[2:]
    gangs, _ = read(*pods, *done)
    assert (sizes(gangs["llama"]), gangs["llama"].missing) == ([("node", 2, 0)], None)


def test_a_job_does_not_make_an_index_again_that_has_succeeded() -> None:
    gangs, remarks = read(job(4), ended(of_job(0)), *map(of_job, (1, 2, 3)))
    assert (sizes(gangs["sweep"]), gangs["sweep"].missing) == ([("worker", 3, 0)], None)
    assert sorted(index for _, index in seats(gangs["sweep"]).values()) == [0, 1, 2]
    # The autoscaler took the node of the first, and its pod with it: the status remembers.
    counted = job(4, succeeded=1, completedIndexes="0")
    gangs, _ = read(counted, *map(of_job, (1, 2, 3)))
    assert (sizes(gangs["sweep"]), gangs["sweep"].missing) == ([("worker", 3, 0)], None)
    gangs, _ = read(counted, ended(of_job(0)), *map(of_job, (1, 2, 3)))  # counted once
    assert (sizes(gangs["sweep"]), gangs["sweep"].missing) == ([("worker", 3, 0)], None)
    assert remarks.lines() == []


def test_pods_of_a_group_that_succeeded_count_for_what_the_group_needs() -> None:
    group = thing("PodGroup", "scheduling.volcano.sh/v1beta1", "sweep", {"minMember": 4})
    pods = [ended(of_job(0)), *map(of_job, (1, 2, 3))]
    for one in pods:
        one["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = "sweep"
    gangs, _ = read(group, job(4), *pods)
    assert gangs["sweep"].missing is None
    gangs, _ = read(group, job(4, succeeded=1), *pods[1:])
    assert gangs["sweep"].missing is None


@pytest.mark.parametrize(("kind", "first"), [("MPIJob", "launcher"), ("PyTorchJob", "master")])
def test_a_training_job_whose_first_role_succeeded_does_no_work_any_more(
    kind: str, first: str
) -> None:
    """cleanPodPolicy None: the workers of such a job run on, for nothing."""
    workers = [pod(f"mpi-worker-{n}", gpus=8, on=f"n{n + 4}") for n in range(2)]
    gangs, _ = read(*training(kind, **{first: [ended(pod(f"mpi-{first}"))], "worker": workers}))
    assert gangs["mpi"].missing == "1 pod has finished (1 Succeeded)"


def test_a_statefulset_makes_the_pod_of_a_leader_worker_set_again() -> None:
    labels = {"leaderworkerset.sigs.k8s.io/name": "serve"}
    labels["leaderworkerset.sigs.k8s.io/group-index"] = "0"
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 2}}
    made = thing("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", "serve", spec)
    key = "leaderworkerset.sigs.k8s.io/worker-index"
    pods = [
        pod(f"serve-0{'-1' * n}", gpus=8, on=f"n{n + 1}", labels={**labels, key: str(n)})
        for n in range(2)
    ]
    gangs, _ = read(made, pods[0], ended(pods[1]))
    assert gangs["serve"].missing == "1 pod has finished (1 Succeeded)"
