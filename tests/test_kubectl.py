"""The kubectl of this machine: where it is, its context, and what bounds each run of it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from snapshots import environment

from planner.cluster import kubectl as kubectl_module
from planner.cluster.kubectl import Finished, Kubectl, last_line
from planner.errors import UnavailableError
from planner.untrusted_text import MAX_MESSAGE


def test_a_message_is_one_printable_line_of_bounded_length() -> None:
    message = last_line("error: \x1b[2J" + "y" * 10_000)
    assert message.startswith("\\e[2Jyyy")
    assert len(message) == MAX_MESSAGE
    assert (
        len(last_line("error: \x1b]0;title\x07" + "\u202egnirts\n" + "x" * 10_000)) <= MAX_MESSAGE
    )


def run(script: str, *, seconds: float = 20.0, max_output: int = 2**20) -> Finished:
    return kubectl_module.run(
        [sys.executable, "-c", script],
        environ=os.environ,
        seconds=seconds,
        max_output=max_output,
    )


def test_a_child_leaves_what_it_wrote_and_its_code() -> None:
    ended = run(
        "import sys; sys.stdout.write('x' * 3000000); sys.stderr.write('bad'); sys.exit(3)",
        max_output=2**22,
    )
    assert (ended.code, len(ended.out), ended.err, ended.cut) == (3, 3_000_000, "bad", "")


def test_a_child_that_talks_without_end_does_not_fill_memory() -> None:
    ended = run("import sys\nfor _ in range(100000): sys.stderr.write('x' * 100)")
    assert (ended.code, ended.cut) == (0, "")
    assert len(ended.err) == kubectl_module.MAX_OUTPUT


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
    assert run(script, seconds=0.5).cut == "no answer within 0.5 s"
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
    assert (ended.out, ended.cut) == (b"done\n", "")
    assert time.monotonic() - begun < 25


def test_the_environment_and_the_context_reach_kubectl(tmp_path: Path) -> None:
    script = tmp_path / "kubectl"
    script.write_text('#!/bin/sh\necho "$@"; echo "$AWS_PROFILE $KUBERC"\n')
    script.chmod(0o755)
    (tmp_path / "config").write_text("")
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "AWS_PROFILE": "prod"}
    config = str(tmp_path / "config")
    found = Kubectl.find(environ, context="a b; rm -rf /", kubeconfig=config)
    out = found.run(*found.options(), "get", "nodes")
    options = f"--kubeconfig={config} --context=a b; rm -rf /"
    assert out.decode() == f"{options} get nodes\nprod off\n"


def test_a_kubectl_that_cannot_run_is_69(tmp_path: Path) -> None:
    script = tmp_path / "kubectl"
    script.write_text("#!/nowhere/sh\n")
    script.chmod(0o755)
    with pytest.raises(UnavailableError, match="cannot run"):
        Kubectl.find({"PATH": str(tmp_path)})


def test_without_a_current_context_none_is_named(tmp_path: Path) -> None:
    # Inside a pod there is no kubeconfig: kubectl finds the service account by itself.
    (tmp_path / "kubeconfig").write_text("apiVersion: v1\nkind: Config\n")
    assert Kubectl.find(environment(tmp_path)).context is None
