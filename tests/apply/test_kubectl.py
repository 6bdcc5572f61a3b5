"""The kubectl of this machine: where it is, its context, and what bounds each run of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from effort import HANG_S
from snapshots import environment, script

from planner.cluster import kubectl as kubectl_module
from planner.cluster.kubectl import Kubectl, last_line
from planner.errors import UnavailableError
from planner.untrusted_text import MAX_MESSAGE


def test_a_message_is_one_printable_line_of_bounded_length() -> None:
    message = last_line(b"error: \x1b[2J" + b"y" * 10_000)
    assert message.startswith("\\e[2Jyyy")
    assert len(message) == MAX_MESSAGE
    odd = "error: \x1b]0;title\x07\u202egnirts\n" + "x" * 10_000
    assert len(last_line(odd.encode())) <= MAX_MESSAGE


@pytest.mark.parametrize(
    "text",
    ["", "trap '' TERM", "exec >&- 2>&-"],
    ids=["slow", "deaf to being asked", "nothing more to read, and yet not gone"],
)
def test_a_kubectl_past_its_deadline_is_ended(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubectl_module, "RUN_S", 0.2)
    ended = tmp_path / "ended"
    kubectl = script(tmp_path / "kubectl", f"{text}\nsleep {HANG_S:g}; touch {ended}")
    with pytest.raises(UnavailableError, match="no answer within"):
        Kubectl(str(kubectl), os.environ).run("version")
    assert not ended.exists(), "nobody waited for its own end"


def test_the_environment_and_the_context_reach_kubectl(tmp_path: Path) -> None:
    script(tmp_path / "kubectl", 'echo "$@"; echo "$AWS_PROFILE $KUBERC"')
    (tmp_path / "config").write_text("")
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "AWS_PROFILE": "prod"}
    config = str(tmp_path / "config")
    found = Kubectl.find(environ, context="a b; rm -rf /", kubeconfig=config)
    out = found.run(*found.options(), "get", "nodes")
    options = f"--kubeconfig={config} --context=a b; rm -rf /"
    assert out.decode() == f"{options} get nodes\nprod off\n"


def test_a_kubectl_that_cannot_run_is_69(tmp_path: Path) -> None:
    script(tmp_path / "kubectl", "").write_text("#!/nowhere/sh\n")
    with pytest.raises(UnavailableError, match="cannot run"):
        Kubectl.find({"PATH": str(tmp_path)})


def test_without_a_current_context_none_is_named(tmp_path: Path) -> None:
    # Inside a pod there is no kubeconfig: kubectl finds the service account by itself.
    (tmp_path / "kubeconfig").write_text("apiVersion: v1\nkind: Config\n")
    assert Kubectl.find(environment(tmp_path)).context is None
