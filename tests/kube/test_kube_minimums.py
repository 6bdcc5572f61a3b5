"""Minimums of groups and elastic fields of controllers: with how few pods a gang of objects starts."""

from __future__ import annotations

from typing import Any

import pytest
from bundles import load_all
from kube import node, pod
from kube_gangs import owned, thing

from models.results.plan import compose
from models.verify.check import check
from planner.read.instance_builder import LoadedInput
from planner.search.solve import solve

Tree = dict[str, Any]

NAME, INDEX = "training.kubeflow.org/job-name", "training.kubeflow.org/replica-index"
ROLE = "training.kubeflow.org/replica-type"


def plain(count: int, running: int = 0, **spec: object) -> list[Tree]:
    """Gated pods without a controller; the first ones run, each on a node of its own."""
    return [
        pod(f"p-{n}", gpus=8, gated=n >= running, on=f"n{n + 1}" if n < running else None, **spec)
        for n in range(count)
    ]


def grouped(group: Tree, pods: list[Tree]) -> list[Tree]:
    """The pods as members of a group, as its scheduler marks them."""
    kind, name = group["apiVersion"].partition("/")[0], group["metadata"]["name"]
    for one in pods:
        notes, labels = one["metadata"]["annotations"], one["metadata"]["labels"]
        if kind == "scheduling.volcano.sh":
            notes["scheduling.k8s.io/group-name"] = name
        elif kind == "scheduling.run.ai":
            notes["pod-group-name"] = name
        elif kind == "scheduling.k8s.io":
            one["spec"]["schedulingGroup"] = {"podGroupName": name}
        else:
            labels["scheduling.x-k8s.io/pod-group"] = name
    return [group, *pods]


GROUPS = {
    "Volcano": ("scheduling.volcano.sh/v1beta1", {"minMember": 6}),
    "KAI": ("scheduling.run.ai/v2alpha2", {"minMember": 6}),
    "native": ("scheduling.k8s.io/v1alpha2", {"schedulingPolicy": {"gang": {"minCount": 6}}}),
    "scheduler-plugins": ("scheduling.x-k8s.io/v1alpha1", {"minMember": 6}),
}


def built(*objects: Tree, nodes: int = 9) -> LoadedInput:
    return load_all([*(node(f"n{n}") for n in range(1, nodes + 1)), *objects])


def counts(*objects: Tree) -> dict[str, tuple[int, int, int]]:
    """(min, max, step) by role of the only gang, which is whole."""
    (gang,) = built(*objects).instance.gangs
    assert gang.hold is None, gang.hold
    return {role.name: (role.min, role.max, role.step) for role in gang.roles}


def training(kind: str, spec: Tree, **replicas: int) -> list[Tree]:
    """A job of Kubeflow's operator and all of its gated pods."""
    field = {"PyTorchJob": "pytorchReplicaSpecs", "MPIJob": "mpiReplicaSpecs"}[kind]
    types = {role.capitalize(): {"replicas": count} for role, count in replicas.items()}
    job = thing(kind, "kubeflow.org/v1", "vit", {field: types, **spec})
    pods = [
        pod(f"vit-{role}-{n}", gpus=8, gated=True, labels={NAME: "vit", ROLE: role, INDEX: str(n)})
        for role, count in replicas.items()
        for n in range(count)
    ]
    return [job, *(owned(one, kind, "kubeflow.org/v1", "vit") for one in pods)]


def volcano_job(tasks: dict[str, Tree], **spec: object) -> list[Tree]:
    """A Volcano Job and its pods; a task as ``{replicas, minAvailable}``."""
    job = thing(
        *("Job", "batch.volcano.sh/v1alpha1", "vit"),
        {"tasks": [{"name": name, **task} for name, task in tasks.items()], **spec},
    )
    keys = ("volcano.sh/job-name", "volcano.sh/task-spec", "volcano.sh/task-index")
    pods = [
        pod(f"vit-{name}-{n}", gpus=8, gated=True,
            labels=dict(zip(keys, ("vit", name, str(n)), strict=True)))
        for name, task in tasks.items()
        for n in range(task["replicas"])
    ]  # fmt: skip
    return [job, *(owned(one, "Job", "batch.volcano.sh/v1alpha1", "vit") for one in pods)]


# ---- one role


@pytest.mark.parametrize("scheduler", GROUPS)
def test_a_group_that_needs_fewer_pods_starts_with_that_many_or_more(scheduler: str) -> None:
    version, spec = GROUPS[scheduler]
    group = thing("PodGroup", version, "g", spec)
    assert counts(*grouped(group, plain(8))) == {"worker": (6, 8, 1)}
    assert counts(*grouped(group, plain(6))) == {"worker": (6, 6, 1)}
    (gang,) = built(*grouped(group, plain(5))).instance.gangs
    assert gang.hold is not None


