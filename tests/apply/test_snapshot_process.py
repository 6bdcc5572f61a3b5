"""``gangplan snapshot`` as a process: signals, children that must not stay behind, and its memory."""

from __future__ import annotations

import copy
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from apiserver import Answer, Call
from apiserver_http import RawAnswer, serving
from conftest import RunCli
from effort import HANG_S
from interactive import started
from snapshots import (
    RecordedServer,
    cluster,
    comes_true,
    descendants,
    environment,
    files,
    living,
    script,
    small,
)

from planner.read.kube.objects import belongs_to_nothing


@pytest.mark.parametrize(
    ("number", "code", "scripted"),
    [
        (signal.SIGTERM, 143, True),
        pytest.param(signal.SIGINT, 130, False, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_kubectl_too_and_leaves_nothing(
    number: signal.Signals,
    code: int,
    scripted: bool,
    tmp_path: Path,
    cli: RunCli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``scripted``: many put one before kubectl; ending it alone would leave kubectl waiting."""
    server, asked = small(), threading.Event()

    def hold(call: Call) -> Answer | None:
        if call.path != "/api/v1/pods":
            return None
        asked.set()
        return RawAnswer(200, b"{}", after_s=60).answer()

    server.before.append(hold)
    with cluster(server, tmp_path, cli) as served:
        served.out.mkdir()
        (served.out / "pods.json").write_text("old")
        environ = environment(served.folder)
        if scripted:
            text = f'{environ["KUBECTL"]} "$@"\nexit $?'
            environ["KUBECTL"] = str(script(served.folder / "wrapped", text))
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        words = ("snapshot", "--out", str(served.out), "--force")
        with started(*words, cwd=served.folder) as process:
            assert asked.wait(HANG_S)
            kubectls = descendants(process.pid)
            assert any("--unix-socket=" in line for line in living(kubectls).values())
            process.send_signal(number)
            out, err = process.communicate(timeout=HANG_S)
        assert (process.returncode, out) == (code, "")
        assert err == "error: interrupted; nothing was saved\n"
        assert comes_true(lambda: not living(kubectls)) if scripted else not living(kubectls)
        assert served.litter() == ["out"]
        assert (served.out / "pods.json").read_text() == "old"


# ---- a large cluster

NODES, PODS = 1_000, 8_000


def large() -> RecordedServer:
    """The H100 cluster over and over; nodes with the fifty images that real ones list."""
    server = RecordedServer.of("h100-gke")
    images = [{"names": [f"registry.example.com/i-{i}@sha256:{i:064x}"]} for i in range(50)]
    for plural, count in (("nodes", NODES), ("pods", PODS)):
        once = server.lists[plural]
        server.lists[plural] = [_copy(once[i % len(once)], i // len(once)) for i in range(count)]
    for node in server.lists["nodes"]:
        node["status"]["images"] = images
    return server


def _copy(item: dict[str, Any], number: int) -> dict[str, Any]:
    found = {key: copy.copy(part) for key, part in item.items()}
    found["metadata"]["name"] += f"-{number}"
    found["metadata"]["uid"] = f"{item['metadata']['uid'][:-4]}{number:04x}"
    found["metadata"]["managedFields"] = [{"fieldsV1": {f"f:{i}": {} for i in range(300)}}]
    if "nodeName" in item["spec"]:
        found["spec"]["nodeName"] += f"-{number}"
    return found


@pytest.mark.slow
def test_a_large_cluster_is_recorded_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = large()
    with serving(server, tmp_path, tls=False):
        for name, value in environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        with started("snapshot", "--out", "out", cwd=tmp_path) as process:
            peak_kib = 0
            while process.poll() is None:
                status = Path(f"/proc/{process.pid}/status").read_text()
                peak_kib = int((status.partition("VmHWM:")[2].split() or [peak_kib])[0])
                time.sleep(0.02)
            _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    left_out = sum(map(belongs_to_nothing, server.lists["pods"]))
    assert 0 < left_out < PODS / 100
    written = files(tmp_path / "out")
    found = [len(written[f"{plural}.json"]["items"]) for plural in ("nodes", "pods")]
    assert found == [NODES, PODS - left_out]
    # The answers are 60 MB; the trees of all of them would be 500.
    assert 40_000 < peak_kib < 200 * 1024
