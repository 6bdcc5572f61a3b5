"""A run whose lock is over writes nothing more: it slept, or its server let it wait too long."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from apiserver import Answer, Call, FakeCluster
from apply_runs import TOLERATE, a_cluster, bench

from models.apply.session import LANES
from planner.cluster import lock as locking
from planner.cluster.retry import MIN_LEFT_S, RetryingTransport
from planner.cluster.transport import JSON, LOST, ApiRequest, Reply, Tree

PODS = "/api/v1/namespaces/default/pods"
BIND = f"{PODS}/p/binding"
TRY = f"{BIND}?fieldManager=gangplan&dryRun=All"
ASK = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass
class Latch:
    """A lock with so many seconds left; ``dates``: what it was told."""

    left: float = 60.0
    dates: list[float | None] = field(default_factory=list)

    def left_s(self) -> float:
        return self.left

    def note_date(self, date: float | None) -> None:
        self.dates.append(date)


@dataclass
class Door:
    """Answers each request with yes; ``slow``: seconds that each takes off the lock."""

    lock: Latch
    slow: float = 0.0
    status: int = 200
    sent: list[str] = field(default_factory=list)

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        del body, content_type
        self.sent.append(f"{method} {path}")
        self.lock.left -= self.slow
        return Reply(self.status, date=7.0)


@pytest.mark.parametrize("left", [0.0, MIN_LEFT_S])
def test_without_time_left_only_what_changes_nothing_is_sent(left: float) -> None:
    lock = Latch(left)
    door = Door(lock)
    wire = RetryingTransport(door, lock=lock)
    dry = f"{BIND}?x=dryRun=All"  # no dry run
    for method, path in (("POST", BIND), ("POST", dry), ("PATCH", f"{PODS}/p"), ("PUT", "/x")):
        assert wire.send(method, path, {}).status == LOST
        assert wire.send_all([ApiRequest("GET", PODS), ApiRequest(method, path)])[0].status == LOST
    assert door.sent == []
    for method, path in (("GET", PODS), ("POST", TRY), ("POST", ASK)):
        assert wire.send(method, path).ok
        assert wire.send_all([ApiRequest(method, path)])[0].ok
    assert len(door.sent) == 6
    assert lock.dates == [7.0] * 6


def test_with_a_little_more_it_is_sent() -> None:
    lock = Latch(MIN_LEFT_S + 0.1)
    assert RetryingTransport(Door(lock), lock=lock).send("POST", BIND, {}).ok


def test_a_write_that_a_busy_server_puts_off_is_not_sent_again_too_late() -> None:
    """429 after 25 seconds each: at 60, 35 and 10 seconds left it is sent, then no more."""
    lock = Latch()
    door = Door(lock, slow=25.0, status=429)
    reply = RetryingTransport(door, sleep=lambda _: None, lock=lock).send("POST", BIND, {})
    assert (reply.status, len(door.sent)) == (LOST, 3)


def test_a_run_that_slept_past_its_lock_gives_no_gpu_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps while its first record is under way; meanwhile another gives the room away."""
    cluster: FakeCluster = a_cluster(gangs=(("slow", 3, 8),))
    clock: Any = cluster.clock
    monkeypatch.setitem(locking.acquire.__kwdefaults__, "clock", clock)
    with bench(cluster, tmp_path, monkeypatch) as made:
        first = made.plan(name="first.json")
        cluster.gang_of_pods("high", 3, gpus=8, priority=9, tolerations=TOLERATE)
        second = made.plan(name="second.json")
        codes: list[int] = []

        def sleeping(call: Call) -> None:
            if call.writes and not codes and "/configmaps" in call.path:
                codes.append(-1)
                clock.now += 120
                codes[0] = made.apply(second).code

        cluster.before.append(sleeping)
        said = made.apply(first)
        assert (said.code, codes) == (7, [0]), said.err
        bound = {name for name, node in made.bound().items() if node is not None}
        assert bound == {"high-0", "high-1", "high-2"}
        assert not any(
            "gangplan.dev/plan" in pod["metadata"]["labels"]
            for pod in cluster.pods()
            if pod["metadata"]["name"].startswith("slow")
        )


@pytest.mark.parametrize(
    ("slept", "fate", "says"),
    [
        (6, "another holds it", "the lock is lost: it was taken over"),
        (6, "it is gone", "the lock is lost"),
        (46, "no renewal", "the lock could not be renewed in time"),
        (43, "no renewal", ""),
    ],
)
def test_a_run_begins_nothing_once_its_lock_is_not_surely_its_own(
    slept: int, fate: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is one of a minute, of which 15 s have to be left; what lanes have begun by then, they end."""
    cluster = a_cluster(gangs=[(f"g{number}", 1, 1) for number in range(24)])
    clock: Any = cluster.clock
    monkeypatch.setitem(locking.acquire.__kwdefaults__, "clock", clock)
    lease, struck = ("Lease", "gangplan"), list[str]()

    def taken(tree: Tree) -> Tree:
        return tree | {"spec": tree["spec"] | {"holderIdentity": "somebody/else"}}

    def meddle(call: Call) -> Answer | None:
        if not struck and call.method == "PATCH" and "/pods/" in call.path:
            struck.append(call.path)
            clock.now += slept
            if fate == "another holds it":
                cluster.change(*lease, taken, namespace="gangplan-system")
            elif fate == "it is gone":
                cluster.remove(*lease, namespace="gangplan-system")
        elif struck and call.method == "PUT" and "/leases/" in call.path:
            return (500, {"kind": "Status", "code": 500}, {}) if fate == "no renewal" else None
        return None

    with bench(cluster, tmp_path, monkeypatch) as made:
        plan = made.plan()
        cluster.before.append(meddle)
        said = made.apply(plan)
        started = sum(node is not None for node in made.bound().values())
    assert (said.code, says in said.err) == (7 if says else 0, True), said.err
    assert (started <= LANES) == bool(says)
    assert started == 24 or says
