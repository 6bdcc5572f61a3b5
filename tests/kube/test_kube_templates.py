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
from kube import node, pod
from kube_gangs import owned, thing
from test_kube_mutations import ODD, broken, places, recorded

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


def shape(gang: Gang) -> dict[str, tuple[int, int, int]]:
    """(min, max, GPUs of a pod) by role."""
    return {role.name: (role.min, role.max, role.gpus) for role in gang.roles}


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


@pytest.mark.parametrize(
    ("made", "kind", "roles"),
    [
        (job(), "worker", {"worker": (4, 4, 8)}),
        (jobset(), "head", {"head": (1, 1, 0), "node": (4, 4, 8)}),
        (
            training("MPIJob", "mpiReplicaSpecs", launcher=1, worker=4),
            "launcher",
            {"launcher": (1, 1, 0), "worker": (4, 4, 8)},
        ),
        (
            training("PyTorchJob", "pytorchReplicaSpecs", master=1, worker=3),
            "master",
            {"master": (1, 1, 8), "worker": (3, 3, 8)},
        ),
        (
            thing("RayCluster", "ray.io/v1", "vit", {"suspend": True, **ray_spec()}),
            "head",
            {"head": (1, 1, 0), "gpu": (2, 4, 8)},
        ),
        (
            thing("RayJob", "ray.io/v1", "vit", {"suspend": True, "rayClusterSpec": ray_spec()}),
            "head",
            {"head": (1, 1, 0), "gpu": (2, 4, 8)},
        ),
        (volcano_job(), "master", {"master": (1, 1, 0), "worker": (4, 4, 8)}),
        (volcano_job(minAvailable=3), "master", {"master": (1, 1, 0), "worker": (2, 4, 8)}),
    ],
    ids=["Job", "JobSet", "MPI", "PyTorch", "RayCluster", "RayJob", "Volcano", "Volcano, a part"],
)
def test_a_workload_without_pods_is_a_gang_from_its_template(
    made: Tree, kind: str, roles: dict[str, tuple[int, int, int]]
) -> None:
    (gang,) = gangs(made).values()
    assert (gang.name, shape(gang), gang.hold) == ("vit", roles, None)
    assert gang.roles[0].name == kind
    ours = pod("ours", gpus=1, gated=True)
    mine = planned(made, ours, policy={**ALL, "spec": {}})
    assert [one.name for one in mine.instance.gangs] == ["ours"], "where a pod knows gangplan"
    assert sum(mine.left_out.values()) == sum(role.max for role in gang.roles)


def test_every_group_of_a_leader_worker_set_is_a_gang() -> None:
    leaders = {"size": 3, "leaderTemplate": template(0), "workerTemplate": template()}
    made = thing(
        *("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", "vit"),
        {"replicas": 2, "leaderWorkerTemplate": leaders},
    )
    found = gangs(made)
    assert {name: shape(one) for name, one in found.items()} == {
        f"default/vit-{n}": {"leader": (1, 1, 0), "worker": (2, 2, 8)} for n in range(2)
    }


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


# ---- each workload once


def test_what_a_workload_of_another_makes_is_no_gang_of_its_own() -> None:
    mpi = training("MPIJob", "mpiReplicaSpecs", launcher=1, worker=4)
    launcher = owned(job(pods=1), "MPIJob", "kubeflow.org/v2beta1", "vit")
    launcher["metadata"]["name"] = "vit-launcher"
    train = thing("TrainJob", "trainer.kubeflow.org/v1alpha1", "vit", {"suspend": True})
    made = owned(jobset(), "TrainJob", "trainer.kubeflow.org/v1alpha1", "vit")
    child = owned(job(pods=2), "JobSet", "jobset.x-k8s.io/v1alpha2", "vit")
    child["metadata"]["name"] = "vit-node-0"
    assert list(gangs(mpi, launcher)) == ["default/vit"]
    assert list(gangs(train, made, child)) == ["default/vit"]
    queued = workload("TrainJob", "trainer.kubeflow.org/v1alpha1")
    (gang,) = gangs(train, made, child, queued).values()
    assert shape(gang) == {"head": (1, 1, 0), "node": (4, 4, 8)}, "the owner's template counts"


