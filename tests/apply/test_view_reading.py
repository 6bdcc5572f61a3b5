"""Nodes and pods of a cluster as applying sees them: who stands where, and whose intent it is."""

from __future__ import annotations

import pytest
from apiserver import LOST, Answer, Call, FakeCluster
from apiserver_http import FakeWire

from models.apply.intents import Intent, SealKey
from models.instance.policy import KubernetesPolicy
from models.units import epoch_seconds
from planner.cluster.live_view import for_planning, read_cluster
from planner.errors import UnavailableError
from planner.read.kube.pods.placement import PROVEN

SETTINGS = KubernetesPolicy()
GATE = SETTINGS.scheduling_gate
PLAN = "gp-0123456789abcdef0123"
MARKS = {
    "gangplan.dev/plan": PLAN,
    "gangplan.dev/gang": "vit",
    "gangplan.dev/gang-size": "2",
    "gangplan.dev/node": "n1",
    "gangplan.dev/gpus": "4,5",
}


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.scheduler.on = False
    made.add_node("n1", taints=[("a", "b", "NoSchedule"), ("c", "", "PreferNoSchedule")])
    made.add_node("n2", gpus=4, unschedulable=True)
    made.add_node("n3", ready=False)
    return made


def marked(cluster: FakeCluster, name: str, manager: str = "gangplan") -> None:
    """An intent, written by that field manager."""
    body = {"metadata": {"labels": {"gangplan.dev/plan": PLAN}, "annotations": MARKS}}
    path = f"/api/v1/namespaces/default/pods/{name}?fieldManager={manager}"
    assert cluster.handle("PATCH", path, body, "application/merge-patch+json")[0] == 200


def test_who_stands_where_is_bound_nominated_pinned_or_intended(cluster: FakeCluster) -> None:
    cluster.add_pod("bound", node="n1")
    cluster.add_node("n4")
    cluster.add_pod("pinned", nodeSelector={"kubernetes.io/hostname": "n4"})
    cluster.add_pod("cordoned", nodeSelector={"kubernetes.io/hostname": "n2"})
    cluster.add_pod("free")
    cluster.add_pod("meant", gates=[GATE])
    marked(cluster, "meant")
    pods = read_cluster(FakeWire(cluster), SETTINGS).pods

    places = {name: pod.place for (_, name), pod in pods.items()}
    assert places == {
        "bound": "n1",
        "pinned": "n4",
        "cordoned": None,
        "free": None,
        "meant": "n1",
    }
    assert pods["default", "bound"].node == "n1"
    assert pods["default", "meant"].node is None


def test_an_intent_is_ours_only_if_our_field_manager_wrote_all_of_it(cluster: FakeCluster) -> None:
    for name in ("ours", "forged", "touched"):
        cluster.add_pod(name, gates=[GATE])
        marked(cluster, name, "kubectl" if name == "forged" else "gangplan")
    body = {"metadata": {"annotations": {"gangplan.dev/node": "n2"}}}
    path = "/api/v1/namespaces/default/pods/touched?fieldManager=kubectl"
    cluster.handle("PATCH", path, body, "application/merge-patch+json")
    pods = read_cluster(FakeWire(cluster), SETTINGS).pods

    assert pods["default", "ours"].intent == Intent(PLAN, "vit", 2, "n1", (4, 5))
    assert {name: pod.intent_is_ours for (_, name), pod in pods.items()} == {
        "ours": True,
        "forged": False,
        "touched": False,
    }


def test_to_planning_only_a_seal_proves_an_intent(cluster: FakeCluster) -> None:
    """Anyone can write under our field manager; a snapshot, which has no key, takes nobody's word."""
    cluster.add_pod("meant", gates=[GATE])
    marked(cluster, "meant")
    unsealed, key = cluster.pod("meant"), SealKey("secret", since=0)
    assert for_planning(unsealed, None) == unsealed
    assert for_planning(unsealed, key)["metadata"]["labels"] == {}

    uid = unsealed["metadata"]["uid"]
    seal = key.seal("default", "meant", uid, Intent(PLAN, "vit", 2, "n1", (4, 5)))
    body = {"metadata": {"annotations": {"gangplan.dev/seal": seal}}}
    path = "/api/v1/namespaces/default/pods/meant?fieldManager=gangplan"
    cluster.handle("PATCH", path, body, "application/merge-patch+json")
    sealed = cluster.pod("meant")
    assert for_planning(sealed, key) == {**sealed, PROVEN: True}
    assert for_planning(sealed, SealKey("another", since=0))["metadata"]["labels"] == {}
    assert for_planning(sealed, None) == sealed
    made = epoch_seconds(sealed["metadata"]["creationTimestamp"])
    assert PROVEN in for_planning(sealed, SealKey("another", since=made))
    assert PROVEN not in for_planning(sealed, SealKey("another", since=made - 1))


@pytest.mark.parametrize(
    "answer",
    [(200, {}, {}), (200, {"items": "x"}, {}), (500, {}, {}), LOST, (404, {}, {})],
    ids=["no list", "no items", "500", "lost", "404"],
)
def test_a_list_that_is_none_is_never_taken_for_an_empty_one(
    answer: Answer, cluster: FakeCluster
) -> None:
    def broken(call: Call) -> Answer | None:
        return answer if call.path == "/api/v1/pods" else None

    cluster.before.append(broken)
    with pytest.raises(UnavailableError):
        read_cluster(FakeWire(cluster), SETTINGS)


def test_objects_without_a_name_change_no_other(cluster: FakeCluster) -> None:
    wire = FakeWire(cluster)
    cluster.add_pod("p", node="n1")

    def nameless(call: Call) -> None:
        if call.path == "/api/v1/pods" and call.answer is not None:
            call.answer[1]["items"].append({"metadata": {}})
            call.answer[1]["items"].append("no object")

    cluster.after.append(nameless)

    assert list(read_cluster(wire, SETTINGS).pods) == [("default", "p")]
