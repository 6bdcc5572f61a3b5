"""What requests of the machine become on the wire, and what answers become for the machine; several that go
together; and the number of pods of a role, set where its controller has a scale that means just that.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiserver import FakeCluster
from apiserver_http import FakeWire
from apply_runs import refusing
from msgspec import structs

from models.apply import requests as req
from models.apply.live_state import LivePod
from models.apply.plan_actions import PodStart, PodStop, Resize
from models.apply.records import PodPlace, StartRecord, record_name
from models.apply.requests import Conflict, Done, NoAnswer, Rejected
from models.instance.policy import KubernetesPolicy
from planner.cluster.backends import backend_of
from planner.cluster.request_sender import RequestSender
from planner.cluster.start_records import StartRecords
from planner.cluster.transport import JSON, LOST, STRATEGIC, ApiRequest, Reply, Tree
from planner.cluster.writes import COST, event_of, scale

ORDER = PodStart("team", "vit-0", "u-1", "worker", 0, "n1", (0, 1), 2)
PLAN = "gp-0123456789abcdef0123"
RECORD = StartRecord(("team", "vit"), PLAN, (PodPlace("vit-0", "u-1", "n1", (0, 1)),))
GATED = LivePod("team", "vit-0", "u-1", "7", gates=("gangplan.dev/placement",), start=RECORD)
WRITE = req.Ungate(ORDER, GATED)
EVICT = req.Evict(PodStop("team", "vit-0", "u-1", "worker", 0, "n1", 2))
POD: Tree = yaml.load(
    """
kind: Pod
metadata: {namespace: team, name: vit-0, uid: u-1, resourceVersion: "7",
           annotations: {gangplan.dev/gpus: "7", gangplan.dev/rank: "3", theirs: x}}
spec: {schedulingGates: [{name: gangplan.dev/placement}], containers: [{}]}
""",
    Loader=yaml.CSafeLoader,
)
NODE: Tree = yaml.load(
    """
