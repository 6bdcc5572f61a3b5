"""What starts a run of ``run --watch``, when, and what does not."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from apiserver import FakeCluster
from apiserver_http import FakeWire
from deploying import USER, built, grant, install
from effort import HANG_S

from planner.cli.verbs.run import _of_a_round
from planner.cluster import bell as bells
from planner.cluster import retry, rights
from planner.cluster.bell import Bell, Watches, digest
from planner.cluster.transport import JSON, Reply
from planner.cluster.unix_http import BrokenError
from planner.errors import NotPermittedError
from planner.pipelines.watch import SETTLE_S, WatchRequest, _Ear, _named, _wait
from planner.read.kube.kinds import ALL, NODES, PODS, Kind

Tree = dict[str, Any]

JOBS = next(kind for kind in ALL if kind.resource == "jobs.batch")

NODE: Tree = {
    "metadata": {"name": "n1", "uid": "u1", "resourceVersion": "7", "labels": {"rack": "r1"}},
    "spec": {},
    "status": {
        "allocatable": {"nvidia.com/gpu": "8"},
        "conditions": [
            {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-22T10:00:00Z"}
        ],
    },
}
POD: Tree = {
    "metadata": {"name": "p", "namespace": "ml", "uid": "u2", "resourceVersion": "8"},
    "spec": {"schedulingGates": [{"name": "gangplan.dev/placement"}], "containers": []},
    "status": {"phase": "Pending"},
}
JOB: Tree = {
    "metadata": {"name": "j", "namespace": "ml", "uid": "u3", "resourceVersion": "9"},
    "spec": {"suspend": True, "parallelism": 2},
    "status": {"active": 0},
}
MARKS = {"labels": {"gangplan.dev/plan": "gp-1"}, "annotations": {"gangplan.dev/node": "n1"}}


def changed(tree: Tree, **parts: Tree) -> Tree:
    """The object with some fields of its parts replaced, as a later version."""
    found = copy.deepcopy(tree)
    found["metadata"]["resourceVersion"] = str(int(tree["metadata"]["resourceVersion"]) + 100)
    for name, fields in parts.items():
        found[name] |= fields
    return found


def condition(**fields: str) -> Tree:
    return {"conditions": [{**NODE["status"]["conditions"][0], **fields}]}


def rings(kind: Kind, *versions: Tree | None) -> list[bool]:
    """Whether each version of one object rings; None: it is gone."""
    bell, found = Bell(lambda: 0.0), []
    for tree in versions:
        bell.forget()
        bell.see(kind, "u", None if tree is None else digest(kind, tree))
        found.append(bell.rung_at is not None)
    return found


@pytest.mark.parametrize(
    ("kind", "before", "after", "rung"),
    [
        (NODES, NODE, changed(NODE), False),
        (NODES, NODE, changed(NODE, status=condition(lastHeartbeatTime="2026-11-22T10:05:00Z")), False),
        (NODES, NODE, changed(NODE, status=condition(status="False")), True),
        (NODES, NODE, changed(NODE, status={"allocatable": {"nvidia.com/gpu": "7"}}), True),
        (NODES, NODE, changed(NODE, spec={"unschedulable": True}), True),
        (NODES, NODE, changed(NODE, metadata={"labels": {"rack": "r2"}}), True),
        (NODES, NODE, changed(NODE, metadata={"annotations": {"example.com/seen": "now"}}), False),
        (PODS, POD, changed(POD, status={"phase": "Running"}), False),
        (PODS, POD, changed(POD, status={"conditions": [{"type": "Ready", "status": "True"}]}), False),
        (PODS, POD, changed(POD, status={"phase": "Succeeded"}), True),
        (PODS, POD, changed(POD, metadata={"deletionTimestamp": "2026-11-22T10:00:00Z"}), True),
        (PODS, POD, changed(POD, spec={"nodeName": "n1"}), True),
        (PODS, POD, changed(POD, spec={"schedulingGates": []}), True),
        (PODS, POD, changed(POD, metadata=MARKS, spec={"schedulingGates": []}), False),
        (JOBS, JOB, changed(JOB, status={"active": 2}), False),
        (JOBS, JOB, changed(JOB, spec={"suspend": False}), True),
    ],
)  # fmt: skip
def test_what_planning_reads_rings_and_nothing_else(
    kind: Kind, before: Tree, after: Tree, rung: bool
) -> None:
    assert rings(kind, before, after) == [True, rung]


def test_a_start_of_ours_rings_when_it_ends_but_not_when_it_is_withdrawn() -> None:
    started = changed(POD, metadata=MARKS)
    running = changed(started, spec={"nodeName": "n1", "schedulingGates": []})
    finished = changed(running, status={"phase": "Failed"})
    assert rings(PODS, POD, started, changed(POD)) == [True, False, False]
    assert rings(PODS, POD, started, running, finished, None) == [True, False, False, True, True]
    terminating = changed(running, metadata={"deletionTimestamp": "2026-11-22T10:00:00Z"})
    assert rings(PODS, POD, running, terminating) == [True, False, True]
    assert rings(PODS, running, changed(running)) == [True, False]


def test_a_list_rings_for_what_came_went_or_changed_since_the_last_one() -> None:
    bell = Bell(lambda: 5.0)
    seen = {"u1": digest(NODES, NODE)}
    for found, rung in (
        (seen, True),  # nothing was known
        (dict(seen), False),
        ({**seen, "u4": b"other"}, True),
        (seen, True),
        ({"u1": digest(NODES, changed(NODE, spec={"unschedulable": True}))}, True),
    ):
        bell.forget()
        bell.see_all(NODES, found)
        assert bell.rung_at == (5.0 if rung else None)
    bell.see(PODS, "u", b"x")
    assert bell.changed == ("nodes", "pods")
    assert _named(("nodes",)) == "nodes"
    assert _named(("nodes", "pods")) == "nodes and pods"
    assert _named(("nodes", "pods", "jobs", "queues", "cohorts")) == "nodes, pods, jobs and 2 more"


class WatchedWire(FakeWire):
    """The test API server, whose watches of pods say what is scripted, and then go on for ever."""

    def __init__(
        self, cluster: FakeCluster, script: list[list[Tree] | str], user: str | None = None
    ) -> None:
        super().__init__(cluster, user)
        self.script = script
        self.asked: list[str] = []
        self.over = threading.Event()
        self.done = threading.Event()

    def lines(self, path: str, idle_s: float) -> Iterator[bytes]:
        assert idle_s > bells.WATCH_S
        if path.startswith("/api/v1/pods?"):
            self.asked.append(path)
            if self.script:
                said = self.script.pop(0)
                if isinstance(said, str):
                    raise BrokenError(said)
                yield from (json.dumps(event).encode() for event in said)
                return
            self.done.set()
        self.over.wait(HANG_S)


def event(kind: str, version: str, **more: Tree) -> Tree:
    metadata = {"uid": "u9", "resourceVersion": version, "name": "p", "namespace": "ml"}
    return {"type": kind, "object": {"metadata": metadata, **more}}


GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}


def test_a_watch_goes_on_where_it_ended_and_lists_anew_where_it_broke(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bells, "_PAUSE_S", 0.0)
    cluster = FakeCluster()
    cluster.add_node("n1")
    script = [[event("ADDED", "1001"), event("BOOKMARK", "1007")], [GONE], "HTTP 502", []]
    wire, bell = WatchedWire(cluster, script), Bell(lambda: 0.0)
    watches = Watches(wire, bell)  # type: ignore[arg-type]
    watches.begin([NODES, PODS])
    assert wire.done.wait(HANG_S)
    versions = [path.rpartition("=")[2] for path in wire.asked]
    listed = versions[0]
    # ended after the bookmark; gone, so listed; broken, so listed; ended without a word
    assert versions == [listed, "1007", listed, listed, listed]
    assert watches.trouble is None
    assert "pods" in bell.changed
    watches.close()
    wire.over.set()


def test_without_the_right_to_watch_the_role_is_named_and_without_an_optional_one_its_kind_is_left_out() -> (
    None
):
    cluster = FakeCluster()
    install(cluster)
    watches = Watches(WatchedWire(cluster, [], USER), Bell(lambda: 0.0))  # type: ignore[arg-type]
    with pytest.raises(NotPermittedError) as refused:
        watches.permitted("gangplan-system")
    assert (refused.value.faults[0].hint or "").startswith("bind gangplan-watching;")
    for tree in built("watch"):
        if tree["metadata"]["name"] == "gangplan-watching":
            rules = [
                {**rule, "resources": [one for one in rule["resources"] if one != "namespaces"]}
                for rule in tree.get("rules", ())
            ]
            cluster.put({**tree, "rules": rules} if rules else tree)
    left_out = set(ALL) - set(watches.permitted("gangplan-system"))
    assert [kind.resource for kind in left_out] == ["namespaces"]


class ColdWire(WatchedWire):
    """A server whose authorizer, while it is ``cold``, knows nobody; ``denied``: requests refused so."""

    cold, denied = False, 0

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        if not (self.cold and method == "POST"):
            return super().send(method, path, body, content_type=content_type)
        self.denied += 1
        resource = path.rpartition("/")[2]
        said = f'{resource} is forbidden: User "{USER}" cannot create resource "{resource}" in API group'
        return Reply(403, {"message": said})


@dataclass
class Heard:
    """The ear of ``run --watch`` at a server that forgets rights, with a clock of its own."""

    monkeypatch: pytest.MonkeyPatch
    now: float = 0.0
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for module in (retry, rights):
            self.monkeypatch.setattr(module, "WAITS_S", (0.0,) * 4)
        cluster = FakeCluster()
        install(cluster)
        grant(cluster)
        for tree in built("watch"):
            cluster.put(tree)
        self.wire = ColdWire(cluster, [], USER)
        run = SimpleNamespace(
            target=SimpleNamespace(connect=lambda _accept: nullcontext(self.wire)),
            skip=(),
            options=SimpleNamespace(lock_namespace="gangplan-system"),
        )
        console = SimpleNamespace(
            say=self.said.append, warn=self.said.append, event=lambda *_, **__: None
        )
        self.bell = Bell(lambda: self.now)
        self.ear = _Ear(run, self.bell, console, lambda: self.now)  # type: ignore[arg-type]

    def listen_until(self, then: float) -> None:
        while self.now < then:
            self.ear.listen()
            self.now += 0.5

    def end(self) -> None:
        self.ear.close()
        self.wire.over.set()


def test_a_missing_right_ends_the_watch_at_the_start_and_is_asked_for_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard = Heard(monkeypatch)
    heard.wire.cold = True
    with pytest.raises(NotPermittedError):
        heard.ear.listen()
    heard.wire.cold = False
    heard.ear.listen()
    heard.ear.close()
    heard.wire.cold, heard.now = True, 1000.0
    heard.listen_until(1109.0)
    assert len(heard.said) == 7  # tries at 1,000, 1, 3, 8, 18, 48 and 108 s after it
    heard.wire.cold = False
    heard.listen_until(1180.0)
    assert heard.said[7:] == ["watching again"]
    heard.end()


@dataclass
class Ear:
    """A watch that rings at given times. The clock goes on only while one waits."""

    at: list[float] = field(default_factory=list)
    now: float = 1000.0
    left_s: float = 1e9

    def __post_init__(self) -> None:
        self.bell = Bell(self.clock)
        self.bell.event = self  # type: ignore[assignment]

    def clock(self) -> float:
        return self.now

    def listen(self) -> None:
        while self.at and self.at[0] <= self.now:
            self.bell.see(PODS, str(self.at.pop(0)), b"new")

    def clear(self) -> None:
        """Nothing to forget."""

    def set(self) -> None:
        """It rings while nobody waits."""

    def wait(self, seconds: float) -> None:
        self.now += min(seconds, self.at[0] - self.now) if self.at else seconds


@pytest.mark.parametrize(
    ("rings_at", "code", "failures", "after", "why"),
    [
        ([], 0, 0, 600, "10m passed"),
        ([100], 0, 0, 100 + SETTLE_S, "pods changed"),
        ([1], 0, 0, 30, "pods changed"),
        ([1, 29, 31], 0, 0, 30, "pods changed"),
        ([], 69, 1, 30, "again after exit 69"),
        ([], 75, 3, 120, "again after exit 75"),
        ([], 69, 99, 600, "again after exit 69"),
        ([5], 4, 2, 60, "pods changed"),
        ([5], 7, 4, 30, "pods changed"),
        ([], 7, 4, 240, "again after exit 7"),
        ([5], 6, 9, 30, "pods changed"),
    ],
)
def test_rounds_rest_answer_changes_and_are_tried_again(
    rings_at: list[float], code: int, failures: int, after: float, why: str
) -> None:
    ear = Ear([1000 + one for one in rings_at])
    request = WatchRequest(None, (), 30.0, 600.0)  # type: ignore[arg-type]
    assert _wait(request, ear, 1000.0, code, failures) == why  # type: ignore[arg-type]
    assert ear.now == 1000 + after


def test_a_round_is_the_same_command_without_the_watch() -> None:
    words = [
        "run",
        "--watch",
        "levels.yaml",
        "--min-interval",
        "5s",
        "--max-interval=1h",
        "--policy",
        "p",
    ]
    assert _of_a_round(words) == ("run", "levels.yaml", "--policy", "p")
    assert _of_a_round(["run", "--max-interval", "1h", "--watch"]) == ("run",)
