"""Nodes: amounts, readiness, taints, and how many GPUs."""

from __future__ import annotations

from decimal import Decimal

import pytest
from kube import load, node
from kube_nodes import gpus_of, one

from models.instance.cluster import Taint
from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.nodes.nodes import read_nodes


def test_a_node_whose_plugin_is_gone_still_has_what_its_labels_count() -> None:
    found = {
        one_.name: one_ for one_ in read_nodes(load("h100-gke"), KubernetesPolicy(), Remarks())
    }
    gone = found["gke-train-h100-a-ec6d0be1-9eae"]  # README: no nvidia.com/gpu in capacity
    half = found["gke-train-h100-b-d386d815-5982"]  # README: capacity 4 although label gpu.count=8
    assert (gone.gpus, gone.installed, gone.gpu_resource) == (0, 8, "nvidia.com/gpu")
    assert (half.gpus, half.installed) == (4, 8)


def test_only_labelled_nodes_are_for_topology_scheduled_pods() -> None:
    found = read_nodes(load("v100-mpi"), KubernetesPolicy(), Remarks())
    # README: node 24 carries no ACK label, 21 to 23 are in topology mode
    assert [one_.topology_only for one_ in found] == [True, True, True, False]


def test_amounts_are_rounded_down_and_numbers_count_like_texts() -> None:
    tree = node("n1", gpus=0)
    tree["status"]["allocatable"] = {
        "cpu": "1999.9m", "memory": "1.5", "pods": 110, "rdma/hca": 2.0, "nvidia.com/gpu": 4,
        "example.com/decimal": Decimal("7.5"),  # as files are read
    }  # fmt: skip
    found, said = one(tree)
    assert found.allocatable == {
        "cpu": 1999, "memory": 1, "pods": 110, "rdma/hca": 2, "example.com/decimal": 7,
    }  # fmt: skip
    assert found.gpus == 4
    assert said == ""


@pytest.mark.parametrize("amount", ["-1", "lots", "9" * 30, True, None, [], {}, 10**30, 1e400])
def test_an_amount_that_cannot_be_read_gives_nothing(amount: object) -> None:
    tree = node("n1")
    tree["status"]["allocatable"].update({"cpu": amount, "nvidia.com/gpu": amount})
    found, said = one(tree)
    # an absent resource would not limit: what cannot be read must be there, as 0
    assert found.allocatable["cpu"] == 0
    assert (found.gpus, found.installed) == (0, 8)
    assert "Node n1: has an amount that is not a quantity; it counts as 0" in said


@pytest.mark.parametrize("conditions", [
    [], None, "Ready", [{"type": "Ready", "status": "False"}],
    [{"type": "Ready", "status": "Unknown"}], [{"type": "Ready", "status": True}],
    [{"type": "Ready"}], [{"status": "True"}], ["Ready"],
    [{"type": "Ready", "status": "True"}, {"type": "Ready", "status": "False"}],
])  # fmt: skip
def test_only_a_clear_true_is_ready(conditions: object) -> None:
    tree = node("n1")
    tree["status"]["conditions"] = conditions
    assert one(tree)[0].ready is False


def test_taints_are_kept_with_their_values_and_effects() -> None:
    tree = node("n1")
    tree["spec"] = {
        "unschedulable": True,
        "taints": [
            {"key": "dedicated", "value": "infra", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
            {"key": "soft", "value": None, "effect": "PreferNoSchedule"},
        ],
    }
    found, said = one(tree)
    assert found.unschedulable is True
    assert found.taints == (
        Taint("dedicated", "infra", "NoSchedule"),
        Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),
        Taint("soft", "", "PreferNoSchedule"),
    )
    assert said == ""


@pytest.mark.parametrize("taints", [
    [{"value": "x", "effect": "NoSchedule"}], [{"key": "k"}], [{"key": "k", "effect": "Never"}],
    ["k:NoSchedule"], "k", {}, [{"key": "k", "value": 1, "effect": "NoExecute"}],
    [{"key": "k", "effect": ["NoSchedule"]}],
])  # fmt: skip
def test_a_taint_that_cannot_be_read_closes_the_node(taints: object) -> None:
    tree = node("n1")
    tree["spec"]["taints"] = taints
    found, said = one(tree)
    assert found.unschedulable is True
    assert "Node n1: has a malformed taint; nothing is placed on it" in said


