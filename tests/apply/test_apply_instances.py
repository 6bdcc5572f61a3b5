"""Pods that ask for MIG instances, applied: pinned to their node, which chooses the instance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver import FakeCluster
from apply_runs import OWN, TOLERATE, Bench, bench, placed

SMALL = "nvidia.com/mig-1g.10gb"
SLICE = [{"name": "main", "image": "image", "resources": {"limits": {SMALL: "1"}}}]
LABELS = {
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/mig.config.state": "success",
}


def offering(instances: int) -> dict[str, Any]:
    """A status with 4 of 8 GPUs whole, and instances of the others."""
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "4"}
    return {name: {**amounts, SMALL: str(instances)} for name in ("capacity", "allocatable")}


@pytest.fixture
def mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A node of 8 whole GPUs, one with 4 and three instances, and gangs that fill them."""
    cluster = FakeCluster()
    cluster.add_node("whole", taints=[OWN])
    cluster.add_node("parts", taints=[OWN], labels=LABELS, **offering(3))
    cluster.gang_of_pods("serve", 3, tolerations=TOLERATE, containers=SLICE)
    cluster.gang_of_pods("wide", 1, gpus=8, tolerations=TOLERATE)
    cluster.gang_of_pods("tune", 1, gpus=4, tolerations=TOLERATE)
    cluster.add_namespace("gangplan-system")
    with bench(cluster, tmp_path, monkeypatch) as made:
        yield made


def test_they_start_on_the_node_that_has_the_instances_beside_whole_gpus(mixed: Bench) -> None:
    plan = mixed.plan()
    said = mixed.apply(plan)
    assert said.code == 0, said.err
    expected = {"serve-0": "parts", "serve-1": "parts", "serve-2": "parts"}
    assert placed(plan) == {**expected, "tune-0": "parts", "wide-0": "whole"}
    assert mixed.bound() == placed(plan)
    annotations = mixed.cluster.pod("serve-0")["metadata"]["annotations"]
    assert annotations["gangplan.dev/node"] == "parts"
    assert "gangplan.dev/gpus" not in annotations  # nobody knows which instance, or of which GPU
    assert mixed.apply(plan, "-o", "json").data()["status"] == "unchanged"


@pytest.mark.parametrize(
    ("labels", "instances"),
    [({**LABELS, "nvidia.com/mig.config.state": "pending"}, 3), (LABELS, 2)],
    ids=["they change", "there are fewer"],
)
def test_none_of_the_gang_starts_once_its_instances_are_gone(
    mixed: Bench, labels: dict[str, str], instances: int
) -> None:
    plan = mixed.plan()
    mixed.cluster.add_node("parts", taints=[OWN], labels=labels, **offering(instances))
    said = mixed.apply(plan)
    assert said.code != 0
    bound = mixed.bound()
    assert {bound[f"serve-{number}"] for number in range(3)} == {None}


def test_a_running_pod_keeps_its_instance_from_the_next_plan(mixed: Bench) -> None:
    mixed.apply(mixed.plan())
    mixed.cluster.gang_of_pods("late", 1, tolerations=TOLERATE, containers=SLICE)
    assert "late-0" not in placed(mixed.plan())
