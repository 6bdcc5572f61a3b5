"""A Slurm topology and a cluster: the nodes of the file alone, or its levels under a cluster.

Promises: node names are matched as they are written; labels of replaced levels stay on the nodes.
Called by ``planner.reading``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from models.cluster import Cluster, Node
from models.documents.base import API_VERSION
from planner.reading.remarks import Remarks
from planner.reading.slurm.forms import SlurmTopology


def cluster_tree(
    topology: SlurmTopology, model_of: Callable[[str], str | None], name: str = "slurm"
) -> dict[str, Any]:
    """A compact Cluster document of the nodes of the file; ``model_of``: node to server model."""
    nodes = []
    for node, domains in topology.domains.items():
        model = model_of(node)
        entry: dict[str, Any] = {"name": node}
        if model is not None:
            entry["model"] = model
        entry["domains"] = {
            level.name: value
            for level, value in zip(topology.levels, domains, strict=True)
            if value is not None
        }
        nodes.append(entry)
    return {
        "apiVersion": API_VERSION,
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {"levels": [{"name": level.name} for level in topology.levels], "nodes": nodes},
    }


def under(cluster: Cluster, topology: SlurmTopology, remarks: Remarks) -> Cluster:
    """The cluster with the levels of the topology file in place of its own."""
    if not any(node.name in topology.domains for node in cluster.nodes):
        what = "names no node of the cluster: not used"
        remarks.add(topology.source, what, "node names must be those of the cluster")
        return cluster
    if cluster.levels and cluster.levels != topology.levels:
        names = ", ".join(level.name for level in cluster.levels)
        what = f"its levels go before those of the Cluster ({names})"
        remarks.add(topology.source, what)
    for node in cluster.nodes:
        if node.model is not None and node.name not in topology.domains:
            what = "is not in the topology file: it stands alone at every level"
            remarks.add(f"node {node.name}", what)
    nodes = tuple(_under(node, cluster, topology) for node in cluster.nodes)
    return replace(cluster, levels=topology.levels, nodes=nodes)


def _under(node: Node, cluster: Cluster, topology: SlurmTopology) -> Node:
    """The node in its domains of the file; what its old domains implied it keeps as labels."""
    implied = {
        level.label: value
        for level, value in zip(cluster.levels, node.domains, strict=True)
        if level.label is not None and value is not None
    }
    labels = tuple(sorted({**dict(node.labels), **implied}.items()))
    return replace(node, domains=topology.domain(node.name), labels=labels)
