"""``gangplan snapshot`` as a process: signals, terminals, children that must not stay behind."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from apiserver_http import RawAnswer
from apiserver_recorded import Request
from conftest import RunCli
from effort import HANG_S
from interactive import started
from snapshots import Cluster, cluster, environment, small

PODS = "/api/v1/pods"


@pytest.fixture
def held(tmp_path: Path, cli: RunCli) -> Iterator[tuple[Cluster, threading.Event]]:
    """A cluster that never answers for its pods; the event says that somebody asked."""
    server, asked = small(), threading.Event()

    def hold(request: Request) -> RawAnswer | None:
        if request.path != PODS:
            return None
        asked.set()
        return RawAnswer(200, b"{}", after_s=60)

    server.hooks.append(hold)
    with cluster(server, tmp_path, cli) as served:
        yield served, asked


def alive(processes: set[int]) -> list[str]:
    """Command lines of processes that are still there, of those that were seen."""
    found = []
    for process in processes:
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words != [b""]:
            found.append(b" ".join(words).decode())
    return found


def descendants(parent: int) -> set[int]:
    """Processes below one, by the kernel's word."""
    found: set[int] = set()
    todo = [parent]
    while todo:
        process = todo.pop()
        for path in Path(f"/proc/{process}/task").glob("*/children"):
            below = {int(word) for word in path.read_text().split()} - found
            found |= below
            todo += below
    return found


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_kubectl_too_and_leaves_nothing(
    number: signal.Signals,
    code: int,
    held: tuple[Cluster, threading.Event],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served, asked = held
    served.out.mkdir()
    (served.out / "pods.json").write_text("old")
    for name, value in environment(served.folder).items():
        monkeypatch.setenv(name, value)
    with started("snapshot", "--out", str(served.out), "--force", cwd=served.folder) as process:
        assert asked.wait(HANG_S)
        time.sleep(0.2)
        kubectls = descendants(process.pid)
        assert any("--unix-socket=" in line for line in alive(kubectls))
        begun = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=HANG_S)
    assert (process.returncode, out) == (code, "")
    assert err == "error: interrupted; nothing was saved\n"
    assert time.monotonic() - begun < 15
    assert alive(kubectls) == []
    assert served.litter() == ["out"]
    assert (served.out / "pods.json").read_text() == "old"


def test_kubectl_behind_a_script_ends_with_what_it_started(
    held: tuple[Cluster, threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Many put a script before kubectl; ending the script alone would leave kubectl waiting.
    served, asked = held
    script = served.folder / "wrapped"
    script.write_text(f'#!/bin/sh\n{environment(served.folder)["KUBECTL"]} "$@"\nexit $?\n')
    script.chmod(0o755)
    for name, value in environment(served.folder, KUBECTL=str(script)).items():
        monkeypatch.setenv(name, value)
    with started("snapshot", "--out", str(served.out), cwd=served.folder) as process:
        assert asked.wait(HANG_S)
        time.sleep(0.2)
        below = descendants(process.pid)
        assert len(below) >= 2
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=HANG_S)
    deadline = time.monotonic() + HANG_S
    while alive(below) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive(below) == []
