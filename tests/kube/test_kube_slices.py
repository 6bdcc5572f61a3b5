"""GPUs as devices: DRA ResourceSlices."""

from __future__ import annotations

from kube import load

from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.nodes.nodes import read_nodes


def test_devices_of_a_recorded_node_are_ordered_as_nvidia_smi_counts() -> None:
    found = {one_.name: one_ for one_ in read_nodes(load("nvl72"), KubernetesPolicy(), Remarks())}
    devices = found["gb200-r06-n01"].devices
    assert [(d.index, d.name) for d in devices] == [
        (0, "gpu-0"),
        (1, "gpu-1"),
        (2, "gpu-2"),
        (3, "gpu-3"),
    ]
    assert found["gb200-r01-n01"].devices == ()  # only channels and daemons of a compute domain