@pytest.mark.parametrize(
    ("cordon", "closed"), [(True, True), (False, False), (None, False), ("no", True)]
)
def test_a_cordon_in_doubt_counts(cordon: object, closed: bool) -> None:
    tree = node("n1")
    tree["spec"]["unschedulable"] = cordon
    assert one(tree)[0].unschedulable is closed


def test_a_node_that_is_being_deleted_takes_nothing_new() -> None:
    tree = node("n1")
    tree["metadata"]["deletionTimestamp"] = "2026-11-20T08:00:00Z"
    found, said = one(tree)
    assert found.unschedulable is True
    assert "is being deleted" in said


def test_a_policy_may_name_other_resources_and_then_only_those() -> None:
    tree = node("n1", gpus=8, **{"nvidia.com/gpu.count": "8"})
    found, _ = one(tree, gpu_resources=("example.com/gpu",))
    assert (found.gpus, found.installed, found.gpu_resource) == (0, 0, None)
    assert found.allocatable["nvidia.com/gpu"] == 8
    tree["status"]["capacity"]["example.com/gpu"] = "4"
    tree["status"]["allocatable"]["example.com/gpu"] = "4"
    found, _ = one(tree, gpu_resources=("example.com/gpu",))
    assert (found.gpus, found.installed, found.gpu_resource) == (4, 8, "example.com/gpu")


def test_of_several_gpu_resources_the_largest_counts() -> None:
    tree = node("n1", gpus=4)
    for field in ("capacity", "allocatable"):
        tree["status"][field]["aliyun.com/gpu"] = "8"
    found, said = one(tree)
    assert (found.gpus, found.gpu_resource) == (8, "aliyun.com/gpu")
    assert "nvidia.com/gpu" not in found.allocatable
    assert "Node n1: offers GPUs under several resource names; only the one with the most" in said


@pytest.mark.parametrize(
    ("capacity", "allocatable", "count", "gpus", "installed", "remark"),
    [
        ("8", "6", None, 6, 8, "offers fewer GPUs than it has"),
        ("8", "8", "8", 8, 8, None),
        ("4", "4", "8", 4, 8, "offers fewer GPUs than it has"),
        ("8", "0", "8", 0, 8, "offers fewer GPUs than it has"),
        (None, None, "8", 0, 8, "offers fewer GPUs than it has"),
        (None, "8", None, 8, 8, None),
        ("8", "12", None, 8, 8, "offers more GPUs than its capacity"),
        ("8", "8", "100000", 8, 8, "label nvidia.com/gpu.count is not a plausible count"),
        ("8", "8", "eight", 8, 8, "label nvidia.com/gpu.count is not a plausible count"),
        ("8", "8", "-8", 8, 8, "label nvidia.com/gpu.count is not a plausible count"),
        ("5000", "5000", "8", 0, 8, "claims more than 1,024 GPUs"),
        ("0", "0", None, 0, 0, None),
    ],
)
def test_gpus_offered_and_installed(
    capacity: str | None, allocatable: str | None, count: str | None, gpus: int, installed: int,
    remark: str | None,
) -> None:  # fmt: skip
    labels = {} if count is None else {"nvidia.com/gpu.count": count}
    found, said = one(gpus_of(node("n1", **labels), capacity, allocatable))
    assert (found.gpus, found.installed) == (gpus, installed)
    assert said == "" if remark is None else remark in said


@pytest.mark.parametrize("key", [
    "nvidia.com/gpu.count", "cloud.google.com/gke-accelerator-count",
    "aliyun.accelerator/nvidia_count", "gpu.nvidia.com/count", "karpenter.k8s.aws/instance-gpu-count",
])  # fmt: skip
def test_labels_of_every_family_count_what_is_built_in(key: str) -> None:
    assert one(node("n1", gpus=2, **{key: "4"}))[0].installed == 4
