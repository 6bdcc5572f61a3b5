"""Nodes and pods of a cluster as applying sees them: who stands where, and what is recorded of its start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from apiserver import LOST, Answer, Call, FakeCluster
from apiserver_http import FakeWire

from models.apply.live_state import ClusterView
from models.apply.records import PodPlace, StartRecord
from models.instance.policy import KubernetesPolicy
from planner.cluster.live_view import ClusterReader
from planner.cluster.start_records import StartRecords
from planner.cluster.transport import send_one
from planner.errors import UnavailableError

SETTINGS = KubernetesPolicy()
GATE = SETTINGS.scheduling_gate
PLAN = "gp-0123456789abcdef0123"


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.scheduler.on = False
    made.add_namespace("gangplan-system")
    made.add_node("n1", taints=[("a", "b", "NoSchedule"), ("c", "", "PreferNoSchedule")])
    made.add_node("n2", gpus=4, unschedulable=True)
    made.add_node("n3", ready=False)
    return made


def read(cluster: FakeCluster) -> ClusterView:
    wire = FakeWire(cluster)
    return ClusterReader(wire, SETTINGS, StartRecords(wire, "gangplan-system")).read_view()


def recorded(cluster: FakeCluster, name: str, **more: Any) -> None:  # noqa: ANN401
    """The record of its start on GPUs 4 and 5 of n1; ``more``: of the object."""
    place = PodPlace(name, cluster.pod(name)["metadata"]["uid"], "n1", (4, 5))
    record = StartRecord(("default", "vit"), PLAN, (place,))
    wire = FakeWire(cluster)
    asked = StartRecords(wire, "gangplan-system").write(record, dry=False)
    assert send_one(wire, replace(asked, body={**(asked.body or {}), **more})).ok


def test_who_stands_where_is_bound_nominated_pinned_or_intended(cluster: FakeCluster) -> None:
    cluster.add_pod("bound", node="n1")
    cluster.add_node("n4")
    cluster.add_pod("pinned", nodeSelector={"kubernetes.io/hostname": "n4"})
    cluster.add_pod("cordoned", nodeSelector={"kubernetes.io/hostname": "n2"})
    cluster.add_pod("free")
    cluster.add_pod("meant", gates=[GATE])
    recorded(cluster, "meant")
    pods = read(cluster).pods

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


def test_what_a_pod_says_of_itself_counts_only_for_the_gpus_it_runs_on(
    cluster: FakeCluster,
) -> None:
    says = {"gangplan.dev/node": "n1", "gangplan.dev/gpus": "0,1"}
    for name in ("ours", "forged"):
        cluster.add_pod(
            name, gpus=2, gates=[GATE], annotations=says, labels={"gangplan.dev/plan": PLAN}
        )
    cluster.add_pod("runs", gpus=2, node="n1", annotations=says)
    recorded(cluster, "ours")
    pods = read(cluster).pods
    start = pods["default", "ours"].start
    assert start is not None
    assert (start.plan, start.pod.node, start.pod.gpus) == (PLAN, "n1", (4, 5))
    assert (pods["default", "ours"].place, pods["default", "ours"].indices) == ("n1", (4, 5))
    assert (pods["default", "forged"].start, pods["default", "forged"].place) == (None, None)
    assert pods["default", "runs"].indices == (0, 1)


def test_an_object_that_is_no_record_is_named_and_counts_for_nothing(cluster: FakeCluster) -> None:
    cluster.add_pod("meant", gates=[GATE])
    recorded(cluster, "meant", data={"start": "{"})
    wire = FakeWire(cluster)
    (odd,) = wire.send("GET", "/api/v1/namespaces/gangplan-system/configmaps").body["items"]
    records = StartRecords(wire, "gangplan-system")
    assert records.read()
    assert (records.known, records.unread) == ({}, (odd["metadata"]["name"],))
    assert read(cluster).pods["default", "meant"].start is None


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
        read(cluster)


def test_objects_without_a_name_change_no_other(cluster: FakeCluster) -> None:
    cluster.add_pod("p", node="n1")

    def nameless(call: Call) -> None:
        if call.path == "/api/v1/pods" and call.answer is not None:
            call.answer[1]["items"].append({"metadata": {}})
            call.answer[1]["items"].append("no object")

    cluster.after.append(nameless)

    assert list(read(cluster).pods) == [("default", "p")]