@pytest.mark.parametrize(
    ("queued", "expected"),
    [
        (workload("Job", "batch/v1"), 1),
        (workload("Job", "batch/v1", "QuotaReserved"), 1),
        (workload("Job", "batch/v1", "Finished"), 0),
        (workload("Job", "batch/v1", active=False), 0),
    ],
    ids=["pending", "reserved", "finished", "inactive"],
)
def test_kueue_decides_whether_its_owner_waits(queued: Tree, expected: int) -> None:
    assert len(gangs(job(), queued)) == expected
    assert len(gangs(queued)) == expected, "without the Job"


def test_an_admitted_workload_whose_pods_exist_is_no_second_gang() -> None:
    queued = workload("Job", "batch/v1", "QuotaReserved", "Admitted")
    index = "batch.kubernetes.io/job-completion-index"
    pods = [
        owned(
            pod(f"vit-{n}", gpus=8, on=f"n{n + 1}", labels={index: str(n)}),
            "Job",
            "batch/v1",
            "vit",
        )
        for n in range(4)
    ]
    (gang,) = gangs(job(suspend=False), queued, *pods).values()
    assert len(gang.pods) == 4
    assert len(gangs(queued, *pods)) == 1
    assert len(gangs(job(), queued, *pods)) == 1, "a Job that is being suspended"


@pytest.mark.parametrize(
    "made",
    [
        job(suspend=False),
        job(deletionTimestamp="2026-11-20T09:00:00Z"),
        job() | {"status": {"conditions": [{"type": "Failed", "status": "True"}]}},
        jobset() | {"status": {"terminalState": "Completed"}},
        volcano_job("Running"),
        volcano_job("Completed"),
        thing("RayJob", "ray.io/v1", "vit", {"suspend": True, "rayClusterSpec": ray_spec()})
        | {"status": {"jobStatus": "SUCCEEDED"}},
        thing("Job", "batch/v1", "vit", job()["spec"] | {"managedBy": "kueue.x-k8s.io/multikueue"}),
    ],
    ids=["runs", "deleted", "failed", "completed", "volcano runs", "volcano done", "ray", "remote"],
)
def test_what_does_not_wait_here_is_left_out(made: Tree) -> None:
    assert gangs(made) == {}


def test_a_volcano_job_and_its_group_are_one_gang() -> None:
    made = volcano_job(minAvailable=5)
    group = owned(
        podgroup(minMember=4, minTaskMember={"master": 1, "worker": 3}),
        *("Job", "batch.volcano.sh/v1alpha1", "vit"),
    )
    (gang,) = gangs(made, group).values()
    assert shape(gang) == {"master": (1, 1, 0), "worker": (3, 4, 8)}
    assert gang.queue == "q"


# ---- priority, queue, scheduler


def test_the_priority_is_that_of_kueues_queue_else_that_of_the_template() -> None:
    (gang,) = gangs(HIGH, job()).values()
    assert gang.priority == 50
    classed = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "value": 9}
    classed |= {"metadata": {"name": "low"}}
    labels = {"kueue.x-k8s.io/priority-class": "low", "kueue.x-k8s.io/queue-name": "q"}
    (gang,) = gangs(HIGH, classed, job(labels=labels)).values()
    assert (gang.priority, gang.queue) == (9, "q")
    queued = workload("Job", "batch/v1", priority=11)
    (gang,) = gangs(HIGH, classed, job(labels=labels), queued).values()
    assert gang.priority == 11


def test_what_waits_for_quota_tolerates_what_its_flavors_tolerate() -> None:
    """Kueue adds their tolerations to the pods that it admits."""
    taint = {"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    flavor = {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "h100"}}
    flavor["spec"] = {"tolerations": [taint]}
    queue = {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "all"}}
    queue["spec"] = {"resourceGroups": [{"flavors": [{"name": "h100"}, {"name": "gone"}]}]}
    local = thing("LocalQueue", KUEUE, "q", {"clusterQueue": "all"})
    made = job(labels={"kueue.x-k8s.io/queue-name": "q"})
    for objects, keys in (([flavor, queue, local], ["example.com/gpu"]), ([local], [])):
        (gang,) = gangs(*objects, made).values()
        assert [one.key for one in gang.roles[0].tolerations] == keys
    (gang,) = gangs(flavor, queue, local, job()).values()
    assert gang.roles[0].tolerations == ()


