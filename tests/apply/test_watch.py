"""What starts a run of ``run --watch``, when, and what does not. The clock goes on while one waits."""

from __future__ import annotations

import io
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from apiserver import LOST, FakeCluster
from apiserver_http import FakeWire
from conftest import RunCli
from snapshots import environment

from models.units import epoch_seconds
from planner.pipelines import watch as watching
from planner.pipelines.apply import ClusterTarget
from planner.pipelines.plan import PlanRequest
from planner.pipelines.run import RunRequest
from planner.pipelines.watch import Seen, WatchRequest, see, watch
from planner.show.console import Console
from planner.signals import Interrupted

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
    cluster.add_pod("over", node="n1", phase="Succeeded")
    cluster.add_pod("runs", node="n1")
    wire = FakeWire(cluster)
    seen = see(wire, GATE)
    uid = cluster.pod("over")["metadata"]["uid"]
    assert (len(seen.waiting), seen.ended, seen.pods, seen.nodes) == (3, frozenset({uid}), 5, 2)
    cluster.remove("Pod", "g-1")
    assert see(wire, GATE).changed_since(seen) == ("pods",)


class Stage:
    """Rounds end at once with these exit codes, then a signal comes. ``happens``: after so many seconds."""

    def __init__(self, codes: Sequence[int]) -> None:
        self.cluster = FakeCluster()
        self.codes = list(codes)
        self.happens: dict[int, Callable[[], object]] = {}
        self.now = 0.0
        self.words: list[list[str]] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for at in sorted(self.happens):
            if at <= self.now:
                self.happens.pop(at)()

    def gang(self) -> None:
        self.cluster.gang_of_pods(f"g{self.now:g}", 1, gpus=1)

    @contextmanager
    def connected(self, *_: object, **__: object) -> Iterator[FakeWire]:
        yield FakeWire(self.cluster)

    def started(self, words: list[str], **_: object) -> SimpleNamespace:
        self.words.append(words)
        return SimpleNamespace(wait=self.ended)

    def ended(self) -> int:
        if not self.codes:
            raise Interrupted(15)
        return self.codes.pop(0)


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> Callable[[Stage], Stage]:
    def made(stage: Stage) -> Stage:
        started = SimpleNamespace(Popen=stage.started, DEVNULL=subprocess.DEVNULL)
        monkeypatch.setattr(watching, "subprocess", started)
        monkeypatch.setattr("planner.cluster.proxy.connect", stage.connected)
        return stage

    return made


def watched(stage: Stage, folder: Path) -> tuple[int, list[tuple[int, str]], list[str]]:
    """The exit code, when and why each round began, and what else was said."""
    environ, err = environment(folder), io.StringIO()
    run = RunRequest(PlanRequest(paths=()), ClusterTarget(environ))
    console = Console(stdout=io.StringIO(), stderr=err, environ=environ)
    request = WatchRequest(run, ("run",), 30.0, 600.0)
    code = watch(
        request, console, clock=lambda: stage.now, wall=lambda: stage.now, sleep=stage.sleep
    )
    lines = err.getvalue().splitlines()
    rounds = [re.fullmatch(r"(\d{4}-\S+Z): (.*)", line) for line in lines]
    told = [(epoch_seconds(one[1]), one[2]) for one in rounds if one]
    return code, told, [line for line, one in zip(lines, rounds, strict=True) if not one]


POD = "pods changed"


@pytest.mark.parametrize(
    ("codes", "changes", "rounds"),
    [
        ([0], (), [(600, "10m passed")]),
        ([0], (100,), [(102, POD)]),  # the pods of a gang come one after the other
        ([0], (1,), [(30, POD)]),
        ([0, 0], (1, 29, 31), [(30, POD), (60, POD)]),
        ([0, 69], (), [(600, "10m passed"), (630, "again after exit 69")]),
        ([69, 69, 75, 69, 69, 69], (), [(at, f"again after exit {code}") for at, code in
            ((30, 69), (90, 69), (210, 75), (450, 69), (930, 69), (1530, 69))]),
        ([4, 4], (35,), [(30, "again after exit 4"), (90, POD)]),
        ([7, 7, 7], (), [(at, "again after exit 7") for at in (30, 90, 210)]),
        ([7, 7, 6], (35, 65), [(30, "again after exit 7"), (60, POD), (90, POD)]),
        ([0, 77], (), [(600, "10m passed"), (630, "again after exit 77")]),
    ],
)  # fmt: skip
def test_rounds_rest_answer_changes_and_are_tried_again(
    codes: list[int],
    changes: tuple[int, ...],
    rounds: list[tuple[int, str]],
    staged: Callable[[Stage], Stage],
    tmp_path: Path,
) -> None:
    stage = staged(Stage(codes))
    stage.happens = dict.fromkeys(changes, stage.gang)
    code, told, said = watched(stage, tmp_path)
    assert (code, told) == (143, [(0, "started"), *rounds])
    assert said == ["ended by SIGTERM (exit 143)"]


@pytest.mark.parametrize(("codes", "rounds"), [([77], 1), ([64], 1), ([0, 64], 2), ([-9, 64], 2)])
def test_a_wrong_command_ends_it_and_in_the_first_round_a_missing_right(
    codes: list[int], rounds: int, staged: Callable[[Stage], Stage], tmp_path: Path
) -> None:
    last = codes[-1]
    killed = ["error: the run was ended by SIGKILL"] if codes[0] < 0 else []
    code, told, said = watched(staged(Stage(codes)), tmp_path)
    assert (code, len(told), said) == (last, rounds, killed)


def test_a_server_that_cannot_be_read_is_said_once_and_so_is_its_return(
    staged: Callable[[Stage], Stage], tmp_path: Path
) -> None:
    """What came meanwhile is found by the next look that succeeds."""
    stage = staged(Stage([0]))
    hooks = stage.cluster.before
    stage.happens = {15: lambda: hooks.append(lambda _: LOST), 25: stage.gang, 35: hooks.clear}
    _, told, said = watched(stage, tmp_path)
    assert said[0].startswith("warning: cannot watch the cluster: ")
    assert said[1:] == ["watching again", "ended by SIGTERM (exit 143)"]
    assert told == [(0, "started"), (42, POD)]


def test_a_round_is_the_same_command_without_the_watch(
    staged: Callable[[Stage], Stage], tmp_path: Path, cli: RunCli
) -> None:
    policy = tmp_path / "l.yaml"
    policy.write_text("apiVersion: gangplan.dev/v1alpha1\nkind: Policy\n", encoding="utf-8")
    stage = staged(Stage([]))
    options = ("--min-interval", "5s", "--max-interval=1h", "--wait", "1s")
    result = cli("run", "--watch", str(policy), *options, environ=environment(tmp_path))
    assert result.code == 143, result.err
    assert stage.words[0][-4:] == ["run", str(policy), "--wait", "1s"]
