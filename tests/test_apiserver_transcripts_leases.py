"""Leases as locks, and rights: the fake API server answers as the recorded one did, row by row."""

from __future__ import annotations

from pathlib import Path

import pytest
from apiserver import FakeCluster
from apiserver_kinds import LEASE, Tree
from apiserver_transcripts import Happening, Scene, cluster_of, comparable, rows

_PATH = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


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


def _lease(name: str, **metadata: str) -> Tree:
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
        before={299: lambda cluster: cluster.create(_lease("planner"))},
    ),
    Scene(
        (430, 431, 432),
        cluster_of({}),
        before={431: _current},
        files={430: _lease("p"), 431: _lease("p", resourceVersion="999"), 432: _lease("p")},
    ),
)
ROWS = tuple(number for scene in SCENES for number in scene.numbers)


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for scene in SCENES:
        folder: Path = tmp_path_factory.mktemp("scene")
        found |= scene.play(folder)
    return found


@pytest.mark.parametrize("number", comparable(ROWS), ids=lambda n: f"{n}-{rows()[n]['note'][:40]}")
def test_the_fake_server_answers_as_the_recorded_one(
    number: int, replayed: dict[int, list[str]]
) -> None:
    assert replayed[number] == []


def test_one_of_two_that_replace_a_lease_wins() -> None:
    cluster = cluster_of({})()
    _, made, _ = cluster.handle("POST", _PATH, _lease("planner"))
    version = made["metadata"]["resourceVersion"]
    for holder, code in (("b", 200), ("c", 409)):
        body = _lease("planner", resourceVersion=version)
        body["spec"]["holderIdentity"] = holder
        assert cluster.handle("PUT", f"{_PATH}/planner", body)[0] == code
    _, found, _ = cluster.handle("GET", f"{_PATH}/planner")
    assert found["spec"]["holderIdentity"] == "b"
