"""How the gangs of Kubernetes objects communicate, and what their annotations say of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from building_servers import DGX1_V100
from bundles import packed
from conftest import RunCli
from kube import node, pod
from kube_gangs import thing

Tree = dict[str, Any]


def v100() -> Tree:
    made = node("n")
    made["metadata"]["annotations"] = {"gangplan.dev/server-model": "DGX-1 V100"}
    return made


def compact_cluster() -> Tree:
    nodes = [{"name": "n", "model": "DGX-1 V100"}]
    return {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "c"},
        "spec": {"nodes": nodes},
    }


def lone_pod(name: str) -> Tree:
    return pod(name, gpus=2, gated=True)


def compact_gang(name: str) -> Tree:
    return {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Gang",
        "metadata": {"name": name},
        "spec": {"roles": [{"name": "server", "replicas": 1, "gpus": 2}]},
    }


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("server", "waiting"),
    [
        pytest.param(v100(), lone_pod, id="ungrouped pods"),
        pytest.param(v100(), compact_gang, id="one-pod roles"),
        pytest.param(compact_cluster(), compact_gang, id="compact"),
    ],
)
def test_two_gpus_of_a_pod_in_an_empty_mesh_are_a_pair_with_two_links(
    cli: RunCli, server: Tree, waiting: Callable[[str], Tree], count: int
) -> None:
    trees = [server, *(waiting(f"a{i}") for i in range(count))]
    items = packed(trees)
    result = cli("plan", "-", "-o", "json", stdin=items)
    assert result.code == 0, result.err
    plan = json.loads(result.out)
    assert len(plan["spec"]["gangs"]) == count
    for gang in plan["spec"]["gangs"]:
        ((one, other),) = [found["gpus"] for found in gang["pods"]]
        assert DGX1_V100[one][other] == "NV2"
        assert (gang["bandwidthMBps"], gang["share"]) == (40_000, 1000)
    assert plan["status"]["outcome"] == "optimal"


def job(size: int = 2, **metadata: object) -> Tree:
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed"}
    return thing("Job", "batch/v1", "j", spec, **metadata)
