"""Names by which GPUs are requested: pods go only to nodes that offer theirs."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from kube import node, pod
from kube_nodes import device, one, slice_of
from kube_pods import asking, thing

from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput

NVIDIA_DRIVER, AMD_DRIVER = "gpu.nvidia.com", "gpu.amd.com"
RESOURCE = "resource.k8s.io/v1"


def built(*trees: dict[str, Any]) -> LoadedInput:
    listed = {"apiVersion": "v1", "kind": "List", "items": list(trees)}
    return load(["-"], stdin=io.BytesIO(json.dumps(listed).encode()))


def reached(*trees: dict[str, Any]) -> dict[str, set[str]]:
    """Nodes with GPUs that each waiting gang may use, by its name; room is left aside."""
    instance = built(*trees).instance
    assert [gang.hold for gang in instance.gangs if gang.hold is not None] == []
    return {
        gang.name: {
            instance.cluster.nodes[index].name
            for index in instance.eligible_nodes(gang.roles[0])
            if instance.cluster.nodes[index].healthy.bit_count()
            > instance.cluster.nodes[index].unknown_unhealthy
        }
        for gang in instance.gangs
    }


def by_claims(name: str, driver: str = NVIDIA_DRIVER) -> list[dict[str, Any]]:
    """A node whose 8 GPUs only its slices tell of."""
    devices = [device(f"gpu-{i}", index=i) for i in range(8)]
    return [node(name, gpus=0), slice_of(name, devices, driver=driver)]


def class_of(driver: str, **spec: object) -> dict[str, Any]:
    selectors = [{"cel": {"expression": f"device.driver == '{driver}'"}}]
    return thing("DeviceClass", driver, RESOURCE, spec={"selectors": selectors, **spec})


def claim(name: str, driver: str) -> dict[str, Any]:
    request = {"name": "r", "exactly": {"deviceClassName": driver, "count": 2}}
    return thing(
        "ResourceClaim", name, RESOURCE, "default", spec={"devices": {"requests": [request]}}
    )


def claimer(name: str, driver: str = NVIDIA_DRIVER) -> list[dict[str, Any]]:
    """A waiting pod with a claim of two GPUs of this driver."""
    entries = [{"name": "gpus", "resourceClaimName": name}]
    return [pod(name, gated=True, resourceClaims=entries), claim(name, driver)]


def asker(name: str, resource: str) -> dict[str, Any]:
    return pod(name, gated=True, containers=[asking({resource: "2"})])


def test_gpus_of_one_maker_are_never_given_to_pods_that_ask_for_anothers() -> None:
    found = reached(
        node("nv"),
        node("amd", resource="amd.com/gpu"),
        asker("a", "amd.com/gpu"),
        asker("n", "nvidia.com/gpu"),
        pod("no-gpus", gated=True),
    )
    assert found == {"a": {"amd"}, "n": {"nv"}, "no-gpus": {"amd", "nv"}}


def test_claims_and_resources_are_served_by_the_nodes_that_have_them() -> None:
    # half of the cluster has gone over from the device plugin to claims
    found = reached(
        node("plugin"),
        *by_claims("claims"),
        *by_claims("amd-claims", AMD_DRIVER),
        class_of(NVIDIA_DRIVER),
        class_of(AMD_DRIVER),
        *claimer("c"),
        *claimer("ca", AMD_DRIVER),
        asker("r", "nvidia.com/gpu"),
    )
    assert found == {"c": {"claims"}, "ca": {"amd-claims"}, "r": {"plugin"}}


@pytest.mark.parametrize(
    "name", ["nvidia.com/gpu", "deviceclass.resource.kubernetes.io/gpu.nvidia.com"]
)
def test_a_device_class_lets_its_gpus_be_asked_by_a_resource(name: str) -> None:
    named = class_of(NVIDIA_DRIVER, extendedResourceName="nvidia.com/gpu")
    found = reached(
        *by_claims("n1"),
        node("amd", resource="amd.com/gpu"),
        named,
        asker("r", name),
        *claimer("c"),
    )
    assert found == {"c": {"n1"}, "r": {"n1"}}


def test_two_names_of_the_same_gpus_are_one_offer() -> None:
    # ACK's nodes may state their GPUs under its own name and under NVIDIA's
    twice = node("both")
    for amounts in (twice["status"]["capacity"], twice["status"]["allocatable"]):
        amounts["aliyun.com/gpu"] = "8"
    found, said = one(twice)
    assert (found.gpus, found.gpu_names, said) == (8, ("nvidia.com/gpu", "aliyun.com/gpu"), "")
    found_ = reached(twice, node("one"), asker("a", "aliyun.com/gpu"), asker("n", "nvidia.com/gpu"))
    assert found_ == {"a": {"both"}, "n": {"both", "one"}}


def test_gpus_that_the_policy_does_not_list_are_told_of_and_not_counted() -> None:
    found, said = one(node("n1", resource="example.com/gpu"))
    assert found.gpus == 0
    assert "Node n1: offers GPUs as example.com/gpu, which the Policy does not list" in said
    instance = built(
        node("n1", resource="example.com/gpu"), node("n2"), asker("a", "example.com/gpu")
    ).instance
    (gang,) = instance.gangs
    assert gang.hold is not None
    assert gang.hold.message == (
        "GPUs requested as example.com/gpu, which is not in kubernetes.gpuResources"
    )


def test_a_gang_that_waits_for_what_a_policy_may_ignore_says_so() -> None:
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {}}]}
    asking = pod("a", gated=True, gpus=1, affinity={"podAffinity": terms})
    (gang,) = built(node("n1"), asking).instance.gangs
    assert gang.hold is not None
    assert gang.hold.message == (
        "required podAffinity; to plan it anyway, set kubernetes.ignore: [podAffinity] in the Policy"
    )


def test_pods_that_overfill_a_node_are_told_of_whether_in_gangs_or_not() -> None:
    # 96 cores: 50 of a pod with GPUs (a gang of one), 50 of a pod of nobody's
    first = pod("a", on="n1", containers=[asking({"cpu": "50", "nvidia.com/gpu": "1"})])
    second = pod("b", on="n1", containers=[asking({"cpu": "50"})])
    assert built(node("n1"), first).remarks == built(node("n1"), second).remarks
    assert any(
        line.startswith("Node n1: its pods request more cpu than it has;")
        for line in built(node("n1"), first, second).remarks
    )


def test_a_pod_on_a_node_that_is_gone_is_what_its_gang_waits_for() -> None:
    label = {"batch.kubernetes.io/job-name": "train"}
    owner = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    ]
    pods = []
    for index, place in enumerate(("n1", "gone")):
        index_label = {"batch.kubernetes.io/job-completion-index": str(index)}
        pods.append(pod(f"train-{index}-x", gpus=8, on=place, labels=label | index_label))
        pods[-1]["metadata"]["ownerReferences"] = owner
    spec = {"completions": 2, "parallelism": 2, "completionMode": "Indexed"}
    job = thing("Job", "train", "batch/v1", "default", spec=spec)
    found = built(node("n1"), job, *pods)
    (gang,) = found.instance.gangs
    assert gang.hold is not None
    assert (gang.hold.code, gang.hold.message) == (
        "Incomplete",
        "worker 1 bound to a node that is not in the input",
    )
