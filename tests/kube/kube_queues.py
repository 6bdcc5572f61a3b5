"""Objects of Kueue that make queues, and what is read of them beside three servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kube
from bundles import packed

from models.instance.queue import Queue
from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput

Tree = dict[str, Any]


GPU = "nvidia.com/gpu"


H100 = {"pool": "h100", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


A100 = {"pool": "a100", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}


NODES = [kube.node("h1", **H100), kube.node("h2", **H100), kube.node("a1", **A100)]


def thing(
    version: str, kind: str, name: str, spec: Tree, namespace: str = "", **about: object
) -> Tree:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **about}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def kueue(kind: str, name: str, spec: Tree, namespace: str = "", version: str = "v1beta2") -> Tree:
    return thing(f"kueue.x-k8s.io/{version}", kind, name, spec, namespace)


def groups(*amounts: tuple[str, Tree]) -> list[Tree]:
    """Resource groups with quotas of GPUs by flavor, beside some of cpu."""
    cpu = {"name": "cpu", "nominalQuota": "100"}
    flavors = [{"name": of, "resources": [cpu, {"name": GPU, **quota}]} for of, quota in amounts]
    return [{"coveredResources": ["cpu", GPU], "flavors": flavors}]


FLAVORS = [
    kueue("ResourceFlavor", "h100", {"nodeLabels": {"pool": "h100"}}),
    kueue("ResourceFlavor", "a100", {"nodeLabels": {"pool": "a100"}}, version="v1beta1"),
    kueue("ResourceFlavor", "any", {}),
]


def read(tmp_path: Path, *trees: Tree) -> LoadedInput:
    path = tmp_path / "in.json"
    items = [*NODES, *trees]
    path.write_bytes(packed(items))
    return load([str(path)])


def by_name(found: LoadedInput) -> dict[str, Queue]:
    return {queue.name: queue for queue in found.instance.queues}
