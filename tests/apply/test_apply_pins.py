"""What ties a gated pod to its node, within what the API server lets be added: by hostname where that is one
node's alone, else by name; and pods that ask for MIG instances, whose node chooses the instance.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from apiserver import FakeCluster
from apply_runs import OWN, TOLERATE, Bench, OnCluster, placed

from models.apply.gate_and_pin import CannotPin, pin
from models.apply.live_state import LiveNode, LivePod

pytest_plugins = ("apply_fixtures",)

HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NAMED = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
ALONE = LiveNode("n1", labels=((HOST, "host-1"),), hostname="host-1")
SHARED = LiveNode("n1", labels=((HOST, "host-1"),))  # another node has the same label
BARE = LiveNode("n1")
GPU = {"key": "gpu", "operator": "Exists"}
OTHER = {"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}


def affine(*terms: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


@pytest.mark.parametrize(
    ("node", "selector", "terms", "expected"),
    [
        (ALONE, {}, None, {"nodeSelector": {HOST: "host-1"}}),
        (SHARED, {}, None, affine({"matchFields": [NAMED]})),
        (BARE, {}, None, affine({"matchFields": [NAMED]})),
        (ALONE, {HOST: "host-2"}, None, "host-2"),
        (SHARED, {HOST: "host-2"}, None, "host-2"),
        (BARE, {HOST: "host-2"}, None, "host-2"),
        # every alternative names the node, after what it has: inserting before is refused
        (BARE, {}, [{"matchExpressions": [GPU]}, {"matchFields": [OTHER]}],
         affine({"matchExpressions": [GPU], "matchFields": [NAMED]}, {"matchFields": [OTHER, NAMED]})),
        # an empty alternative matches nothing and stays empty
        (BARE, {}, [{}, {"matchExpressions": [GPU]}],
         affine({}, {"matchExpressions": [GPU], "matchFields": [NAMED]})),
        (BARE, {}, [{}, {"matchExpressions": []}], "matches no node"),
    ],
)  # fmt: skip
def test_what_is_added_to_a_pod_or_why_it_cannot_be_pinned(
    node: LiveNode,
    selector: dict[str, str],
    terms: list[Any] | None,
    expected: dict[str, Any] | str,
) -> None:
    affinity = "null" if terms is None else json.dumps({REQUIRED: {"nodeSelectorTerms": terms}})
    pod = LivePod(
        "team", "vit-0", "u-1", "7", selector=tuple(selector.items()), node_affinity=affinity
    )
    if isinstance(expected, str):
        with pytest.raises(CannotPin, match=expected):
            pin(pod, node)
    else:
        assert pin(pod, node) == expected


# ---- in a cluster

TRAINING = {"key": "pool", "operator": "In", "values": ["training"]}


@pytest.mark.parametrize(
    ("nodes", "more", "expected"),
    [
        # two nodes that share a hostname, as hosts restored from one image do
        (2, {}, {"matchFields": [NAMED]}),
        (2, affine({"matchExpressions": [TRAINING]}),
         {"matchExpressions": [TRAINING], "matchFields": [NAMED]}),
        (1, {"nodeSelector": {"pool": "training"}}, {"pool": "training", HOST: "twin"}),
    ],
)  # fmt: skip
def test_pods_are_pinned_beside_their_own_terms(
    on_cluster: OnCluster, nodes: int, more: dict[str, Any], expected: dict[str, Any]
) -> None:
    cluster = FakeCluster()
    for number in range(nodes):
        cluster.add_node(f"n{number}", taints=[OWN], labels={HOST: "twin", "pool": "training"})
    cluster.add_namespace("gangplan-system")
    cluster.gang_of_pods("a", nodes, gpus=8, tolerations=TOLERATE, **more)
    made = on_cluster(cluster)
    plan = made.plan()
    said = made.apply(plan)
    assert said.code == 0, said.err + said.out
    assert made.bound() == placed(plan)
    assert made.run("apply", "--dry-run=client", str(plan), "--detailed-exitcode").code == 0
    for name, node in placed(plan).items():
        spec = cluster.pod(name)["spec"]
        if nodes == 1:
            assert spec["nodeSelector"] == expected
        else:
            fields = [{**NAMED, "values": [node]}]
            assert "nodeSelector" not in spec
            assert {"affinity": spec["affinity"]} == affine({**expected, "matchFields": fields})


# ---- MIG instances

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
def mixed(on_cluster: OnCluster) -> Bench:
    """A node of 8 whole GPUs, one with 4 and three instances, and gangs that fill them."""
    cluster = FakeCluster()
    cluster.add_node("whole", taints=[OWN])
    cluster.add_node("parts", taints=[OWN], labels=LABELS, **offering(3))
    cluster.gang_of_pods("serve", 3, tolerations=TOLERATE, containers=SLICE)
    cluster.gang_of_pods("wide", 1, gpus=8, tolerations=TOLERATE)
    cluster.gang_of_pods("tune", 1, gpus=4, tolerations=TOLERATE)
    cluster.add_namespace("gangplan-system")
    return on_cluster(cluster)


def test_instances_start_on_the_node_that_has_them_beside_whole_gpus(mixed: Bench) -> None:
    """A running pod keeps its instance from the next plan."""
    plan = mixed.plan()
    said = mixed.apply(plan)
    assert said.code == 0, said.err
    serve = {f"serve-{number}": "parts" for number in range(3)}
    assert placed(plan) == mixed.bound() == {**serve, "tune-0": "parts", "wide-0": "whole"}
    annotations = mixed.cluster.pod("serve-0")["metadata"]["annotations"]
    assert annotations["gangplan.dev/node"] == "parts"
    assert "gangplan.dev/gpus" not in annotations  # nobody knows which instance, or of which GPU
    assert mixed.apply(plan, "-o", "json").data()["status"] == "unchanged"
    mixed.cluster.gang_of_pods("late", 1, tolerations=TOLERATE, containers=SLICE)
    assert "late-0" not in placed(mixed.plan())


@pytest.mark.parametrize(
    ("labels", "instances"),
    [({**LABELS, "nvidia.com/mig.config.state": "pending"}, 3), (LABELS, 2)],
    ids=["they change", "there are fewer"],
)
def test_without_its_instances_no_pod_starts(
    mixed: Bench, labels: dict[str, str], instances: int
) -> None:
    plan = mixed.plan()
    mixed.cluster.add_node("parts", taints=[OWN], labels=labels, **offering(instances))
    assert mixed.apply(plan).code == 6
    assert {mixed.bound()[f"serve-{number}"] for number in range(3)} == {None}
