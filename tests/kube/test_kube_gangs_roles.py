"""Malformed indexes and sizes: every pod keeps an index, whatever the labels say."""

from __future__ import annotations

from typing import Any

import pytest
from kube import pod
from kube_gangs import owned, read, seats, sizes, thing


def indexed(
    name: str, index: object, *, gpus: int = 1, on: str | None = None, gated: bool = True
) -> dict[str, Any]:
    labels = {"batch.kubernetes.io/job-completion-index": str(index)}
    tree = pod(name, gpus=gpus, on=on, gated=gated and on is None, labels=labels)
    return owned(tree, "Job", "batch/v1", "j")


def job(size: int, **metadata: object) -> dict[str, Any]:
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed"}
    return thing("Job", "batch/v1", "j", spec, **metadata)


def terminating(tree: dict[str, Any]) -> dict[str, Any]:
    tree["metadata"]["deletionTimestamp"] = "2026-11-20T09:00:00Z"
    return tree


def test_a_terminating_pod_that_stands_keeps_its_index_and_its_successor_waits() -> None:
    old, new = terminating(indexed("j-1-old", 1, on="n1")), indexed("j-1-new", 1)
    gangs, remarks = read(job(2), indexed("j-0", 0, on="n1"), old, new)
    assert seats(gangs["j"]) == {"j-0": ("worker", 0), "j-1-old": ("worker", 1)}
    assert len(remarks.lines()) == 1
    assert remarks.lines()[0].startswith("Pod default/j-1-new")
    assert gangs["j"].missing is None


@pytest.mark.parametrize("odd", ["x", "-1", "7", "0", "9" * 30, "", "1.0"])
def test_an_odd_index_is_the_next_free_one(odd: str) -> None:
    gangs, remarks = read(job(3), indexed("j-0", 0), indexed("j-1", odd), indexed("j-2", 2))
    assert seats(gangs["j"]) == {
        "j-0": ("worker", 0),
        "j-1": ("worker", 1),
        "j-2": ("worker", 2),
    }
    assert gangs["j"].missing is None
    assert len(remarks.lines()) == 1


@pytest.mark.parametrize("size", [10**9, 10**30, 1_000_001, 30_000])
def test_an_absurd_size_is_a_problem_and_the_pods_count(size: int) -> None:
    gangs, _ = read(job(size), indexed("j-0", 0), indexed("j-1", 1))
    assert sizes(gangs["j"]) == [("worker", 2, 0)]
    assert len(gangs["j"].problems) == 1


def test_pods_of_one_role_with_other_gpus_are_a_role_of_their_own() -> None:
    pods = [indexed(f"j-{n}", n, gpus=4 if n == 1 else 8) for n in range(4)]
    gangs, remarks = read(job(5), *pods)
    # The role of four-GPU pods has one; what is missing belongs to the commonest.
    assert sizes(gangs["j"]) == [("worker", 4, 0), ("worker-2", 1, 0)]
    assert seats(gangs["j"])["j-1"] == ("worker-2", 0)
    assert gangs["j"].missing == "worker 3 has not been created (4 of 5 pods exist)"
    assert len(remarks.lines()) == 1


def test_several_controllers_under_one_group_are_one_gang_with_their_names_before_the_roles() -> (
    None
):
    group = thing("PodGroup", "scheduling.x-k8s.io/v1alpha1", "both", {"minMember": 2})
    jobs = [thing("Job", "batch/v1", name, {"parallelism": 1}) for name in "ab"]
    labels = {"scheduling.x-k8s.io/pod-group": "both"}
    pods = [
        owned(pod(f"{name}-0", gpus=1, gated=True, labels=labels), "Job", "batch/v1", name)
        for name in "ab"
    ]
    gangs, _ = read(group, *jobs, *pods)
    assert {name: gang.kind for name, gang in gangs.items()} == {"both": "PodGroup"}
    assert sizes(gangs["both"]) == [("a-worker", 1, 0), ("b-worker", 1, 0)]


