"""The command line's manners: help, version, usage errors, program names, bugs, cold start."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import plan_changes
import pytest
from apply_runs import Keyboard
from bundles import packed
from conftest import RunCli
from effort import spread
from kube import node
from typer.main import get_command
from typer.models import CommandInfo

from models.rates import catalogue
from planner.cli import app as command_line
from planner.show.console import Console

ROOT = Path(__file__).resolve().parents[2]
VERBS = ("validate", "plan", "show", "explain", "compare", "report", "audit", "capacity")
VERBS += ("verify", "topo", "snapshot", "apply", "run", "status", "doctor")


def test_help_and_version_are_words_too(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("version").out == cli("--version").out
    for words in ((), ("plan",)):
        assert cli("help", *words).code == cli(*words, "--help").code == 0
        asked, option = capsys.readouterr().out.split("Usage:")[1:]
        assert asked == option


def test_a_terminal_as_standard_input_is_told_what_is_waited_for() -> None:
    said = io.StringIO()
    console = Console(
        "gangplan", stdout=io.StringIO(), stderr=said, stdin=Keyboard(b""), environ={}
    )
    assert command_line.run(["plan", "-"], console) == 65
    told = "reading the input from the terminal; end with Ctrl-D"
    assert [line for line in said.getvalue().splitlines() if "Ctrl-D" in line] == [told]


def examples_of(verb: str) -> list[str]:
    """The lines below ``Examples:`` in the help of a verb, as Typer has it."""
    (command,) = (one for one in command_line.app.registered_commands if named(one) == verb)
    assert command.epilog is not None
    mark, title, *lines = command.epilog.split("\n")
    assert (mark, title) == ("\b", "Examples:")
    return [line.strip() for line in lines]


def named(command: CommandInfo) -> str:
    assert command.name is not None
    return command.name


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_has_two_examples_that_parse(
    verb: str, cli: RunCli, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = examples_of(verb)
    cli(verb, "--help")
    shown = capsys.readouterr().out
    assert shown.endswith("\n  Examples:\n" + "".join(f"    {line}\n" for line in examples))
    assert len(examples) == 2
    command = get_command(command_line.app)
    for example in examples:
        assert len(example) <= 76
        calls = [part.split() for part in example.split(" | ")]
        ours = [words[1:] for words in calls if words[0] == "gangplan"]
        assert any(words[0] == verb for words in ours)
        for name, *words in ours:
            # Parses words and values; raises for what the verb does not take.
            command.commands[name].make_context(name, words)


@pytest.mark.parametrize("verb", ["validate", "plan", "show", "verify", "topo"])
def test_the_examples_that_need_no_cluster_run(
    verb: str, cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monday = "snapshots/v100-mpi" if verb == "validate" else "quickstart"
    Path("monday").symlink_to(ROOT / "inputs" / monday)
    matrix = ROOT / "tests" / "data" / "nvidia-smi" / "03-v100x8-permuted-order-node.txt"
    before = {
        "kubectl get nodes,pods,namespaces -A -o json": packed([node("gpu-01")]),
        "ssh gpu-01 nvidia-smi topo -m": matrix.read_bytes(),
    }
    environ = {"HOME": str(tmp_path)}
    if verb == "show":
        assert cli("plan", "monday", "--out", "plan.json", environ=environ).code == 0
    if verb == "verify":
        plan = cli("plan", "monday", "-o", "json", "--out", "plan.json").out
        before["gangplan plan monday -o json"] = plan.encode()
    for example in examples_of(verb):
        first, _, second = example.rpartition(" | ")
        words = second.split()[1:]
        result = cli(*words, stdin=before[first] if first else b"", environ=environ)
        assert (result.code, "error" in result.err) == (0, False), example


def test_a_bug_is_one_line_and_a_hint(cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr("planner.read.plan_files.read_bytes", broken)
    result = cli("show", "x")
    assert result.code == 1
    assert result.err.splitlines()[0] == "error: unexpected ZeroDivisionError: on purpose"
    assert "--debug" in result.err
    assert "Traceback" not in result.err
    assert "Traceback" in cli("show", "x", "--debug").err


def test_an_interruption_outside_the_search_is_130(
    cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise command_line.Interrupted(2)

    monkeypatch.setattr("planner.read.plan_files.read_bytes", interrupted)
    result = cli("show", "x")
    assert (result.code, result.err) == (130, "error: interrupted; nothing was saved\n")


LOADED = """
import sys, typer
alone = len(sys.modules)
from planner.cli.app import run
from planner.show.console import Console
codes = [run(words.split(), Console()) for words in sys.argv[2:]]
known = sys.argv[1].split()
print(codes, [m for m in known if m in sys.modules], len(sys.modules) - alone)
"""


@pytest.mark.parametrize(
    ("commands", "known"),
    [
        (["--help"], "ortools numpy pandas rich yaml"),
        (["show --help", "--version"], "ortools numpy pandas rich yaml"),
        (["validate inputs/quickstart"], "ortools numpy pandas rich jinja2"),
        (["explain - late --time-limit 0s"], "ortools"),
    ],
)
def test_a_verb_loads_no_more_than_it_needs(commands: list[str], known: str) -> None:
    """What keeps the start under 0.3 s, counted: seconds depend on the machine (56 when written)."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, known, *commands],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        input=json.dumps(plan_changes.plan()) if commands[0].startswith("explain") else "",
    )
    said = re.fullmatch(r"(\[.*?\]) (\[.*?\]) (\d+)", done.stdout.splitlines()[-1])
    assert said is not None
    assert (said[1], said[2]) == (str([0] * len(commands)), "[]")
    assert commands != ["--help"] or int(said[3]) < 60


def test_every_server_model_is_shown_with_its_matrix_and_no_line_ends_blank(cli: RunCli) -> None:
    for model in spread(catalogue.server_models(), 4):
        shown = cli("topo", model.name)
        assert (shown.code, shown.err) == (0, ""), model.name
        assert all(line == line.rstrip() for line in shown.out.splitlines()), model.name
