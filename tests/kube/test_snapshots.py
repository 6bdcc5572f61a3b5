"""Recorded clusters of a real API server: what is read equals the facts recorded beside them."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import Any

import kube
import pytest

from models.instance.cluster import Node
from models.instance.gang import Gang
from models.instance.instance import Instance
from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput

NAMES = ("h100-gke", "nvl72", "v100-mpi")


@cache
def built(name: str) -> LoadedInput:
    return load([str(kube.SNAPSHOTS / name)])


def instance(name: str) -> Instance:
    return built(name).instance


@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot_raises_the_warnings_that_its_readme_explains_and_no_other(name: str) -> None:
    readme = (kube.SNAPSHOTS / name / "README.md").read_text(encoding="utf-8")
    section = readme.partition("## Warnings\n")[2].partition("\n## ")[0]
    explained = section.partition("```\n")[2].partition("```")[0].splitlines()
    assert section
    assert list(built(name).remarks) == explained


def held(found: Instance) -> Counter[str]:
    """GPUs that standing pods hold, by node."""
    total: Counter[str] = Counter()
    for gang in found.gangs:
        for pod in gang.running_pods:
            assert pod.node is not None
            total[found.cluster.nodes[pod.node].name] += gang.roles[pod.role].gpus
    return total


def used(found: Instance, resource: str) -> Counter[str]:
    """What standing pods of gangs use of a resource, by node."""
    total: Counter[str] = Counter()
    for gang in found.gangs:
        for pod in gang.running_pods:
            assert pod.node is not None
            amount = dict(gang.roles[pod.role].requests).get(resource, 0)
            total[found.cluster.nodes[pod.node].name] += 1 if resource == "pods" else amount
    return total


def free_gpus(node: Node, held_there: int) -> int:
    return max(0, node.healthy.bit_count() - node.unknown_unhealthy - held_there)


def ours(gang: dict[str, Any]) -> bool:
    """Whether a gang of the facts is one we plan: it runs, or its pods wait for us."""
    gated = "gangplan.dev/placement" in gang["schedulingGates"]
    return gang["state"] == "running" or gated or gang["schedulerName"] == "gangplan"


@pytest.mark.parametrize("name", NAMES)
def test_every_node_has_the_gpus_cpu_memory_and_pod_slots_that_were_recorded(name: str) -> None:
    found = instance(name)
    facts = kube.expected(name)["nodes"]
    gpus = held(found)
    use = {resource: used(found, resource) for resource in ("cpu", "memory", "pods")}
    assert {node.name for node in found.cluster.nodes} == set(facts)
    for node in found.cluster.nodes:
        fact = facts[node.name]
        offered = dict(node.allocatable)
        left = {key: offered[key] - use[key][node.name] for key in use}
        assert free_gpus(node, gpus[node.name]) == fact["gpus"]["free"], node.name
        assert left["cpu"] == fact["cpuMilli"]["free"], node.name
        assert left["memory"] == fact["memoryBytes"]["free"], node.name
        assert left["pods"] == fact["pods"]["free"], node.name
        assert node.ready == (fact["ready"] == "True"), node.name
        assert node.unschedulable == fact["unschedulable"], node.name
        taints = [
            f"{t.key}={t.value}:{t.effect}" if t.value else f"{t.key}:{t.effect}"
            for t in node.taints
        ]
        assert taints == fact["taints"], node.name


@pytest.mark.parametrize("name", NAMES)
def test_the_gangs_are_those_that_were_recorded(name: str) -> None:
    found = instance(name)
    facts = kube.expected(name)
    expected = {(g["namespace"], g["name"]): g for g in facts["gangs"] if ours(g)}
    alone = {(p["namespace"], p["name"]): p for p in facts["otherPods"] if p["holdsGpus"]}
    assert {gang.key for gang in found.gangs} == set(expected) | set(alone)
    for gang in found.gangs:
        if gang.key in expected:
            check_gang(found, gang, kube.without_done(expected[gang.key]))
        else:
            fact = alone[gang.key]
            (pod,) = gang.running_pods
            assert pod.node is not None
            assert found.cluster.nodes[pod.node].name == fact["node"]
            assert [role.gpus for role in gang.roles] == [fact["gpus"]]
            assert gang.service == fact["controller"]
        assert gang.pattern == "all-reduce"


@cache
def cluster_queues() -> dict[tuple[str, str | None], str]:
    """The ClusterQueues of the LocalQueues that were recorded, by namespace and name."""
    path = kube.SNAPSHOTS / "h100-gke" / "localqueues.kueue.x-k8s.io.json"
    found = json.loads(path.read_text(encoding="utf-8"))["items"]
    where = [(one["metadata"]["namespace"], one["metadata"]["name"]) for one in found]
    return dict(zip(where, [one["spec"]["clusterQueue"] for one in found], strict=True))


def check_gang(found: Instance, gang: Gang, fact: dict[str, Any]) -> None:
    assert gang.running == (fact["state"] == "running"), gang.key
    assert gang.priority == fact["priority"], gang.key
    # Of these only a LeaderWorkerSet makes several gangs.
    assert gang.service == (fact["controller"] if fact["kind"] == "LWS" else None), gang.key
    # The facts know queues that no recorded object states; a LocalQueue stands for its ClusterQueue.
    queue = cluster_queues().get((gang.namespace, fact["queue"]), fact["queue"])
    assert gang.queue in (None, queue), gang.key
    roles = [(r["name"], r["replicas"], r["gpusPerPod"]) for r in fact["roles"]]
    assert [(r.name, r.max, r.gpus) for r in gang.roles] == roles, gang.key
    assert level(found, gang.required) == fact["required"], gang.key
    assert level(found, gang.preferred) == fact["preferred"], gang.key
    check_slice(found, gang, fact)
    pods = {pod.name: pod for pod in gang.pods}
    assert set(pods) == {pod["name"] for pod in fact["pods"]}, gang.key
    for expected in fact["pods"]:
        pod = pods[expected["name"]]
        holds = expected["phase"] not in ("Succeeded", "Failed") and expected["node"]
        assert pod.uid == expected["uid"]
        assert (gang.roles[pod.role].name, pod.index) == (expected["role"], expected["index"])
        assert (pod.node is not None) == bool(holds), pod.name
        if pod.node is not None:
            assert found.cluster.nodes[pod.node].name == expected["node"]
            known = None if pod.gpus is None else [g for g in range(16) if pod.gpus >> g & 1]
            assert (known or None) == expected["gpuIndices"], pod.name
    held_back = gang.hold.code if gang.hold is not None else None
    failed = any(pod["phase"] == "Failed" for pod in fact["pods"])
    gated = len(fact["schedulingGates"]) > 1  # others' beside ours
    missing = "Incomplete" if failed or not fact["complete"] else None
    assert held_back == (missing or ("Gated" if gated else None)), gang.key


def check_slice(found: Instance, gang: Gang, fact: dict[str, Any]) -> None:
    cut = [(r.slice_size, level(found, r.slice_level)) for r in gang.roles if r.slice_size]
    if fact["slice"] is not None:
        assert cut == [(fact["slice"]["size"], fact["slice"]["required"])], gang.key
    elif "sub-groups" not in str(fact["notes"]):
        assert not cut, gang.key


def level(found: Instance, index: int | None) -> str | None:
    """The label key a level is known by, or its name."""
    if index is None:
        return None
    if index == found.cluster.node_level:
        return "kubernetes.io/hostname"
    return found.cluster.levels[index].label or found.cluster.levels[index].name
