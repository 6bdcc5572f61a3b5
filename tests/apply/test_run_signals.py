"""Signals at any moment of a run: stopped cleanly, said once, finished by the next run. Also as a process."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from apiserver import Answer, Call, FakeCluster
from effort import HANG_S, first_fast
from interactive import HEARING, MAIN, ROOT
from run_bench import Benches, RunBench, events, is_start, is_write, nodes, summary, while_solving
from snapshots import environment, real_kubectl

from models.apply import session as lanes
from models.verify.check import check
from planner.read.plan_files import parse

pytest_plugins = ("run_fixtures",)


@pytest.fixture
def bench(memory: Benches) -> RunBench:
    """Four nodes; four gangs that fill them: a 2 x 8, b 2 x 4, c 1 x 4 and d 4 x 1 GPUs."""
    made = nodes(4)
    for name, pods, gpus in (("a", 2, 8), ("b", 2, 4), ("c", 1, 4), ("d", 4, 1)):
        made.gang_of_pods(name, pods, gpus=gpus)
    return memory(made)


class Signal:
    """Sends a signal to this process at the ``at``-th request."""

    def __init__(self, at: int, number: int) -> None:
        self.at, self.number = at, number
        self.seen = 0

    @property
    def sent(self) -> bool:
        return self.seen > self.at

    def __call__(self, call: Call) -> Answer | None:
        del call
        self.seen += 1
        if self.seen - 1 == self.at:
            os.kill(os.getpid(), self.number)
        return None


@pytest.mark.parametrize("part", first_fast(range(4)))
def test_a_signal_at_any_request_is_obeyed_and_the_next_run_finishes(
    part: int, bench: RunBench
) -> None:
    """Before or after the request is carried out; every third one."""
    for step in range(part, 99, 4):
        made, number = bench.fork(), (signal.SIGTERM, signal.SIGINT)[step // 4 % 2]
        strike = Signal(3 * step, number)
        before, after = ((), (strike,)) if step // 4 % 4 > 1 else ((strike,), ())
        with made.meddled(*before, after=after):
            first = made.run("--log-format", "json")
        events(first)  # one summary, whatever happened
        # After the last write nothing is left to stop: then the run simply ends well.
        assert first.code in ((128 + number, 0) if strike.sent else (0,)), first.err
        if first.code:
            assert made.lease_is_free()
        made.ran()
        check_whole(made)
        if not strike.sent:
            assert step > 15, "a run makes more than 50 requests"
            return
    raise AssertionError("the sweep does not reach the last request")


def check_whole(bench: RunBench) -> None:
    """Every pod is bound, and no node holds more than its 8 GPUs."""
    used: dict[str, int] = {}
    for pod in bench.cluster.pods():
        node = pod["spec"].get("nodeName")
        assert node is not None, pod["metadata"]["name"]
        gpus = int(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
        used[node] = used.get(node, 0) + gpus
    assert used == {f"n{number}": 8 for number in range(4)}


def test_a_signal_during_the_search_keeps_the_plan_and_applies_nothing(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_solving(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGTERM))
    out = bench.folder / "plan.json"
    result = bench.ran("--out", str(out), code=143)
    assert bench.written() == []
    assert check(parse(out.read_bytes(), str(out))) == []
    assert f"the best plan so far is saved and verified: {out}" in result.err
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
        if is_start(call):
            started.append(call.path.rpartition("/")[2].rpartition("-")[0])
            if len(started) == 1:
                os.kill(os.getpid(), signal.SIGTERM)
        return None

    bench.cluster.after.append(strike)
    bench.ran(code=143)
    assert len(set(started)) == 1
    placed = {name for name, node in bench.places().items() if node is not None}
    assert placed == {name for name in bench.places() if name.startswith(f"{started[0]}-")}


# ---- as a process of its own, with the real kubectl


def started(bench: RunBench, *options: str, **environ: str) -> subprocess.Popen[str]:
    """The program, nothing on stdin."""
    return subprocess.Popen(
        [sys.executable, "-c", HEARING + MAIN, "run", "--budget", "5", "--wait", "0s", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(bench.folder, PYTHONPATH=str(ROOT), **environ),
        start_new_session=True,
    )


def gangs(count: int, node_count: int, gpus: int) -> FakeCluster:
    cluster = nodes(node_count)
    for number in range(count):
        cluster.gang_of_pods(f"g{number}", 2, gpus=gpus)
    return cluster


@pytest.fixture
def in_a_pod(tmp_path: Path) -> Path:
    """A kubectl that finds its way as in a pod: no kubeconfig, no context, but a server."""
    path = tmp_path / "kubectl-in-a-pod"
    script = f'#!/bin/sh\nunset KUBECONFIG\nexec {real_kubectl()} "--server=$POD_SERVER" "$@"\n'
    path.write_text(script, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.slow
def test_it_works_in_a_pod_without_a_kubeconfig(served: Benches, in_a_pod: Path) -> None:
    """The list of jobs is denied for a moment, though a review has shown the right to read it."""
    bench = served(gangs(2, 2, 4))
    assert bench.endpoint is not None
    denied: list[str] = []

    def deny(call: Call) -> Answer | None:
        if call.place is None or not call.path.endswith("/jobs") or len(denied) > 1:
            return None
        denied.append(call.path)
        error = denied("tester", "list", call.place.kind, "", "", "")
        return error.code, error.tree(), {}

    bench.cluster.before.append(deny)
    where = {"KUBECTL": str(in_a_pod), "POD_SERVER": bench.endpoint.url}
    process = started(bench, "--log-format", "json", HOME=str(bench.folder / "nobody"), **where)
    out, err = process.communicate(timeout=HANG_S)
    assert (process.returncode, out, len(denied)) == (0, "", 2), err
    assert json.loads(err.splitlines()[-1])["context"] is None
    assert "not permitted" not in err
    assert None not in bench.places().values()


@pytest.mark.slow
def test_a_process_signalled_during_its_writes_leaves_no_gang_partial(served: Benches) -> None:
    """SIGTERM with the first start on its way: the gangs under way become whole, the last is not begun."""
    bench = served(gangs(lanes.LANES + 1, 3, 1))
    process: list[subprocess.Popen[str]] = []
    struck = threading.Event()

    def strike(call: Call) -> Answer | None:
        if is_start(call) and not struck.is_set():
            struck.set()
            os.kill(process[0].pid, signal.SIGTERM)
        return None

    bench.cluster.before.append(strike)
    process.append(started(bench))
    _, err = process[0].communicate(timeout=HANG_S)
    assert (process[0].returncode, struck.is_set()) == (143, True), err
    assert err.splitlines()[-1].startswith("run interrupted (exit 143)")
    placed = [name[:2] for name, node in bench.places().items() if node is not None]
    assert (len(set(placed)), len(placed)) == (lanes.LANES, 2 * lanes.LANES)
    assert bench.last_run()["exit_code"] == 143
    bench.ran()
    assert None not in bench.places().values()


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once(served: Benches) -> None:
    """The server holds an answer back; two signals and the process is gone, the lock runs out."""
    bench = served(gangs(2, 2, 4))
    process: list[subprocess.Popen[str]] = []
    gone = threading.Event()

    def strike(call: Call) -> Answer | None:
        if is_write(call) and not gone.is_set():
            for _ in range(2):
                os.kill(process[0].pid, signal.SIGTERM)
                gone.wait(0.5)
            gone.set()
        return None

    bench.cluster.before.append(strike)
    process.append(started(bench))
    _, err = process[0].communicate(timeout=HANG_S)
    assert process[0].returncode == 143, err
    assert not bench.lease_is_free()
