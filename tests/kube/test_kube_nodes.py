"""Nodes: amounts, readiness, taints, and how many GPUs."""

from __future__ import annotations

from decimal import Decimal

from kube import load, node
from kube_nodes import one

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
