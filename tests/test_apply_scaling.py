"""The number of pods of a role, set where its controller has a scale that means just that."""

from __future__ import annotations

import pytest
from apiserver import FakeCluster
from apiserver_http import FakeWire

from models.apply.plan_actions import Resize
from models.apply.requests import Conflict, Done, Rejected, Scale
from planner.cluster.request_sender import scale
from planner.cluster.transport import JSON, Reply, Tree

GROW = Resize("worker", 2, 3)


def request(resize: Resize = GROW) -> Scale:
    return Scale(("default", "vit"), resize, ("default", "vit-0"))


def seen(*pods: Tree) -> dict[tuple[str, str], Tree]:
    """The pods as a reading of the cluster has them."""
    return {("default", pod["metadata"]["name"]): pod for pod in pods}


def controller(
    kind: str = "StatefulSet",
    api_version: str = "apps/v1",
    *,
    replicas: int = 2,
    above: Tree | None = None,
) -> tuple[FakeCluster, Tree]:
    """A controller of so many replicas and the tree of its first pod."""
    cluster = FakeCluster()
    tree: Tree = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "vit", "namespace": "default"},
        "spec": {"replicas": replicas},
    }
    if above is not None:
        tree["metadata"]["ownerReferences"] = [above]
    made = cluster.put(tree)
    return cluster, cluster.add_pod("vit-0", owner=made)


def replicas(cluster: FakeCluster, plural: str) -> int:
    tree = cluster.handle("GET", f"/apis/apps/v1/namespaces/default/{plural}/vit")[1]
    found: int = tree["spec"]["replicas"]
    return found


def test_a_stateful_set_gets_the_number_of_the_plan() -> None:
    cluster, pod = controller()

    assert scale(FakeWire(cluster), request(), seen(pod)) == Done()
    assert replicas(cluster, "statefulsets") == 3


def test_a_number_that_is_there_already_is_left_alone() -> None:
    cluster, pod = controller(replicas=3)
    cluster.calls.clear()

    assert scale(FakeWire(cluster), request(), seen(pod)) == Done()
    assert cluster.writes == []


def test_a_number_that_the_plan_did_not_see_is_not_overwritten() -> None:
    cluster, pod = controller(replicas=7)

    assert scale(FakeWire(cluster), request(), seen(pod)) == Rejected(
        "its scale is 7, the plan saw 2"
    )
    assert replicas(cluster, "statefulsets") == 7


def test_a_controller_that_somebody_above_it_sets_back_is_refused() -> None:
    """A ReplicaSet of an own kind: its controller would revert the change."""
    above = {
        "apiVersion": "example.com/v1",
        "kind": "Fleet",
        "name": "f",
        "uid": "u",
        "controller": True,
    }
    cluster, pod = controller("ReplicaSet", above=above)

    assert isinstance(scale(FakeWire(cluster), request(), seen(pod)), Rejected)
    assert replicas(cluster, "replicasets") == 2


@pytest.mark.parametrize(
    "owner",
    [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "vit", "uid": "u", "controller": True},
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "name": "../x",
            "uid": "u",
            "controller": True,
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "name": "gone",
            "uid": "u",
            "controller": True,
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "name": "vit",
            "uid": "other",
            "controller": True,
        },
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "vit", "uid": "u"},
    ],
    ids=["no scale", "no name", "gone", "another", "no controller"],
)
def test_without_a_scale_of_its_own_it_is_advice(owner: Tree) -> None:
    cluster, _ = controller()
    pod = {"metadata": {"name": "vit-0", "ownerReferences": [owner]}}
    cluster.calls.clear()

    try:
        found = scale(FakeWire(cluster), request(), seen(pod))
    except ValueError:
        found = Rejected("no name")  # the carrier turns it into this
    assert isinstance(found, Rejected)
    assert cluster.writes == []


def test_a_pod_that_was_never_seen_has_no_controller() -> None:
    cluster, _ = controller()

    assert isinstance(scale(FakeWire(cluster), request(), {}), Rejected)


def test_a_dry_run_leaves_the_number_as_it_is() -> None:
    cluster, pod = controller()

    assert scale(FakeWire(cluster), request(), seen(pod), dry=True) == Done()
    assert replicas(cluster, "statefulsets") == 2


def test_a_number_changed_meanwhile_is_a_conflict() -> None:
    cluster, pod = controller()
    wire = FakeWire(cluster)

    class Racing:
        def send(
            self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
        ) -> Reply:
            if method == "PATCH":
                cluster.touch("StatefulSet", "vit")
            return wire.send(method, path, body, content_type=content_type)

    assert isinstance(scale(Racing(), request(), seen(pod)), Conflict)
