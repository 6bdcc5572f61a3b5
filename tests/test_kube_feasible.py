"""Plans of Kubernetes clusters, checked against a simulation of kube-scheduler on the raw objects."""

from __future__ import annotations

import copy
import threading
from dataclasses import replace
from functools import cache
from typing import Any

import kube
import pytest
from effort import first_fast
from kube_arithmetic import amount, requests, tolerated
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


def moved(plan: Tree, pod: str, node: str, gpus: list[int] | None = None) -> Tree:
    """The plan with one pod elsewhere."""
    wrong = copy.deepcopy(plan["spec"])
    (own,) = [p for g in wrong["gangs"] for p in g["pods"] if p["name"] == pod]
    own |= {"node": node, "gpus": gpus}
    return {**plan, "spec": wrong}


@pytest.mark.parametrize("searched", first_fast([False, True]))
@pytest.mark.parametrize("name", NAMES)
def test_the_scheduler_would_take_every_pod_that_a_recorded_cluster_starts(
    name: str, *, searched: bool
) -> None:
    plan = planned(name, searched=searched)
    starts = [g for g in plan["spec"]["gangs"] if g["decision"] == "place"]
    assert len(starts) >= 2
    assert field_errors(recorded(name), plan) == []


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("gke-train-h100-b-d386d815-6d0d", "cordoned"),
        ("gke-train-h100-a-1786895c-5f9f", "not ready"),
        ("gke-train-h100-a-95d93add-e09e", "taint gpu-health"),
        ("gke-train-h100-b-6617ac83-3a1a", "taint dedicated"),
        ("gke-train-h100-x", "no such node"),
    ],
)
def test_a_pod_on_a_recorded_node_that_takes_none_is_told(node: str, why: str) -> None:
    found = field_errors(
        recorded("h100-gke"), moved(planned("h100-gke"), "mech-interp-0-jsbwj", node)
    )
    assert f"Pod research/mech-interp-0-jsbwj on {node}: {why}" in found


def test_a_rack_of_nvlink_that_is_left_by_one_pod_is_told() -> None:
    """reward-rank is hard on tier 1; gb200-r04-n13 is in nvl-4, its other pod in another rack."""
    plan = planned("nvl72", only="reward-rank")
    (gang,) = [g for g in plan["spec"]["gangs"] if g["name"] == "reward-rank"]
    assert {pod["node"][:9] for pod in gang["pods"]} != {"gb200-r04"}
    found = field_errors(recorded("nvl72"), moved(plan, "reward-rank-master-0", "gb200-r04-n13"))
    assert "HyperNode tier 1: reward-rank-master-0 and its group are torn" in found


def test_a_block_that_is_left_by_one_pod_is_told() -> None:
    """The native PodGroup of codec-train requires one GKE block."""
    plan = planned("h100-gke")
    (gang,) = [g for g in plan["spec"]["gangs"] if g["name"] == "codec-train"]
    blocks = {n["metadata"]["name"]: n["metadata"]["labels"].get(BLOCK) for n in nodes("h100-gke")}
    (home,) = {blocks[pod["node"]] for pod in gang["pods"]}
    away = next(node for node, block in blocks.items() if block not in (home, None))
    found = field_errors(recorded("h100-gke"), moved(plan, gang["pods"][0]["name"], away))
    assert any(text.startswith(f"{BLOCK}: 2 domains") for text in found)


BLOCK = "cloud.google.com/gce-topology-block"


def nodes(name: str) -> list[Tree]:
    return [tree for tree in recorded(name) if tree["kind"] == "Node"]


# ---- a cluster by hand: two waiting pods of one Job, 4 GPUs each, on nodes n0..n3 of racks r0, r1

FIELD = {"key": "metadata.name", "operator": "NotIn", "values": ["n3"]}
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
        "schedulerName": "gangplan",
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
GOOD = plan(("n0", LOW), ("n1", HIGH))


