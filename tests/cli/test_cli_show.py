"""``gangplan show``: every format of a plan, and every way a file can fail to be one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import handmade
import pytest
import yaml
from conftest import RunCli


@pytest.fixture
def plan_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(handmade.plan_text(), encoding="utf-8")
    return "plan.json"


@pytest.mark.parametrize("output", ["table", "wide", "name"])
def test_formats_are_as_agreed(
    output: str, plan_file: str, cli: RunCli, golden: Callable[[str, str], None]
) -> None:
    result = cli("show", plan_file, "-o", output)
    assert (result.code, result.err) == (0, "next: gangplan verify plan.json\n")
    golden(f"show-{output}.txt", result.out)


def test_json_and_yaml_are_the_whole_document(plan_file: str, cli: RunCli) -> None:
    assert json.loads(cli("show", plan_file, "-o", "json").out) == handmade.plan()
    assert yaml.safe_load(cli("show", plan_file, "-o", "yaml").out) == handmade.plan()


def test_colour_is_off_in_a_pipe_and_on_when_asked(plan_file: str, cli: RunCli) -> None:
    plain = cli("show", plan_file).out
    assert "\x1b" not in plain
    for coloured in (
        cli("show", plan_file, "--color", "always").out,
        cli("show", plan_file, environ={"FORCE_COLOR": "1"}).out,
    ):
        assert "\x1b[32mplace\x1b[0m" in coloured
    assert cli("show", plan_file, environ={"FORCE_COLOR": "1", "NO_COLOR": "1"}).out == plain
    assert cli("show", plan_file, "--color", "never", environ={"FORCE_COLOR": "1"}).out == plain


@pytest.mark.parametrize(
    ("content", "said", "place"),
    [
        (b"", "not JSON", "plan.json:1:1"),
        (b"\x00\x01\x02", "not JSON", "plan.json:1:1"),
        (b"hello", "not JSON", "plan.json:1:1"),
        (b'{"kind": "Plan",\n "spec": [1, 2', "not JSON", "plan.json:2:15"),
        (b'{"kind": "Plan", "x": "\xff"}', "byte 23 is not UTF-8", "plan.json"),
        (b"[]", "an object is expected", "plan.json"),
        (b'"Plan"', "an object is expected", "plan.json"),
        (b"{}", "it has no kind", "plan.json"),
        (b'{"kind": "Cluster"}', "kind is 'Cluster'", "plan.json"),
        (b'{"kind": ["Plan"]}', "kind is ['Plan']", "plan.json"),
        (b'{"kind": "Plan"}', "unknown version of a plan: apiVersion is None", "plan.json"),
        (
            b'{"kind": "Plan", "apiVersion": "gangplan.dev/v2"}',
            "unknown version of a plan: apiVersion is 'gangplan.dev/v2'",
            "plan.json",
        ),
        (b'{"a":' * 100_000, "not a plan: nested too deeply", "plan.json"),
        (b'{"kind": "Plan", "n": ' + b"9" * 5000 + b"}", "not a plan", "plan.json"),
    ],
)
def test_what_is_no_plan_is_65_with_its_place(
    content: bytes, said: str, place: str, cli: RunCli, plan_file: str
) -> None:
    Path(plan_file).write_bytes(content)
    for verb in ("show", "verify"):
        result = cli(verb, plan_file)
        assert (result.code, result.out) == (65, "")
        first, where, hint = result.err.splitlines()
        assert hint.startswith("hint: ")
        assert first.startswith("error: ")
        assert said in first
        assert where == f"  --> {place}"


def broken(change: Callable[[dict[str, Any]], object]) -> bytes:
    plan = handmade.plan()
    change(plan)
    return json.dumps(plan).encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (broken(lambda p: p.pop("spec")), "missing field 'spec'"),
        (
            broken(lambda p: p["spec"].update(gangs={})),
            "spec.gangs: expected a list, not an object",
        ),
        (
            broken(lambda p: p["spec"]["gangs"][1]["pods"][0].update(gpus=["0"])),
            "spec.gangs[1].pods[0].gpus[0]: expected a whole number, not the text '0'",
        ),
        (
            broken(lambda p: p["spec"]["gangs"][0].update(decision="maybe")),
            "spec.gangs[0].decision: the text 'maybe' is not allowed here",
        ),
        (
            broken(lambda p: p["status"]["objectives"][0].update(gap=float("nan"))),
            "not a plan: NaN is not a finite number",
        ),
        (
            broken(lambda p: p["status"]["objectives"][0].update(value=float("nan"))),
            "not a plan: NaN is not a finite number",
        ),
        (
            broken(lambda p: p["instance"]["cluster"]["spec"].update(nodes="all")),
            "instance.cluster.spec.nodes: expected a list, not the text 'all'",
        ),
        (
            broken(lambda p: p["instance"]["policy"]["spec"].update(now="noon")),
            "instance.policy.spec.now: 'noon' is not an RFC 3339 time",
        ),
    ],
)
def test_a_plan_of_the_wrong_shape_is_65_and_names_the_field(
    content: bytes, said: str, cli: RunCli, plan_file: str
) -> None:
    Path(plan_file).write_bytes(content)
    result = cli("show", plan_file)
    assert (result.code, result.out) == (65, "")
    assert f"error: {said}" in result.err
    assert "  --> plan.json" in result.err


@pytest.mark.parametrize("number", ["1e400", "-1e400", "[[1e999]]", '{"a": 1e400}'])
@pytest.mark.parametrize(
    "verb", [["show"], ["show", "-o", "json"], ["verify"], ["apply", "--dry-run=client"]]
)
def test_a_number_that_overflows_is_65_where_a_newer_version_may_have_fields(
    verb: list[str], number: str, plan_file: str, tmp_path: Path, cli: RunCli
) -> None:
    document = json.loads(Path(plan_file).read_text())
    document["spec"]["gangs"][0]["future"] = "@"
    path = tmp_path / "newer.json"
    path.write_text(json.dumps(document, indent=1).replace('"@"', number))
    result = cli(verb[0], str(path), *verb[1:])
    assert result.code == 65
    line = path.read_text()[: path.read_text().index('"future"')].count("\n") + 1
    assert result.err.count("error: ") == 1
    assert re.search(r"error: not a plan: \S+ is not a finite number", result.err)
    assert f"newer.json:{line}:" in result.err


def test_a_missing_file_is_66_and_a_folder_65(cli: RunCli, tmp_path: Path) -> None:
    missing = cli("show", str(tmp_path / "nope.json"))
    assert missing.code == 66
    assert "No such file" in missing.err
    assert cli("show", str(tmp_path)).code == 65
    assert cli("show", "a\0b").code == 66


def test_hostile_names_drive_no_terminal(cli: RunCli, plan_file: str) -> None:
    plan = handmade.plan()
    evil = "\x1b[31mred\x07\n\r\t\u202egnp.\u2028\x9b31m[bold]x[/bold]"
    plan["spec"]["gangs"][0]["reason"]["message"] = evil
    plan["status"]["notes"] = [evil]
    plan["status"]["objectives"][0]["name"] = evil
    Path(plan_file).write_text(json.dumps(plan), encoding="utf-8")
    shown = "\\e[31mred\\x07\\n\\r\\t\\u202egnp.\\u2028\\x9b31m[bold]x[/bold]"
    for output in ("table", "wide", "name", "json", "yaml"):
        out = cli("show", plan_file, "-o", output).out
        assert not {c for c in out if not c.isprintable()} - {"\n"}
        if output == "json":
            assert json.loads(out) == plan
        elif output == "yaml":
            assert yaml.safe_load(out) == plan
        elif output != "name":
            assert f"NoRoom: {shown}" in out.replace("\n", "")
            assert f"note: {shown}" in out


@pytest.mark.parametrize("output", ["table", "json"])
def test_impossible_names_are_refused_and_drive_no_terminal(
    output: str, cli: RunCli, plan_file: str
) -> None:
    content = broken(lambda p: p["spec"]["gangs"][2].update(name="\x1b[31mred\x07\u202e"))
    Path(plan_file).write_bytes(content)
    result = cli("show", plan_file, "-o", output)
    assert (result.code, result.out) == (65, "")
    assert not {c for c in result.err if not c.isprintable()} - {"\n"}
    assert "spec.gangs[2].name: '\\x1b[31mred\\x07\\u202e' cannot be a name" in result.err


def test_a_tier_without_a_bound_shows_none(cli: RunCli, plan_file: str) -> None:
    plan = handmade.plan()
    plan["status"]["objectives"] = [
        handmade.tier("admission/0", "max", 8, 9),  # a gap of 1 / 8
        handmade.tier("span", "min", 8, 0, proof=None),  # follows from nothing but the queue
    ]
    plan["status"]["outcome"] = "feasible"
    Path(plan_file).write_text(json.dumps(plan), encoding="utf-8")
    out = cli("show", plan_file).out
    more = "at most 12.50 % more GPUs for gangs that run at priority 0"
    assert f"admission/0  max        8             9  12.50 %  {more}" in out
    less = "perhaps less spread over nodes and domains"
    assert f"span         min        8  no bound yet        -  {less}" in out
    assert "feasible: 0 of 2 tiers proven best; the search was ended" in out
    stated = json.loads(cli("show", plan_file, "-o", "json").out)["status"]["objectives"][1]
    assert (stated["bound"], stated["gap"], stated["proof"]) == (0, 1.0, None)


@pytest.mark.parametrize("output", ["table", "name", "json"])
@pytest.mark.parametrize("part", ["instance", "spec"])
def test_a_plan_that_was_changed_is_shown_with_a_hint(
    part: str, output: str, plan_file: str, cli: RunCli
) -> None:
    plan = handmade.plan()
    plan["status"]["digests"][part] = "sha256:" + "0" * 64
    Path(plan_file).write_text(json.dumps(plan), encoding="utf-8")
    result = cli("show", plan_file, "-o", output)
    assert result.code == 0
    assert "whole" in result.out
    assert result.err.splitlines()[0] == (
        f"warning: status.digests.{part} does not match: the plan was changed after it was saved;"
        " gangplan verify plan.json lists why"
    )


@pytest.mark.parametrize(
    ("text", "code"), [("\\ud83d\\ude00", 0), ("\\ud800", 65), ("\\uDE00\\uD83D", 65)]
)
def test_text_that_is_no_unicode_is_refused(
    text: str, code: int, plan_file: str, cli: RunCli
) -> None:
    """In fields, too, that a later version may have added and this one ignores."""
    content = handmade.plan_text().replace(
        '"spec": {"gangs"', f'"spec": {{"later": "{text}", "gangs"'
    )
    Path(plan_file).write_text(content, encoding="utf-8")
    for output in ("table", "name", "json", "yaml"):
        result = cli("show", plan_file, "-o", output)
        assert result.code == code
        assert ("half of a surrogate pair" in result.err) == (code == 65)


@pytest.mark.parametrize(
    "words",
    ["show -o wide", "show -o json", "compare plan.json", "topo h100"],
)
def test_out_writes_what_would_go_to_stdout(words: str, plan_file: str, cli: RunCli) -> None:
    verb, *more = words.split()
    arguments = more if verb == "topo" else [plan_file, *more]
    shown = cli(verb, *arguments)
    kept = cli(verb, *arguments, "--out", "kept.txt")
    assert (kept.code, kept.out) == (shown.code, "")
    assert "saved kept.txt\n" in kept.err
    assert Path("kept.txt").read_text(encoding="utf-8") == shown.out != ""


def test_out_replaces_no_input_and_nothing_on_an_error(plan_file: str, cli: RunCli) -> None:
    before = Path(plan_file).read_bytes()
    assert cli("show", plan_file, "--out", plan_file).code == 64
    Path("bad.json").write_text("{}", encoding="utf-8")
    assert cli("show", "bad.json", "--out", "kept.txt").code == 65
    assert (Path(plan_file).read_bytes(), Path("kept.txt").exists()) == (before, False)
