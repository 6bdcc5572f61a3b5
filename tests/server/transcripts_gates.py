"""Recorded scenes: scheduling gates and pins."""

from __future__ import annotations

from apiserver import FakeCluster
from apiserver_kinds import Tree
from apiserver_transcripts import (
    GATE,
    POOL_TERM,
    Happening,
    Look,
    Scene,
    again,
    all_of,
    cluster_of,
    differences,
    pod,
    required,
)

_GATED = {"gates": [GATE]}
_SPREAD = {
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 1,
                "podAffinityTerm": {
                    "labelSelector": {"matchLabels": {"a": "b"}},
                    "topologyKey": "kubernetes.io/hostname",
                },
            }
        ]
    }
}
_A = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}
_B = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["b"]}]}

PATCHED = {f"m{number}": dict(_GATED) for number in range(38)}
for _name in ("m15", "m16", "m17"):
    PATCHED[_name]["nodeSelector"] = {"pool": "a"}
for _name in ("m20", "m21", "m22", "m23", "m24"):
    PATCHED[_name]["affinity"] = required(POOL_TERM)
PATCHED["m25"]["affinity"] = required(_A, _B)
PATCHED["m27"]["affinity"] = _SPREAD


def conditions(name: str) -> Look:
    """Compares the conditions of a pod, and its node where the row has one."""

    def look(cluster: FakeCluster, row: Tree) -> list[str]:
        found = cluster.pod(name)
        ours: Tree = {"conditions": found["status"].get("conditions")}
        if isinstance(row["conditions"][0], list):
            keys = ("type", "status", "reason", "message")
            ours["conditions"] = [[one.get(key) for key in keys] for one in ours["conditions"]]
        if "nodeName" in row:
            ours["nodeName"] = found["spec"].get("nodeName")
        return differences(ours, {key: row[key] for key in ours})

    return look


def placed(name: str) -> Look:
    def look(cluster: FakeCluster, row: Tree) -> list[str]:
        return differences(cluster.node_of(name), row["nodeName"])

    return look


def _default(*names: str, **fields: object) -> Happening:
    def happens(cluster: FakeCluster) -> None:
        for name in names:
            pod(cluster, name, schedulerName="default-scheduler", **fields)

    return happens


def _both_on_n2(cluster: FakeCluster, row: Tree) -> list[str]:
    return differences({name: cluster.node_of(name) for name in ("g0", "g1")}, row["placed"])


def _five_nodes(cluster: FakeCluster) -> None:
    cluster.add_node("n1")
    cluster.add_node("n2")
    cluster.add_node("cord", unschedulable=True)
    cluster.add_node("taint", taints=[("k", "v", "NoSchedule")])
    cluster.add_node("noexec", taints=[("k", "v", "NoExecute")])


def _r(number: int) -> Happening:
    return _default(f"r{number}", gates=["G"], priorityClassName="")


SCENES = (
    Scene(
        (*range(126, 132),),
        cluster_of({"k0": _GATED, "k1": _GATED}),
    ),
    Scene((337,), cluster_of({"k9": _GATED})),
    Scene((401,), cluster_of({"mg": {"gates": ["other"]}})),
    Scene(
        (407, 408, 409),
        cluster_of({"s2": _GATED | {"schedulerName": "default-scheduler"}}),
    ),
    Scene((428,), cluster_of({"a5": _GATED})),
    Scene(
        (*range(439, 447),),
        cluster_of({}, nodes=_five_nodes),
        before={439: all_of(_r(0), _r(1), _r(2), _r(3))},
        looks={number: conditions(f"r{(number - 440) // 2}") for number in (440, 442, 444, 446)},
    ),
    Scene((*range(86, 126),), cluster_of(PATCHED | {"u0": {}})),
    Scene(
        (132, 133, 134, 135, 136, 137, 138, 140, 141, 142, 143),
        cluster_of({}),
        before={
            132: _default("g0", "g1", "g2", "g3", "g4", gates=[GATE]),
            136: lambda cluster: pod(cluster, "fill", gpus="6"),
            143: _default("g5", gpus="9"),
        },
        looks={132: conditions("g0"), 135: _both_on_n2, 138: conditions("g2")},
    ),
    Scene(
        (*range(385, 392),),
        cluster_of({}),
        before={
            385: _default("m0", gates=["g"]),
            388: lambda cluster: pod(cluster, "f", gpus="8"),
            389: _default("m1", gates=["g"]),
        },
        looks={387: placed("m0"), 391: placed("m1")},
    ),
    Scene(
        (392, 393, 394, 395, 396, 397),
        cluster_of({"t0": _GATED}),
        before={397: again("t0", gates=[GATE])},
    ),
    Scene(
        (399, 400, 402, 403, 404, 405, 406),
        cluster_of(
            {
                "ms": {"gates": [GATE], "nodeSelector": {"pool": "a"}},
                "mg": {"gates": [GATE, "other"]},
                "s0": {"gates": ["plan.example/gate", "other/gate"]},
                "s1": _GATED,
            }
        ),
    ),
)
