"""Kueue's and KAI's annotations: the topology that roles and gangs ask for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kube import pod
from kube_gangs import owned, read, thing

from planner.read.findings import Remarks
from planner.read.kube.gang_documents import level_asks
from planner.read.kube.records import KubeGang, KubeRole, LevelAsk, SliceAsk

KUEUE = "kueue.x-k8s.io/podset-"
HOST, RACK, BLOCK = (LevelAsk(label=f"example.com/{name}") for name in ("host", "rack", "block"))


def asking(**by_role: dict[str, str]) -> tuple[KubeGang, Remarks]:
    """A JobSet of roles of four pods, with these annotations on the pods of each."""
    return asking_of(2, by_role)


def asking_of(jobs: int, by_role: dict[str, dict[str, str]]) -> tuple[KubeGang, Remarks]:
    """The same with so many Jobs of two pods a role."""
    replicated = [
        {"name": role, "replicas": jobs, "template": {"spec": {"parallelism": 2, "completions": 2}}}
        for role in by_role
    ]
    made = thing("JobSet", "jobset.x-k8s.io/v1alpha2", "js", {"replicatedJobs": replicated})
    pods = [
        pod(
            f"js-{role}-{job}-{index}",
            gpus=1,
            gated=True,
            labels={
                "jobset.sigs.k8s.io/jobset-name": "js",
                "jobset.sigs.k8s.io/replicatedjob-name": role,
                "jobset.sigs.k8s.io/job-index": str(job),
                "batch.kubernetes.io/job-completion-index": str(index),
            },
            annotations=notes,
        )
        for role, notes in by_role.items()
        for job in range(jobs)
        for index in range(2)
    ]
    gangs, remarks = read(made, *pods)
    return gangs["js"], remarks


def test_different_levels_stay_with_their_roles() -> None:
    gang, remarks = asking(
        ps={f"{KUEUE}required-topology": "example.com/block"},
        worker={f"{KUEUE}preferred-topology": "example.com/rack"},
    )
    assert (gang.required, gang.preferred) == (None, None)
    assert [(role.required, role.preferred) for role in gang.roles] == [(BLOCK, None), (None, RACK)]
    assert (gang.problems, remarks.lines()) == ((), [])


def test_a_level_that_all_roles_name_is_the_gangs() -> None:
    notes = {f"{KUEUE}required-topology": "example.com/rack", f"{KUEUE}group-name": "all"}
    gang, _ = asking(ps=notes, worker=notes)
    assert gang.required == RACK
    assert [role.required for role in gang.roles] == [None, None]


def test_a_pod_set_group_of_some_roles_cannot_be_promised() -> None:
    notes = {f"{KUEUE}required-topology": "example.com/rack", f"{KUEUE}group-name": "two"}
    gang, _ = asking(a=notes, b=notes, c={})
    assert gang.problems == ("pod set group two: roles a, b in one domain",)


@pytest.mark.parametrize(
    ("notes", "word"),
    [
        ({"required-topology": "example.com/rack", "unconstrained-topology": "true"}, "none"),
        ({"required-topology": "example.com/rack", "preferred-topology": "x/y"}, "preferred"),
    ],
)
def test_what_kueue_refuses_is_remarked_and_the_stricter_counts(
    notes: dict[str, str], word: str
) -> None:
    gang, remarks = asking(worker={f"{KUEUE}{key}": value for key, value in notes.items()})
    assert gang.required == RACK
    assert len(remarks.lines()) == 1
    assert word in remarks.lines()[0]


def test_slices_are_of_the_role() -> None:
    gang, _ = asking(
        worker={
            f"{KUEUE}required-topology": "example.com/block",
            f"{KUEUE}slice-required-topology": "example.com/rack",
            f"{KUEUE}slice-size": "4",
        }
    )
    assert gang.required == BLOCK
    assert gang.roles[0].slices == (SliceAsk(4, RACK),)


def test_slices_without_a_size_are_the_jobs_of_a_jobset() -> None:
    gang, remarks = asking(worker={f"{KUEUE}slice-required-topology": "example.com/rack"})
    assert gang.roles[0].slices == (SliceAsk(2, RACK),)
    assert remarks.lines() == []


def layers(*entries: tuple[str, Any]) -> str:
    return json.dumps([{"topology": f"example.com/{name}", "size": size} for name, size in entries])


@pytest.mark.parametrize(
    ("written", "required", "slices"),
    [
        # All 8 pods of the role are one slice of the block, and a slice of one pod is no tie.
        (layers(("block", 8), ("rack", 4), ("host", 1)), BLOCK, (SliceAsk(4, RACK),)),
        (layers(("block", 8), ("rack", 8)), None, (SliceAsk(8, RACK),)),
        # Of layers of one size the nearest says it all.
        (layers(("block", 4), ("rack", 4)), None, (SliceAsk(4, RACK),)),
        (layers(("block", 8), ("rack", 8), ("host", 2)), RACK, (SliceAsk(2, HOST),)),
        (layers(("block", 8)), None, (SliceAsk(8, BLOCK),)),
    ],
)
def test_a_layer_that_takes_in_the_whole_role_is_what_it_requires(
    written: str, required: LevelAsk | None, slices: tuple[SliceAsk, ...]
) -> None:
    gang, _ = asking_of(4, {"worker": {f"{KUEUE}slice-required-topology-constraints": written}})
    assert (gang.required, gang.roles[0].slices) == (required, slices)


@pytest.mark.parametrize(
    "notes",
    [
        # 3 does not divide the 8 pods of the role.
        {"slice-required-topology": "example.com/rack", "slice-size": "3"},
        {"slice-required-topology": "example.com/rack", "slice-size": "many"},
        {"slice-required-topology": "example.com/rack", "slice-size": "0"},
        {"slice-size": "2"},
        {"slice-required-topology-constraints": layers(("block", 4), ("rack", 3))},
        {"slice-required-topology-constraints": layers(*[("rack", 1)] * 4)},
        {"slice-required-topology-constraints": layers(("rack", "two"))},
        {"slice-required-topology-constraints": "[" * 5000},
        {"slice-required-topology-constraints": "{}"},
        {"slice-required-topology-constraints": "[1]"},
    ],
)
def test_slices_that_cannot_be_are_a_problem_and_a_remark(notes: dict[str, str]) -> None:
    gang, remarks = asking(worker={f"{KUEUE}{key}": value for key, value in notes.items()})
    assert gang.roles[0].slices == ()
    assert len(gang.problems) == len(remarks.lines()) == 1


def test_a_level_of_the_group_object_stays_beside_that_of_the_annotation() -> None:
    constraints = {"topology": [{"key": "example.com/block"}]}
    policy = {"gang": {"minCount": 2}}
    group = thing(
        "PodGroup",
        "scheduling.k8s.io/v1beta1",
        "g",
        {"schedulingPolicy": policy, "schedulingConstraints": constraints},
    )
    notes = {f"{KUEUE}required-topology": "example.com/rack"}
    pods = [
        pod(
            f"p-{number}",
            gpus=1,
            gated=True,
            annotations=notes,
            schedulingGroup={"podGroupName": "g"},
        )
        for number in range(2)
    ]
    gangs, _ = read(group, *pods)
    assert (gangs["g"].required, gangs["g"].roles[0].required) == (BLOCK, RACK)


def test_workers_that_count_from_one_have_their_slices_from_zero() -> None:
    notes = {
        f"{KUEUE}slice-required-topology": "example.com/rack",
        f"{KUEUE}slice-size": "2",
    }
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 5}}
    made = thing("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", "lws", spec)
    pods = [
        pod(
            f"lws-0-{worker}",
            gpus=1,
            gated=True,
            labels={
                "leaderworkerset.sigs.k8s.io/name": "lws",
                "leaderworkerset.sigs.k8s.io/group-index": "0",
                "leaderworkerset.sigs.k8s.io/worker-index": str(worker),
            },
            annotations=notes if worker else {},
        )
        for worker in range(5)
    ]
    gangs, _ = read(made, *pods)
    workers = gangs["lws"].roles[1]
    # Workers 1 and 2 are one slice for Kueue, 3 and 4 the other.
    assert [(index // 2, pod.name) for index, pod in workers.members] == [
        (0, "lws-0-1"),
        (0, "lws-0-2"),
        (1, "lws-0-3"),
        (1, "lws-0-4"),
    ]
    assert (workers.first_index, workers.slices) == (0, (SliceAsk(2, RACK),))


def test_kais_annotations_on_a_controller_name_levels_and_segments() -> None:
    topology = {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "dc"},
        "spec": {"levels": [{"nodeLabel": "example.com/rack", "alias": "rack"}]},
    }
    notes = {
        "kai.scheduler/topology": "dc",
        "kai.scheduler/topology-required-placement": "example.com/block",
        "kai.scheduler/topology-preferred-placement": "rack",
        "kai.scheduler/segment-size": "2",
        "kai.scheduler/segment-topology-required-placement": "rack",
    }
    job = thing("Job", "batch/v1", "j", {"parallelism": 4}, annotations=notes)
    pods = [owned(pod(f"j-{n}", gpus=1, gated=True), "Job", "batch/v1", "j") for n in range(4)]
    gangs, _ = read(topology, job, *pods)
    assert (gangs["j"].required, gangs["j"].preferred) == (BLOCK, RACK)
    assert gangs["j"].roles[0].slices == (SliceAsk(2, RACK),)


def test_levels_are_asked_for_in_turn_by_namespaces_and_by_age() -> None:
    def gang(namespace: str, name: str, born: int | None, *labels: str) -> KubeGang:
        roles = [
            KubeRole(f"r{i}", 1, [], required=LevelAsk(label=one)) for i, one in enumerate(labels)
        ]
        return KubeGang(namespace, name, "Pod", roles, submitted_at=born)

    found = level_asks(
        [
            gang("greedy", "a", 50, "g/1", "g/2", "g/3"),
            gang("modest", "b", 90, "m/1", "g/3"),
            gang("modest", "c", 10, "m/0"),
            gang("greedy", "d", None, "g/0"),
        ]
    )
    # first of each: g/1 (50), m/0 (10); then g/2 (50), m/1 (90); then g/3; then g/0
    assert [ask.label for ask in found] == ["m/0", "g/1", "g/2", "m/1", "g/3", "g/0"]
