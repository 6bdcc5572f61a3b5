"""Recorded scenes: dynamic resource allocation."""

from __future__ import annotations

from apiserver import FakeCluster
from apiserver_kinds import CLAIM, TEMPLATE, Json, Place, RequestInfo, Tree
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

_PROTECTED = "resource.kubernetes.io/delete-protection"


def four_devices(cluster: FakeCluster) -> None:
    for name in ("n1", "n2", "n3", "n4"):
        cluster.add_node(name)


def claim(name: str, count: int = 2, finalizers: tuple[str, ...] = ()) -> Happening:
    def happens(cluster: FakeCluster) -> None:
        exactly = {
            "deviceClassName": "gpu.example.com",
            "allocationMode": "ExactCount",
            "count": count,
        }
        metadata: Tree = {"name": name}
        if finalizers:
            metadata["finalizers"] = list(finalizers)
        tree = {
            "metadata": metadata,
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        }
        cluster.objects.create(Place(CLAIM, "default", "", ""), tree, RequestInfo())
        cluster.settle()

    return happens


def _user(
    name: str, claim: str, *, gated: bool = True, scheduler: str = "default-scheduler", **more: Json
) -> Happening:
    """A pod that uses a claim."""

    def happens(cluster: FakeCluster) -> None:
        reference = {"name": "gpu", "resourceClaimName": claim}
        if claim == "t":
            reference = {"name": "gpu", "resourceClaimTemplateName": "t"}
        container = {
            "name": "c",
            "image": "img",
            "resources": {"claims": [{"name": "gpu"}], "requests": {"cpu": "1"}},
        }
        pod(
            cluster,
            name,
            schedulerName=scheduler,
            gates=[GATE] if gated else [],
            resourceClaims=[reference],
            containers=[container],
            **more,
        )

    return happens


def claim_and_pod(number: int, **more: Json) -> Happening:
    return all_of(claim(f"cl{number}"), _user(f"dp{number}", f"cl{number}", **more))


def _deleted(*names: str) -> Happening:
    def happens(cluster: FakeCluster) -> None:
        for name in names:
            cluster.handle("DELETE", f"/api/v1/namespaces/default/pods/{name}")

    return happens


def _condition(name: str) -> Look:
    def look(cluster: FakeCluster, row: Tree) -> list[str]:
        found = cluster.pod(name)
        ours: Tree = {"conditions": found["status"]["conditions"]}
        if "nodeName" in row:
            ours["nodeName"] = found["spec"].get("nodeName")
        return differences(ours, {key: row[key] for key in ours})

    return look


def _from_template(cluster: FakeCluster, row: Tree) -> list[str]:
    """Both pods have a claim of their own; its name begins with theirs."""
    found: list[str] = []
    for name, key in (("dt", "gated"), ("du", "ungated")):
        ours = cluster.pod(name)["status"]["resourceClaimStatuses"]
        found += differences([one["name"] for one in ours], [one["name"] for one in row[key]])
        for one, other in zip(ours, row[key], strict=True):
            stem = f"{name}-gpu-"
            assert one["resourceClaimName"].startswith(stem)
            assert other["resourceClaimName"].startswith(stem)
            assert cluster.store.get(CLAIM, "default", one["resourceClaimName"]) is not None
    return found


def _pinned(node: str) -> Tree:
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


def _pods_of_template(cluster: FakeCluster) -> None:
    assert cluster.store.get(TEMPLATE, "default", "t") is not None
    _user("dt", "t")(cluster)
    _user("du", "t", gated=False, scheduler="planner")(cluster)


SCENES = (
    Scene(
        (*range(183, 232),),
        cluster_of({}, nodes=four_devices),
        before={
            224: claim_and_pod(8),
            227: all_of(claim("cl9", 4), _user("dp9", "cl9", gated=False, **_pinned("n2"))),
            228: all_of(claim("cl10", 1), _user("dp10", "cl10", gated=False, **_pinned("n2"))),
            229: _deleted("dp0"),
            231: _pods_of_template,
        },
        looks={228: _condition("dp10"), 231: _from_template},
    ),
    Scene(
        tuple(number for number in range(232, 254) if number != 249),
        cluster_of({}, nodes=four_devices),
        before={
            232: all_of(*(claim_and_pod(number) for number in (20, 21, 22, 23))),
            247: _deleted("dp20", "dp22"),
            250: claim_and_pod(24, gated=False, scheduler="planner"),
        },
        looks={246: _condition("dp23")},
    ),
    Scene((429,), cluster_of({}), before={429: claim("c")}),
    Scene(
        (434, 435, 436),
        cluster_of({}),
        before={434: claim("q", 1, (_PROTECTED,))},
    ),
)
