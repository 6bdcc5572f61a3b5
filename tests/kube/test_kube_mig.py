"""A cluster of NVIDIA's GPU operator with MIG and time slices, read to documents worked out by hand."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from kube import node, pod
from kube_gangs import thing
from kube_pods import asking

from models.apply.plan_actions import InapplicablePlanError, actions_of
from models.documents.plan import PlanDocument
from models.results.plan import compose
from models.verify.check import check
from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput
from planner.search.solve import solve
from planner.show.manifests import UNPARTITIONED, objects

Json = dict[str, Any]
OBJECTS = Path(__file__).parents[1] / "mig_operator.yaml"

SMALL, LARGE, SLICE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb", "nvidia.com/gpu.shared"


@cache
def operator() -> LoadedInput:
    return load([str(OBJECTS)])


@cache
def plan() -> Json:
    instance = operator().instance
    return compose(
        instance, solve(instance), name="p", created_at="2026-11-21T00:00:00Z", generator="test"
    )


def test_they_are_planned_beside_whole_gpus_where_the_instances_are() -> None:
    assert check(json.loads(json.dumps(plan()))) == []
    found = {one["name"]: one for one in plan()["spec"]["gangs"]}
    places = {
        name: {pod["node"] for pod in one["pods"]}
        for name, one in found.items()
        if one["decision"] == "place"
    }
    assert places.pop("half") <= {"a100-changing", "a100-mixed"}  # each has 4 GPUs that are whole
    assert places == {
        "serve": {"a100-mixed"}, "sliced": {"t4-sliced"}, "whole": {"a100-whole"},
        "on-single": {"a100-single"},
    }  # fmt: skip


PRODUCT, PARTS = "nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"


def single(name: str = "n1", gpus: int = 3, **labels: str) -> Json:
    """A node of one GPU that offers instances as if they were whole GPUs."""
    return node(name, gpus=gpus, **{PRODUCT: PARTS, "nvidia.com/mig.strategy": "single", **labels})


def decided(*trees: Json) -> dict[str, str]:
    """Pod to node, of those that are placed."""
    listed = {"apiVersion": "v1", "kind": "List", "items": list(trees)}
    instance = load(["-"], stdin=io.BytesIO(json.dumps(listed).encode())).instance
    found = compose(
        instance, solve(instance), name="p", created_at="2026-11-21T00:00:00Z", generator="test"
    )
    assert check(json.loads(json.dumps(found))) == []
    return {pod["name"]: pod["node"] for one in found["spec"]["gangs"] for pod in one["pods"]}


def asks(name: str, gpus: int = 1, **spec: object) -> Json:
    return pod(name, gpus=gpus, gated=True, **spec)


def requiring(key: str, *values: str, operator: str = "In") -> Json:
    """An affinity to nodes with one of these labels."""
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"nodeAffinity": required}


@pytest.mark.parametrize(
    "spec",
    [{"nodeSelector": {PRODUCT: PARTS}}, {"affinity": requiring(PRODUCT, PARTS)}],
    ids=["selector", "affinity"],
)
def test_a_pod_that_selects_parts_gets_those_that_are_free_and_no_whole_gpu(spec: Json) -> None:
    whole = node("n2", gpus=8, **{PRODUCT: "NVIDIA-A100-SXM4-80GB"})
    runs = pod("runs", gpus=1, on="n1")  # kube-scheduler does not know parts from GPUs
    assert decided(single(), whole, runs, asks("a", 2, **spec)) == {"a": "n1"}
    assert decided(single(), whole, runs, asks("a", 3, **spec)) == {}
    assert decided(whole, asks("a", 1, **spec)) == {}


@pytest.mark.parametrize(
    ("labels", "selector"),
    [
        (
            {PRODUCT: "Tesla-T4-SHARED", "nvidia.com/gpu.replicas": "4"},
            {PRODUCT: "Tesla-T4-SHARED"},
        ),
        *(
            (labels, labels)
            for labels in (
                {"cloud.google.com/gke-gpu-partition-size": "1g.10gb"},
                {"cloud.google.com/gke-gpu-sharing-strategy": "time-sharing"},
            )
        ),
    ],
    ids=["time slices", "GKE partitions", "GKE time slices"],
)
def test_other_parts_that_count_as_gpus_are_selected_likewise(
    labels: dict[str, str], selector: dict[str, str]
) -> None:
    shared = node("n1", gpus=4, **labels)
    gang = (asks("a", nodeSelector=selector), asks("b"), asks("c", 4, nodeSelector=selector))
    assert decided(shared, *gang[:2]) == {"a": "n1"}
    assert decided(shared, *gang[1:]) == {"c": "n1"}
    assert list(decided(shared, gang[0], gang[2]).values()) == ["n1"]  # 4, or 1 of them


PENDING = "nvidia.com/mig.config.state"
WAITING: dict[str, tuple[dict[str, str], Json, str, str]] = {
    # labels, what the node offers, its capacity where that is more, and how many instances a pod asks for
    "while they change": ({PENDING: "pending"}, {SMALL: "7"}, "7", "7"),
    "before they are there": (
        {
            PENDING: "pending",
            "nvidia.com/mig.config": "all-1g.10gb",
            PRODUCT: "NVIDIA-H100-80GB-HBM3",
            "nvidia.com/gpu.count": "8",
        },
        {},
        "0",
        "56",
    ),
    "of a sick GPU": ({}, {SMALL: "49"}, "56", "56"),
}


@pytest.mark.parametrize("case", WAITING.values(), ids=WAITING)
def test_who_waits_for_instances_that_come_back_is_not_said_never_to_start(
    case: tuple[dict[str, str], Json, str, str],
) -> None:
    """One more than there can be is: 8 GPUs with 7 instances each, or the 7 that there were."""
    labels, offered, capacity, most = case
    there = node("n1", gpus=8, **labels)
    there["status"]["allocatable"] |= offered
    there["status"]["capacity"] = {**there["status"]["allocatable"], SMALL: capacity}
    pods = [pod(name, gated=True) for name in ("a", "b")]
    for one, count in zip(pods, (int(most), int(most) + 1), strict=True):
        one["spec"]["containers"] = [asking({SMALL: str(count)})]
    listed = {"apiVersion": "v1", "kind": "List", "items": [there, *pods]}
    instance = load(["-"], stdin=io.BytesIO(json.dumps(listed).encode())).instance
    outcome = solve(instance)
    assert [one.decision for one in outcome.decisions] == ["wait", "wait"]
    codes = [one.reason and one.reason.code for one in outcome.decisions]
    assert codes == ["Resources", "Never"]
    made = compose(instance, outcome, name="p", created_at="2026-11-21T00:00:00Z", generator="test")
    assert check(json.loads(json.dumps(made))) == []


DYNAMIC = "gangplan.dev/dynamic-mig"


def marked(board: str) -> LoadedInput:
    """The whole server of the operator's cluster alone, its GPUs marked, and all gangs but that of 8 GPUs."""
    tree = yaml.safe_load(OBJECTS.read_text(encoding="utf-8"))
    others = [
        one
        for one in tree["items"]
        if one["kind"] != "Node" and not one["metadata"]["name"].startswith("whole")
    ]
    (server,) = (one for one in tree["items"] if one["metadata"]["name"] == "a100-whole")
    server["metadata"]["annotations"] = {DYNAMIC: board}
    tree["items"] = [
        server,
        *others,
        thing("Namespace", "v1", "kube-system", {}, namespace="", uid="u"),
    ]
    return load(["-"], stdin=io.BytesIO(json.dumps(tree).encode()))


