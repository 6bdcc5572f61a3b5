"""Pins as the scheduler takes them: by hostname where that is one node's alone, else by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from apiserver import FakeCluster
from apply_runs import OWN, TOLERATE, bench, placed

HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def twins() -> FakeCluster:
    """Two nodes of 8 GPUs that share a hostname, as hosts restored from one image do."""
    cluster = FakeCluster()
    for name in ("n1", "n2"):
        cluster.add_node(name, taints=[OWN], labels={HOST: "twin", "pool": "training"})
    cluster.add_namespace("gangplan-system")
    return cluster


def started(cluster: FakeCluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Plan and apply; where the plan wanted the pods. They are there."""
    with bench(cluster, folder, monkeypatch) as made:
        plan = made.plan()
        said = made.apply(plan)
        assert said.code == 0, said.err + said.out
        assert made.bound() == placed(plan)
        assert made.run("apply", "--dry-run=client", str(plan), "--detailed-exitcode").code == 0
    return placed(plan)


def terms(cluster: FakeCluster, name: str) -> list[Any]:
    found: list[Any] = cluster.pod(name)["spec"]["affinity"]["nodeAffinity"][REQUIRED][
        "nodeSelectorTerms"
    ]
    return found


def named(node: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def test_nodes_that_share_a_hostname_are_pinned_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = twins()
    cluster.gang_of_pods("a", 2, gpus=8, tolerations=TOLERATE)

    where = started(cluster, tmp_path, monkeypatch)

    for name, node in where.items():
        assert terms(cluster, name) == [{"matchFields": [named(node)]}]
        assert "nodeSelector" not in cluster.pod(name)["spec"]


def test_a_pods_own_affinity_is_kept_and_narrowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = twins()
    own = {"key": "pool", "operator": "In", "values": ["training"]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [own]}]}}}
    cluster.gang_of_pods("a", 2, gpus=8, tolerations=TOLERATE, affinity=affinity)

    where = started(cluster, tmp_path, monkeypatch)

    for name, node in where.items():
        assert terms(cluster, name) == [{"matchExpressions": [own], "matchFields": [named(node)]}]


def test_a_pods_own_selector_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    cluster.add_node("n1", taints=[OWN], labels={"pool": "training"})
    cluster.add_namespace("gangplan-system")
    cluster.gang_of_pods("a", 1, tolerations=TOLERATE, nodeSelector={"pool": "training"})

    started(cluster, tmp_path, monkeypatch)

    assert cluster.pod("a-0")["spec"]["nodeSelector"] == {"pool": "training", HOST: "n1"}
