"""The number of pods of a role, set where its controller has a scale that means just that."""

from __future__ import annotations

import pytest
from apiserver import FakeCluster
from apiserver_http import FakeWire
from apply_runs import refusing

from models.apply.plan_actions import PodStop, Resize
from models.apply.requests import Conflict, Done, Rejected, Scale
from planner.cluster.transport import JSON, Reply, Tree
from planner.cluster.writes import COST, GOES_FIRST, scale

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


# ---- ReplicaSets, which choose the pods that go


SHRINK = Resize("worker", 3, 2)
SET = "/apis/apps/v1/namespaces/default/replicasets/vit"


def replica_set() -> tuple[FakeCluster, list[Tree]]:
    """A ReplicaSet and its three pods."""
    cluster, pod = controller("ReplicaSet", replicas=3)
    made = cluster.handle("GET", SET)[1]
    return cluster, [pod, *(cluster.add_pod(f"vit-{n}", owner=made) for n in (1, 2))]


def going(pod: Tree) -> Scale:
    metadata = pod["metadata"]
    stop = PodStop("default", metadata["name"], metadata["uid"], "worker", 2, "n1", 1)
    return Scale(("default", "vit"), SHRINK, ("default", "vit-0"), (stop,))


def annotated(cluster: FakeCluster, name: str, more: dict[str, str]) -> Tree:
    """The pod, with these annotations besides."""

    def change(tree: Tree) -> Tree:
        tree["metadata"]["annotations"] = (tree["metadata"].get("annotations") or {}) | more
        return tree

    return cluster.change("Pod", name, change)


def costs(cluster: FakeCluster) -> dict[str, str]:
    return {
        pod["metadata"]["name"]: cost
        for pod in cluster.pods()
        if (cost := (pod["metadata"].get("annotations") or {}).get(COST)) is not None
    }


def test_marks_of_a_run_that_was_cut_off_are_taken_off_the_pods_that_stay() -> None:
    cluster, pods = replica_set()
    marked = annotated(cluster, "vit-2", {COST: GOES_FIRST})
    own = annotated(cluster, "vit-0", {COST: "7"})

    assert scale(FakeWire(cluster), going(pods[1]), seen(own, pods[1], marked)) == Done()
    assert costs(cluster) == {"vit-0": "7", "vit-1": GOES_FIRST}


def test_a_pod_that_changed_since_it_was_read_is_marked_all_the_same() -> None:
    cluster, pods = replica_set()
    annotated(cluster, "vit-1", {"x": "y"})

    assert scale(FakeWire(cluster), going(pods[1]), seen(*pods)) == Done()
    assert costs(cluster) == {"vit-1": GOES_FIRST}


def test_a_pod_that_may_not_be_marked_keeps_its_set_as_it_is() -> None:
    cluster, pods = replica_set()
    cluster.before.append(refusing("/vit-1", 403, "no"))

    found = scale(FakeWire(cluster), going(pods[1]), seen(*pods))
    assert found == Rejected("pod vit-1 cannot be marked as the one to go: no")
    assert (costs(cluster), replicas(cluster, "replicasets")) == ({}, 3)
