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


# ---- a cluster by hand: two waiting pods of one Job, 4 GPUs each, on nodes n0..n3 of racks r0, r1

OFFER = {"cpu": "16", "memory": "64Gi", "pods": "3", "nvidia.com/gpu": "8", "x.io/nic": "4"}


def node(name: str, **offer: str) -> Tree:
    labels = {"rack": f"r{int(name[1]) // 2}", "gen": name[1]}
    status = {"allocatable": OFFER | offer, "capacity": OFFER, "conditions": [READY]}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


READY = {"type": "Ready", "status": "True"}


def plan(*places: tuple[str, list[int] | None]) -> Tree:
    """Pods p0, p1... at these places."""
    pods = [{"name": f"p{i}", "node": n, "gpus": g} for i, (n, g) in enumerate(places)]
    gang = {"namespace": "a", "name": "j", "decision": "place", "pods": pods}
    return {"spec": {"gangs": [gang]}, "instance": {"gangs": []}}