kind: Node
metadata: {name: n1, uid: n-1, labels: {kubernetes.io/hostname: n1}}
status: {conditions: [{type: Ready, status: "True"}]}
""",
    Loader=yaml.CSafeLoader,
)


@dataclass(slots=True)
class Script:
    """A wire that reads one node and one pod, and answers writes with ``replies`` in turn, the last again."""

    replies: list[Reply] = field(default_factory=lambda: [Reply(200, POD)])
    sent: list[tuple[str, str, Tree | None, str]] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        self.sent.append((method, path, body, content_type))
        if method == "GET" and path.startswith("/api/v1/nodes"):
            return Reply(200, {"items": [NODE]})
        if method == "GET" and path.startswith("/api/v1/pods"):
            return Reply(200, {"items": [POD]})
        if method == "GET" and "/configmaps?" in path:
            return Reply(200, {"items": []})
        if path == "/api/v1/namespaces/kube-system":
            return Reply(200, {"metadata": {"uid": "cluster"}})
        if path.startswith("/apis/"):
            return Reply(404)
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    def send_all(self, asked: Sequence[ApiRequest]) -> list[Reply]:
        self.groups.append(len(asked))
        return [
            self.send(one.method, one.path, one.body, content_type=one.content_type)
            for one in asked
        ]  # fmt: skip


def sender(wire: Script, *, dry: bool = False) -> RequestSender:
    made = RequestSender(
        wire=wire,
        settings=KubernetesPolicy(),
        backend=backend_of("annotation"),
        lock=None,
        stop=threading.Event(),
        namespace="gangplan-system",
        clock=lambda: 0.0,
        sleep=lambda _: None,
        dry=dry,
    )
    made.answer(req.ReadCluster())
    wire.sent.clear()
    return made


def test_a_start_is_one_strategic_patch_guarded_by_uid_and_version() -> None:
    """What the pod said of its place before goes."""
    wire = Script()
    sender(wire).answer(WRITE)
    path = "/api/v1/namespaces/team/pods/vit-0?fieldManager=gangplan&fieldValidation=Strict"
    notes = {"node": "n1", "gpus": "0,1", "rank": None}
    metadata = {
        "uid": "u-1",
        "resourceVersion": "7",
        "labels": {"gangplan.dev/plan": PLAN},
        "annotations": {f"gangplan.dev/{key}": value for key, value in notes.items()},
    }
    gate = {"$patch": "delete", "name": "gangplan.dev/placement"}
    spec = {"schedulingGates": [gate], "nodeSelector": {"kubernetes.io/hostname": "n1"}}
    assert wire.sent == [("PATCH", path, {"metadata": metadata, "spec": spec}, STRATEGIC)]


# ---- records

RECORDS = "/api/v1/namespaces/gangplan-system/configmaps"


def kept(record: StartRecord, version: str, **more: object) -> Tree:
    """The object of a record as the server has it."""
    metadata = {"name": record_name(record.key), "uid": "c-1", "resourceVersion": version}
    data = {"data": {"start": record.text()}, **more}
    return {"kind": "ConfigMap", "metadata": metadata, **data}


def test_a_record_is_created_then_replaced_and_removed_in_the_version_that_was_seen() -> None:
    whole = replace(RECORD, whole=True)
    wire = Script([
        Reply(201, kept(RECORD, "1")), Reply(200, kept(whole, "2")), Reply(200, {"kind": "Status"}),
    ])  # fmt: skip
    made = sender(wire)
    assert made.answer(req.WriteRecord(RECORD)) == Done(record=RECORD)
    assert made.answer(req.WriteRecord(whole)) == Done(record=whole)
    assert made.answer(req.RemoveRecord(RECORD.key)) == Done()
    (post, put, delete) = wire.sent
    name = record_name(RECORD.key)
    assert (post[0], post[1].partition("?")[0]) == ("POST", RECORDS)
    assert (put[0], put[1].partition("?")[0]) == ("PUT", f"{RECORDS}/{name}")
    assert put[2] is not None
    assert put[2]["metadata"]["resourceVersion"] == "1"
    assert (delete[0], delete[1]) == ("DELETE", f"{RECORDS}/{name}")
    assert delete[2] is not None
    assert delete[2]["preconditions"] == {"uid": "c-1", "resourceVersion": "2"}


def test_a_record_of_thousands_of_pods_is_packed_and_read_again() -> None:
    places = (
        PodPlace(f"worker-{n}", f"{n:036}", f"node-{n // 8}", (n % 8,)) for n in range(20_000)
    )
    record = replace(RECORD, pods=tuple(places))
    records = StartRecords(Script(), "gangplan-system")
    body = records.write(record, dry=False).body
    assert body is not None
    assert len(json.dumps(body)) < 2**20
    found = kept(record, "1", data=None, binaryData=body["binaryData"])
    assert records.answer(record.key, Reply(200, found), dry=False) == Done(record=record)


@pytest.mark.parametrize(
    "odd",
    [
        {"data": {"start": "{"}},
        {"data": {"start": 1}},
        {"data": None},
        {"data": None, "binaryData": {"start.zlib": "!"}},
        {"data": None, "binaryData": {"start.zlib": "QUJD"}},
        {"data": {"start": RECORD.text().replace("vit", "other")}},
        {"data": {"start": RECORD.text().replace("[0,1]", "[0.5]")}},
    ],
)
def test_what_is_no_record_is_named_and_counts_for_nothing(odd: Tree) -> None:
    class Kept(Script):
        def send(
            self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
        ) -> Reply:
            return Reply(200, {"items": [kept(RECORD, "1", **odd)]})

    records = StartRecords(Kept(), "gangplan-system")
    assert records.read()
    assert (records.known, records.unread) == ({}, (record_name(RECORD.key),))


# ---- answers


def told(status: int, message: str = "no", **body: object) -> Reply:
    return Reply(status, {"kind": "Status", "message": message, **body})


UID_CAUSE = {"causes": [{"field": "metadata.uid", "reason": "FieldValueInvalid"}]}
ANSWERS = yaml.load(
    Path(__file__).with_name("answer_cases.yaml").read_text("utf-8"), Loader=yaml.CSafeLoader
)


@pytest.mark.parametrize(("asked", "status", "message", "event"), ANSWERS)
def test_answers_are_distinguished(
    asked: str, status: int, message: str | None, event: str
) -> None:
    more = {"details": UID_CAUSE} if message == "metadata.uid" else {}
    reply = Reply(status) if message is None else told(status, message, **more)
    found = sender(Script([reply])).answer({"patch": WRITE, "evict": EVICT}[asked])
    assert type(found) is getattr(req, event)


LIVE = LivePod("team", "vit-0", "u-1", "7")


@pytest.mark.parametrize(
    ("body", "event"),
    [
        ({"kind": "Pod"}, Done(LIVE)),
        ({"kind": "Status", "status": "Success"}, Done()),
        ({"kind": "Status"}, Done()),
        ({"kind": "Status", "status": "Failure"}, None),
        ({"kind": "PodList", "items": []}, None),
        ({"kind": ["Pod"]}, None),
        ({"ok": True}, None),
        ({}, None),
    ],
)
def test_a_yes_is_a_pod_or_a_success(body: Tree, event: req.Event | None) -> None:
    """Answers that no API server gives are not taken for one."""
    for code in (200, 201, 202):
        for eviction in (False, True):
            found = event_of(Reply(code, body), lambda _: LIVE, eviction=eviction)
            no = NoAnswer("the server's answer is neither a Pod nor its success")
            assert found == (event or no)


# ---- requests that go together

SECOND = req.Ungate(
    structs.replace(ORDER, name="vit-1", uid="u-2"),
    structs.replace(GATED, name="vit-1", uid="u-2", version="9"),
)
BOTH = (WRITE, SECOND)


def test_each_is_sent_as_it_would_be_alone() -> None:
    alone, wire = Script(), Script()
    made = sender(alone)
    for request in BOTH:
        made.answer(request)
    sender(wire).answer(req.RequestGroup(BOTH))
    assert (wire.sent, wire.groups) == (alone.sent, [2])


def test_each_gets_its_own_answer() -> None:
    after = {**POD, "metadata": {**POD["metadata"], "resourceVersion": "8"}}
    wire = Script([Reply(200, after), told(409), Reply(LOST), told(422)])
    event = sender(wire).answer(req.RequestGroup((*BOTH, *BOTH)))
    assert isinstance(event, req.EventGroup)
    done, *others = event.events
    assert isinstance(done, Done)
    assert done.pod is not None
    assert done.pod.version == "8"
    assert [type(one) for one in others] == [Conflict, NoAnswer, Rejected]


def test_a_dry_run_writes_nothing_and_shows_no_pod() -> None:
    wire = Script()
    found = sender(wire, dry=True).answer(req.RequestGroup(BOTH))
    assert found == req.EventGroup((Done(), Done()))
    assert all(path.endswith("&dryRun=All") for _, path, _, _ in wire.sent)


def test_a_name_that_is_none_spoils_no_other() -> None:
    odd = req.Ungate(structs.replace(ORDER, name=".."), GATED)
    wire = Script()
    event = sender(wire).answer(req.RequestGroup((odd, BOTH[0])))
    assert isinstance(event, req.EventGroup)
    assert [type(one) for one in event.events] == [Rejected, Done]
    paths = [path.partition("?")[0] for _, path, _, _ in wire.sent]
    assert paths == ["/api/v1/namespaces/team/pods/vit-0"]


# ---- scales

GOES_FIRST = "-2147483648"  # the least that Kubernetes accepts
GROW, SHRINK = Resize("worker", 2, 3), Resize("worker", 3, 2)


def asked_of(resize: Resize = GROW, *stops: PodStop) -> req.Scale:
    return req.Scale(("default", "vit"), resize, ("default", "vit-0"), stops)


def seen(*pods: Tree) -> dict[tuple[str, str], Tree]:
    """The pods as a reading of the cluster has them."""
    return {("default", pod["metadata"]["name"]): pod for pod in pods}


def controller(
    kind: str = "StatefulSet", *, replicas: int = 2, above: Tree | None = None
) -> tuple[FakeCluster, Tree]:
    """A controller of so many replicas and the tree of its first pod."""
    cluster = FakeCluster()
    metadata: Tree = {"name": "vit", "namespace": "default"}
    metadata |= {} if above is None else {"ownerReferences": [above]}
    tree = {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata}
    made = cluster.put({**tree, "spec": {"replicas": replicas}})
    return cluster, cluster.add_pod("vit-0", owner=made)


def replicas(cluster: FakeCluster, plural: str) -> int:
    tree = cluster.handle("GET", f"/apis/apps/v1/namespaces/default/{plural}/vit")[1]
    found: int = tree["spec"]["replicas"]
    return found


def test_a_number_that_the_plan_did_not_see_is_not_overwritten() -> None:
    cluster, pod = controller(replicas=7)
    found = scale(FakeWire(cluster), asked_of(), seen(pod))
    assert found == Rejected("its scale is 7, the plan saw 2")
    assert replicas(cluster, "statefulsets") == 7


def owned(kind: str, name: str = "vit", uid: str = "u", **more: object) -> Tree:
    version = {"Job": "batch/v1", "Fleet": "example.com/v1"}.get(kind, "apps/v1")
    return {
        "apiVersion": version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        **more,
    }


def test_a_controller_that_somebody_above_it_sets_back_is_refused() -> None:
    """A ReplicaSet of an own kind: its controller would revert the change."""
    cluster, pod = controller("ReplicaSet", above=owned("Fleet", "f"))
    assert isinstance(scale(FakeWire(cluster), asked_of(), seen(pod)), Rejected)
    assert replicas(cluster, "replicasets") == 2


@pytest.mark.parametrize(
    "owner",
    [
        owned("Job"),
        owned("StatefulSet", "../x"),
        owned("StatefulSet", "gone"),
        owned("StatefulSet", uid="other"),
        owned("StatefulSet", controller=False),
    ],
    ids=["no scale", "no name", "gone", "another", "no controller"],
)
def test_without_a_scale_of_its_own_it_is_advice(owner: Tree) -> None:
    cluster, _ = controller()
    pod = {"metadata": {"name": "vit-0", "ownerReferences": [owner]}}
    cluster.calls.clear()
    try:
        found = scale(FakeWire(cluster), asked_of(), seen(pod))
    except ValueError:
        found = Rejected("no name")  # the carrier turns it into this
    assert isinstance(found, Rejected)
    assert cluster.writes == []


def test_a_number_changed_meanwhile_is_a_conflict() -> None:
    cluster, pod = controller()

    def races(call: Any) -> None:  # noqa: ANN401
        if call.method == "PATCH":
            cluster.touch("StatefulSet", "vit")

    cluster.before.append(races)
    assert isinstance(scale(FakeWire(cluster), asked_of(), seen(pod)), Conflict)


# ---- ReplicaSets, which choose the pods that go


def replica_set() -> tuple[FakeCluster, list[Tree]]:
    """A ReplicaSet and its three pods."""
    cluster, pod = controller("ReplicaSet", replicas=3)
    made = cluster.handle("GET", "/apis/apps/v1/namespaces/default/replicasets/vit")[1]
    return cluster, [pod, *(cluster.add_pod(f"vit-{n}", owner=made) for n in (1, 2))]


def going(pod: Tree) -> req.Scale:
    metadata = pod["metadata"]
    stop = PodStop("default", metadata["name"], metadata["uid"], "worker", 2, "n1", 1)
    return asked_of(SHRINK, stop)


def annotated(cluster: FakeCluster, name: str, **more: str) -> Tree:
    """The pod, with these annotations besides."""

    def change(tree: Tree) -> Tree:
        tree["metadata"]["annotations"] = (tree["metadata"].get("annotations") or {}) | more
        return tree

    return cluster.change("Pod", name, change)


def costs(cluster: FakeCluster) -> dict[str, str]:
    notes = {
        pod["metadata"]["name"]: pod["metadata"].get("annotations") or {} for pod in cluster.pods()
    }
    return {name: one[COST] for name, one in notes.items() if COST in one}


def test_marks_of_a_run_that_was_cut_off_are_taken_off_the_pods_that_stay() -> None:
    cluster, pods = replica_set()
    marked = annotated(cluster, "vit-2", **{COST: GOES_FIRST})
    own = annotated(cluster, "vit-0", **{COST: "7"})
    assert scale(FakeWire(cluster), going(pods[1]), seen(own, pods[1], marked)) == Done()
    assert costs(cluster) == {"vit-0": "7", "vit-1": GOES_FIRST}
    assert replicas(cluster, "replicasets") == 2


def test_a_pod_that_changed_since_it_was_read_is_marked_all_the_same() -> None:
    cluster, pods = replica_set()
    annotated(cluster, "vit-1", x="y")
    assert scale(FakeWire(cluster), going(pods[1]), seen(*pods)) == Done()
    assert costs(cluster) == {"vit-1": GOES_FIRST}


@pytest.mark.parametrize(
    ("refused", "why"),
    [("/vit-1", "pod vit-1 cannot be marked as the one to go: no"), ("/scale", "no")],
)
def test_where_a_write_is_refused_the_set_stays_as_it_is(refused: str, why: str) -> None:
    """The mark, or then the scale: the mark is taken off again."""
    cluster, pods = replica_set()
    cluster.before.append(refusing(refused, 403, "no"))
    assert scale(FakeWire(cluster), going(pods[1]), seen(*pods)) == Rejected(why)
    assert (costs(cluster), replicas(cluster, "replicasets")) == ({}, 3)
