"""A Slurm topology file as levels and domains: its own nodes alone, or levels for a cluster's nodes.

Node names are matched as written; labels of the levels it replaces stay on the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from models.documents.base import API_VERSION
from models.documents.cluster import Level
from models.instance.cluster import Cluster, Node
from planner.errors import Fault
from planner.read.findings import Findings, Remarks
from planner.read.slurm.levels import SlurmTopology, from_blocks, from_switches
from planner.read.slurm.topology_conf import read_conf
from planner.read.sources import Source, printable


def cluster_tree(topology: SlurmTopology, model_of: Callable[[str], str | None]) -> dict[str, Any]:
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
        "metadata": {"name": "slurm"},
        "spec": {"levels": [level.to_json() for level in topology.levels], "nodes": nodes},
    }


def with_policy_levels(
    topology: SlurmTopology, stated: Sequence[Level] | None, remarks: Remarks
) -> SlurmTopology:
    """The topology with what a Policy states of its levels, which no Slurm file holds."""
    own = {level.name: level for level in stated or ()}
    for name in sorted(own.keys() - {level.name for level in topology.levels}):
        names = ", ".join(level.name for level in topology.levels) or "none"
        what = f"is no level of {topology.source}: its levels are {names}; it is not used"
        remarks.add(f"Policy level {name}", what)
    both = ((level, own.get(level.name, level)) for level in topology.levels)
    levels = (
        replace(
            level, nvlink=one.nvlink, oversubscription=one.oversubscription, counted=one.counted
        )
        for level, one in both
    )
    return replace(topology, levels=tuple(levels))


def with_slurm_levels(cluster: Cluster, topology: SlurmTopology, remarks: Remarks) -> Cluster:
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
            what = "is not in the topology file: it is alone at every level"
            remarks.add(f"node {node.name}", what)
    nodes = tuple(_moved_to_domains(node, cluster, topology) for node in cluster.nodes)
    return replace(cluster, levels=topology.levels, nodes=nodes)


def _moved_to_domains(node: Node, cluster: Cluster, topology: SlurmTopology) -> Node:
    """The node in its domains of the file; it keeps the labels of its old domains."""
    implied = {
        level.label: value
        for level, value in zip(cluster.levels, node.domains, strict=True)
        if level.label is not None and value is not None
    }
    labels = tuple(sorted({**dict(node.labels), **implied}.items()))
    return replace(node, domains=topology.domain(node.name), labels=labels)


def read_topology(source: Source) -> SlurmTopology:
    """The levels of a topology file, a tree or blocks. Raises InputError with every fault."""
    findings, remarks = Findings(), Remarks()
    called = f"Slurm topology {printable(source.name)}"
    found = read_conf(source, findings)
    sizes = found.sizes
    topology = SlurmTopology(called, ())
    if found.switches and (found.blocks or sizes is not None):
        spot = found.blocks[0].spot if found.blocks else sizes.spot if sizes else None
        if spot is not None:
            spot.fault(findings, "switches and blocks in one file", "keep one of the two")
    elif found.switches:
        topology = from_switches(found.switches, called, findings, remarks)
    elif found.blocks:
        topology = from_blocks(found.blocks, sizes, called, findings, remarks)
    elif not findings:
        findings.fault(Fault("no switch or block in this file", _NO_NODES, source.name, 1, 1))
    if not findings and not topology.domains:
        findings.fault(Fault("no node in this topology file", _NO_NODES, source.name, 1, 1))
    if findings:
        findings.raise_all()
    return replace(topology, remarks=tuple(remarks.all))


_NO_NODES = "write SwitchName=... Nodes=..., or BlockName=... Nodes=..."
