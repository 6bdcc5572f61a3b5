"""Naming the node on the volume claims of one pod: what is sent, and what every answer means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from apiserver import LOST, Answer, Call, FakeCluster
from apiserver_http import FakeWire
from apiserver_kinds import VOLUME_CLAIM
from kube_volumes import NOW, claim, only_on, storage_class, volume

from models.apply.plan_actions import PodStart
from models.apply.requests import Conflict, Done, Event, NoAnswer, Rejected
from planner.cluster.volume_nodes import choose_node

SELECTED = "volume.kubernetes.io/selected-node"
CSI = storage_class("csi", provisioner="csi.example.com")
ORDER = PodStart("default", "p", "uid", "worker", 0, "n1", None, 8)
QUERY = "?fieldManager=gangplan&fieldValidation=Strict"

Tree = dict[str, Any]


def asked(cluster: FakeCluster, *names: str, query: str | None = QUERY, **more: Any) -> Event:  # noqa: ANN401
    labels = more.pop("labels", {"zone": "a"})
    return choose_node(
        FakeWire(cluster), ORDER, names or ("c",), labels, ("n1", "n2"), query, **more
    )


def holding(*trees: Tree) -> FakeCluster:
    cluster = FakeCluster()
    cluster.scheduler.volumes.provisions = False
    for tree in trees:
        cluster.create(tree)
    return cluster


def node_of(cluster: FakeCluster, name: str = "c") -> str | None:
    found = cluster.store.get(VOLUME_CLAIM, "default", name)
    assert found is not None
    notes: dict[str, str] = found["metadata"].get("annotations") or {}
    return notes.get(SELECTED)


def patches(cluster: FakeCluster) -> list[Call]:
    return [call for call in cluster.calls if call.method == "PATCH"]


def test_the_node_is_written_once_with_uid_and_version() -> None:
    cluster = holding(CSI, claim("c", of="csi"))
    assert asked(cluster) == Done()
    assert node_of(cluster) == "n1"
    (call,) = patches(cluster)
    assert {"uid", "resourceVersion"} <= call.body["metadata"].keys()
    assert asked(cluster) == Done()
    assert len(patches(cluster)) == 1


def test_a_check_writes_nothing_and_neither_does_a_dry_run() -> None:
    cluster = holding(CSI, claim("c", of="csi"))
    assert asked(cluster, query=None) == Done()
    assert patches(cluster) == []
    assert asked(cluster, query=f"{QUERY}&dryRun=All") == Done()
    assert node_of(cluster) is None


def test_of_several_claims_none_is_written_if_one_excludes_the_node() -> None:
    cluster = holding(CSI, claim("c", of="csi"), claim("d", of="none"))
    found = asked(cluster, "c", "d")
    assert found == Rejected(
        "PersistentVolumeClaim d names StorageClass none, which does not exist"
    )
    assert node_of(cluster) is None


@pytest.mark.parametrize(
    ("trees", "why"),
    [
        ([CSI], "PersistentVolumeClaim c does not exist"),
        (
            [storage_class("now", provisioner="x", mode=NOW), claim("c", of="now")],
            "PersistentVolumeClaim c is not bound yet, and StorageClass now binds at once",
        ),
        (
            [storage_class(), claim("c")],
            "PersistentVolumeClaim c gets its volume from kube-scheduler only",
        ),
        (
            [CSI, claim("c", of="csi", metadata={"annotations": {SELECTED: "n2"}})],
            "PersistentVolumeClaim c is for node n2, node n1 does not reach it",
        ),
        (
            [volume("p", "n2"), claim("c", volumeName="p")],
            "PersistentVolumeClaim c has a volume elsewhere, node n1 does not reach it",
        ),
        (
            [claim("c", volumeName="p")],
            "PersistentVolumeClaim c is for PersistentVolume p, which does not exist",
        ),
        ([claim("c", of=None)], "PersistentVolumeClaim c has no storage class and no volume"),
    ],
)
def test_a_claim_that_excludes_the_node_is_an_answer(trees: list[Tree], why: str) -> None:
    assert asked(holding(*trees)) == Rejected(why)


def test_a_claim_with_a_volume_that_the_node_reaches_needs_nothing() -> None:
    for tied in ({"nodeAffinity": only_on("n1")}, {"nodeAffinity": only_on("a", key="zone")}, {}):
        cluster = holding(volume("p", **tied), claim("c", volumeName="p"))
        assert asked(cluster) == Done()
        assert patches(cluster) == []


def test_a_claim_without_a_class_has_the_default_one() -> None:
    default = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    made = storage_class("csi", provisioner="csi.example.com", metadata=default)
    assert asked(holding(made, claim("c", of=None))) == Done()


def test_a_claim_that_many_nodes_may_mount_stays_with_the_first_pod_of_the_gang() -> None:
    shared = claim("c", of="csi", accessModes=["ReadWriteMany"])
    for node, kind in (("n2", Done), ("n3", Rejected)):
        notes = shared["metadata"] | {"annotations": {SELECTED: node}}
        cluster = holding(CSI, shared | {"metadata": notes})
        assert isinstance(asked(cluster), kind)
        assert node_of(cluster) == node


def test_for_pods_of_kube_scheduler_only_what_can_be_read_and_excludes_the_node_counts() -> None:
    for trees, kind in (
        ([storage_class(), claim("c")], Done),
        ([volume("p", "n2"), claim("c", volumeName="p")], Rejected),
        ([], Rejected),
    ):
        assert isinstance(asked(holding(*trees), query=None, binds=False), kind)
    cluster = holding()
    cluster.before.append(answering("GET", "", (403, {"message": "no"}, {})))
    assert asked(cluster, query=None, binds=False) == Done()
    assert isinstance(asked(cluster, query=None), Rejected)


def test_names_that_no_object_has_reach_no_path() -> None:
    cluster = holding(CSI)
    for name in ("../nodes", "a/b", "c?x", ""):
        with pytest.raises(ValueError, match="not the name"):
            asked(cluster, name)
    assert cluster.calls == []


def answering(method: str, part: str, answer: Answer) -> Callable[[Call], Answer | None]:
    return lambda call: answer if call.method == method and part in call.path else None


@pytest.mark.parametrize("part", ["/persistentvolumeclaims/c", "/storageclasses"])
def test_what_cannot_be_read_is_tried_again_later_and_no_success(part: str) -> None:
    for answer, kind in (
        (LOST, NoAnswer),
        ((500, {}, {}), NoAnswer),
        ((403, {"message": "no"}, {}), Rejected),
        ((200, {}, {}), (NoAnswer, Rejected)),
    ):
        cluster = holding(CSI, claim("c", of="csi"))
        cluster.before.append(answering("GET", part, answer))
        assert isinstance(asked(cluster), kind), answer
        assert node_of(cluster) is None


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (LOST, NoAnswer),
        ((500, {}, {}), NoAnswer),
        ((429, {}, {}), NoAnswer),
        ((409, {"message": "changed"}, {}), Conflict),
        ((403, {"message": "no"}, {}), Rejected),
        ((422, {"message": "no"}, {}), Rejected),
    ],
)
def test_a_write_that_fails_is_no_success(answer: Answer, kind: type[Event]) -> None:
    cluster = holding(CSI, claim("c", of="csi"))
    cluster.before.append(answering("PATCH", "/persistentvolumeclaims/c", answer))
    event = asked(cluster)
    assert isinstance(event, kind)
    if answer[0] == 403:
        assert isinstance(event, Rejected)
        assert event.message.startswith("not permitted: patch persistentvolumeclaims in namespace")
