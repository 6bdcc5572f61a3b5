"""The last plan: how old it is, and that its gangs are completed; tests/cli/sessions has the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import RunCli

QUICKSTART = str(Path(__file__).parents[2] / "inputs" / "quickstart")


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
    plan = ("plan", QUICKSTART, "--out", str(tmp_path / "plan.json"))
    assert cli(*plan, environ=home).code == 0
    document = json.loads((tmp_path / "plan.json").read_text())
    gangs = {f"{gang['namespace']}/{gang['name']}" for gang in document["spec"]["gangs"]}
    assert len(gangs) == 7
    assert set(completion._candidates(["explain", "def"])) == gangs
    file_of(home).unlink()
    assert set(completion._candidates(["explain", str(tmp_path / "plan.json"), ""])) == gangs
    document["spec"]["gangs"][0]["name"] = "$(touch x)"  # a shell is not given this
    (tmp_path / "plan.json").write_text(json.dumps(document))
    assert len(completion._candidates(["explain", str(tmp_path / "plan.json"), ""])) == 6
