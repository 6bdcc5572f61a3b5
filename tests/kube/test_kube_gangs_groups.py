"""Each group dialect: the group of a pod, and what the group requires."""

from __future__ import annotations

from typing import Any

import pytest
from kube import pod
from kube_gangs import read, seats, sizes, thing

from planner.read.kube.records import LevelAsk, ReplicaRange, SliceAsk

RACK, BLOCK = LevelAsk(label="example.com/rack"), LevelAsk(label="example.com/block")


def plain(count: int, *, start: int = 0, **more: object) -> list[dict[str, Any]]:
    """Waiting pods of ours, p-0 and on, without a controller."""
    return [pod(f"p-{number}", gpus=1, gated=True, **more) for number in range(start, count)]


def native_pods(count: int, group: str, start: int = 0) -> list[dict[str, Any]]:
    return plain(count, start=start, schedulingGroup={"podGroupName": group})


def native_group(name: str, **spec: object) -> dict[str, Any]:
    return thing("PodGroup", "scheduling.k8s.io/v1beta1", name, spec)


def test_a_native_group_needs_min_count_pods_in_one_domain_of_its_key() -> None:
    group = native_group(
        "train",
        schedulingPolicy={"gang": {"minCount": 3}},
        schedulingConstraints={"topology": [{"key": "example.com/rack"}]},
    )
    gangs, remarks = read(group, *native_pods(3, "train"))
    assert list(gangs) == ["train"]
    assert gangs["train"].kind == "PodGroup"
    assert sizes(gangs["train"]) == [("worker", 3, 0)]
    assert gangs["train"].required == RACK
    assert gangs["train"].missing is None
    assert remarks.lines() == []


def test_a_native_group_takes_from_its_template_what_it_leaves_out() -> None:
    template = {
        "name": "workers",
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "schedulingConstraints": {"topology": [{"key": "example.com/rack"}]},
    }
    workload = thing(
        "Workload", "scheduling.k8s.io/v1beta1", "w", {"podGroupTemplates": [template]}
    )
    reference = {"workload": {"workloadName": "w", "podGroupTemplateName": "workers"}}
    group = native_group("train", podGroupTemplateRef=reference)
    gangs, _ = read(workload, group, *native_pods(1, "train"))
    assert gangs["train"].required == RACK
    assert gangs["train"].missing == "worker 1 has not been created (1 of 2 pods exist)"


def test_pods_of_a_basic_group_are_no_gang() -> None:
    group = native_group("loose", schedulingPolicy={"basic": {}})
    gangs, _ = read(group, *native_pods(2, "loose"))
    assert {name: gang.kind for name, gang in gangs.items()} == {"p-0": "Pod", "p-1": "Pod"}


def test_groups_under_one_composite_are_one_gang() -> None:
    policy = {"gang": {"minCount": 2}}
    first = native_group("a", schedulingPolicy=policy, parentCompositePodGroupName="both")
    second = native_group("b", schedulingPolicy=policy, parentCompositePodGroupName="both")
    pods = native_pods(2, "a") + native_pods(4, "b", start=2)
    gangs, _ = read(first, second, *pods)
    assert list(gangs) == ["both"]
    assert len(gangs["both"].pods()) == 4
    gangs, _ = read(first, second, *pods[:3])
    assert gangs["both"].missing == "b 1 has not been created (3 of 4 pods exist)"


