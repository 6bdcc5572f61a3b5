"""What requests of the machine become on the wire, and what answers become for the machine."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from models.apply.intents import Intent, SealKey
from models.apply.notes import RunNotes
from models.apply.plan_actions import PodStart, PodStop
from models.apply.requests import (
    BlockedByBudget,
    CheckLock,
    ClusterRead,
    Conflict,
    Done,
    Evict,
    Gone,
    Halt,
    LockHeld,
    NoAnswer,
    ReadCluster,
    ReadPod,
    Rejected,
    RemoveIntent,
    Request,
    Ungate,
    WriteIntent,
)
from models.instance.policy import KubernetesPolicy
from planner.cluster.backends.registry import backend_of
from planner.cluster.request_sender import GRACE_S, REREAD_S, RequestSender
from planner.cluster.transport import JSON, STRATEGIC, Reply, Tree

ORDER = PodStart("team", "vit-0", "u-1", "worker", 0, "n1", (0, 1), 2)
INTENT = Intent("gp-0123456789abcdef0123", "vit", 2, "n1", (0, 1))
POD: Tree = {
    "kind": "Pod",
    "metadata": {
        "namespace": "team",
        "name": "vit-0",
        "uid": "u-1",
        "resourceVersion": "7",
        "annotations": {"gangplan.dev/plan": "gp-0123456789abcdef0123", "theirs": "x"},
    },
    "spec": {"schedulingGates": [{"name": "gangplan.dev/placement"}], "containers": [{}]},
}
NODE: Tree = {
    "kind": "Node",
    "metadata": {"name": "n1", "uid": "n-1", "labels": {"kubernetes.io/hostname": "n1"}},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


@dataclass(slots=True)
class Script:
    """A wire that reads one node and one pod, and answers writes with ``reply``."""

    reply: Reply = field(default_factory=lambda: Reply(200, POD))
    sent: list[tuple[str, str, Tree | None, str]] = field(default_factory=list)

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        self.sent.append((method, path, body, content_type))
        if method == "GET" and path.startswith("/api/v1/nodes"):
            return Reply(200, {"items": [NODE]})
        if method == "GET" and path.startswith("/api/v1/pods"):
            return Reply(200, {"items": [POD]})
        if path == "/api/v1/namespaces/kube-system":
            return Reply(200, {"metadata": {"uid": "cluster"}})
        return Reply(404) if path.startswith("/apis/") else self.reply


@dataclass(slots=True)
class Clockwork:
    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@dataclass(slots=True)
class Latch:
    """A lock with so much time left."""

    left: float = 60.0
    lost: str | None = None
    renewed: int = 0
    seal_key: SealKey | None = None
    notes: RunNotes = field(default_factory=RunNotes)

    def now(self) -> int:
        return 1_795_255_200

    def remember(self, notes: RunNotes) -> bool:
        self.notes = notes
        return self.lost is None

    def left_s(self) -> float:
        return self.left

    def renew_if_needed(self) -> None:
        self.renewed += 1


STOP = PodStop("team", "vit-0", "u-1", "worker", 0, "n1", 2)


def sender(wire: Script, *, lock: Latch | None = None, dry: bool = False) -> RequestSender:
    clock = Clockwork()
    made = RequestSender(
        wire=wire,
        settings=KubernetesPolicy(),
        backend=backend_of("annotation"),
        lock=lock,
        stop=threading.Event(),
        clock=clock.read,
        sleep=clock.sleep,
        dry=dry,
    )
    made.answer(ReadCluster())
    wire.sent.clear()
    return made


def only(wire: Script) -> tuple[str, str, Any, str]:
    (sent,) = wire.sent
    return sent


# ---- requests


def test_an_intent_is_one_strategic_patch_guarded_by_uid_and_version() -> None:
    wire = Script()
    sender(wire).answer(WriteIntent(ORDER, INTENT, "7"))

    method, path, body, content_type = only(wire)
    assert (method, content_type) == ("PATCH", STRATEGIC)
    assert path == "/api/v1/namespaces/team/pods/vit-0?fieldManager=gangplan&fieldValidation=Strict"
    assert body == {
        "metadata": {
            "uid": "u-1",
            "resourceVersion": "7",
            "labels": {"gangplan.dev/plan": INTENT.plan},
            "annotations": {
                "gangplan.dev/plan": INTENT.plan,
                "gangplan.dev/gang": "vit",
                "gangplan.dev/gang-size": "2",
                "gangplan.dev/node": "n1",
                "gangplan.dev/gpus": "0,1",
            },
        }
    }


def test_what_an_earlier_plan_left_is_taken_off_with_the_new_intent() -> None:
    wire = Script()
    made = sender(wire)
    left = {"gangplan.dev/whole": "true", "gangplan.dev/gpus": "7", "theirs": "x"}
    made.reader.pods["team", "vit-0"] = {"metadata": {**POD["metadata"], "annotations": left}}

    made.answer(WriteIntent(ORDER, Intent(INTENT.plan, "vit", 2, "n1", None), "7"))

    written = only(wire)[2]["metadata"]["annotations"]
    assert (written["gangplan.dev/whole"], written["gangplan.dev/gpus"]) == (None, None)
    assert "theirs" not in written


def test_forgetting_takes_off_our_keys_and_nothing_of_others() -> None:
    wire = Script()
    sender(wire).answer(RemoveIntent("team", "vit-0", "u-1", "7"))

    body = only(wire)[2]
    assert body["metadata"]["labels"] == {"gangplan.dev/plan": None}
    assert set(body["metadata"]["annotations"].values()) == {None}
    assert all(key.startswith("gangplan.dev/") for key in body["metadata"]["annotations"])


def test_a_gate_goes_together_with_the_pin() -> None:
    wire = Script()
    made = sender(wire)
    seen = made.reader.view.pods["team", "vit-0"] if made.reader.view else None
    assert seen is not None
    made.answer(Ungate(ORDER, seen))

    assert only(wire)[2] == {
        "metadata": {"uid": "u-1", "resourceVersion": "7"},
        "spec": {
            "schedulingGates": [{"$patch": "delete", "name": "gangplan.dev/placement"}],
            "nodeSelector": {"kubernetes.io/hostname": "n1"},
        },
    }


def test_the_record_of_a_pin_comes_with_it_and_the_seal_covers_it() -> None:
    key = SealKey("secret", since=0)
    wire = Script()
    made = sender(wire, lock=Latch(seal_key=key))
    assert made.reader.view is not None
    seen = replace(made.reader.view.pods["team", "vit-0"], intent=INTENT, intent_is_ours=True)
    made.answer(Ungate(ORDER, seen))

    sealed = key.seal("team", "vit-0", "u-1", replace(INTENT, pin="hostname"))
    written = {"gangplan.dev/pin": "hostname", "gangplan.dev/seal": sealed}
    assert only(wire)[2]["metadata"]["annotations"] == written


@pytest.mark.parametrize("sealed", [True, False])
def test_a_pinned_pod_keeps_its_record_when_its_gang_is_marked_as_whole(*, sealed: bool) -> None:
    """Unless somebody else wrote it."""
    key = SealKey("secret", since=0)
    wire = Script()
    made = sender(wire, lock=Latch(seal_key=key))
    pinned = replace(INTENT, pin="hostname")
    seal = key.seal("team", "vit-0", "u-1", pinned if sealed else INTENT)
    notes = {**pinned.annotations(), "gangplan.dev/seal": seal}
    names = {f"f:{name}": {} for name in notes}
    owned = {"f:labels": {"f:gangplan.dev/plan": {}}, "f:annotations": names}
    made.reader.pods["team", "vit-0"] = {
        "metadata": {
            **POD["metadata"],
            "creationTimestamp": "2026-11-20T08:00:00Z",
            "labels": INTENT.labels(),
            "annotations": notes,
            "managedFields": [{"manager": "gangplan", "fieldsV1": {"f:metadata": owned}}],
        }
    }
    made.answer(WriteIntent(ORDER, replace(INTENT, whole=True), "7"))

    written = only(wire)[2]["metadata"]["annotations"]
    marked = replace(INTENT, whole=True, pin="hostname" if sealed else "")
    assert written["gangplan.dev/pin"] == ("hostname" if sealed else None)
    assert written["gangplan.dev/seal"] == key.seal("team", "vit-0", "u-1", marked)


def test_an_eviction_is_of_that_uid_alone() -> None:
    wire = Script(Reply(201, {"kind": "Status"}))
    assert sender(wire).answer(Evict(STOP)) == Done()
    assert only(wire)[2]["deleteOptions"] == {"preconditions": {"uid": "u-1"}}


@pytest.mark.parametrize(
    "request_", [WriteIntent(ORDER, INTENT, "7"), Evict(STOP)], ids=["intend", "evict"]
)
def test_nothing_but_dry_runs_leaves_a_dry_carrier(request_: Request) -> None:
    wire = Script()
    sender(wire, dry=True).answer(request_)

    assert only(wire)[1].endswith("&dryRun=All")


@pytest.mark.parametrize("name", ["..", "a/b", "--help\n", "A", "x?y", "%2e%2e", ""])
def test_a_name_that_is_none_is_never_sent(name: str) -> None:
    wire = Script()
    order = PodStart("team", name, "u-1", "worker", 0, "n1", None, 2)

    assert isinstance(sender(wire).answer(WriteIntent(order, INTENT, "7")), Rejected)
    assert wire.sent == []


# ---- answers


def told(status: int, message: str = "no", **body: object) -> Reply:
    return Reply(status, {"kind": "Status", "message": message, **body})


UID_CAUSE = {"causes": [{"field": "metadata.uid", "reason": "FieldValueInvalid"}]}
PRECONDITION = "StorageError: invalid object, Code: 4, Precondition failed: "


@pytest.mark.parametrize(
    ("reply", "event"),
    [
        (told(409, "the object has been modified"), Conflict),
        (told(409, 'pod vit-0 is already assigned to node "n1"'), Conflict),
        (told(409, PRECONDITION + "UID in precondition: u-1, UID in object meta: u-2"), Gone),
        (
            told(409, PRECONDITION + "ResourceVersion in precondition: 7, in object meta: 8"),
            Conflict,
        ),
        (told(404), Gone),
        (told(422, details=UID_CAUSE), Gone),
        (told(422), Rejected),
        (told(400), Rejected),
        (told(403), Rejected),
        (told(429), NoAnswer),
        (told(500), NoAnswer),
        (told(503), NoAnswer),
        (Reply(0, why="the connection broke"), NoAnswer),
        (Reply(302), NoAnswer),
    ],
)
def test_answers_to_a_write_are_distinguished(reply: Reply, event: type) -> None:
    assert type(sender(Script(reply)).answer(WriteIntent(ORDER, INTENT, "7"))) is event


@pytest.mark.parametrize(
    ("reply", "event"),
    [
        (told(429, "would violate the pod's disruption budget"), BlockedByBudget),
        (
            told(500, "This pod has more than one PodDisruptionBudget, which is not supported"),
            Rejected,
        ),
        (told(500), NoAnswer),
        (told(404), Gone),
        (told(409, PRECONDITION + "UID in precondition: u-1, UID in object meta: u-2"), Gone),
        (
            told(409, "the UID in the precondition (u-1) does not match the UID in record (u-2)"),
            Gone,
        ),
    ],
)
def test_answers_to_an_eviction_are_distinguished(reply: Reply, event: type) -> None:
    assert type(sender(Script(reply)).answer(Evict(STOP))) is event


def test_the_servers_words_arrive_on_one_harmless_line() -> None:
    event = sender(Script(told(422, "red \x1b[31m\nnext: rm"))).answer(
        WriteIntent(ORDER, INTENT, "7")
    )

    assert event == Rejected("red \\e[31m next: rm")


def test_a_patched_pod_comes_back_as_it_is_now() -> None:
    after = {**POD, "metadata": {**POD["metadata"], "resourceVersion": "8"}}
    event = sender(Script(Reply(200, after))).answer(WriteIntent(ORDER, INTENT, "7"))

    assert isinstance(event, Done)
    assert event.pod is not None
    assert (event.pod.version, event.pod.gates) == ("8", ("gangplan.dev/placement",))


def test_looking_at_a_pod_tells_gone_from_unanswered() -> None:
    look = ReadPod("team", "vit-0")

    assert isinstance(sender(Script(told(404))).answer(look), Gone)
    assert isinstance(sender(Script(told(500))).answer(look), NoAnswer)
    assert isinstance(sender(Script(Reply(200, {"kind": "Status"}))).answer(look), NoAnswer)
    assert isinstance(sender(Script()).answer(look), Done)


# ---- the lock and signals


def test_before_each_gang_the_lock_is_renewed_if_it_needs_to_be() -> None:
    lock = Latch()

    assert sender(Script(), lock=lock).answer(CheckLock("gang a")) == LockHeld()
    assert lock.renewed == 1


@pytest.mark.parametrize("lock", [Latch(lost="taken by ana"), Latch(left=14.9)])
def test_without_the_lock_nothing_more_is_begun(lock: Latch) -> None:
    event = sender(Script(), lock=lock).answer(CheckLock("gang a"))

    assert isinstance(event, Halt)
    assert event.lock


def test_a_signal_stops_what_is_not_begun_and_leaves_the_rest_some_seconds() -> None:
    made = sender(Script(), lock=Latch())
    clock = Clockwork()
    made.clock = clock.read
    made.stop.set()

    assert isinstance(made.answer(CheckLock("gang b")), Halt)
    assert made.answer(CheckLock("gang a", begun=True)) == LockHeld()
    clock.now = GRACE_S
    assert isinstance(made.answer(CheckLock("gang a", begun=True)), Halt)


def test_a_wait_is_cut_short_by_a_signal_and_keeps_the_lock_alive() -> None:
    lock = Latch()
    made = sender(Script(), lock=lock)
    clock = Clockwork()
    made.sleep = clock.sleep

    assert isinstance(made.answer(ReadCluster(2.0)), ClusterRead)
    assert (clock.slept, lock.renewed) == ([0.5] * 4, 4)

    made.stop.set()
    assert isinstance(made.answer(ReadCluster(2.0)), Halt)


def test_a_cluster_that_cannot_be_read_is_a_lost_answer() -> None:
    made = sender(Script())

    class Dead:
        def send(self, *_: object, **__: object) -> Reply:
            return Reply(0, why="refused")

    made.reader.wire = Dead()
    assert isinstance(made.answer(ReadCluster()), NoAnswer)


# ---- how old a reading may be


class Slow(Script):
    """Each list of nodes takes so many seconds to read."""

    takes: float = 0.0
    clock: Clockwork | None = None

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        if self.clock is not None and path.startswith("/api/v1/nodes"):
            self.clock.now += self.takes
        return Script.send(self, method, path, body, content_type=content_type)


@pytest.mark.parametrize(
    ("takes", "fresh_for"),
    [
        (0.0, REREAD_S),
        (0.1, REREAD_S),  # 10 times 0.1 s is less than 2 s
        (3.0, 30.0),  # a tenth of the time is spent on reading, not more
    ],
)
def test_a_reading_is_due_again_after_two_seconds_or_ten_times_what_it_takes(
    takes: float, fresh_for: float
) -> None:
    wire, clock = Slow(), Clockwork()
    made = sender(wire)
    made.clock = clock.read
    wire.takes, wire.clock = takes, clock
    made.answer(ReadCluster())
    for _ in range(2):
        begun = clock.now - takes
        clock.now = begun + fresh_for - 0.01
        assert made.answer(CheckLock("gang a")) == LockHeld()
        clock.now = begun + fresh_for
        assert made.answer(CheckLock("gang a")) == LockHeld(reread=True)
        made.answer(ReadCluster())


def test_a_dry_run_reads_but_once() -> None:
    made = sender(Script(), dry=True)
    made.clock = lambda: 1e9
    assert made.answer(CheckLock("gang a")) == LockHeld()
