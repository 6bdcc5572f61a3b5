"""Recorded scenes: PodGroups, with the alpha API and without."""

from __future__ import annotations

from collections import Counter

from apiserver import FakeCluster
from apiserver_kinds import Tree
from apiserver_transcripts import (
    GATE,
    Happening,
    Look,
    Scene,
    all_of,
    cluster_of,
    differences,
    pod,
)


def _racks(cluster: FakeCluster) -> None:
    for number in (1, 2, 3, 4):
        rack = "rack-a" if number < 3 else "rack-b"
        cluster.add_node(f"n{number}", labels={"topology.kubernetes.io/rack": rack})


def _gang(name: str, size: int, *, group: str | None = None, start: int = 0) -> Happening:
    """``size`` pods ``NAME0``, ``NAME1``, ... of kube-scheduler in a group."""

    def happens(cluster: FakeCluster) -> None:
        for number in range(start, start + size):
            pod(
                cluster,
                f"{name}{number}",
                schedulerName="default-scheduler",
                schedulingGroup={"podGroupName": group or name},
            )

    return happens


def _gated(name: str) -> Happening:
    """Four gated pods of a group of the same name."""

    def happens(cluster: FakeCluster) -> None:
        for number in range(4):
            pod(
                cluster,
                f"{name}{number}",
                gates=[GATE],
                schedulerName="default-scheduler",
                schedulingGroup={"podGroupName": name},
            )

    return happens


def _without(*stems: str) -> Happening:
    """The pods whose names begin so are deleted."""

    def happens(cluster: FakeCluster) -> None:
        for one in cluster.pods():
            name = one["metadata"]["name"]
            if name.rstrip("0123456789") in stems:
                cluster.remove("Pod", name)

    return happens


def _more_nodes(cluster: FakeCluster) -> None:
    """Two racks of two nodes."""
    for number in (1, 2):
        cluster.remove("Node", f"n{number}")
    _racks(cluster)


def _one_whole(cluster: FakeCluster, row: Tree) -> list[str]:
    """One gang is placed, the other waits; which, and how it is spread, is chance."""
    recorded = row["pods per node"]
    ours = {name: Counter[str]() for name in recorded}
    for one in cluster.pods():
        ours[one["metadata"]["name"][:2]][one["spec"].get("nodeName") or "pending"] += 1
    found = []
    for name, where in recorded.items():
        waits = ours[name]["pending"]
        found += differences((waits, ours[name].total() - waits), _split(where))
    return found


def _split(where: dict[str, int]) -> tuple[int, int]:
    waits = where.get("pending", 0)
    return waits, sum(where.values()) - waits


def _in_rack_b(cluster: FakeCluster, row: Tree) -> list[str]:
    ours = Counter(
        one["spec"].get("nodeName") for one in cluster.pods() if one["metadata"]["name"][:2] == "gr"
    )
    return differences(dict(ours), row["pods per node"]["gr"])


def _conditions(name: str) -> Look:
    def look(cluster: FakeCluster, row: Tree) -> list[str]:
        ours = cluster.pod(name)["status"].get("conditions")
        return differences({"conditions": ours}, {"conditions": row["conditions"]})

    return look


def _where(cluster: FakeCluster, row: Tree) -> list[str]:
    """Nodes of the pods, and the conditions of those that the row numbers."""
    found = differences({name: cluster.node_of(name) for name in row["where"]}, row["where"])
    for number, recorded in (row.get("conditions") or {}).items():
        name = next(iter(row["where"]))[:2] + number
        found += differences(cluster.pod(name)["status"].get("conditions"), recorded)
    return found


def _full(node: str) -> Happening:
    """What took its room is gone; a pod of 8 GPUs is about to."""

    def happens(cluster: FakeCluster) -> None:
        _without("full")(cluster)
        pod(cluster, "full", gpus="8")

    return happens


SCENES = (
    Scene(
        (160, 161, 162, 165, 166, 167, 168, *range(169, 182)),
        cluster_of({}, groups=True),
        before={
            165: all_of(_gang("gb", 12), _gang("ga", 12)),
            169: _without("gb", "ga"),
            170: all_of(_gang("gc", 3)),
            171: _gang("gx", 1),
            172: lambda cluster: pod(cluster, "q9", schedulingGroup={"podGroupName": "gc"}),
            173: all_of(
                _without("gc", "gx", "q"),
                _more_nodes,
                lambda cluster: pod(cluster, "blk", gpus="4"),
            ),
            175: _gang("gr", 16),
            176: _without("gr"),
            177: all_of(
                lambda cluster: pod(cluster, "big", gpus="4", nodeName="n3"), _gang("gs", 13)
            ),
        },
        looks={
            165: _one_whole,
            168: _conditions("ga11"),
            170: _conditions("gc0"),
            171: _conditions("gx0"),
            175: _in_rack_b,
        },
    ),
    Scene(
        (*range(254, 270),),
        cluster_of({}, nodes=_racks, groups=True),
        before={
            255: _gated("ag"),
            261: all_of(_without("ag"), _full("n2")),
            263: _gated("ah"),
            269: _full("n4"),
        },
        looks={258: _where, 260: _where, 267: _where},
    ),
    Scene((372, 373, 374), cluster_of({})),
)
