"""The clusters that the transcripts were recorded on, scene by scene.

Promises: pods, nodes and what happened between the recorded rows, as far as the recording tells.
Called by ``test_fake_transcripts*``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fake_asking import Asking
from fake_cluster import FakeCluster
from fake_kinds import POD, Place
from fake_trees import Json, Tree

GATE = "plan.example/gate"
POOL_TERM = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a", "b"]}]}


def pod(cluster: FakeCluster, name: str, *, gpus: str = "1", **spec: Json) -> Tree:
    """A pod as the recording used them; ``spec``: more fields, ``gates``: names of gates."""
    gates = spec.pop("gates", ())
    labels = spec.pop("labels", {})
    annotations = spec.pop("annotations", {})
    finalizers = spec.pop("finalizers", ())
    limits = {"nvidia.com/gpu": gpus, "cpu": "1", "memory": "1Gi"}
    metadata: Tree = {"name": name}
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    if finalizers:
        metadata["finalizers"] = finalizers
    if gates:
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    tree = {
        "metadata": metadata,
        "spec": {
            "schedulerName": "planner",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "img", "resources": {"limits": limits}}],
            **spec,
        },
    }
    made = cluster.objects.create(Place(POD, "default", "", ""), tree, Asking())
    cluster.settle()
    return made


def required(*terms: Tree) -> Tree:
    """An affinity to nodes that these terms select."""
    selector = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def cluster_of(
    pods: Mapping[str, Mapping[str, Json]],
    *,
    nodes: Callable[[FakeCluster], object] | None = None,
    **how: Json,
) -> Callable[[], FakeCluster]:
    """Makes a cluster of two nodes of 8 GPUs (or of ``nodes``) with these pods."""

    def made() -> FakeCluster:
        cluster = FakeCluster(**how)
        if nodes is None:
            cluster.add_node("n1", cpu="16", memory="64Gi")
            cluster.add_node("n2", cpu="16", memory="64Gi")
        else:
            nodes(cluster)
        for name, fields in pods.items():
            pod(cluster, name, **fields)
        return cluster

    return made


def names(stem: str, *numbers: int | str) -> dict[str, dict[str, Json]]:
    return {f"{stem}{number}": {} for number in numbers}


def again(name: str, **fields: Json) -> Callable[[FakeCluster], object]:
    """The pod of that name is deleted, if it is there, and made anew."""

    def happens(cluster: FakeCluster) -> None:
        if cluster.store.get(POD, "default", name) is not None:
            cluster.remove(POD, name)
        pod(cluster, name, **fields)

    return happens


def all_of(*happen: Callable[[FakeCluster], object]) -> Callable[[FakeCluster], object]:
    def happens(cluster: FakeCluster) -> None:
        for one in happen:
            one(cluster)

    return happens


def binding(name: str, node: str = "n1", **metadata: Json) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
