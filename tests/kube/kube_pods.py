"""Reading the pods of a few small objects, and building malformed ones."""

from __future__ import annotations

from typing import Any

from kube import node, objects

from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.nodes.nodes import read_nodes
from planner.read.kube.pods.anti_affinity import exclude_by_anti_affinity
from planner.read.kube.pods.pods import read_pods
from planner.read.kube.records import KubePod


def read(*trees: dict[str, Any], **policy: Any) -> tuple[dict[str, KubePod], list[str]]:  # noqa: ANN401  # any field of the policy
    """Pods by name, and what was remarked on them (nodes' own remarks left out)."""
    found, settings, remarks = objects(*trees), KubernetesPolicy(**policy), Remarks()
    nodes = read_nodes(found, settings, Remarks())
    pods = read_pods(found, nodes, settings, remarks)
    if "podAntiAffinity" not in settings.ignore:
        exclude_by_anti_affinity(pods, nodes, remarks)  # as if no pod were in a gang
    return {pod.name: pod for pod in pods}, remarks.lines()


def one(*trees: dict[str, Any], **policy: Any) -> KubePod:  # noqa: ANN401  # the same
    """The only pod of these objects."""
    pods, _ = read(*trees, **policy)
    (pod,) = pods.values()
    return pod


def asking(requests: dict[str, Any] | None = None, **limits: object) -> dict[str, Any]:
    """A container that asks this."""
    resources: dict[str, Any] = {"requests": requests or {}}
    if limits:
        resources["limits"] = limits
    return {"name": "main", "resources": resources}


def thing(
    kind: str,
    name: str,
    version: str,
    namespace: str = "",
    metadata: dict[str, Any] | None = None,
    **fields: object,
) -> dict[str, Any]:
    """Any other object; fields as given."""
    about = {"name": name, **({"namespace": namespace} if namespace else {}), **(metadata or {})}
    return {"apiVersion": version, "kind": kind, "metadata": about, **fields}


Tree = dict[str, Any]


HOST, RACK = "kubernetes.io/hostname", "example.com/rack"


def racks(*names: str, **labels: str) -> list[Tree]:
    """Nodes n0, n1, ... in these racks; "" is none."""
    found = [
        node(f"n{i}", **labels, **({RACK: name} if name else {})) for i, name in enumerate(names)
    ]
    for tree in found:
        tree["metadata"]["labels"]["nvidia.com/gpu.product"] = "NVIDIA-H100-80GB-HBM3"
    return found
