"""Helpers for tests of nodes: reading them, their GPU amounts, slices and devices."""

from __future__ import annotations

from typing import Any

from kube import node, objects

from models.documents.policy import GPU_RESOURCES
from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.nodes.nodes import read_nodes
from planner.read.kube.records import KubeNode


def read(
    *trees: dict[str, Any], gpu_resources: tuple[str, ...] = GPU_RESOURCES
) -> tuple[list[KubeNode], str]:
    """Nodes of these trees, and every remark as text."""
    remarks = Remarks()
    policy = KubernetesPolicy(gpu_resources=gpu_resources)
    found = read_nodes(objects(*trees), policy, remarks)
    return found, "\n".join(remarks.lines())


def one(
    tree: dict[str, Any], *others: dict[str, Any], gpu_resources: tuple[str, ...] = GPU_RESOURCES
) -> tuple[KubeNode, str]:
    """The only node of these trees, and every remark as text."""
    (found,), said = read(tree, *others, gpu_resources=gpu_resources)
    return found, said


def gpus_of(tree: dict[str, Any], capacity: str | None, allocatable: str | None) -> dict[str, Any]:
    """The node with other GPU amounts; None: the resource is not there."""
    for field, amount in (("capacity", capacity), ("allocatable", allocatable)):
        tree["status"][field].pop("nvidia.com/gpu", None)
        if amount is not None:
            tree["status"][field]["nvidia.com/gpu"] = amount
    return tree


def slice_of(
    name: str,
    devices: list[dict[str, Any]],
    *,
    driver: str = "gpu.nvidia.com",
    generation: int = 1,
    count: int = 1,
    tag: str = "",
    version: str = "v1",
) -> dict[str, Any]:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-{driver}-{generation}{tag}"},
        "spec": {
            "driver": driver,
            "nodeName": name,
            "pool": {"name": name, "generation": generation, "resourceSliceCount": count},
            "devices": devices,
        },
    }


def device(name: str, kind: str | None = "gpu", **attributes: str | int) -> dict[str, Any]:
    values: dict[str, Any] = {} if kind is None else {"type": {"string": kind}}
    for key, value in attributes.items():
        full = f"resource.kubernetes.io/{key}" if key.startswith("pci") else key
        values[full] = {"int" if isinstance(value, int) else "string": value}
    return {"name": name, "attributes": values}


def claimed(
    *devices: dict[str, Any], driver: str = "gpu.nvidia.com", count: int = 1, version: str = "v1"
) -> list[dict[str, Any]]:
    """A node without a GPU resource, and a slice of its devices."""
    return [
        node("n1", gpus=0),
        slice_of("n1", list(devices), driver=driver, count=count, version=version),
    ]
