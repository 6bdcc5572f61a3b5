"""Levels whose domains are single nodes are no levels, however their values are numbered."""

from __future__ import annotations

import kube

from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.levels.levels import read_levels
from planner.read.kube.nodes.nodes import read_nodes
from planner.read.kube.records import LevelAsk

GCE = "cloud.google.com/gce-topology-"


def test_hosts_numbered_anew_in_every_block_are_nodes() -> None:
    trees = []
    for i in range(4):
        tree = kube.node(f"n{i}")
        tree["metadata"]["labels"].update({f"{GCE}block": f"b{i // 2}", f"{GCE}host": f"h{i % 2}"})
        trees.append(tree)
    gathered, policy, remarks = kube.objects(*trees), KubernetesPolicy(), Remarks()
    nodes = read_nodes(gathered, policy, remarks)
    levels = read_levels(gathered, nodes, policy, (), remarks)
    assert [level.name for level in levels.levels] == ["block"]
    assert levels.resolve(LevelAsk(label=f"{GCE}host")) == "node"
