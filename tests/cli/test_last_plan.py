"""The last plan: how old it is; tests/cli/sessions has the rest, test_completion.py the names of gangs."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import RunCli

QUICKSTART = str(Path(__file__).parents[2] / "inputs" / "quickstart")


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a user with an empty home."""
    (tmp_path / "home").mkdir()
    return {"HOME": str(tmp_path / "home")}


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
