"""Reading: lists, selectors and their refusals, by request and by kubectl, as recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from apiserver import FakeCluster
from apiserver_transcripts import Scene, cluster_of, comparable, names, pod, rows

SCENES = (
    Scene((370,), cluster_of(names("p", 0))),
    Scene((433,), cluster_of(names("p", 0)), before={433: lambda cluster: pod(cluster, "q")}),
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


def _names(cluster: FakeCluster, query: str) -> list[str]:
    code, tree, _ = cluster.handle("GET", f"/api/v1/pods?{query}")
    assert code == 200
    return [item["metadata"]["name"] for item in tree["items"]]


@pytest.fixture
def mixed() -> FakeCluster:
    """Pods a (bound, Running), b (waiting, of our scheduler), c (bound, Succeeded)."""
    cluster = FakeCluster()
    cluster.add_node("n1")
    cluster.add_pod("a", node="n1", labels={"team": "red"})
    cluster.add_pod("b", scheduler="planner", labels={"team": "blue", "plan": "p7"})
    cluster.add_pod("c", node="n1", phase="Succeeded")
    return cluster


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("fieldSelector=spec.nodeName%3D", ["b"]),
        ("fieldSelector=spec.nodeName%3Dn1", ["a", "c"]),
        ("fieldSelector=spec.nodeName%21%3D", ["a", "c"]),
        ("fieldSelector=spec.schedulerName%3Dplanner", ["b"]),
        ("fieldSelector=status.phase%3DPending", ["b"]),
        ("fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed", ["a", "b"]),
        ("labelSelector=plan%3Dp7", ["b"]),
        ("labelSelector=team", ["a", "b"]),
        ("labelSelector=%21team", ["c"]),
        ("labelSelector=team%20in%20%28red%2Cgreen%29", ["a"]),
        ("labelSelector=team%21%3Dred", ["b", "c"]),
    ],
)
def test_selectors_pick_what_they_say(mixed: FakeCluster, query: str, found: list[str]) -> None:
    assert _names(mixed, query) == found


def test_a_long_list_comes_in_pages_that_together_hold_all(mixed: FakeCluster) -> None:
    _, first, _ = mixed.handle("GET", "/api/v1/pods?limit=2")
    assert first["metadata"]["remainingItemCount"] == 1
    token = first["metadata"]["continue"]
    _, second, _ = mixed.handle("GET", f"/api/v1/pods?limit=2&continue={token}")
    assert "continue" not in second["metadata"]
    seen = [item["metadata"]["name"] for page in (first, second) for item in page["items"]]
    assert seen == ["a", "b", "c"]


def test_items_of_a_list_do_not_say_what_they_are(mixed: FakeCluster) -> None:
    _, tree, _ = mixed.handle("GET", "/api/v1/pods")
    assert tree["kind"] == "PodList"
    assert all("kind" not in item and "apiVersion" not in item for item in tree["items"])
    _, one, _ = mixed.handle("GET", "/api/v1/namespaces/default/pods/a")
    assert (one["kind"], one["apiVersion"]) == ("Pod", "v1")
