"""What the test API server does beyond single recorded exchanges."""

from __future__ import annotations

import pytest
from apiserver import FakeCluster
from apiserver_kinds import POD, Json
from apiserver_transcripts import binding, cluster_of, names
from transcripts_claims import claim_and_pod, four_devices
from transcripts_leases import LEASES, lease
from transcripts_rights import planner_cluster


def test_a_pod_that_is_bound_is_bound_for_good() -> None:
    cluster = cluster_of(names("a", 0))()
    path = "/api/v1/namespaces/default/pods/a0/binding"
    assert cluster.handle("POST", path, binding("a0", "n1"))[0] == 201
    assert cluster.handle("POST", path, binding("a0", "n2"))[0] == 409
    assert cluster.node_of("a0") == "n1"
    assert cluster.store.get(POD, "default", "a0") is not None


def test_a_claim_of_ours_without_a_time_stamp_keeps_its_pod_waiting() -> None:
    cluster = cluster_of({}, nodes=four_devices)()
    claim_and_pod(1)(cluster)
    allocation = {
        "devices": {"results": [{"request": "gpu", "driver": "d", "pool": "n2", "device": "0"}]}
    }
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/cl1/status"
    merge = "application/merge-patch+json"
    assert cluster.handle("PATCH", path, {"status": {"allocation": allocation}}, merge)[0] == 200
    ungated = {"spec": {"schedulingGates": None}}
    path = "/api/v1/namespaces/default/pods/dp1"
    assert cluster.handle("PATCH", path, ungated, merge)[0] == 200
    found = cluster.store.get(POD, "default", "dp1")
    assert found is not None
    assert "nodeName" not in found["spec"]
    reasons = [one.get("reason") for one in found["status"]["conditions"]]
    assert reasons == ["SchedulerError"]


def test_one_of_two_that_replace_a_lease_wins() -> None:
    cluster = cluster_of({})()
    _, made, _ = cluster.handle("POST", LEASES, lease("planner"))
    version = made["metadata"]["resourceVersion"]
    for holder, code in (("b", 200), ("c", 409)):
        body = lease("planner", resourceVersion=version)
        body["spec"]["holderIdentity"] = holder
        assert cluster.handle("PUT", f"{LEASES}/planner", body)[0] == code
    _, found, _ = cluster.handle("GET", f"{LEASES}/planner")
    assert found["spec"]["holderIdentity"] == "b"


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


def test_a_right_to_a_name_is_no_right_to_another() -> None:
    cluster = planner_cluster()
    user = "system:serviceaccount:planner-system:planner"
    path = "/apis/coordination.k8s.io/v1/namespaces/planner-system/leases"
    assert cluster.handle("GET", f"{path}/planner", user=user)[0] == 404
    assert cluster.handle("GET", f"{path}/another", user=user)[0] == 403
    assert cluster.handle("GET", path, user=user)[0] == 403


def test_a_role_binding_grants_in_its_own_namespace_only() -> None:
    cluster = planner_cluster()
    user = "system:serviceaccount:planner-system:planner"
    body = {"metadata": {"name": "x"}, "spec": {}}
    for namespace, code in (("planner-system", 201), ("default", 403)):
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        assert cluster.handle("POST", path, body, user=user)[0] == code


def test_an_account_may_ask_what_it_may_do() -> None:
    cluster = planner_cluster()
    user = "system:serviceaccount:planner-system:planner"
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    for verb, allowed in (("update", True), ("delete", False)):
        asked: Json = {
            "group": "coordination.k8s.io",
            "resource": "leases",
            "verb": verb,
            "namespace": "planner-system",
            "name": "planner",
        }
        code, tree, _ = cluster.handle(
            "POST", path, {"spec": {"resourceAttributes": asked}}, user=user
        )
        assert code == 201
        assert tree["status"]["allowed"] is allowed
