"""The command line's manners: help, version, usage errors, program names, bugs, cold start."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from apply_runs import Keyboard
from conftest import RunCli
from kube import node
from typer.main import get_command
from typer.models import CommandInfo

from planner.cli import app as command_line
from planner.show.console import Console

VERBS = ("validate", "plan", "show", "explain", "compare", "report", "audit", "capacity")
VERBS += ("verify", "topo", "snapshot", "apply", "run", "status", "doctor")


def test_version_is_printed(cli: RunCli) -> None:
    assert cli("--version").out == "gangplan 0.2.0\n"


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


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_is_as_agreed(
    verb: str,
    cli: RunCli,
    golden: Callable[[str, str], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = cli(*([verb] if verb else []), "--help")
    text = capsys.readouterr().out
    assert result.code == 0
    golden(f"help-{verb or 'gangplan'}.txt", text)


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
    root = Path(__file__).resolve().parents[2]
    monkeypatch.chdir(tmp_path)
    monday = "snapshots/v100-mpi" if verb == "validate" else "quickstart"
    Path("monday").symlink_to(root / "inputs" / monday)
    matrix = root / "tests" / "data" / "nvidia-smi" / "03-v100x8-permuted-order-node.txt"
    objects = {"apiVersion": "v1", "kind": "List", "items": [node("gpu-01")]}
    before = {
        "kubectl get nodes,pods,namespaces -A -o json": json.dumps(objects).encode(),
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


def test_no_verb_shows_the_help_and_is_a_usage_error(cli: RunCli) -> None:
    result = cli()
    assert result.code == 64
    assert result.out == ""
    assert "Usage: gangplan" in result.err


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("unknown-verb", ["plam", "x"]),
        ("report-without-out", ["report", "plan.json"]),
        ("unknown-option", ["plan", "x", "--budgte", "3"]),
        ("missing-path", ["plan"]),
        ("missing-plan", ["verify"]),
        ("missing-gang", ["explain"]),
        ("one-too-many", ["verify", "a", "b"]),
        ("unknown-format", ["show", "x", "-o", "html"]),
        ("budget-below-one", ["plan", "x", "--budget", "0"]),
        ("workers-no-number", ["plan", "x", "--workers", "two"]),
        ("option-without-value", ["plan", "x", "--out"]),
        ("time-limit", ["plan", "x", "--time-limit", "soon"]),
        ("time-limit-of-nothing", ["plan", "x", "--time-limit", "0s"]),
        ("out-to-stdout", ["plan", "x", "--out", "-"]),
    ],
)
def test_usage_error_is_64_and_says_what_to_do(
    name: str, arguments: list[str], cli: RunCli, golden: Callable[[str, str], None]
) -> None:
    result = cli(*arguments)
    assert (result.code, result.out) == (64, "")
    assert result.err.startswith("error: ")
    assert "\nhint: " in result.err
    golden(f"usage-{name}.txt", result.err)


def test_usage_errors_speak_json_when_asked(cli: RunCli) -> None:
    lines = cli("plan", "--log-format", "json").err.splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["error", "summary"]
    assert json.loads(lines[1])["exit_code"] == 64


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


def test_help_loads_little_more_than_typer() -> None:
    """What keeps the start under 0.3 s, counted: seconds depend on the machine (56 when written)."""
    listing = (
        "import sys, typer; alone = len(sys.modules);"
        "from planner.cli.app import run; from planner.show.console import Console;"
        "run(['--help'], Console()); print(len(sys.modules) - alone)"
    )
    done = subprocess.run(
        [sys.executable, "-c", listing], check=True, capture_output=True, text=True
    )
    assert int(done.stdout.splitlines()[-1]) < 60


@pytest.mark.parametrize("arguments", [["--help"], ["show", "--help"], ["--version"]])
def test_start_loads_no_solver_and_no_schema(arguments: list[str]) -> None:
    listing = (
        "import sys; from planner.cli.app import run; from planner.show.console import Console;"
        f"run({arguments!r}, Console());"
        "print([m for m in ('ortools', 'numpy', 'pandas', 'rich', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", listing], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
