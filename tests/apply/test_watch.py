"""What starts a run of ``run --watch``, when, and what does not."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from apiserver import FakeCluster
from apiserver_http import FakeWire

from planner.cli.verbs.run import _of_a_round
from planner.errors import Fault, UnavailableError
from planner.pipelines import watch as watching
from planner.pipelines.watch import SETTLE_S, Seen, WatchRequest, _Looks, _wait, see, watch

GATE = "gangplan.dev/placement"
BEFORE = Seen(frozenset({("a", GATE)}), frozenset({"e"}), 10, 4)


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        (BEFORE, ()),
        (Seen(frozenset(), BEFORE.ended, 10, 4), ()),  # it was started
        (Seen(frozenset({("a", GATE), ("b", GATE)}), BEFORE.ended, 11, 4), ("pods",)),
        (Seen(frozenset({("a", "other", GATE)}), BEFORE.ended, 10, 4), ("pods",)),
        (Seen(BEFORE.waiting, frozenset({"e", "f"}), 10, 4), ("pods",)),
        (Seen(BEFORE.waiting, frozenset(), 9, 4), ()),  # what had ended was cleared away
        (Seen(BEFORE.waiting, BEFORE.ended, 9, 4), ("pods",)),
        (Seen(BEFORE.waiting, BEFORE.ended, 12, 4), ()),  # of no interest to a gang that waits
        (Seen(BEFORE.waiting, BEFORE.ended, 10, 3), ("nodes",)),
        (Seen(BEFORE.waiting, BEFORE.ended, 8, 5), ("nodes", "pods")),
    ],
)
def test_what_may_let_a_gang_start_is_a_change_and_nothing_else(
    now: Seen, changed: tuple[str, ...]
) -> None:
    assert now.changed_since(BEFORE) == changed


def test_a_look_sees_who_waits_who_ended_and_how_many_there_are() -> None:
    cluster = FakeCluster()
    cluster.add_node("n1")
    cluster.add_node("n2")
    cluster.gang_of_pods("g", 3, gpus=1)
    wire = FakeWire(cluster)
    seen = see(wire, GATE)
    assert (len(seen.waiting), seen.ended, seen.pods, seen.nodes) == (3, frozenset(), 3, 2)
    cluster.remove("Pod", "g-1")
    assert see(wire, GATE).changed_since(seen) == ("pods",)


@dataclass
class Told(_Looks):
    """Finds changed pods at given times; the clock goes on only while one waits."""

    times: list[float] = field(default_factory=list)
    now: float = 1000.0

    def look(self) -> None:
        if self.times and self.times[0] <= self.now:
            self.times.pop(0)
            self.at = self.at if self.changed else self.now
            self.changed = ("pods",)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("found_at", "code", "failures", "after", "why"),
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
    found_at: list[float], code: int, failures: int, after: float, why: str
) -> None:
    looks = Told(None, GATE, None, lambda: looks.now, times=[1000 + one for one in found_at])  # type: ignore[arg-type]
    request = WatchRequest(None, (), 30.0, 600.0)  # type: ignore[arg-type]
    assert _wait(request, looks, 1000.0, code, failures, looks.sleep) == why
    assert looks.now == 1000 + after


def test_a_server_that_cannot_be_read_is_said_once_and_so_is_its_return() -> None:
    said: list[str] = []
    cluster = FakeCluster()
    lost = [True]

    def connect(_paths: object) -> object:
        if lost:
            raise UnavailableError(Fault("no answer"))
        return nullcontext(FakeWire(cluster))

    run = SimpleNamespace(target=SimpleNamespace(connect=connect))
    console = SimpleNamespace(say=said.append, warn=said.append, event=lambda *_, **__: None)
    looks = _Looks(run, GATE, console, lambda: 5.0)  # type: ignore[arg-type]
    looks.look()
    looks.look()
    lost.clear()
    looks.look()
    cluster.gang_of_pods("g", 1, gpus=1)
    looks.look()
    assert said == ["cannot watch the cluster: no answer", "watching again"]
    assert (looks.changed, looks.at) == (("pods",), 5.0)
    looks.close()


def test_only_the_first_round_ends_it_for_want_of_a_right(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [0, 77, 64]
    rounds: list[str] = []
    monkeypatch.setattr(watching, "_checked", lambda _run: GATE)
    monkeypatch.setattr(watching, "_wait", lambda *_: "later")
    monkeypatch.setattr(_Looks, "look", lambda _self: None)
    monkeypatch.setattr(watching, "_round", lambda *_: codes.pop(0))
    console = SimpleNamespace(say=rounds.append, event=lambda *_, **__: None)
    request = WatchRequest(None, (), 30.0, 600.0)  # type: ignore[arg-type]
    assert watch(request, console) == 64  # type: ignore[arg-type]
    codes[:] = [77]
    assert watch(request, console) == 77  # type: ignore[arg-type]
    assert len(rounds) == 4


def test_a_round_is_the_same_command_without_the_watch() -> None:
    words = ["run", "--watch", "l.yaml", "--min-interval", "5s", "--max-interval=1h", "-q", "p"]
    assert _of_a_round(words) == ("run", "l.yaml", "-q", "p")
    assert _of_a_round(["run", "--max-interval", "1h", "--watch"]) == ("run",)
