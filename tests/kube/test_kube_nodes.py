"""Nodes of recorded clusters: their GPUs and devices."""

from __future__ import annotations

from kube import load

from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.dialect_registry import gpu_systems
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
    (mark,) = [one_.mark for one_ in gpu_systems() if one_.mark is not None]
    assert [mark.refuses(one_) for one_ in found] == [True, True, True, False]


def test_devices_of_a_recorded_node_are_ordered_as_nvidia_smi_counts() -> None:
    found = {one_.name: one_ for one_ in read_nodes(load("nvl72"), KubernetesPolicy(), Remarks())}
    devices = found["gb200-r06-n01"].devices
    assert [(d.index, d.name) for d in devices] == [(i, f"gpu-{i}") for i in range(4)]
    assert found["gb200-r01-n01"].devices == ()  # only channels and daemons of a compute domain
