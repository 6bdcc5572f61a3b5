"""Completion: what kubectl asks for ``kubectl gangplan ...``, and shells for ``gangplan ...``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import RunCli
from effort import first_fast
from snapshots import real_kubectl

from models.rates import catalogue
from planner.cli import completion
from planner.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
VERBS = [command.name for command in app.registered_commands if command.name]
VALUES = ["table", "wide", "json", "yaml", "name"]


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Completing sets variables of its own process."""
    own = ("_GANGPLAN_COMPLETE", "_TYPER_COMPLETE_ARGS", "_TYPER_COMPLETE_FISH_ACTION", "COLUMNS")
    for name in own:
        monkeypatch.setenv(name, "")


def answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str
) -> tuple[list[str], str]:
    """The candidates without descriptions, and the directive."""
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-gangplan", *words])
    completion.main()
    said = capsys.readouterr()
    assert said.err == ""
    *candidates, directive = said.out.splitlines()
    return [line.partition("\t")[0] for line in candidates], directive


@pytest.mark.parametrize(
    ("words", "candidates", "directive"),
    [
        ([""], VERBS, ":4"),
        ([], VERBS, ":4"),
        (["ver"], ["verify"], ":4"),
        (["plan", "--out"], ["--out", "--output"], ":4"),
        (["plan", "--sch"], ["--scheduler"], ":4"),  # its description is wider than a terminal
        (["plan", "monday", "--nope"], [], ":4"),
        (["plan", "-o", ""], VALUES, ":4"),
        (["plan", "--output", "w"], ["wide"], ":4"),
        (["plan", "--output=w"], ["wide"], ":4"),
        (["apply", "plan.json", "--dry-run", ""], ["client", "server"], ":4"),
        # the shell's file names
        (["plan", ""], [], ":0"),
        (["plan", "mon day", "in"], [], ":0"),
        (["plan", "--policy", ""], [], ":0"),
        (["topo", "nvidia-smi.t"], [], ":0"),
        # models of the catalogue
        (["topo", "dgx-h"], ["dgx-h100", "dgx-h200"], ":4"),
        # what cannot be parsed
        (["plan", "--seed", "x", "--wor"], ["--workers"], ":4"),
        (["plan", "'", '"', "--wor"], ["--workers"], ":4"),
        (["plan", "\x00\n", "--wor"], [], ":1"),
    ],
)
def test_kubectl_gets_candidates_and_a_directive(
    words: list[str],
    candidates: list[str],
    directive: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert answer(capsys, monkeypatch, *words) == (candidates, directive)


def test_the_names_of_gangs_are_completed(
    cli: RunCli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def candidates(*words: str) -> list[str]:
        return answer(capsys, monkeypatch, *words)[0]

    home, saved = {"HOME": str(tmp_path / "home")}, str(tmp_path / "plan.json")
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", home["HOME"])
    monkeypatch.setenv("XDG_STATE_HOME", "")
    assert candidates("explain", "def") == []
    monkeypatch.setenv("_GANGPLAN_COMPLETE", "")
    assert cli("plan", str(ROOT / "inputs/quickstart"), "--out", saved, environ=home).code == 0
    document = json.loads(Path(saved).read_text())
    gangs = {f"{gang['namespace']}/{gang['name']}" for gang in document["spec"]["gangs"]}
    assert len(gangs) == 7
    assert set(candidates("explain", "def")) == gangs
    (tmp_path / "home/.local/state/gangplan/last-plan.json.gz").unlink()
    assert set(candidates("explain", saved, "")) == gangs
    document["spec"]["gangs"][0]["name"] = "$(touch x)"  # a shell is not given this
    Path(saved).write_text(json.dumps(document))
    assert len(candidates("explain", saved, "")) == 6


def test_a_bug_completes_nothing_and_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> list[str]:
        raise ZeroDivisionError

    monkeypatch.setattr(catalogue, "slugs", broken)
    assert answer(capsys, monkeypatch, "topo", "d") == ([], ":1")


def test_kubectl_itself_completes_the_plugin(tmp_path: Path) -> None:
    kubectl = real_kubectl()
    version = json.loads(subprocess.check_output([kubectl, "version", "--client", "-o", "json"]))
    if int(version["clientVersion"]["minor"].rstrip("+")) < 26:
        pytest.skip("kubectl completes plugins since 1.26")
    plugin, complete = tmp_path / "kubectl-gangplan", tmp_path / "kubectl_complete-gangplan"
    plugin.write_text("#!/bin/sh\n")
    complete.write_text(f'#!/bin/sh\nexec {sys.executable} -m planner.cli.completion "$@"\n')
    for script in (plugin, complete):
        script.chmod(0o755)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [kubectl, "__complete", "gangplan", "show", "plan.json", "-o", "w"],
        check=True,
        capture_output=True,
        text=True,
        env=environ,
    )
    assert done.stdout == "wide\n:4\n"
    assert "ShellCompDirectiveNoFileComp" in done.stderr


@pytest.mark.parametrize("shell", first_fast(["bash", "zsh", "fish"]))
def test_shells_are_offered_completion(shell: str) -> None:
    """Typer's own scripts ask ``gangplan`` through the environment."""
    listing = "import sys; sys.argv[0] = 'gangplan'; from planner.cli.app import main; main()"
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "_GANGPLAN_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": "gangplan topo dgx-h1",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": "gangplan topo dgx-h1",
        "COMP_CWORD": "2",
    }
    done = subprocess.run(
        [sys.executable, "-c", listing], check=True, capture_output=True, text=True, env=environ
    )
    assert "dgx-h100" in done.stdout
    assert done.stderr == ""