def test_one_controller_over_several_groups_is_a_gang_a_group() -> None:
    groups = [
        thing("PodGroup", "scheduling.x-k8s.io/v1alpha1", name, {"minMember": 2}) for name in "ab"
    ]
    pods = [indexed(f"j-{n}", n) for n in range(4)]
    for number, tree in enumerate(pods):
        tree["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "ab"[number // 2]
    gangs, _ = read(job(4), *groups, *pods)
    assert list(gangs) == ["a", "b"]
    assert [len(gang.pods()) for gang in gangs.values()] == [2, 2]
    assert [gang.missing for gang in gangs.values()] == [None, None]


def test_a_pod_that_lost_the_name_of_its_group_stays_with_its_siblings() -> None:
    group = thing("PodGroup", "scheduling.x-k8s.io/v1alpha1", "g", {"minMember": 3})
    pods = [indexed(f"j-{n}", n) for n in range(3)]
    for tree in pods[1:]:
        tree["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "g"
    gangs, _ = read(job(3), group, *pods)
    assert {name: len(gang.pods()) for name, gang in gangs.items()} == {"j": 3}


def test_gangs_of_one_name_are_told_apart() -> None:
    jobset = thing("JobSet", "jobset.x-k8s.io/v1alpha2", "j", {"replicatedJobs": []})
    other = pod(
        "j-w-0-0",
        gpus=1,
        gated=True,
        labels={
            "jobset.sigs.k8s.io/jobset-name": "j",
            "batch.kubernetes.io/job-completion-index": "0",
        },
    )
    gangs, remarks = read(job(1), indexed("j-0", 0), jobset, other, pod("j", gpus=1, on="n"))
    assert {name: gang.kind for name, gang in gangs.items()} == {
        "j": "Job",
        "j-jobset": "JobSet",
        "j-pod": "Pod",
    }
    assert len(remarks.lines()) == 1


def test_a_gang_of_another_scheduler_is_left_out_until_it_stands() -> None:
    theirs = [indexed(f"j-{n}", n, gated=False) for n in range(2)]
    assert read(job(2), *theirs)[0] == {}
    standing = indexed("j-0", 0, on="n1")
    gangs, _ = read(job(2), standing, theirs[1])
    assert gangs["j"].missing == "worker 1 left to scheduler default-scheduler"


def test_a_gang_that_is_ours_in_part_tells_whose_the_others_are() -> None:
    other = indexed("j-1", 1, gated=False)
    other["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}]
    gangs, _ = read(job(2), indexed("j-0", 0), other)
    assert gangs["j"].missing == "worker 1 held by the scheduling gate kueue.x-k8s.io/topology"


def test_nobody_gains_by_one_pod_of_high_priority() -> None:
    pods = [indexed(f"j-{n}", n) for n in range(2)]
    pods[0]["spec"]["priority"] = 1000
    gangs, remarks = read(job(2), *pods)
    assert gangs["j"].priority == 0
    assert len(remarks.lines()) == 1


def test_the_shortest_minimum_run_time_of_the_annotations_counts() -> None:
    key = "gangplan.dev/min-run-time"
    made, pod = job(1, annotations={key: "20m"}), indexed("j-0", 0)
    pod["metadata"]["annotations"] = {key: "10m"}
    assert read(made, pod)[0]["j"].min_run_time_s == 600
    assert read(made, indexed("j-0", 0))[0]["j"].min_run_time_s == 1200
    made["metadata"]["annotations"][key] = "soon"
    gangs, remarks = read(made, indexed("j-0", 0))
    assert gangs["j"].min_run_time_s is None
    assert len(remarks.lines()) == 1


@pytest.mark.parametrize(
    ("notes", "preemptible", "movable"),
    [
        ({"gangplan.dev/preemptible": "true"}, True, False),
        ({"gangplan.dev/movable": "true"}, False, True),
        ({"volcano.sh/preemptable": "true"}, True, False),
        ({"kai.scheduler/preemptibility": "preemptible"}, True, False),
        ({"kai.scheduler/preemptibility": "non-preemptible"}, False, False),
        ({"gangplan.dev/preemptible": "yes please"}, False, False),
        ({}, False, False),
    ],
)
def test_marks_of_the_controller_or_of_every_pod_say_what_a_gang_may_be_put_through(
    notes: dict[str, str], preemptible: bool, movable: bool
) -> None:
    pods = [indexed(f"j-{n}", n) for n in range(2)]
    gangs, _ = read(job(2, annotations=notes), *pods)
    assert (gangs["j"].preemptible, gangs["j"].movable) == (preemptible, movable)
    pods[0]["metadata"]["annotations"] = notes
    assert not read(job(2), *pods)[0]["j"].preemptible
    pods[1]["metadata"]["annotations"] = notes
    gangs, _ = read(job(2), *pods)
    assert (gangs["j"].preemptible, gangs["j"].movable) == (preemptible, movable)


@pytest.mark.parametrize(
    ("labels", "queue"),
    [
        ({"kueue.x-k8s.io/queue-name": "main"}, "main"),
        ({"volcano.sh/queue-name": "vc"}, "vc"),
        ({"kai.scheduler/queue": "kai"}, "kai"),
        ({}, None),
    ],
)
def test_the_queue_stands_on_the_controller_or_on_the_pods(
    labels: dict[str, str], queue: str | None
) -> None:
    waiting = indexed("j-0", 0)
    assert read(job(1, labels=labels), waiting)[0]["j"].queue == queue
    waiting["metadata"]["labels"] |= labels
    assert read(job(1), waiting)[0]["j"].queue == queue


def test_a_gang_does_not_start_while_a_pod_of_it_is_being_deleted() -> None:
    gangs, _ = read(job(2), indexed("j-0", 0), terminating(indexed("j-1", 1)))
    assert gangs["j"].missing == "worker 1 being deleted, not yet replaced"
