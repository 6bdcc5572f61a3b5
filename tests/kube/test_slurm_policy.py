"""What a Policy states about the levels of a Slurm topology."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from planner.read.inputs import load

TOPOLOGY = "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockSizes=2\n"
GANG = """
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: a}
spec: {roles: [{name: worker, replicas: 2, gpus: 4}]}
"""
POLICY = """
apiVersion: gangplan.dev/v1alpha1
kind: Policy
spec:
  kubernetes:
    serverModels: [{nodeSelector: {}, model: GB200 NVL72 compute tray}]
    levels: [{name: block, nvlink: true, oversubscription: 2}, {name: rack}]
"""


def test_a_policy_marks_a_block_as_one_nvlink_fabric(tmp_path: Path) -> None:
    for name, text in (("topology.conf", TOPOLOGY), ("gang.yaml", GANG), ("policy.yaml", POLICY)):
        (tmp_path / name).write_text(text)
    built = load([str(tmp_path)])
    (level,) = built.instance.cluster.levels
    assert (level.name, level.nvlink, level.oversubscription) == ("block", True, Fraction(2))
    assert [node.domains for node in built.instance.cluster.nodes] == [
        ("b1",), ("b1",), ("b2",), ("b2",),
    ]  # fmt: skip
    assert any(line.startswith("Policy level rack: is no level of") for line in built.remarks)


def test_a_policy_marks_a_block_of_nodes_that_a_cluster_describes(tmp_path: Path) -> None:
    cluster = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: c}
spec: {nodes: [{name: "n[1-4]", model: GB200 NVL72 compute tray}]}
"""
    texts = {"topology.conf": TOPOLOGY, "gang.yaml": GANG, "policy.yaml": POLICY, "c.yaml": cluster}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert [level.nvlink for level in load([str(tmp_path)]).instance.cluster.levels] == [True]