@pytest.mark.parametrize(
    ("made", "scheduler"),
    [
        ([job()], "default-scheduler"),
        ([job(), workload("Job", "batch/v1")], "kueue"),
        ([job(labels={"kueue.x-k8s.io/queue-name": "q"})], "kueue"),
        ([volcano_job()], "volcano"),
        ([volcano_job(schedulerName="volcano-2")], "volcano-2"),
    ],
)
def test_only_what_waits_for_a_scheduler_that_is_named_is_planned(
    made: list[Tree], scheduler: str
) -> None:
    def named(name: str) -> Tree:
        return {**ALL, "spec": {"kubernetes": {"schedulerNames": [name]}}}

    assert len(gangs(*made, policy=named(scheduler))) == 1
    assert gangs(*made, policy=named("another")) == {}


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


@pytest.mark.parametrize("elastic", [{}, {"minReplicas": 1, "maxReplicas": 3}])
def test_a_template_that_no_document_may_hold_keeps_its_own_gang_back(elastic: Tree) -> None:
    """No API server checks the templates of custom resources as it checks pods."""
    made = training("PyTorchJob", "pytorchReplicaSpecs", worker=3)
    made["spec"]["elasticPolicy"] = elastic
    worker = made["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    worker["tolerations"] = [{"key": "\x1b[31m", "operator": "Exists"}]
    other = job()
    other["metadata"]["name"] = "other"
    found = gangs(made, other)
    hold = found["default/vit"].hold
    assert hold is not None
    assert hold.message.startswith("it cannot be planned: ")
    assert "\x1b" not in hold.message
    assert found["default/other"].hold is None


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


def test_pods_that_do_not_exist_hold_no_room() -> None:
    """A claim that is allocated on a node ties pods to it: only those that are there to be bound."""
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0"}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    claim = thing("ResourceClaim", "resource.k8s.io/v1", "c", {"devices": {"requests": [request]}})
    claim["status"] = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [here]},
        }
    }
    made = job()
    tied = template(0, resourceClaims=[{"name": "gpu", "resourceClaimName": "c"}])
    made["spec"]["template"] = tied
    (gang,) = gangs(claim, made).values()
    assert (gang.running, {one.node for one in gang.pods}) == (False, {None})
    assert gang.hold is not None
    assert gang.hold.message == "a resource claim that is allocated already"


# ---- lists that lack them


LACKS = "Kueue: jobs that it suspends have no pods"


@pytest.mark.parametrize(
    "sign",
    [
        thing("LocalQueue", KUEUE, "main", {"clusterQueue": "all"}),
        {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "all"}, "spec": {}},
        pod("p", gpus=1, on="n1", labels={"kueue.x-k8s.io/queue-name": "main"}),
        # What Kueue writes on pods of a Job that it admitted with a topology.
        pod("p", gpus=1, on="n1", annotations={"kueue.x-k8s.io/workload": "job-vit-1"}),
        pod("kueue-controller-manager-5b9-x7k2p", namespace="kueue-system", on="n1"),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}},
    ],
)
def test_lists_without_what_kueue_suspends_say_so(sign: Tree) -> None:
    """What the README's first command prints has nodes, pods and namespaces only."""
    for policy in (ALL, {**ALL, "spec": {}}):
        lines = planned(sign, policy=policy).remarks
        assert [line.startswith(LACKS) for line in lines].count(True) == 1
        assert any("gangplan snapshot --out DIR" in line for line in lines)
    for listed in (
        workload("Job", "batch/v1"),
        thing("JobSet", "jobset.x-k8s.io/v1alpha2", "other", {"replicatedJobs": []}),
        {"apiVersion": KUEUE, "kind": "WorkloadList", "items": []},
    ):
        assert not any(LACKS in line for line in planned(sign, listed, policy=ALL).remarks)
