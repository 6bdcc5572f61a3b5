"""Owners and ages of gangs: nothing of another namespace lends age, name, size or marks."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from bundles import load_all, read_all
from kube import SNAPSHOTS, listed, node, objects, pod
from kube_gangs import owned, read, sizes, thing
from outcomes import planned

from models.units import epoch_seconds

TRAINER = "trainer.kubeflow.org/v1alpha1"
JOBSET = "jobset.x-k8s.io/v1alpha2"

Json = dict[str, Any]


def made(tree: Json, day: int, namespace: str = "default") -> Json:
    """The same object, of that day of November and that namespace."""
    tree["metadata"] |= {
        "creationTimestamp": f"2026-11-{day:02}T00:00:00Z",
        "namespace": namespace,
    }
    return tree


def age(day: int) -> int:
    return epoch_seconds(f"2026-11-{day:02}T00:00:00Z")


def of_job(name: str, day: int, **fields: Any) -> Json:  # noqa: ANN401  # any field of a pod
    return made(owned(pod(name, gpus=8, **fields), "Job", "batch/v1", "j"), day)


def job(day: int, size: int = 1, **spec: object) -> Json:
    return made(thing("Job", "batch/v1", "j", {"parallelism": size, **spec}), day)


# who owns what


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ({}, True),
        ({"uid": ""}, True),  # recorded without one: kind and name decide
        ({"uid": "another"}, False),  # it was deleted and made again
        ({"name": "k"}, False),
        ({"kind": "CronJob"}, False),
        ({"apiVersion": "batch.volcano.sh/v1alpha1"}, False),
    ],
)
def test_an_owner_has_the_kind_the_name_and_the_uid(reference: Json, found: bool) -> None:
    owner = thing("Job", "batch/v1", "j", {})
    one = owned(pod("p"), "Job", "batch/v1", "j")
    one["metadata"]["ownerReferences"][0] |= reference
    api = objects(owner, one)
    owner_of = api.owner_of(api.of("Pod")[0])
    assert (owner_of is not None) == found


def test_an_owner_is_in_the_same_namespace_or_in_none() -> None:
    elsewhere = thing("Job", "batch/v1", "j", {})
    elsewhere["metadata"]["namespace"] = "victim"
    one = owned(pod("p"), "Job", "batch/v1", "j")
    mirror = owned(pod("m"), "Node", "v1", "n1")
    there = node("n1")
    there["metadata"]["uid"] = "uid-Node-n1"
    api = objects(elsewhere, there, one, mirror)
    mirrored, owned_ = sorted(api.of("Pod"), key=lambda found: found.name)
    assert api.owner_of(owned_) is None
    assert api.owner_of(mirrored) is api.of("Node")[0]


def _trainjob(namespace: str, day: int, *, train: bool) -> list[Json]:
    """A gang of one GPU pod: a TrainJob (unless it is another's) and its JobSet."""
    spec = {"replicatedJobs": [{"name": "node", "template": {"spec": {"parallelism": 1}}}]}
    jobset = made(thing("JobSet", JOBSET, "js", spec), day, namespace)
    jobset["metadata"]["uid"] = f"uid-JobSet-{namespace}"
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "js",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "batch.kubernetes.io/job-completion-index": "0",
    }
    worker = pod("js-0", namespace=namespace, gpus=8, gated=True, labels=labels)
    worker = made(worker, day, namespace)
    owner = made(thing("TrainJob", TRAINER, "js", {}), day, namespace)
    return [*([owner] if train else []), owned(jobset, "TrainJob", TRAINER, "js"), worker]


def test_a_jobset_that_names_the_trainjob_of_another_takes_nothing_of_it() -> None:
    """Room for one gang of two: the victim's, which has waited longer."""
    victim = _trainjob("victim", 12, train=True)
    thief = _trainjob("a-thief", 19, train=False)  # its reference has the uid of the victim's
    running = made(pod("now", namespace="other", gpus=1, on="n2"), 20)
    alone = read_all([node("n1"), node("n2"), running, *victim])
    both = read_all([node("n1"), node("n2"), running, *thief, *victim])
    stolen, whole = (gang for gang in both.gangs if gang.namespace in ("a-thief", "victim"))
    assert (stolen.submitted_at, whole.submitted_at) == (age(19), age(12))
    assert whole == next(gang for gang in alone.gangs if gang.namespace == "victim")
    found = planned(both).solution.decisions
    placed = {gang.namespace: one.decision for gang, one in zip(both.gangs, found, strict=True)}
    assert (placed["victim"], placed["a-thief"]) == ("place", "wait")


# copies of everything


def _documents(snapshot: str) -> list[Json]:
    paths = sorted((SNAPSHOTS / snapshot).glob("*.json*"))
    return [tree for path in paths for tree in listed(path)]


def _copies(documents: list[Json]) -> list[Json]:
    """Every object of every namespace again in one of a stranger, with its uid, and older.

    The pods are gated by somebody, so that they take no room and make no gangs.
    """
    taken: set[tuple[str, str]] = set()
    copies = []
    for tree in documents:
        name = tree["metadata"]["name"]
        if "namespace" not in tree["metadata"] or (tree["kind"], name) in taken:
            continue
        taken.add((tree["kind"], name))
        one = copy.deepcopy(tree)
        one["metadata"] |= {
            "namespace": "a-stranger",
            "creationTimestamp": "2020-01-01T00:00:00Z",
        }
        if tree["kind"] == "Pod":
            one["spec"].pop("nodeName", None)
            one["spec"] |= {
                "schedulerName": "default-scheduler",
                "schedulingGates": [{"name": "nobody.example"}],
                "priority": 9,
            }
            one["metadata"]["uid"] = f"copy-{name}"  # API servers give no uid twice
            one["status"]["phase"] = "Pending"
        if tree["kind"] == "PodGroup":
            one["spec"] = {"minMember": 999}
        copies.append(one)
    return copies


@pytest.mark.parametrize("snapshot", ["h100-gke", "nvl72", "v100-mpi"])
def test_a_copy_of_everything_in_another_namespace_changes_nothing(snapshot: str) -> None:
    documents = _documents(snapshot)
    copies = _copies(documents)
    assert {"Pod", "Job"} <= {tree["kind"] for tree in copies}
    alone, both = load_all(documents), load_all([*copies, *documents])
    assert both.instance.gangs == alone.instance.gangs
    assert both.instance.cluster == alone.instance.cluster


# ages


def test_a_controller_kept_without_pods_is_no_ticket() -> None:
    gangs, _ = read(job(1), of_job("p", 19, gated=True))
    assert gangs["j"].submitted_at == age(19)


# groups


def test_a_group_of_another_namespace_says_nothing() -> None:
    label = {"scheduling.x-k8s.io/pod-group": "set"}
    pods = [pod(name, gpus=1, gated=True, labels=label) for name in "ab"]
    group = thing(
        *("PodGroup", "scheduling.x-k8s.io/v1alpha1", "set", {"minMember": 64}),
        annotations={"gangplan.dev/preemptible": "true"},
    )
    for namespace, size in (("default", 64), ("stranger", 2)):
        group["metadata"]["namespace"] = namespace
        gangs, _ = read(group, *pods)
        assert sizes(gangs["set"]) == [("worker", size, 0)]
        assert gangs["set"].preemptible == (namespace == "default")
