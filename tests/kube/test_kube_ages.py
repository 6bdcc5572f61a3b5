"""Start times, checkpoints and resize times of gangs of Kubernetes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bundles import load_all
from kube import node, pod
from kube_gangs import owned, thing

from models.instance.gang import Gang
from models.units import epoch_seconds
from planner.read.instance_builder import LoadedInput

CHECKPOINT = "gangplan.dev/last-checkpoint"
RESIZE = "gangplan.dev/resize-after"
HINT = "(hint: state the time: --now, or `now` in a Policy)"

Json = dict[str, Any]


def at(text: str) -> int:
    return epoch_seconds(text)


def runner(name: str, start: object = None, **annotations: str) -> Json:
    """A pod of Job ``job`` that runs; annotations as ``checkpoint`` and ``resize``."""
    keys = {"checkpoint": CHECKPOINT, "resize": RESIZE}
    made = pod(
        name, gpus=1, on="n1", annotations={keys[key]: text for key, text in annotations.items()}
    )
    if start is not None:
        made["status"]["startTime"] = start
    return owned(made, "Job", "batch/v1", "job")


def job(**annotations: str) -> Json:
    return thing("Job", "batch/v1", "job", {"parallelism": 2}, annotations=annotations)


def policy(**spec: object) -> Json:
    return {"apiVersion": "gangplan.dev/v1alpha1", "kind": "Policy", "spec": spec}


def built(*objects: Json) -> LoadedInput:
    return load_all([node("n1"), *objects])


def only_gang(*objects: Json) -> Gang:
    (found,) = built(*objects).instance.gangs
    return found


@pytest.mark.parametrize(
    ("controller", "pods", "seconds"),
    [
        ({"activeDeadlineSeconds": 7200}, (None, None), 7200),
        ({"activeDeadlineSeconds": 7200}, (600, 900), 900),
        ({}, (600, 900), 900),
        ({}, (600, None), None),
        ({"activeDeadlineSeconds": 10**11}, (None, None), None),
        ({"activeDeadlineSeconds": "soon"}, (None, None), None),
    ],
    ids=["Job", "both", "pods", "one pod", "absurd", "no number"],
)
def test_a_gang_is_expected_to_run_until_kubernetes_ends_it(
    controller: Json, pods: tuple[int | None, ...], seconds: int | None
) -> None:
    ends = policy(reservations={})
    made = [runner(name) for name in "ab"]
    for one, deadline in zip(made, pods, strict=True):
        if deadline is not None:
            one["spec"]["activeDeadlineSeconds"] = deadline
    owner = job()
    owner["spec"].update(controller)
    assert only_gang(owner, *made, ends).expected_duration_s == seconds
    assert only_gang(owner, *made).expected_duration_s is None


def by_hand(pods: list[Json], owner: Json) -> list[Json]:
    """The pods and their Job, of which somebody wrote the references himself."""
    for one in pods:
        one["metadata"]["ownerReferences"][0].pop("controller")
    return [*pods, owner]


def managed(pods: list[Json], owner: Json) -> list[Json]:
    owner["spec"]["managedBy"] = "example.com/nobody"
    return [*pods, owner]


def failed(pods: list[Json], owner: Json) -> list[Json]:
    owner["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    return [*pods, owner]


def slow(pods: list[Json], owner: Json) -> list[Json]:
    pods[1]["spec"]["terminationGracePeriodSeconds"] = 1_000_000
    return [*pods, owner]


def usual(pods: list[Json], owner: Json) -> list[Json]:
    pods[1]["spec"]["terminationGracePeriodSeconds"] = 30
    return [*pods, owner]


def of_two_jobs(pods: list[Json], owner: Json) -> list[Json]:
    """A gang of which only one of two Jobs has a deadline."""
    other = thing("Job", "batch/v1", "other", {"parallelism": 1})
    owned(pods[1], "Job", "batch/v1", "other")
    for one in pods:
        one["metadata"]["labels"]["gangplan.dev/gang"] = "both"
    return [*pods, owner, other]


@pytest.mark.parametrize(
    ("word", "seconds"),
    [
        (by_hand, None),
        (managed, None),
        (failed, None),
        (of_two_jobs, None),
        (slow, 1_007_200),
        (usual, 7200),
    ],
)
def test_a_deadline_counts_only_where_somebody_keeps_it(
    word: Callable[[list[Json], Json], list[Json]], seconds: int | None
) -> None:
    owner = job()
    owner["spec"]["activeDeadlineSeconds"] = 7200
    made = word([runner(name) for name in "ab"], owner)
    assert only_gang(*made, policy(reservations={})).expected_duration_s == seconds


def test_a_gang_runs_since_the_last_of_its_running_pods_started() -> None:
    finished = runner("c", "2026-11-20T12:00:00Z")
    finished["status"]["phase"] = "Succeeded"
    found = only_gang(
        job(),
        runner("a", "2026-11-20T09:00:00Z"),
        runner("b", "2026-11-20T10:00:00Z"),  # restarted: the gang lost what it had then
        finished,
    )
    assert found.started_at == at("2026-11-20T10:00:00Z")


def test_the_latest_annotation_of_controller_and_pods_counts() -> None:
    found = only_gang(
        job(**{CHECKPOINT: "2026-11-20T08:10:00Z", RESIZE: "2026-11-22T00:00:00Z"}),
        runner("a", "2026-11-20T09:00:00Z", checkpoint="2026-11-20T08:30:00+00:00"),
        runner("b", resize="2026-11-21T00:00:00Z"),
    )
    assert found.last_checkpoint == at("2026-11-20T08:30:00Z")
    # that it is yet to come is what it is for
    assert found.resize_after == at("2026-11-22T00:00:00Z")


@pytest.mark.parametrize("written", ["", "yesterday", "1795248000", "2026-02-30T00:00:00Z"])
def test_a_time_that_is_none_is_a_remark(written: str) -> None:
    found = built(job(), runner("a", checkpoint=written, resize=written))
    (gang,) = found.instance.gangs
    assert (gang.last_checkpoint, gang.resize_after) == (None, None)
    assert [line for line in found.remarks if "annotation" in line] == [
        f"Pod default/a: annotation {CHECKPOINT} is not a time; ignored",
        f"Pod default/a: annotation {RESIZE} is not a time; ignored",
    ]


def test_a_checkpoint_to_come_moves_nobodys_time() -> None:
    """A tenant that writes the year 2999 would make every other gang aged and every size free."""
    starving = policy(starvation={"after": "24h"}, disruption={"weight": "lostRuntime"})
    waiting = pod("w", gpus=1, gated=True)
    found = built(
        starving,
        job(),
        runner("a", "2026-11-20T09:00:00Z", checkpoint="2999-12-31T00:00:00Z"),
        waiting,
    )
    instance = found.instance
    assert instance.now == instance.policy.now == at("2026-11-20T09:00:00Z")
    running, queued = instance.gangs
    assert (running.name, queued.name) == ("job", "w")
    assert instance.disruption_cost(running) == 1
    assert not instance.aged(queued)
    later = "is later than any time of the cluster; it counts as the latest one"
    assert [line for line in found.remarks if CHECKPOINT in line] == [
        f"Job default/job: annotation {CHECKPOINT} {later} {HINT}"
    ]


def waiter(index: int, made: str) -> Json:
    labels = {"batch.kubernetes.io/job-completion-index": str(index)}
    one = pod(f"w-{index}", gpus=1, gated=True, labels=labels)
    one["metadata"]["creationTimestamp"] = made
    return owned(one, "Job", "batch/v1", "job")


def made_job(size: int = 2) -> Json:
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed"}
    found = thing("Job", "batch/v1", "job", spec)
    found["metadata"]["creationTimestamp"] = "2026-11-20T01:00:00Z"
    return found


def test_a_gang_is_no_older_than_the_last_pod_that_it_needs() -> None:
    """Nobody parks age with one pod of many."""
    pods = [waiter(0, "2026-11-20T02:00:00Z"), waiter(1, "2026-11-20T09:00:00Z")]
    assert only_gang(made_job(), *pods).submitted_at == at("2026-11-20T09:00:00Z")


@pytest.mark.parametrize(
    ("conditions", "since"),
    [
        ([], "02"),
        ([("QuotaReserved", "True", "05")], "02"),
        ([("Admitted", "False", "05")], "02"),
        ([("Admitted", "True", "05")], "05"),
        ([("Admitted", "True", "01")], "02"),
    ],
)
def test_what_kueue_held_is_as_old_as_its_admission(
    conditions: list[tuple[str, str, str]], since: str
) -> None:
    workload = thing("Workload", "kueue.x-k8s.io/v1beta2", "job-w", {"podSets": []})
    workload["status"] = {
        "conditions": [
            {"type": kind, "status": status, "lastTransitionTime": f"2026-11-20T{hour}:00:00Z"}
            for kind, status, hour in conditions
        ]
    }
    pods = [waiter(index, "2026-11-20T02:00:00Z") for index in range(2)]
    found = only_gang(made_job(), *pods, owned(workload, "Job", "batch/v1", "job"))
    assert found.submitted_at == at(f"2026-11-20T{since}:00:00Z")
