"""The last plan: what `explain`, `show`, `report` and `compare` take where no file is named."""

from __future__ import annotations

import gzip
import json
import re
import stat
from pathlib import Path

import pytest
from conftest import Result, RunCli

QUICKSTART = str(Path(__file__).parents[2] / "inputs" / "quickstart")
QUEUES = str(Path(__file__).parents[2] / "inputs" / "queues")


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a user with an empty home."""
    (tmp_path / "home").mkdir()
    return {"HOME": str(tmp_path / "home")}


SET_BY_COMPLETION = [
    "_GANGPLAN_COMPLETE",
    "_TYPER_COMPLETE_ARGS",
    "_TYPER_COMPLETE_FISH_ACTION",
    "COLUMNS",
]


def file_of(environ: dict[str, str]) -> Path:
    return Path(environ["HOME"]) / ".local/state/gangplan/last-plan.json.gz"


def planned(cli: RunCli, environ: dict[str, str], *options: str) -> Result:
    result = cli("plan", QUICKSTART, *options, environ=environ)
    assert result.code == 0, result.err
    return result


def test_explain_show_report_and_compare_take_the_last_plan(
    cli: RunCli, home: dict[str, str], tmp_path: Path
) -> None:
    out = str(tmp_path / "plan.json")
    said = planned(cli, home, "--out", out)
    # gpt2-medium waits in the quickstart, as its README says.
    assert "next: gangplan explain default/gpt2-medium   (why it waits)\n" in said.err
    age = f"plan of {QUICKSTART}, made just now; for another, name its file\n"
    for words in (("gpt2-medium", "--time-limit", "0s"), ("default/gpt2-medium",)):
        of_file = cli("explain", out, *words, environ=home)
        of_last = cli("explain", *words, environ=home)
        assert (of_last.code, of_last.out, of_last.err) == (0, of_file.out, age)
    for form in ("table", "wide", "json", "name"):
        shown = cli("show", "-o", form, environ=home)
        assert (shown.code, shown.out) == (0, cli("show", out, "-o", form).out)
        assert shown.err.startswith(age)
    page = cli("report", "--out", str(tmp_path / "page.html"), environ=home)
    assert (page.code, page.err.startswith(age)) == (0, True)
    compared = cli("compare", out, environ=home)
    assert (compared.code, "no difference" in compared.out) == (0, True)


def test_it_is_of_this_user_alone_and_replaced_by_the_next(
    cli: RunCli, home: dict[str, str]
) -> None:
    planned(cli, home)
    first = file_of(home).read_bytes()
    assert stat.S_IMODE(file_of(home).stat().st_mode) == 0o600
    assert stat.S_IMODE(file_of(home).parent.stat().st_mode) & 0o077 == 0
    assert cli("plan", QUEUES, environ=home).code == 0
    assert file_of(home).read_bytes() != first
    assert list(file_of(home).parent.iterdir()) == [file_of(home)]
    assert "gang/product/train" in cli("show", "-o", "name", environ=home).out


def test_a_folder_for_state_is_taken_and_a_relative_one_is_not(
    cli: RunCli, home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    planned(cli, {**home, "XDG_STATE_HOME": str(tmp_path / "state")})
    assert (tmp_path / "state/gangplan/last-plan.json.gz").is_file()
    assert not file_of(home).exists()
    planned(cli, {**home, "XDG_STATE_HOME": "relative"})
    assert file_of(home).is_file()
    assert not (tmp_path / "relative").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"GANGPLAN_STATE": "off"},
        {"HOME": ""},
        {"HOME": "/nonexistent"},
        {"XDG_STATE_HOME": "/proc/self"},  # no folder can be made there, not even by root
        {"XDG_STATE_HOME": "/dev/null"},
    ],
)
def test_a_plan_is_made_where_nothing_can_be_kept(
    cli: RunCli, home: dict[str, str], change: dict[str, str]
) -> None:
    kept, not_kept = planned(cli, home), planned(cli, {**home, **change})
    assert not_kept.out == kept.out
    # Without a last plan there is nothing to explain by name, and nothing else is said of it.
    # Only the last line: a busy machine may show progress before it.
    last, other = kept.err.splitlines()[-1], not_kept.err.splitlines()[-1]
    assert last.startswith("next: gangplan explain ")
    assert re.fullmatch(r"next: gangplan plan .* --out plan.json .*", other)
    none = cli("explain", "gpt2-medium", environ={**home, **change})
    assert (none.code, none.out) == (66, "")
    assert re.fullmatch(r"error: no last plan.*\n|error: cannot read the last plan.*\n",
                        none.err.partition("  --> ")[0].partition("hint:")[0])  # fmt: skip
    assert "hint: make one: gangplan plan PATH; or name the file of a plan\n" in none.err


def test_a_refused_input_leaves_the_last_plan_as_it_was(
    cli: RunCli, home: dict[str, str], tmp_path: Path
) -> None:
    planned(cli, home)
    before = file_of(home).read_bytes()
    (tmp_path / "bad.yaml").write_text("kind: Nothing\n")
    assert cli("plan", str(tmp_path / "bad.yaml"), environ=home).code == 65
    assert file_of(home).read_bytes() == before


def test_a_name_alone_is_a_gang_and_a_file_alone_lacks_one(
    cli: RunCli, home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    planned(cli, home, "--out", "plan.json")
    for words, what, hint in (
        ((), "explain needs the name of a gang", "gangplan show lists the gangs of the last plan"),
        (
            ("plan.json",),
            "explain needs the name of a gang: plan.json is a file",
            "gangplan explain plan.json [NAMESPACE/]NAME",
        ),
        (
            ("-",),
            "explain needs the name of a gang: - is standard input",
            "gangplan explain - [NAMESPACE/]NAME",
        ),
    ):
        refused = cli("explain", *words, environ=home)
        assert (refused.code, refused.out) == (64, "")
        assert refused.err == f"error: {what}\nhint: {hint}\n"
    missing = cli("explain", "gpt2-mediun", environ=home)
    assert missing.code == 64
    assert missing.err.endswith("no such gang\nhint: did you mean 'gpt2-medium'?\n")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no gzip",
        gzip.compress(b""),
        gzip.compress(b"[]\n{}"),
        gzip.compress(b'{"madeFrom": "x", "folder": "/", "madeAt": "\\u00b2"}\n{}'),
        gzip.compress(b"x" * 200_000),
        gzip.compress(b"[" * 100_000 + b"\n{}"),
        gzip.compress(b'{"madeFrom": "x", "folder": "/", "madeAt": 1e999}\n{}'),
        gzip.compress(b'{"madeFrom": "x", "folder": "/", "madeAt": 1}\n{"kind": "Plan"')[:-9],
        gzip.compress(b'{"madeFrom": "x", "folder": "/", "madeAt": 1}\n{"kind": "Plan"'),
        gzip.compress(b'{"madeFrom": "\\u001b[2J", "folder": "/\\u0007", "madeAt": 1}\n{}'),
    ],
    ids=range(11),
)
def test_a_damaged_file_is_one_error(cli: RunCli, home: dict[str, str], content: bytes) -> None:
    file_of(home).parent.mkdir(parents=True)
    file_of(home).write_bytes(content)
    for verb in (("show",), ("explain", "x"), ("report", "--out", f"{home['HOME']}/x.html")):
        refused = cli(*verb, environ=home)
        assert (refused.code, refused.out) == (65, "")
        assert f"  --> {file_of(home)}" in refused.err
        assert not re.search(r"[\x00-\x09\x0b-\x1f]", refused.err)


def test_a_link_in_its_place_is_replaced_and_not_followed(
    cli: RunCli, home: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "precious").write_text("mine")
    file_of(home).parent.mkdir(parents=True)
    file_of(home).symlink_to(tmp_path / "precious")
    planned(cli, home)
    assert (tmp_path / "precious").read_text() == "mine"
    assert not file_of(home).is_symlink()


def test_the_age_and_the_folder_are_said(
    cli: RunCli, home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("planner.last_plan.time.time", lambda: 1_000_000)
    content = (Path(QUICKSTART) / "cluster.yaml").read_bytes()
    content += b"".join(
        b"\n---\n" + (Path(QUICKSTART) / f"{name}.yaml").read_bytes()
        for name in ("queue", "running")
    )
    assert cli("plan", "-", stdin=content, environ=home).code == 0
    monkeypatch.setattr("planner.last_plan.time.time", lambda: 1_000_200)
    monkeypatch.chdir("/")
    said = cli("show", environ=home).err.splitlines()[0]
    assert said == (
        f"plan of standard input in {tmp_path}, made 3 minutes ago; for another, name its file"
    )


def test_the_names_of_gangs_are_completed(
    cli: RunCli, home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from planner.cli import completion

    monkeypatch.setenv("HOME", home["HOME"])
    for own in ("XDG_STATE_HOME", *SET_BY_COMPLETION):
        monkeypatch.setenv(own, "")
    assert completion._candidates(["explain", "def"]) == []
    monkeypatch.setenv("_GANGPLAN_COMPLETE", "")
    planned(cli, home, "--out", str(tmp_path / "plan.json"))
    document = json.loads((tmp_path / "plan.json").read_text())
    gangs = {f"{gang['namespace']}/{gang['name']}" for gang in document["spec"]["gangs"]}
    assert len(gangs) == 7
    assert set(completion._candidates(["explain", "def"])) == gangs
    file_of(home).unlink()
    assert set(completion._candidates(["explain", str(tmp_path / "plan.json"), ""])) == gangs
    document["spec"]["gangs"][0]["name"] = "$(touch x)"  # a shell is not given this
    (tmp_path / "plan.json").write_text(json.dumps(document))
    assert len(completion._candidates(["explain", str(tmp_path / "plan.json"), ""])) == 6