def affine(term: Tree) -> Tree:
    required = {"nodeSelectorTerms": [{}, term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@pytest.mark.parametrize(
    ("spec", "bad", "why"),
    [
        ({}, plan(("n0", LOW), ("n1", LOW)), "Pod a/p1 on n1: GPUs [0, 1] are held"),
        ({}, plan(("n0", LOW), ("n0", LOW)), "Pod a/p1 on n0: GPUs [0, 1, 2, 3] are held"),
        ({}, plan(("n0", LOW), ("n0", [5, 6, 7, 8])), "Pod a/p1 on n0: GPU index beyond 8"),
        ({}, plan(("n0", LOW), ("n0", [4, 5])), "Pod a/p1 on n0: names 2 GPUs, asks 4"),
        ({}, plan(("n1", None), ("n1", None)), "Node n1: nvidia.com/gpu 10 of 8"),
        ({}, plan(("n0", LOW), ("n2", LOW)), "rack: 2 domains for p0 and its set"),
        ({}, plan(("n0", LOW)), "Pod a/p1: left behind by its gang"),
        (
            {"nodeSelector": {"rack": "r0"}},
            plan(("n2", LOW), ("n0", LOW)),
            "Pod a/p0 on n2: nodeSelector",
        ),
        (
            {"affinity": affine({"matchFields": [FIELD]})},
            plan(("n3", LOW), ("n0", LOW)),
            "Pod a/p0 on n3: nodeAffinity",
        ),
        (
            {
                "affinity": affine(
                    {"matchExpressions": [{"key": "gen", "operator": "Lt", "values": ["2"]}]}
                )
            },
            plan(("n2", LOW), ("n0", LOW)),
            "Pod a/p0 on n2: nodeAffinity",
        ),
    ],
)
def test_one_pod_in_the_wrong_place_is_told(spec: Tree, bad: Tree, why: str) -> None:
    assert field_errors(cluster(**spec), GOOD) == []
    assert why in field_errors(cluster(**spec), bad)


@pytest.mark.parametrize(
    ("offer", "why"),
    [
        # p1 and the other pod: 2.5 + 9 CPUs, 8 + 1 GiB, two slots, one NIC
        ({"cpu": "11499m"}, "Node n1: cpu 23/2 of 11499m"),
        ({"memory": "9215Mi"}, "Node n1: memory 9663676416 of 9215Mi"),
        ({"pods": "1"}, "Node n1: pods 2 of 1"),
        ({"x.io/nic": "0"}, "Node n1: x.io/nic 1 of 0"),
    ],
)
def test_one_amount_too_many_is_told(offer: dict[str, str], why: str) -> None:
    exact = {"cpu": "11500m", "memory": "9Gi", "pods": "2", "x.io/nic": "1"}
    base = [tree for tree in cluster() if tree["metadata"]["name"] != "n1"]
    assert field_errors([*base, node("n1", **exact)], GOOD) == []
    assert field_errors([*base, node("n1", **exact | offer)], GOOD) == [why]


def test_a_pod_that_is_not_ours_does_not_wait_or_does_not_exist_is_told() -> None:
    theirs = cluster(schedulerName="default-scheduler")
    assert field_errors(theirs, GOOD) == [f"Pod a/p{i} on n{i}: is not ours" for i in (0, 1)]
    gated = cluster(schedulerName="x", schedulingGates=[{"name": "gangplan.dev/placement"}])
    assert field_errors(gated, GOOD) == []
    done = [tree | {"status": {"phase": "Succeeded"}} for tree in cluster()[-2:]]
    assert "Pod a/p0 on n0: does not wait" in field_errors(cluster()[:-2] + done, GOOD)
    assert field_errors(cluster()[:-1], GOOD) == ["Pod a/p1 on n1: no such pod"]


def test_requests_are_those_of_the_scheduler() -> None:
    """Sidecar 1 then an init of 5 beside it: 6 at the peak; 2 + 1 later; 6 + overhead 0.25."""
    side = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    init = {"name": "i", "resources": {"limits": {"cpu": "5"}}}
    main = {"name": "m", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "9"}}}
    spec = {"initContainers": [side, init], "containers": [main], "overhead": {"cpu": "250m"}}
    assert requests({"spec": spec}) == {"cpu": amount("6250m"), "pods": 1}


def test_tolerations_are_matched_as_the_scheduler_does() -> None:
    taint = {"key": "k", "value": "v", "effect": "NoExecute"}
    assert tolerated(taint, [{"operator": "Exists"}])
    assert tolerated(taint, [{"key": "k", "value": "v"}])
    assert not tolerated(taint, [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}])
    assert not tolerated(taint, [{"key": "k", "operator": "Equal", "value": "w"}])