@pytest.mark.parametrize(("nodes", "started"), [(5, 0), (6, 6), (7, 7), (9, 8)])
def test_it_starts_with_as_many_as_there_is_room_for(nodes: int, started: int) -> None:
    group = thing("PodGroup", *("scheduling.volcano.sh/v1beta1", "g", {"minMember": 6}))
    instance = built(*grouped(group, plain(8)), nodes=nodes).instance
    solution = solve(instance)
    document = compose(
        instance, solution, name="t", created_at="2026-11-21T00:00:00Z", generator="test"
    )
    assert check(document) == []
    (decision,) = solution.decisions
    assert len(decision.pods) == started


def test_a_gang_that_runs_with_its_minimum_grows_by_the_pods_that_wait() -> None:
    group = thing("PodGroup", *("scheduling.volcano.sh/v1beta1", "g", {"minMember": 6}))
    assert counts(*grouped(group, plain(8, running=6))) == {"worker": (6, 8, 1)}
    assert counts(*grouped(group, plain(8, running=7))) == {"worker": (7, 8, 1)}
    assert counts(*grouped(group, plain(8, running=8))) == {"worker": (8, 8, 1)}


# ---- several roles


@pytest.mark.parametrize(
    ("minimum", "tasks", "expected"),
    [
        (5, None, {"master": (1, 1, 1), "worker": (4, 8, 1)}),
        (9, None, {"master": (1, 1, 1), "worker": (8, 8, 1)}),
        (1, None, {"master": (1, 1, 1), "worker": (1, 8, 1)}),
        (5, {"master": 1, "worker": 4}, {"master": (1, 1, 1), "worker": (4, 8, 1)}),
        (7, {"master": 1, "worker": 4}, {"master": (1, 1, 1), "worker": (6, 8, 1)}),
        # Volcano checks tasks only if the group needs at least their sum.
        (5, {"master": 1, "worker": 8}, {"master": (1, 1, 1), "worker": (4, 8, 1)}),
    ],
)
def test_small_roles_start_whole_and_the_largest_one_takes_the_slack(
    minimum: int, tasks: dict[str, int] | None, expected: dict[str, tuple[int, int, int]]
) -> None:
    job, *pods = volcano_job({"master": {"replicas": 1}, "worker": {"replicas": 8}})
    spec: Tree = {"minMember": minimum} | ({"minTaskMember": tasks} if tasks else {})
    group = thing("PodGroup", "scheduling.volcano.sh/v1beta1", "vit-uid", spec)
    assert counts(job, *grouped(group, pods)) == expected
    own = {"minAvailable": minimum}
    replicas = {"master": {"replicas": 1}, "worker": {"replicas": 8}}
    for name, least in (tasks or {}).items():
        replicas[name]["minAvailable"] = least
    assert counts(*volcano_job(replicas, **own)) == expected, "without its PodGroup"


@pytest.mark.parametrize(
    ("minimum", "slices", "expected"),
    [(5, 4, (8, 8, 4)), (4, 4, (4, 8, 4)), (3, 2, (4, 8, 2)), (5, 8, (5, 8, 1)), (5, 1, (5, 8, 1))],
)
def test_a_role_of_slices_lacks_whole_slices(
    minimum: int, slices: int, expected: tuple[int, int, int]
) -> None:
    notes = {
        "kueue.x-k8s.io/podset-slice-required-topology": "kubernetes.io/hostname",
        "kueue.x-k8s.io/podset-slice-size": str(slices),
    }
    group = thing("PodGroup", *("scheduling.volcano.sh/v1beta1", "g", {"minMember": minimum}))
    (gang,) = built(*grouped(group, plain(8, annotations=notes))).instance.gangs
    (role,) = gang.roles
    assert (gang.hold, role.min, role.max) == (None, *expected[:2])
    assert role.min == role.max or role.step == expected[2]


# ---- fields of controllers


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"minReplicas": 2, "maxReplicas": 8}, (2, 4, 1)),
        ({"minReplicas": 2, "maxReplicas": 3}, (2, 3, 1)),
        ({"minReplicas": 4}, (4, 4, 1)),
        ({"minReplicas": 5, "maxReplicas": 2}, (4, 4, 1)),
        ({"minReplicas": -1, "maxReplicas": "3"}, (4, 4, 1)),
        ({}, (4, 4, 1)),
    ],
)
def test_an_elastic_policy_is_the_range_of_the_workers(
    policy: Tree, expected: tuple[int, int, int]
) -> None:
    found = counts(*training("PyTorchJob", {"elasticPolicy": policy}, worker=4))
    assert found == {"worker": expected}


