"""The door to a cluster: what it makes of kubectl's words, of children that misbehave, of long answers."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest
from api_server import forbidden, serving, status
from snapshots import environment, small

from planner.cluster import child_process as processes
from planner.cluster.answers import Reason, Refusal, understood
from planner.cluster.child_process import Children, Cut, Ended
from planner.cluster.kubectl import Kubectl
from planner.errors import UnavailableError
from planner.untrusted_text import MAX_MESSAGE

SAID = {
    'Error from server (NotFound): pods "p" not found': Reason.missing,
    "Error from server (NotFound): the server could not find the requested resource": Reason.missing,
    'Error from server (Forbidden): nodes is forbidden: User "u" cannot list': Reason.forbidden,
    "Error from server (Expired): The provided continue parameter is too old": Reason.expired,
    "Error from server (Gone): too old": Reason.expired,
    "Error from server: The provided continue parameter is too old to display": Reason.expired,
    "Error from server (TooManyRequests): please try again": Reason.transient,
    "Error from server (InternalError): an error on the server": Reason.transient,
    "Error from server (ServiceUnavailable): the server is currently unable": Reason.transient,
    "Error from server (Timeout): the server was unable to return a response": Reason.transient,
    "Error from server (BadRequest): limit must be a number": Reason.other,
    "error: You must be logged in to the server (Unauthorized)": Reason.unauthorized,
    "The connection to the server 127.0.0.1:1 was refused - did you specify": Reason.refused,
    "Unable to connect to the server: dial tcp 10.0.0.1:443: connect: connection refused": (
        Reason.refused
    ),
    "Unable to connect to the server: dial tcp 10.0.0.1:443: i/o timeout": Reason.transient,
    "Unable to connect to the server: net/http: TLS handshake timeout": Reason.transient,
    "Unable to connect to the server: EOF": Reason.transient,
    "Unable to connect to the server: context deadline exceeded": Reason.transient,
    "error: unexpected EOF": Reason.transient,
    "read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer": Reason.transient,
    "Unable to connect to the server: dial tcp: lookup nowhere: no such host": Reason.other,
    "Unable to connect to the server: x509: certificate signed by unknown authority": Reason.other,
    'error: context "elsewhere" does not exist': Reason.other,
    "": Reason.other,
}


@pytest.mark.parametrize("talk", SAID)
def test_what_kubectl_says_is_understood(talk: str) -> None:
    assert understood(talk).reason is SAID[talk]


def test_log_lines_before_the_verdict_do_not_hide_it() -> None:
    talk = (
        'E1121 11:00:00.123456    4242 memcache.go:265] "Unhandled Error" err="timed out"\n'
        "Warning: v1beta1 is deprecated\n"
        'Error from server (Forbidden): pods is forbidden: User "u" cannot list resource "pods"\n'
    )
    assert understood(talk) == Refusal(
        Reason.forbidden, 'pods is forbidden: User "u" cannot list resource "pods"'
    )


def test_a_message_is_one_printable_line_of_bounded_length() -> None:
    talk = "error: \x1b]0;title\x07" + "\u202egnirts\n" + "x" * 10_000
    message = understood("Error from server (BadRequest): \x1b[2J" + "y" * 10_000).message
    assert message.startswith("\\e[2Jyyy")
    assert len(message) == MAX_MESSAGE
    assert len(understood(talk).message) <= MAX_MESSAGE


def run(script: str, *, seconds: float = 20.0, most: int = 2**20) -> Ended:
    return Children().run(
        [sys.executable, "-c", script], environ=os.environ, seconds=seconds, most=most
    )


def test_a_child_leaves_what_it_wrote_and_its_code() -> None:
    ended = run(
        "import sys; sys.stdout.write('x' * 3000000); sys.stderr.write('bad'); sys.exit(3)",
        most=2**22,
    )
    assert (ended.code, len(ended.out), ended.talk, ended.cut) == (3, 3_000_000, "bad", None)


def test_a_child_that_writes_too_much_is_cut() -> None:
    ended = run("while True: print('x' * 1000)", most=100_000)
    assert (ended.cut, ended.out) == (Cut.too_long, b"")


def test_a_child_that_talks_without_end_does_not_fill_memory() -> None:
    ended = run("import sys\nfor _ in range(100000): sys.stderr.write('x' * 100)")
    assert (ended.code, ended.cut) == (0, None)
    assert len(ended.talk) == processes.MAX_TALK


@pytest.mark.parametrize(
    "script",
    [
        "import time; time.sleep(60)",
        # deaf to being asked
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)",
        # nothing more to read, and yet not gone
        "import os, time; os.close(1); os.close(2); time.sleep(60)",
    ],
)
def test_a_child_past_its_deadline_is_ended(script: str) -> None:
    begun = time.monotonic()
    assert run(script, seconds=0.5).cut is Cut.deadline
    assert time.monotonic() - begun < 50


def test_what_a_child_leaves_behind_with_its_pipes_is_not_waited_for() -> None:
    script = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(30)'],"
        " start_new_session=True)\n"
        "print('done')"
    )
    begun = time.monotonic()
    ended = run(script)
    assert (ended.out, ended.cut) == (b"done\n", None)
    assert time.monotonic() - begun < 25


def test_closing_ends_the_children_that_run_and_lets_none_start() -> None:
    children = Children()
    found: list[Ended] = []
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]

    def go() -> None:
        found.append(children.run(sleep, environ=os.environ, seconds=60, most=10))

    thread = threading.Thread(target=go)
    thread.start()
    time.sleep(0.3)
    children.close()
    thread.join(30)
    assert [ended.cut for ended in found] == [Cut.closed]
    assert children.run(sleep, environ=os.environ, seconds=60, most=10).cut is Cut.closed


def test_the_door_answers_with_bytes_or_a_refusal(tmp_path: Path) -> None:
    server = small()
    server.refuse("/api/v1/secrets", forbidden("list", "secrets"))
    server.refuse("/api/v1/old", status(410, "Expired", "too old"))
    with serving(server, tmp_path), Kubectl.find(environment(tmp_path)) as door:
        assert door.context == "test"
        body = door.get_raw("/api/v1/nodes")
        assert isinstance(body, bytes)
        assert body.startswith(b'{"kind":"NodeList"')
        for path, reason in (
            ("/api/v1/secrets", Reason.forbidden),
            ("/api/v1/nothing", Reason.missing),
            ("/api/v1/old", Reason.expired),
        ):
            answer = door.get_raw(path)
            assert isinstance(answer, Refusal)
            assert answer.reason is reason
        assert door.retries == 0


def test_the_environment_and_the_context_reach_kubectl(tmp_path: Path) -> None:
    script = tmp_path / "kubectl"
    script.write_text('#!/bin/sh\necho "$@"; echo "$AWS_PROFILE $KUBERC"\n')
    script.chmod(0o755)
    (tmp_path / "config").write_text("")
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "AWS_PROFILE": "prod"}
    config = str(tmp_path / "config")
    with Kubectl.find(environ, context="a b; rm -rf /", kubeconfig=config) as door:
        answer = door.get_raw("/api/v1/nodes?limit=1")
    assert isinstance(answer, bytes)
    options = f"--request-timeout=60s --context=a b; rm -rf / --kubeconfig={config}"
    assert answer.decode() == f"{options} get --raw=/api/v1/nodes?limit=1\nprod off\n"


def test_an_answer_beyond_the_bound_is_69_and_not_asked_again(tmp_path: Path) -> None:
    script = tmp_path / "kubectl"
    script.write_text(f"#!/bin/sh\necho x >> {tmp_path}/calls; head -c 3000000 /dev/zero\n")
    script.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with (
        Kubectl(str(script), environ=environ, most=2**20) as door,
        pytest.raises(UnavailableError, match="an answer of more than 1 MiB"),
    ):
        door.get_raw("/api/v1/nodes")
    assert (tmp_path / "calls").read_text() == "x\n"


def test_a_kubectl_that_cannot_run_is_69(tmp_path: Path) -> None:
    script = tmp_path / "kubectl"
    script.write_text("#!/nowhere/sh\n")
    script.chmod(0o755)
    with pytest.raises(UnavailableError, match="cannot run"):
        Kubectl.find({"PATH": str(tmp_path)})


def test_without_a_current_context_none_is_named(tmp_path: Path) -> None:
    # Inside a pod there is no kubeconfig: kubectl finds the service account by itself.
    (tmp_path / "kubeconfig").write_text("apiVersion: v1\nkind: Config\n")
    with Kubectl.find(environment(tmp_path)) as door:
        assert door.context is None
