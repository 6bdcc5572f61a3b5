"""The process ``kubectl proxy``: how it starts, why it does not, and that nothing of it is ever left."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from effort import HANG_S
from snapshots import comes_true, descendants, living, real_kubectl, script
from wire_server import Answer, Asked, answer, kubeconfig, on_localhost

from planner.cluster import kubectl as proxying
from planner.cluster import retry
from planner.cluster.proxy import connect
from planner.cluster.transport import LOST
from planner.errors import (
    GangplanError,
    NotPermittedError,
    UnavailableError,
)

ROOT = Path(__file__).parents[2]


def nothing(_: Asked) -> Answer:
    return answer()


OTHERS: list[int] = []
"""Processes that earlier tests left to this one, such as the tracker of multiprocessing."""


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again at once."""
    OTHERS[:] = descendants(os.getpid())
    monkeypatch.setattr(retry, "WAITS_S", (0.01, 0.01, 0.01))


def ours() -> list[int]:
    """Processes that this test has started."""
    return [pid for pid in descendants(os.getpid()) if pid not in OTHERS]


@pytest.fixture
def short(tmp_path: Path) -> Iterator[Path]:
    """A folder with a path short enough for a socket; empty at the end, or the test fails."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)
        assert list(Path(folder).iterdir()) == []


def environment(short: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "KUBECTL": real_kubectl(), "TMPDIR": str(short), **more}


def test_the_socket_is_in_a_folder_that_only_we_can_enter(short: Path, tmp_path: Path) -> None:
    with on_localhost(tmp_path, nothing) as (_, config):
        with connect(environment(short), kubeconfig=str(config)):
            (folder,) = short.iterdir()
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            (socket,) = folder.iterdir()
            assert stat.S_ISSOCK(socket.stat().st_mode)
            started = ours()
            assert len(living(started)) >= 2
        assert comes_true(lambda: not living(started))
        assert list(short.iterdir()) == []


def proxy_and_tether() -> list[int]:
    """Our kubectl, and what runs our script."""
    return sorted(ours(), key=lambda pid: "proxy_tether.py" in living([pid])[pid])


OPENS = """
import os, sys, time
from planner.cluster.proxy import connect
with connect(os.environ, kubeconfig=sys.argv[1], accept=["/api/v1/nodes"]) as wire:
    assert wire.send("GET", "/api/v1/nodes").ok
    print("open", flush=True)
    time.sleep(60)
"""


def opener(config: Path, short: Path, *, wait: bool = True) -> subprocess.Popen[str]:
    """Another process of ours with an open proxy; or that is about to open one."""
    process = subprocess.Popen(
        [sys.executable, "-c", OPENS, str(config)],
        env=environment(short, PYTHONPATH=str(ROOT)),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    if wait:
        assert process.stdout.readline() == "open\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_proxy_goes_with_us_however_we_are_killed(
    number: signal.Signals, short: Path, tmp_path: Path
) -> None:
    with on_localhost(tmp_path, nothing) as (_, config):
        with opener(config, short) as process:
            started = descendants(process.pid)
            assert len(started) >= 2
            process.send_signal(number)
            process.wait(HANG_S)
        assert comes_true(lambda: not living(started))
        assert comes_true(lambda: not list(short.iterdir()))


def test_a_proxy_that_somebody_ends_is_started_again(short: Path, tmp_path: Path) -> None:
    with (
        on_localhost(tmp_path, nothing) as (_, config),
        connect(environment(short), kubeconfig=str(config), accept=["/api/v1/nodes"]) as wire,
    ):
        for _ in range(proxying.MAX_RESTARTS):
            started = ours()
            os.kill(proxy_and_tether()[0], signal.SIGKILL)
            assert comes_true(lambda pids=started: not living(pids))  # type: ignore[misc]
            assert wire.send("GET", "/api/v1/nodes").ok
            assert len(list(short.iterdir())) == 1
        started = ours()
        os.kill(proxy_and_tether()[1], signal.SIGKILL)
        assert comes_true(lambda: not living(started))
        reply = wire.send("GET", "/api/v1/nodes")
        assert (reply.status, reply.why.partition(":")[0]) == (LOST, "kubectl proxy ended")


def refused(error: type[GangplanError], environ: dict[str, str], **more: object) -> list[str]:
    with pytest.raises(error) as caught, connect(environ, **more):  # type: ignore[arg-type]
        pass
    (fault,) = caught.value.faults
    return fault.lines()


def test_why_there_is_no_way_to_the_server(short: Path, tmp_path: Path) -> None:
    config = kubeconfig(tmp_path / "config", "http://127.0.0.1:9")
    lines = refused(UnavailableError, environment(short), kubeconfig=str(config))
    assert lines[0].startswith("error: cannot reach the API server: ")
    assert "connection refused" in lines[0]
    environ = environment(short, HOME=str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        environ.pop(name, None)
    lines = refused(UnavailableError, environ)
    # kubectl then asks localhost:8080, where nobody is
    assert "8080" in lines[0]
    assert lines[1].startswith("hint: no current context: check $KUBECONFIG or ~/.kube/config")
    said = answer(401, {"kind": "Status", "message": "Unauthorized", "reason": "Unauthorized"})
    with on_localhost(tmp_path, nothing) as (server, config):
        server.greeting = lambda _: said
        lines = refused(NotPermittedError, environment(short), kubeconfig=str(config))
    assert lines[0] == "error: not logged in: Unauthorized"


def test_credentials_are_got_by_kubectl_with_nothing_on_standard_input(
    short: Path, tmp_path: Path
) -> None:
    api = {"apiVersion": "client.authentication.k8s.io/v1beta1"}
    credential = api | {"kind": "ExecCredential", "status": {"token": "secret-of-the-test"}}
    program = script(
        tmp_path / "login",
        f"wc -c > {tmp_path}/stdin\nreadlink /proc/self/fd/0 >> {tmp_path}/stdin\n"
        f"echo '{json.dumps(credential)}'",
    )
    user = {"exec": api | {"command": str(program), "interactiveMode": "IfAvailable"}}
    with (
        on_localhost(tmp_path, nothing, tls=True, user=user) as (server, config),
        connect(environment(short), kubeconfig=str(config), accept=["/api/v1/nodes"]) as wire,
    ):
        assert wire.send("GET", "/api/v1/nodes").ok
        headers = server.asked[-1].headers
    assert headers["authorization"] == "Bearer secret-of-the-test"
    assert (tmp_path / "stdin").read_text(encoding="utf-8").split() == ["0", "/dev/null"]


def test_a_program_that_never_serves_is_ended(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxying, "START_S", 0.4)
    program = script(tmp_path / "kubectl", "echo waiting for you >&2; sleep 60 & wait")
    lines = refused(UnavailableError, environment(short, KUBECTL=str(program)), context="test")
    assert lines[0] == "error: kubectl proxy failed: it did not begin to serve within 0.4 s"
    assert comes_true(lambda: not ours())


@pytest.mark.slow
def test_killed_at_any_moment_of_the_start_nothing_stays(short: Path, tmp_path: Path) -> None:
    with on_localhost(tmp_path, nothing) as (_, config):
        for number in range(8):
            with opener(config, short, wait=False) as process:
                # from when the folder is made to when the proxy serves
                assert comes_true(lambda: any(short.iterdir()))
                time.sleep(0.015 * number)
                started = descendants(process.pid)
                process.kill()
                process.wait(HANG_S)
            assert comes_true(lambda pids=started: not living(pids))  # type: ignore[misc]
            assert comes_true(lambda: not list(short.iterdir())), number