def test_a_workload_of_1_35_has_a_group_for_every_replica_key() -> None:
    groups = [{"name": "workers", "policy": {"gang": {"minCount": 2}}}]
    workload = thing("Workload", "scheduling.k8s.io/v1alpha1", "w", {"podGroups": groups})
    pods = [
        pod(
            f"p-{number}",
            gpus=1,
            gated=True,
            workloadRef={
                "name": "w",
                "podGroup": "workers",
                "podGroupReplicaKey": str(number // 2),
            },
        )
        for number in range(3)
    ]
    gangs, _ = read(workload, *pods)
    assert list(gangs) == ["w-workers-0", "w-workers-1"]
    assert gangs["w-workers-0"].missing is None
    # p-2 is the only pod of key 1, and minCount is 2.
    assert gangs["w-workers-1"].missing is not None


def test_the_pod_group_of_scheduler_plugins_is_named_by_a_label() -> None:
    group = thing("PodGroup", "scheduling.x-k8s.io/v1alpha1", "train", {"minMember": 2})
    gangs, _ = read(group, *plain(2, labels={"scheduling.x-k8s.io/pod-group": "train"}))
    assert sizes(gangs["train"]) == [("worker", 2, 0)]


def volcano_pods(count: int) -> list[dict[str, Any]]:
    return plain(count, annotations={"scheduling.k8s.io/group-name": "train"})


def volcano_group(**spec: object) -> dict[str, Any]:
    return thing("PodGroup", "scheduling.volcano.sh/v1beta1", "train", {"minMember": 4, **spec})


@pytest.mark.parametrize(
    ("topology", "required", "preferred"),
    [
        ({"mode": "hard", "highestTierAllowed": 2}, LevelAsk(tier=2), None),
        ({"highestTierAllowed": 1}, LevelAsk(tier=1), None),
        ({"mode": "hard", "highestTierName": "spine"}, LevelAsk(tier_name="spine"), None),
        ({"mode": "soft"}, None, LevelAsk(tier=0)),
        ({"mode": "soft", "highestTierAllowed": 2}, None, LevelAsk(tier=0)),
        ({"mode": "hard"}, None, None),
        ({"mode": "odd"}, None, None),
    ],
)
def test_volcanos_network_topology_names_a_tier(
    topology: dict[str, Any], required: LevelAsk | None, preferred: LevelAsk | None
) -> None:
    gangs, remarks = read(volcano_group(networkTopology=topology), *volcano_pods(4))
    assert (gangs["train"].required, gangs["train"].preferred) == (required, preferred)
    assert bool(remarks.all) == (required is None and preferred is None)


def test_volcanos_sub_groups_are_slices_by_size() -> None:
    policy = {
        "name": "rack",
        "subGroupSize": 2,
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    gangs, _ = read(volcano_group(subGroupPolicy=[policy]), *volcano_pods(4))
    assert gangs["train"].roles[0].slices == (SliceAsk(2, LevelAsk(tier=1)),)
    assert gangs["train"].problems == ()


@pytest.mark.parametrize(
    ("parts", "slices", "problems"),
    [
        # p-0 and p-1 in one sub-group, p-2 and p-3 in the other: floor(index / 2).
        ("aabb", (SliceAsk(2, LevelAsk(tier=1)),), 0),
        # No chunk of indexes: p-0 and p-2 belong together.
        ("abab", (), 2),
    ],
)
def test_volcanos_sub_groups_by_label_are_slices_if_they_lie_so(
    parts: str, slices: tuple[SliceAsk, ...], problems: int
) -> None:
    policy = {
        "name": "part",
        "matchLabelKeys": ["part"],
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    pods = volcano_pods(4)
    for tree, part in zip(pods, parts, strict=True):
        tree["metadata"]["labels"] = {"part": part}
    gangs, _ = read(volcano_group(subGroupPolicy=[policy]), *pods)
    assert gangs["train"].roles[0].slices == slices
    assert len(gangs["train"].problems) == min(problems, 1)


def test_a_sub_group_of_a_whole_role_is_the_level_of_that_role() -> None:
    policy = {
        "name": "learners",
        "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "learner"}},
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    tasks = [{"name": "learner", "replicas": 2}, {"name": "actor", "replicas": 1}]
    job = thing("Job", "batch.volcano.sh/v1alpha1", "train", {"tasks": tasks, "queue": "q"})
    pods = [
        pod(
            f"train-{role}-{index}",
            gpus=1,
            gated=True,
            labels={
                "volcano.sh/job-name": "train",
                "volcano.sh/task-spec": role,
                "volcano.sh/task-index": str(index),
            },
            annotations={"scheduling.k8s.io/group-name": "train"},
        )
        for role, index in (("learner", 0), ("learner", 1), ("actor", 0))
    ]
    gangs, _ = read(job, volcano_group(subGroupPolicy=[policy], minMember=3), *pods)
    gang = gangs["train"]
    assert (gang.kind, gang.queue) == ("VCJob", "q")
    assert [(role.name, role.required) for role in gang.roles] == [
        ("learner", LevelAsk(tier=1)),
        ("actor", None),
    ]


KAI_TOPOLOGY = {
    "apiVersion": "kai.scheduler/v1alpha1",
    "kind": "Topology",
    "metadata": {"name": "dc"},
    "spec": {
        "levels": [
            {"nodeLabel": "example.com/block", "alias": "block"},
            {"nodeLabel": "example.com/rack", "alias": "rack"},
        ]
    },
}


def kai_pods(parts: str) -> list[dict[str, Any]]:
    return [
        pod(
            f"p-{number}",
            gpus=1,
            gated=True,
            labels={"kai.scheduler/subgroup-name": part},
            annotations={"pod-group-name": "train"},
        )
        for number, part in enumerate(parts)
    ]


def kai_group(**spec: object) -> dict[str, Any]:
    return thing("PodGroup", "scheduling.run.ai/v2alpha2", "train", spec)


def test_kais_sub_groups_are_roles_with_levels_of_their_own() -> None:
    group = kai_group(
        minMember=4,
        queue="team",
        preemptibility="preemptible",
        topologyConstraint={
            "topology": "dc",
            "requiredTopologyLevel": "block",
            "preferredTopologyLevel": "example.com/rack",
        },
        subGroups=[
            {
                "name": "a",
                "minMember": 2,
                "topologyConstraint": {"topology": "dc", "requiredTopologyLevel": "rack"},
            },
            {"name": "b", "minMember": 2},
        ],
    )
    gangs, remarks = read(KAI_TOPOLOGY, group, *kai_pods("aabb"))
    gang = gangs["train"]
    assert (gang.queue, gang.preemptible) == ("team", True)
    assert (gang.required, gang.preferred) == (BLOCK, RACK)
    assert [(role.name, role.size, role.required) for role in gang.roles] == [
        ("a", 2, RACK),
        ("b", 2, None),
    ]
    assert remarks.lines() == []
    gangs, _ = read(KAI_TOPOLOGY, group, *kai_pods("aab"))
    assert gangs["train"].missing == "b 1 has not been created (3 of 4 pods exist)"


def test_a_kueue_pod_group_needs_all_its_pods_at_their_index() -> None:
    pods = [
        pod(
            f"p-{name}",
            gpus=1,
            gated=True,
            labels={
                "kueue.x-k8s.io/pod-group-name": "g",
                "kueue.x-k8s.io/queue-name": "q",
                "kueue.x-k8s.io/pod-group-pod-index": str(index),
            },
            annotations={"kueue.x-k8s.io/pod-group-total-count": "3"},
        )
        for name, index in (("x", 2), ("y", 0))
    ]
    gangs, _ = read(*pods)
    assert seats(gangs["g"]) == {"p-x": ("worker", 2), "p-y": ("worker", 0)}
    assert gangs["g"].missing == "worker 1 has not been created (2 of 3 pods exist)"
    assert gangs["g"].queue == "q"


def test_a_group_that_is_not_in_the_input_still_holds_its_pods_together() -> None:
    gangs, remarks = read(*plain(2, labels={"scheduling.x-k8s.io/pod-group": "gone"}))
    assert sizes(gangs["gone"]) == [("worker", 2, 0)]
    assert len(remarks.lines()) == 1
    assert "PodGroup default/gone" in remarks.lines()[0]


def test_a_group_with_more_pods_than_it_needs_is_whole_with_those_that_exist() -> None:
    group = thing("PodGroup", "scheduling.x-k8s.io/v1alpha1", "train", {"minMember": 2})
    master, worker = ({"replicas": 1}, {"replicas": 4})
    job = thing(
        "PyTorchJob",
        "kubeflow.org/v1",
        "train",
        {"pytorchReplicaSpecs": {"Master": master, "Worker": worker}},
    )
    pods = [
        pod(
            f"train-{role}-{index}",
            gpus=1,
            gated=True,
            labels={
                "scheduling.x-k8s.io/pod-group": "train",
                "training.kubeflow.org/job-name": "train",
                "training.kubeflow.org/operator-name": "pytorchjob-controller",
                "training.kubeflow.org/replica-type": role,
                "training.kubeflow.org/replica-index": str(index),
            },
        )
        for role, index in (("master", 0), ("worker", 0), ("worker", 3))
    ]
    gangs, remarks = read(group, job, *pods)
    # Three of five pods are there and two are enough: the gang is these three, without a gap.
    assert sizes(gangs["train"]) == [("master", 1, 0), ("worker", 1, 0)]
    assert gangs["train"].roles[1].range == ReplicaRange(1, 2)
    assert seats(gangs["train"])["train-worker-3"] == ("worker", 1)
    assert gangs["train"].missing is None
    assert len(remarks.lines()) == 1
