"""Helpers for tests of levels: nodes by their labels, and objects that describe levels."""

from __future__ import annotations

from typing import Any

import kube

from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.levels.levels import Levels, read_levels
from planner.read.kube.nodes.nodes import read_nodes
from planner.read.kube.records import KubeNode, LevelAsk, Objects
from planner.read.slurm.levels import SlurmTopology

CLIQUE = "nvidia.com/gpu.clique"
Tree = dict[str, Any]


def found(
    trees: Objects | list[Tree],
    *asks: LevelAsk | str,
    policy: KubernetesPolicy | None = None,
    topology: SlurmTopology | None = None,
) -> tuple[Levels, list[KubeNode], list[str]]:
    """The levels of these objects, the nodes, and every remark as a line."""
    gathered = trees if isinstance(trees, Objects) else kube.objects(*trees)
    settings = policy or KubernetesPolicy()
    nodes = read_nodes(gathered, settings, Remarks())
    remarks = Remarks()
    wanted = [LevelAsk(label=ask) if isinstance(ask, str) else ask for ask in asks]
    levels = read_levels(gathered, nodes, settings, wanted, remarks, topology)
    return levels, nodes, remarks.lines()


def labelled(**nodes: dict[str, str]) -> list[Tree]:
    """Nodes of 8 GPUs with these labels."""
    return [node(name, labels) for name, labels in nodes.items()]


def node(name: str, labels: dict[str, str]) -> Tree:
    """A node of 8 GPUs."""
    tree = kube.node(name)
    tree["metadata"]["labels"].update(labels)
    return tree


def names(levels: Levels) -> list[str]:
    return [level.name for level in levels.levels]


def topology(name: str, *keys: str, kai: bool = False, **aliases: str) -> Tree:
    """A Kueue or KAI Topology of these labels; ``aliases``: KAI's names by position."""
    entries: list[Tree] = [{"nodeLabel": key} for key in keys]
    for position, alias in aliases.items():
        entries[int(position[1:])]["alias"] = alias
    version = "kai.scheduler/v1alpha1" if kai else "kueue.x-k8s.io/v1beta1"
    return {
        "apiVersion": version,
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": entries},
    }


def hypernode(name: str, tier: object, *members: Tree, tier_name: str | None = None) -> Tree:
    spec: Tree = {"tier": tier, "members": list(members)}
    if tier_name is not None:
        spec["tierName"] = tier_name
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": spec,
    }


def exact(name: str, kind: str = "Node") -> Tree:
    return {"type": kind, "selector": {"exactMatch": {"name": name}}}


def regex(pattern: str, kind: str = "Node") -> Tree:
    return {"type": kind, "selector": {"regexMatch": {"pattern": pattern}}}
