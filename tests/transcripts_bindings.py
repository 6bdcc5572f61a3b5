"""Recorded scenes: Bindings, by request and by kubectl."""

from __future__ import annotations

from apiserver import FakeCluster
from apiserver_kinds import Tree
from apiserver_transcripts import (
    Look,
    Scene,
    binding,
    cluster_of,
    differences,
    names,
    pod,
)

_ZONES = {"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1"}


def _written_on(name: str) -> Look:
    """Compares labels, annotations, node and status of a pod."""

    def look(cluster: FakeCluster, row: Tree) -> list[str]:
        found = cluster.pod(name)
        ours = {key: found["metadata"].get(key) for key in ("labels", "annotations")}
        ours |= {"nodeName": found["spec"].get("nodeName"), "status": found["status"]}
        return differences(ours, {key: row[key] for key in ours})

    return look


def _zones(cluster: FakeCluster, row: Tree) -> list[str]:
    ours = {
        "bindings": cluster.pod("l2")["metadata"].get("labels"),
        "pods/binding": cluster.pod("l3")["metadata"].get("labels"),
    }
    return differences(ours, {key: row[key] for key in ours})


def _race(cluster: FakeCluster, row: Tree) -> list[str]:
    """Eight bindings of one pod: the first wins, all others get the same answer."""
    nodes = ["n2", "n1", "n1", "n2", "n1", "n2", "n1", "n2"]
    path = "/api/v1/namespaces/default/pods/rc/binding"
    answers = [cluster.handle("POST", path, binding("rc", node)) for node in nodes]
    return differences([[code, tree.get("message")] for code, tree, _ in answers], row["results"])


def _overcommit(cluster: FakeCluster, row: Tree) -> list[str]:
    """16 pods of kube-scheduler fill both nodes; 8 bindings to n1 succeed nevertheless."""
    for number in range(16):
        pod(cluster, f"k{number}", schedulerName="default-scheduler")
    for number in range(8):
        pod(cluster, f"o{number}")
        path = f"/api/v1/namespaces/default/pods/o{number}/binding"
        assert cluster.handle("POST", path, binding(f"o{number}"))[0] == 201
    where = [one["spec"]["nodeName"] for one in cluster.pods()]
    return differences({name: where.count(name) for name in ("n1", "n2")}, row["pods per node"])


def _refusing(cluster: FakeCluster) -> None:
    """What makes a binding fail: b0 is bound, b1 goes, b14 has succeeded."""
    cluster.handle("POST", "/api/v1/namespaces/default/pods/b0/binding", binding("b0"))
    pod(cluster, "b1", finalizers=["example.com/wait"])
    cluster.handle("DELETE", "/api/v1/namespaces/default/pods/b1")
    cluster.run_pod("default", "b14", "Succeeded")


def _nodes(cluster: FakeCluster) -> None:
    cluster.add_node("n1", labels=_ZONES)
    cluster.add_node("n2")


_REFUSED = names("b", 0, 2, 3, 4, 5, 6, 7, 9, 11, 12, 14, 16) | {
    "b8": {"gates": ["g"]},
    "b10": {"gpus": "64"},
    "b13": {"nodeSelector": {"pool": "elsewhere"}},
    "b15": {"nodeName": "n1"},
}
_BOUND = names("a", *range(1, 12)) | {
    "a0": {
        "labels": {"app": "x", "over": "pod"},
        "annotations": {"keep": "pod", "over": "pod"},
    }
}
_LISTED = {f"{stem}{number}": {} for stem in "defghijy" for number in (0, 1, 2, 3, 4)}


SCENES = (
    Scene(
        (*range(1, 18),),
        cluster_of(_BOUND),
        looks={2: _written_on("a0")},
        files={5: binding("a3"), 6: binding("a4")},
    ),
    Scene((*range(18, 70),), cluster_of(_REFUSED), before={18: _refusing}),
    Scene((*range(70, 79),), cluster_of(names("c", 0, 1))),
    Scene((*range(79, 86), 334), cluster_of(_LISTED)),
    Scene(
        (*range(376, 385),),
        cluster_of(names("l", 0, 1, 2, 3), nodes=_nodes),
        looks={384: _zones},
    ),
    Scene(
        (*range(410, 420),),
        cluster_of(names("r", *"cbe")),
        looks={410: _race},
    ),
    Scene(
        (*range(423, 428),),
        cluster_of(names("a", 0, 1, 2, 3, 4)),
        files={
            423: binding("a0"),
            424: binding("a1"),
            425: binding("a2"),
            426: binding("a4"),
            427: binding("a3"),
        },
    ),
    Scene((437, 438), cluster_of(names("e", 0))),
    Scene((447,), cluster_of({}), looks={447: _overcommit}),
)
