"""Recorded scenes: Leases as locks."""

from __future__ import annotations

from apiserver import FakeCluster
from apiserver_kinds import LEASE, Tree
from apiserver_transcripts import Happening, Scene, cluster_of

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def _version(version: str) -> Happening:
    """The lease has this resourceVersion."""

    def happens(cluster: FakeCluster) -> None:
        found = cluster.store.get(LEASE, "default", "planner")
        assert found is not None
        cluster.store.revision = int(version) - 1
        cluster.store.keep(LEASE, found, manager="recording")

    return happens


def _gone(cluster: FakeCluster) -> None:
    cluster.remove(LEASE, "planner")


def lease(name: str, **metadata: str) -> Tree:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, **metadata},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 60},
    }


def _current(cluster: FakeCluster) -> None:
    found = cluster.store.get(LEASE, "default", "p")
    assert found is not None
    cluster.store.revision = 998
    cluster.store.keep(LEASE, found, manager="recording")


def _options(version: str) -> Tree:
    return {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"resourceVersion": version},
    }


SCENES = (
    Scene(
        (*range(273, 297),),
        cluster_of({}),
        before={275: _version("4195"), 283: _version("4197"), 289: _gone, 295: _version("4200")},
        files={295: _options("1"), 296: _options("4200")},
    ),
    Scene(
        (299,),
        cluster_of({}),
        before={299: lambda cluster: cluster.create(lease("planner"))},
    ),
    Scene(
        (430, 431, 432),
        cluster_of({}),
        before={431: _current},
        files={430: lease("p"), 431: lease("p", resourceVersion="999"), 432: lease("p")},
    ),
)
