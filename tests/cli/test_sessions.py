"""Sessions at a command line: files, commands, and all that each command prints, in tests/*/sessions.

``<<< NAME`` begins a file that ends with ``>>>``; ``-- `` a comment; ``$ `` a command, with what it prints
below it: on stdout, on stderr behind ``! ``, ``[exit code]`` unless 0; ``...`` for lines that are left out.

- ``[NAME=VALUE ...] gangplan ... [< FILE] [| FILTER]`` runs in this process. Filters: ``grep REGEX``, and
  ``py EXPRESSION`` where ``d`` is the JSON that is printed; of stdout, or behind ``|&`` of both streams
- ``let NAME = EXPRESSION``, ``make FILE EXPRESSION``: text, bytes or JSON; ``edit FILE STATEMENTS``
  with the JSON ``d``; ``seal`` is the same for a plan, whose digests are made anew
- ``read PATH... [--policy FILE] [--now TIME] [-o FILE]``: the canonical form of an input
- anything else is for a shell

Commands of a file run one after the other in one folder, with inputs, docs and tests of the repository.
``--refresh-golden`` writes what is printed now; review the diff.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import handmade
import kube
import plan_changes
import plan_documents
import plan_goodput
import pytest
import report_plans
from building import instance_document
from conftest import RunCli
from plan_documents import sealed
from typer.main import get_command

from models.units import epoch_seconds
from planner import last_plan
from planner.cli.app import app
from planner.errors import GangplanError
from planner.read.inputs import instance_from_document, load

ROOT = Path(__file__).parents[2]
SESSIONS = {path.stem: path for path in sorted(ROOT.glob("tests/*/sessions/*.txt"))}
EPOCH = {"SOURCE_DATE_EPOCH": "1795248000"}
"""2026-11-21T08:00:00Z."""

SHARED = (
    gzip,
    handmade,
    hashlib,
    json,
    kube,
    plan_changes,
    plan_documents,
    plan_goodput,
    re,
    report_plans,
)
NAMES: dict[str, Any] = {"Path": Path} | {one.__name__: one for one in SHARED}
PROGRESS = re.compile(r" *\d+\.\ds  |.* value .*; searching$")
"""A line that a busy machine may print."""

NOW = epoch_seconds("2026-11-30T07:00:00Z")
"""When plans of the sessions are looked at again."""


@dataclass
class Step:
    """A piece of a session. ``text``: a command without its sign, or lines that are kept as they are."""

    text: str
    command: bool
    shown: list[str] = field(default_factory=list)


def steps(text: str) -> Iterator[Step]:
    step = Step("", command=False)
    for line in text.splitlines():
        if step.text.startswith("<<< ") and not step.text.endswith("\n>>>"):
            step.text += f"\n{line}"
        elif line.startswith(("$ ", "<<< ", "-- ")):
            yield step
            step = Step(line.removeprefix("$ "), command=line.startswith("$ "))
        else:
            step.shown.append(line)
    yield step


def matches(expected: list[str], printed: list[str]) -> bool:
    """Whether these are the lines, where ``...`` stands for any."""
    first, *others = [part.split("\n")[1:] for part in "\n".join(["", *expected]).split("\n...")]
    if not others:
        return first == printed
    at = len(first)
    if printed[:at] != first:
        return False
    for part in others[:-1]:
        at = next(
            (n + len(part) for n in range(at, len(printed)) if printed[n : n + len(part)] == part),
            len(printed) + 1,
        )
    last = others[-1]
    return at + len(last) <= len(printed) and printed[len(printed) - len(last) :] == last


def trimmed(lines: list[str]) -> list[str]:
    while lines and not lines[-1]:
        lines = lines[:-1]
    return lines


def bash(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)


@dataclass
class Shell:
    cli: RunCli
    folder: Path
    names: dict[str, Any]

    def run(self, command: str) -> list[str]:
        """The lines that a command prints."""
        found = re.fullmatch(r"(.*?)(?: (\|&?) ((?:grep|py) .*))?", command, re.DOTALL)
        assert found is not None
        words, pipe, filtering = found.groups()
        if re.match(r"(\w+=\S* )*gangplan\b", words):
            out, err, code = self.gangplan(words)
        elif words.startswith("read"):
            out, err, code = self.read(words)
        elif words.startswith("let "):
            exec(words.removeprefix("let "), self.names)
            out, err, code = "", "", 0
        elif words.startswith(("make ", "edit ", "seal ")):
            out, err, code = self.change(*words.split(" ", 2)), "", 0
        else:
            done = subprocess.run(
                ["bash", "-c", words], capture_output=True, text=True, check=False
            )
            out, err, code = done.stdout, done.stderr, done.returncode
        err = "".join(line for line in err.splitlines(keepends=True) if not PROGRESS.match(line))
        if pipe == "|&":
            out, err = self.filtered(filtering, out + err), ""
        elif pipe and not code:
            out, err = self.filtered(filtering, out), ""
        lines = [*out.splitlines(), *(f"! {line}" for line in err.splitlines())]
        lines += [f"[{code}]"] if code else []
        return [
            line.replace(str(self.folder), "$PWD").replace("\x1b", "␛").rstrip() for line in lines
        ]

    def gangplan(self, command: str) -> tuple[str, str, int]:
        command, _, given = command.replace("$PWD", str(self.folder)).partition(" < ")
        words = shlex.split(command)
        at = words.index("gangplan")
        environ = EPOCH | dict(word.split("=", 1) for word in words[:at])
        typed = io.StringIO()  # help is printed by typer itself
        with redirect_stdout(typed), pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", environ.get("COLUMNS", "80"))
            stdin = Path(given).read_bytes() if given else b""
            done = self.cli(*words[at + 1 :], stdin=stdin, environ=environ)
        return typed.getvalue() + done.out, done.err, done.code

    def read(self, command: str) -> tuple[str, str, int]:
        command, _, given = command.partition(" < ")
        words = bash(f"printf '%s\\n' {command}").stdout.splitlines()[1:]
        named = {}
        for option in ("--policy", "--now", "-o"):
            if option in words:
                at = words.index(option)
                _, named[option] = words.pop(at), words.pop(at)
        now = epoch_seconds(named["--now"]) if "--now" in named else None
        try:
            with Path(given).open("rb") if given else nullcontext() as stdin:
                found = load(words, policy=named.get("--policy"), now=now, stdin=stdin)
        except GangplanError as error:
            lines = [line for fault in error.faults for line in fault.lines()]
            return "", "\n".join(lines), error.exit_code
        document = json.loads(json.dumps(instance_document(found.instance)))
        assert instance_from_document(document) == found.instance
        text = json.dumps(document)
        if "-o" in named:
            Path(named["-o"]).write_text(text, encoding="utf-8")
            text = ""
        return text, "\n".join(found.remarks), 0

    def filtered(self, filtering: str, out: str) -> str:
        kind, _, what = filtering.partition(" ")
        if kind == "grep":
            what = what.strip("'")
            kept = [line for line in out.splitlines() if re.search(what, line)]
        else:
            try:
                document = json.loads(out)
            except ValueError:  # one a line, as a log has them
                document = [json.loads(line) for line in out.splitlines() if line[:1] == "{"]
            found = eval(what, self.names | {"d": document})
            kept = found if isinstance(found, list) else [found]
        return "".join(
            (one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)) + "\n"
            for one in kept
        )

    def change(self, kind: str, name: str, code: str = "") -> str:
        path = self.folder / name
        if kind == "make":
            made = eval(code, self.names)
        else:
            made = json.loads(path.read_text(encoding="utf-8"))
            exec(code, self.names | {"d": made})
            made = sealed(made) if kind == "seal" else made
        text = made if isinstance(made, str | bytes) else json.dumps(made, indent=1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return ""


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_prints_what_it_is_said_to_print(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    cli: RunCli,
) -> None:
    for link in ("inputs", "docs", "tests"):
        (tmp_path / link).symlink_to(ROOT / link)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(last_plan, "time", SimpleNamespace(time=lambda: NOW))
    shell, wrong, made = Shell(cli, tmp_path, {**NAMES}), [], []
    for step in steps(SESSIONS[name].read_text(encoding="utf-8")):
        if not step.command:
            made += [*([step.text] if step.text else []), *step.shown]
            if step.text.startswith("<<< "):
                head, _, body = step.text.partition("\n")
                path = tmp_path / head.removeprefix("<<< ")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(body.removesuffix(">>>"), encoding="utf-8")
            continue
        printed, expected = trimmed(shell.run(step.text)), trimmed(step.shown)
        blank = step.shown[len(expected) :]
        if not matches(expected, printed):
            wrong.append("\n".join([f"$ {step.text}", *printed, "--- expected:", *expected]))
            expected = printed
        made += [f"$ {step.text}", *expected, *blank]
    if request.config.getoption("--refresh-golden"):
        SESSIONS[name].write_text("\n".join(made) + "\n", encoding="utf-8")
    else:
        assert not wrong, "\n\n".join(wrong)


def test_every_option_of_a_verb_that_needs_no_cluster_is_in_a_session() -> None:
    used: dict[str, set[str]] = {}
    for path in SESSIONS.values():
        calls = re.findall(r"^\$ (?:\w+=\S* )*gangplan (\w+)(.*)", path.read_text(), re.MULTILINE)
        for verb, words in calls:
            used.setdefault(verb, set()).update(re.findall(r"(?<!\S)--?[a-z-]+", words))
    live = {"snapshot", "apply", "run", "status", "doctor"}
    for verb, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        for one in command.params if verb not in live else ():
            assert one.param_type_name != "option" or used[verb] & {*one.opts}, (verb, one.opts)
