"""Plans of Kubernetes clusters, checked against a simulation of kube-scheduler on the raw objects."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cache
from typing import Any

import kube
import pytest
from effort import first_fast
from kube_feasible import field_errors

from models.results.plan import compose
from planner.read.inputs import load
from planner.search.solve import solve

Tree = dict[str, Any]

NAMES = ("h100-gke", "nvl72", "v100-mpi")


@cache
def recorded(name: str) -> list[Tree]:
    files = sorted((kube.SNAPSHOTS / name).glob("*.json*"))
    return [tree for path in files for tree in kube.listed(path)]


@cache
def planned(name: str, *, searched: bool = False, only: str | None = None) -> Tree:
    """The plan that a stopped search starts from, or the one that a small budget finds; without quotas.

    ``only``: of the gangs that wait, plan this one.
    """
    instance = replace(load([str(kube.SNAPSHOTS / name)]).instance, queues=())
    if only is not None:
        gangs = tuple(one for one in instance.gangs if one.running or one.name == only)
        instance = replace(instance, gangs=gangs)
    limits = replace(instance.policy.solve, budget=1)
    instance = replace(instance, policy=replace(instance.policy, solve=limits))
    stop = threading.Event()
    if not searched:
        stop.set()
    solution = solve(instance, stop=stop)
    return compose(
        instance, solution, name=name, created_at="2026-01-01T00:00:00Z", generator="test"
    )


@pytest.mark.parametrize("searched", first_fast([False, True]))
@pytest.mark.parametrize("name", NAMES)
def test_the_scheduler_would_take_every_pod_that_a_recorded_cluster_starts(
    name: str, *, searched: bool
) -> None:
    plan = planned(name, searched=searched)
    starts = [g for g in plan["spec"]["gangs"] if g["decision"] == "place"]
    assert len(starts) >= 2
    assert field_errors(recorded(name), plan) == []


def nodes(name: str) -> list[Tree]:
    return [tree for tree in recorded(name) if tree["kind"] == "Node"]


# ---- a cluster by hand: two waiting pods of one Job, 4 GPUs each, on nodes n0..n3 of racks r0, r1

OFFER = {"cpu": "16", "memory": "64Gi", "pods": "3", "nvidia.com/gpu": "8", "x.io/nic": "4"}


def node(name: str, **offer: str) -> Tree:
    labels = {"rack": f"r{int(name[1]) // 2}", "gen": name[1]}
    status = {"allocatable": OFFER | offer, "capacity": OFFER, "conditions": [READY]}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


READY = {"type": "Ready", "status": "True"}


def pod(index: int, **more: object) -> Tree:
    ask = {"cpu": "2500m", "memory": "8Gi", "nvidia.com/gpu": "4", "x.io/nic": "1"}
    owner = {"kind": "Job", "name": "j", "uid": "u", "controller": True}
    labels = {"batch.kubernetes.io/job-completion-index": str(index)}
    notes = {"kueue.x-k8s.io/podset-slice-required-topology": "rack"}
    notes["kueue.x-k8s.io/podset-slice-size"] = "2"
    meta = {"namespace": "a", "name": f"p{index}", "labels": labels, "ownerReferences": [owner]}
    spec = {
        "schedulingGates": [{"name": "gangplan.dev/placement"}],
        "containers": [{"name": "c", "resources": {"requests": ask}}],
    }
    return {"kind": "Pod", "metadata": meta | {"annotations": notes}, "spec": spec | more}


def other(where: str) -> Tree:
    """A running pod of nobody: GPUs 0 and 1, and 9 CPUs."""
    tree = pod(9, nodeName=where)
    tree["metadata"] |= {"name": "other", "ownerReferences": [], "labels": {}}
    tree["metadata"]["annotations"] = {"topology.kubernetes.io/gpu-visible": "0,1"}
    ask = {"cpu": "9", "memory": "1Gi", "nvidia.com/gpu": "2"}
    tree["spec"]["containers"] = [{"name": "c", "resources": {"requests": ask}}]
    return tree | {"status": {"phase": "Running"}}


def plan(*places: tuple[str, list[int] | None]) -> Tree:
    """Pods p0, p1... at these places."""
    pods = [{"name": f"p{i}", "node": n, "gpus": g} for i, (n, g) in enumerate(places)]
    gang = {"namespace": "a", "name": "j", "decision": "place", "pods": pods}
    return {"spec": {"gangs": [gang]}, "instance": {"gangs": []}}


def cluster(**spec: object) -> list[Tree]:
    return [*(node(f"n{i}") for i in range(4)), other("n1"), pod(0, **spec), pod(1, **spec)]


LOW, HIGH = [0, 1, 2, 3], [4, 5, 6, 7]
