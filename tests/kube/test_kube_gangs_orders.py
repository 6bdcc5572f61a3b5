"""Indexes of pods without index labels: from names, replicas, sub-groups and labels of parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from kube import pod
from kube_gangs import owned, read, seats, sizes, thing

from planner.read.kube.records import KubeGang, LevelAsk, SliceAsk


def members(names: Sequence[str], group: str = "g", **labels: str) -> list[dict[str, Any]]:
    mark = {"scheduling.x-k8s.io/pod-group": group, **labels}
    return [pod(name, gpus=1, gated=True, labels=mark) for name in names]


def plain(size: int) -> dict[str, Any]:
    return thing("PodGroup", "scheduling.x-k8s.io/v1alpha1", "g", {"minMember": size})


@pytest.mark.parametrize(
    ("names", "size", "indexes"),
    [
        # The one that is missing is the third.
        (["w-0", "w-1", "w-3"], 4, [0, 1, 3]),
        (["w-10", "w-2", "w-0"], 11, [0, 2, 10]),
        # Numbers that end with the size began at 1.
        (["w-1", "w-2", "w-4"], 4, [0, 1, 3]),
        # 7 of 4 is no index, and two pods of one number have none: the order of names counts.
        (["w-0", "w-1", "w-7"], 4, [0, 1, 2]),
        (["a-0", "b-0", "b-1"], 4, [0, 1, 2]),
        (["a", "b", "c"], 4, [0, 1, 2]),
    ],
)
def test_pods_that_nobody_made_have_the_numbers_of_their_names(
    names: list[str], size: int, indexes: list[int]
) -> None:
    gangs, _ = read(plain(size), *members(names))
    assert sorted(index for _, index in seats(gangs["g"]).values()) == indexes
    assert sizes(gangs["g"]) == [("worker", size, 0)]


def test_sub_groups_of_kai_are_in_the_order_of_their_group() -> None:
    parts = [{"name": "prefill", "minMember": 2}, {"name": "decode", "minMember": 1}]
    group = thing("PodGroup", "scheduling.run.ai/v2alpha2", "train", {"subGroups": parts})
    pods = [
        pod(
            f"train-{part}-{number}",
            gpus=1,
            gated=True,
            labels={"kai.scheduler/subgroup-name": part},
            annotations={"pod-group-name": "train"},
        )
        for part, number in (("prefill", 0), ("prefill", 1), ("decode", 0))
    ]
    gangs, _ = read(group, *pods)
    assert sizes(gangs["train"]) == [("prefill", 2, 0), ("decode", 1, 0)]
    # Without a minimum of its own the group needs what its sub-groups need together: 2 + 1.
    gangs, _ = read(group, *pods[:2])
    assert gangs["train"].missing == ("2 of the 3 pods that PodGroup default/train needs exist")


def ray_pod(name: str, replica: str, host: int, **labels: str) -> dict[str, Any]:
    return pod(
        name,
        gpus=1,
        gated=True,
        labels={
            "ray.io/cluster": "ray-x7k2p",
            "ray.io/node-type": "worker",
            "ray.io/group": "tp",
            "ray.io/replica-host-index": str(host),
            "ray.io/worker-group-replica-name": replica,
            **labels,
        },
    )


def ray_cluster(**metadata: object) -> dict[str, Any]:
    spec = {"workerGroupSpecs": [{"groupName": "tp", "replicas": 2, "numOfHosts": 2}]}
    return thing("RayCluster", "ray.io/v1", "ray-x7k2p", spec, **metadata)


@pytest.mark.parametrize("there", [True, False])
def test_the_cluster_of_a_ray_job_goes_by_the_name_of_the_job(there: bool) -> None:
    origin = {"ray.io/originated-from-crd": "RayJob", "ray.io/originated-from-cr-name": "tune"}
    made = owned(ray_cluster(), "RayJob", "ray.io/v1", "tune")
    job = thing("RayJob", "ray.io/v1", "tune", {})
    pods = [ray_pod("a", "tp-a", 0, **origin)]
    submitter = owned(pod("tune-s", gated=True), "Job", "batch/v1", "tune")
    given = [made, job] if there else []
    gangs, _ = read(*given, *pods, submitter)
    assert {name: gang.kind for name, gang in gangs.items()} == {
        "tune": "RayJob",
        "tune-job": "Job",
    }


def stage(index: int, part: int) -> dict[str, Any]:
    tree = pod(f"p-{index}", gpus=1, gated=True, labels={"stage": str(part)})
    tree["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = "pg"
    return tree


def staged(*parts: int) -> KubeGang:
    policy = {
        "name": "stage",
        "subGroupSize": 2,
        "matchLabelKeys": ["stage"],
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    spec = {"minMember": 4, "subGroupPolicy": [policy]}
    group = thing("PodGroup", "scheduling.volcano.sh/v1beta1", "pg", spec)
    gangs, _ = read(group, *(stage(index, part) for index, part in enumerate(parts)))
    return gangs["pg"]


def test_sub_groups_of_volcano_told_apart_by_a_label_are_what_the_label_says() -> None:
    assert staged(0, 0, 1, 1).roles[0].slices == (SliceAsk(2, LevelAsk(tier=1)),)
    assert staged(0, 0, 1, 1).problems == ()
    # Pods 0 and 2 share a stage: no slice by index says so.
    assert staged(0, 1, 0, 1).roles[0].slices == ()
    assert len(staged(0, 1, 0, 1).problems) == 1
