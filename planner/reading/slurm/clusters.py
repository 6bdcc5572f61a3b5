"""A Slurm topology and a cluster: the nodes of the file alone, or its levels under a cluster.

Promises: node names are matched as they are written; labels of replaced levels stay on the nodes.
Called by ``planner.reading``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from models.cluster import Cluster, Level, Node
from models.documents.base import API_VERSION
from models.quantities import number
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
        "spec": {"levels": [_level(level) for level in topology.levels], "nodes": nodes},
    }


def _level(level: Level) -> dict[str, Any]:
    rate = number(level.oversubscription)
    return {"name": level.name, "oversubscription": rate, "nvlink": level.nvlink}


def rated(
    topology: SlurmTopology, stated: Sequence[Level] | None, remarks: Remarks
) -> SlurmTopology:
    """The topology with what a Policy states of its levels, which no Slurm file tells."""
    own = {level.name: level for level in stated or ()}
    for name in sorted(own.keys() - {level.name for level in topology.levels}):
        names = ", ".join(level.name for level in topology.levels) or "none"
        what = f"is no level of {topology.source}: its levels are {names}; it is not used"
        remarks.add(f"Policy level {name}", what)
    levels = tuple(
        replace(
            level,
            nvlink=own[level.name].nvlink,
            oversubscription=own[level.name].oversubscription,
        )
        if level.name in own
        else level
        for level in topology.levels
    )
    return replace(topology, levels=levels)


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