def test_gangs_that_need_partitions_are_not_started_before() -> None:
    instance = marked("A100-80").instance
    found = compose(
        instance, solve(instance), name="p", created_at="2026-11-21T00:00:00Z", generator="test"
    )
    assert check(json.loads(json.dumps(found))) == []
    decisions = {one["name"]: one["decision"] for one in found["spec"]["gangs"]}
    assert decisions["serve"] == decisions["half"] == "place"
    assert [one["gpu"] for one in found["spec"]["partitions"]] == [7]
    orders = actions_of(PlanDocument.model_validate(found, context={}))
    assert [name for _, name in orders.unpartitioned] == ["serve"]
    assert "half" in {gang.name for gang in orders.gangs}
    assert "serve" not in {gang.name for gang in orders.gangs}
    *_, last = objects(orders, ())
    assert (last.gang, last.objects, last.remarks) == ("ml/serve", (), (UNPARTITIONED,))
    found["spec"]["gangs"][0]["decision"] = "preempt"
    with pytest.raises(InapplicablePlanError, match="partitions GPUs, and stops or moves gangs"):
        actions_of(PlanDocument.model_validate(found, context={}))


@pytest.mark.parametrize("board", ["H100-80", "A100-40", "yes", ""])
def test_a_mark_that_is_no_board_of_the_gpus_is_ignored_with_a_remark(board: str) -> None:
    found = marked(board)
    assert [node.dynamic_mig for node in found.instance.cluster.nodes] == [None]
    # the label of the product says 80 GB
    assert any(DYNAMIC in one and one.endswith("(hint: write A100-80)") for one in found.remarks)
