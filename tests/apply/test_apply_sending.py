"""What requests of the machine become on the wire, and what answers become for the machine."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from models.apply.intents import Intent, SealKey
from models.apply.notes import RunNotes
from models.apply.plan_actions import PodStart, PodStop
from models.apply.requests import (
    BlockedByBudget,
    Conflict,
    Evict,
    Gone,
    NoAnswer,
    ReadCluster,
    Rejected,
    WriteIntent,
)
from models.instance.policy import KubernetesPolicy
from planner.cluster.backends import backend_of
from planner.cluster.request_sender import RequestSender
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


# ---- the lock and signals


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
