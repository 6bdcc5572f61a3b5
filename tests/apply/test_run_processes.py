"""``gangplan run`` as a process: in a pod without a kubeconfig, without a terminal, under a real SIGTERM."""

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
from conftest import RunCli
from effort import HANG_S
from interactive import HEARING, MAIN, ROOT
from run_bench import RunBench, is_write, nodes, run_bench
from snapshots import environment, real_kubectl

from models.apply.session import LANES


def started(bench: RunBench, *options: str, **environ: str) -> subprocess.Popen[str]:
    """The program as a process of its own, nothing on stdin."""
    given = environment(bench.folder, PYTHONPATH=str(ROOT), **environ)
    return subprocess.Popen(
        [sys.executable, "-c", HEARING + MAIN, "run", "--budget", "5", "--wait", "0s", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=given,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=HANG_S)
    return process.returncode, out, err


def two_gangs() -> FakeCluster:
    cluster = nodes(2)
    cluster.gang_of_pods("a", 2, gpus=4)
    cluster.gang_of_pods("b", 2, gpus=4)
    return cluster


@pytest.fixture
def in_a_pod(tmp_path: Path) -> Path:
    """A kubectl that finds its way as in a pod: no kubeconfig, no context, but a server.

    ``config current-context`` of a kubectl without a kubeconfig says that there is none.
    """
    path = tmp_path / "kubectl-in-a-pod"
    path.write_text(
        f'#!/bin/sh\nunset KUBECONFIG\nexec {real_kubectl()} "--server=$POD_SERVER" "$@"\n',
        encoding="utf-8",
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_it_works_in_a_pod_without_a_kubeconfig(
    tmp_path: Path, cli: RunCli, in_a_pod: Path
) -> None:
    with run_bench(two_gangs(), tmp_path, cli) as bench:
        assert bench.endpoint is not None
        process = started(
            bench,
            "--log-format",
            "json",
            KUBECTL=str(in_a_pod),
            POD_SERVER=bench.endpoint.url,
            HOME=str(tmp_path / "nobody"),
        )
        code, out, err = ended(process)
        assert code == 0, err
        assert out == ""
        assert json.loads(err.splitlines()[-1])["context"] is None
        assert None not in bench.places().values()


@pytest.mark.slow
def test_a_process_signalled_during_its_writes_leaves_no_gang_partial(
    tmp_path: Path, cli: RunCli
) -> None:
    """SIGTERM with the first start on its way: the gangs under way become whole, the last is not begun."""
    cluster = nodes(3)
    for number in range(LANES + 1):
        cluster.gang_of_pods(f"g{number}", 2, gpus=1)
    with run_bench(cluster, tmp_path, cli) as bench:
        process: list[subprocess.Popen[str]] = []
        struck = threading.Event()

        def strike(call: Call) -> Answer | None:
            if is_write(call) and "schedulingGates" in str(call.body) and not struck.is_set():
                struck.set()
                os.kill(process[0].pid, signal.SIGTERM)
            return None

        bench.cluster.before.append(strike)
        process.append(started(bench))
        code, _, err = ended(process[0])
        assert struck.is_set(), err
        assert code == 143, err
        assert err.splitlines()[-1].startswith("run interrupted (exit 143)")
        placed = [name[:2] for name, node in bench.places().items() if node is not None]
        assert (len(set(placed)), len(placed)) == (LANES, 2 * LANES)
        assert bench.last_run()["exit_code"] == 143
        again = bench.run()
        assert again.code == 0, again.err
        assert None not in bench.places().values()


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once(tmp_path: Path, cli: RunCli) -> None:
    """The server holds an answer back; two signals and the process is gone, the lock runs out."""
    with run_bench(two_gangs(), tmp_path, cli) as bench:
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
        code, _, err = ended(process[0])
        assert code == 143, err
        assert not bench.lease_is_free()


def test_a_restart_while_the_cluster_is_recorded_leaves_no_kind_out(
    tmp_path: Path, cli: RunCli
) -> None:
    """The list of jobs is denied for a moment, though a review has shown the right to read it."""
    with run_bench(two_gangs(), tmp_path, cli) as bench:
        denied: list[str] = []

        def deny(call: Call) -> Answer | None:
            if call.place is None or not call.path.endswith("/jobs") or len(denied) > 1:
                return None
            denied.append(call.path)
            return bench.cluster.deny("list", call.place.kind)

        bench.cluster.before.append(deny)
        result = bench.run()
        assert (result.code, len(denied)) == (0, 2), result.err
        assert "not permitted" not in result.err
        assert None not in bench.places().values()