@pytest.mark.parametrize("metrics", [None, [{"type": "Resource"}]])
def test_a_running_pytorch_job_grows_by_its_scale_unless_an_autoscaler_sets_it(
    metrics: list[Tree] | None,
) -> None:
    policy = {"minReplicas": 1, "maxReplicas": 6} | ({"metrics": metrics} if metrics else {})
    job, *pods = training("PyTorchJob", {"elasticPolicy": policy}, worker=2)
    for n, one in enumerate(pods):
        del one["spec"]["schedulingGates"]
        one["metadata"].setdefault("labels", {})["gangplan.dev/plan"] = "gp-" + "0" * 20
        one["spec"]["nodeName"] = f"n{n + 1}"
        one["status"]["phase"] = "Running"
    assert counts(job, *pods)["worker"] == ((2, 2, 1) if metrics else (1, 6, 1))


def ray(group: Tree, pods: int, **spec: object) -> list[Tree]:
    """A RayCluster and its pods: the head, and so many workers."""
    cluster = thing(
        *("RayCluster", "ray.io/v1", "rc"),
        {"workerGroupSpecs": [{"groupName": "gpu", **group}], **spec},
    )
    head = pod("rc-head", gated=True, labels={"ray.io/cluster": "rc", "ray.io/node-type": "head"})
    labels = {"ray.io/cluster": "rc", "ray.io/group": "gpu", "ray.io/node-type": "worker"}
    workers = [pod(f"rc-gpu-{n}", gpus=8, gated=True, labels=labels) for n in range(pods)]
    return [cluster, *(owned(one, "RayCluster", "ray.io/v1", "rc") for one in (head, *workers))]


@pytest.mark.parametrize(
    ("group", "scales", "expected"),
    [
        ({"replicas": 4, "minReplicas": 2, "maxReplicas": 8}, False, (2, 4, 1)),
        ({"replicas": 4, "minReplicas": 0, "maxReplicas": 2**31 - 1}, False, (4, 4, 1)),
        ({"replicas": 4, "minReplicas": 0, "maxReplicas": 8}, True, (1, 4, 1)),
        ({"replicas": 2, "minReplicas": 1, "maxReplicas": 4, "numOfHosts": 2}, False, (2, 4, 2)),
        ({"replicas": 9, "maxReplicas": 4}, False, (4, 4, 1)),
    ],
)
def test_the_bounds_of_a_ray_worker_group_are_its_range(
    group: Tree, scales: bool, expected: tuple[int, int, int]
) -> None:
    found = counts(*ray(group, 4, enableInTreeAutoscaling=scales))
    assert found == {"head": (1, 1, 1), "gpu": expected}


def test_the_runtime_of_a_train_job_states_the_range_of_its_nodes() -> None:
    policy = {"mlPolicy": {"torch": {"elasticPolicy": {"minNodes": 2, "maxNodes": 8}}}}
    runtime = thing("ClusterTrainingRuntime", "trainer.kubeflow.org/v1alpha1", "torch", policy)
    del runtime["metadata"]["namespace"]
    train = thing(
        *("TrainJob", "trainer.kubeflow.org/v1alpha1", "vit"), {"runtimeRef": {"name": "torch"}}
    )
    nodes = {"parallelism": 4, "completions": 4}
    jobs = [{"name": "node", "replicas": 1, "template": {"spec": nodes}}]
    jobset = owned(
        thing("JobSet", "jobset.x-k8s.io/v1alpha2", "vit", {"replicatedJobs": jobs}),
        *("TrainJob", "trainer.kubeflow.org/v1alpha1", "vit"),
    )
    key = "jobset.sigs.k8s.io/"
    labels = {
        f"{key}jobset-name": "vit",
        f"{key}replicatedjob-name": "node",
        f"{key}job-index": "0",
    }
    index = "batch.kubernetes.io/job-completion-index"
    pods = [
        pod(f"vit-node-0-{n}", gpus=8, gated=True, labels=labels, annotations={index: str(n)})
        for n in range(4)
    ]
    assert counts(runtime, train, jobset, *pods) == {"node": (2, 4, 1)}
    assert counts(train, jobset, *pods) == {"node": (4, 4, 1)}


def test_annotations_of_ours_come_before_fields_of_the_controller() -> None:
    policy = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}}
    job, *pods = training("PyTorchJob", policy, worker=4)
    job["metadata"]["annotations"] = {"gangplan.dev/min": "3", "gangplan.dev/max": "4"}
    group = thing("PodGroup", *("scheduling.volcano.sh/v1beta1", "g", {"minMember": 2}))
    assert counts(job, *grouped(group, pods)) == {"worker": (3, 4, 1)}
    del job["metadata"]["annotations"]
    assert counts(job, group, *pods) == {"worker": (2, 4, 1)}, "the group needs more than the field"
