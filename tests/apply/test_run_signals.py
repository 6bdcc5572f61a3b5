"""SIGTERM and SIGINT at any moment of a run: stopped cleanly, said once, and finished by the next run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from apiserver import Answer, Call, FakeCluster
from conftest import Result, RunCli
from effort import first_fast
from run_bench import RunBench, events, is_write, memory_bench, nodes, summary, while_solving

from models.apply import session as lanes
from models.verify.check import check
from planner.read.plan_files import parse


def cluster() -> FakeCluster:
    """Four nodes; four gangs that fill them: a 2 x 8, b 2 x 4, c 1 x 4 and d 4 x 1 GPUs."""
    made = nodes(4)
    for name, pods, gpus in (("a", 2, 8), ("b", 2, 4), ("c", 1, 4), ("d", 4, 1)):
        made.gang_of_pods(name, pods, gpus=gpus)
    return made


@pytest.fixture
def bench(tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunBench]:
    with memory_bench(cluster(), tmp_path, cli, monkeypatch) as made:
        yield made


def run(bench: RunBench, *options: str) -> Result:
    """Gang b is bound by us, onto nodes that nothing keeps others off."""
    return bench.run("--log-format", "json", *options)


class Signal:
    """Sends a signal to this process at the ``at``-th request, before or after it is carried out."""

    def __init__(self, at: int, number: int, *, after: bool) -> None:
        self.at, self.number, self.after = at, number, after
        self.seen = 0
        self.sent = False

    def __call__(self, call: Call) -> Answer | None:
        del call
        self.seen += 1
        if self.seen - 1 == self.at:
            self.sent = True
            os.kill(os.getpid(), self.number)
        return None


def test_the_sweep_below_reaches_past_the_last_request(bench: RunBench) -> None:
    assert run(bench).code == 0
    assert 50 < bench.asked() < 3 * LAST


LAST = 31
"""The sweep strikes every third request up to this one times three."""


@pytest.mark.parametrize("step", first_fast(range(LAST), 8))
def test_a_signal_at_any_request_is_obeyed_and_the_next_run_finishes(
    step: int, bench: RunBench
) -> None:
    number = (signal.SIGTERM, signal.SIGINT)[step % 2]
    strike = Signal(3 * step, number, after=step % 4 > 1)
    hooks = bench.cluster.after if strike.after else bench.cluster.before
    hooks.append(strike)
    first = run(bench)
    events(first)  # one summary, whatever happened
    hooks.clear()
    # After the last write nothing is left to stop: then the run simply ends well.
    assert first.code in ((128 + number, 0) if strike.sent else (0,)), first.err
    if first.code:
        assert bench.lease_is_free()
    again = run(bench)
    assert again.code == 0, again.err
    check_whole(bench)


def check_whole(bench: RunBench) -> None:
    """Every pod is bound, and no node holds more than its 8 GPUs."""
    used: dict[str, int] = {}
    for pod in bench.cluster.pods():
        node = pod["spec"].get("nodeName")
        assert node is not None, pod["metadata"]["name"]
        gpus = int(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
        used[node] = used.get(node, 0) + gpus
    assert max(used.values()) <= 8
    assert sum(used.values()) == 16 + 8 + 4 + 4


def test_a_signal_during_the_search_keeps_the_plan_and_applies_nothing(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    while_solving(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGTERM))
    out = tmp_path / "plan.json"
    result = bench.run("--out", str(out))
    assert result.code == 143, result.err
    assert bench.written() == []
    assert check(parse(out.read_bytes(), str(out))) == []
    assert "the best plan so far is saved and verified:" in result.err
    assert "run interrupted (exit 143)" in summary(result)
    note = bench.last_run()
    assert (note["status"], note["exit_code"]) == ("interrupted", 143)


def test_a_gang_whose_pods_are_being_started_is_finished_first(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One at a time: the signal comes with the first pod of a gang, its second follows, no other gang."""
    monkeypatch.setattr(lanes, "LANES", 1)
    started: list[str] = []

    def strike(call: Call) -> Answer | None:
        if is_write(call) and "schedulingGates" in str(call.body):
            started.append(call.path.rpartition("/")[2].rpartition("-")[0])
            if len(started) == 1:
                os.kill(os.getpid(), signal.SIGTERM)
        return None

    bench.cluster.after.append(strike)
    result = run(bench)
    assert result.code == 143, result.err
    assert len(set(started)) == 1
    placed = {name for name, node in bench.places().items() if node is not None}
    assert placed == {name for name in bench.places() if name.startswith(f"{started[0]}-")}
