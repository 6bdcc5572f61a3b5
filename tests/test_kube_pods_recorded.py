"""Recorded snapshots: what every pod requests, where it runs and what it holds."""

from __future__ import annotations

from typing import Any

import pytest
from kube import expected, load

from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.nodes.nodes import read_nodes
from planner.read.kube.pods.pods import read_pods
from planner.read.kube.records import KubePod

SNAPSHOTS = ("h100-gke", "nvl72", "v100-mpi")


def _read(name: str) -> tuple[dict[tuple[str, str], KubePod], Remarks]:
    found, policy, remarks = load(name), KubernetesPolicy(), Remarks()
    nodes = read_nodes(found, policy, Remarks())
    pods = read_pods(found, nodes, policy, remarks)
    assert [pod.key for pod in pods] == sorted(pod.key for pod in pods)
    return {pod.key: pod for pod in pods}, remarks


@pytest.fixture(scope="module", params=SNAPSHOTS)
def recorded(request: pytest.FixtureRequest) -> tuple[dict[tuple[str, str], KubePod], Any]:
    pods, remarks = _read(request.param)
    assert remarks.lines() == []
    return pods, expected(request.param)


def _members(facts: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    inside = [
        (pod | {"namespace": gang["namespace"]}, gang)
        for gang in facts["gangs"]
        for pod in gang["pods"]
    ]
    return [*inside, *((pod, None) for pod in facts["otherPods"])]


def test_every_pod_of_a_gang_is_read_as_recorded(recorded: tuple[Any, Any]) -> None:
    pods, facts = recorded
    for fact, gang in _members(facts):
        pod = pods[fact["namespace"], fact["name"]]
        assert pod.gpus == fact["gpus"], pod.subject
        assert pod.node == fact["node"], pod.subject
        assert pod.terminating == fact["terminating"], pod.subject
        done = fact["phase"] if fact["phase"] in ("Succeeded", "Failed") else None
        assert pod.finished == done, pod.subject
        assert pod.bound == (fact["node"] is not None and done is None), pod.subject
        known = fact["gpuIndices"]
        if known is not None:
            assert pod.indices == tuple(known), pod.subject
        else:
            assert pod.indices == (None if fact["gpus"] else ()), pod.subject
        if gang is None:
            continue
        assert pod.requests == {"cpu": fact["cpuMilli"], "memory": fact["memoryBytes"]}, pod.subject
        assert pod.priority == gang["priority"], pod.subject
        if gang["state"] == "pending":
            assert list(pod.gates) == gang["schedulingGates"], pod.subject
            assert pod.scheduler == gang["schedulerName"], pod.subject
            gated = "gangplan.dev/placement" in pod.gates
            named = pod.scheduler == "gangplan"
            assert pod.mode == ("gate" if gated else "binding" if named else None), pod.subject
            assert pod.to_place == (gated or named), pod.subject


def test_what_pods_take_adds_up_to_what_every_node_has_given(recorded: tuple[Any, Any]) -> None:
    pods, facts = recorded
    for name, node in facts["nodes"].items():
        there = [pod for pod in pods.values() if pod.node == name and pod.finished is None]
        assert sum(pod.gpus for pod in there) == node["gpus"]["requested"], name
        going = sum(pod.gpus for pod in there if pod.terminating)
        assert going == node["gpus"]["requestedByTerminating"], name
        assert sum(pod.requests["cpu"] for pod in there) == node["cpuMilli"]["requested"], name
        assert sum(pod.requests["memory"] for pod in there) == node["memoryBytes"]["requested"]
        assert len(there) == node["pods"]["present"], name
        if "gpuIndicesKnownInUse" in node:
            known = sorted(index for pod in there for index in pod.indices or ())
            assert known == node["gpuIndicesKnownInUse"], name
            unknown = sum(pod.gpus for pod in there if pod.indices is None)
            assert unknown == node["gpusInUseIndexUnknown"], name


def test_only_the_pods_with_a_channel_hold_the_fabric() -> None:
    # README of nvl72: nvl-bench-alltoall holds DRA claims for the IMEX channel (not GPUs)
    pods, _ = _read("nvl72")
    holders = {pod.name.rpartition("-worker-")[0] for pod in pods.values() if pod.fabric}
    assert holders == {"nvl-bench-alltoall"}
    assert sum(pod.fabric for pod in pods.values()) == 4
    assert all(pod.gpus == 4 and not pod.unsupported for pod in pods.values() if pod.fabric)


def test_pods_of_the_arena_chart_are_topology_scheduled() -> None:
    # 5 pods each of four jobs and 3 of dlrm-criteo carry the label gpu-topology
    pods, _ = _read("v100-mpi")
    assert sum(pod.topology_scheduled for pod in pods.values()) == 23


def test_no_recorded_pod_asks_for_what_is_not_modelled(recorded: tuple[Any, Any]) -> None:
    pods, _ = recorded
    assert {pod.unsupported for pod in pods.values()} == {()}
