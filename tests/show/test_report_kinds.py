"""What the page of a plan says of capacity."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import RunCli
from test_report import Elements
from test_walls import ROOT

Written = Callable[[dict[str, Any]], Elements]


@pytest.fixture
def page(tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Written:
    monkeypatch.chdir(tmp_path)

    def write(document: dict[str, Any]) -> Elements:
        Path("saved.json").write_text(json.dumps(document), encoding="utf-8")
        result = cli("report", "saved.json", "--out", "report.html")
        assert (result.code, result.out) == (0, ""), result.err
        found = Elements(Path("report.html").read_text(encoding="utf-8"))
        names = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
        assert len(names) == len(set(names))
        assert [tag for tag, _ in found.tags].count("script") == 2
        assert not found.named("img")
        return found

    return write


def said(found: Elements) -> str:
    return " ".join(" ".join(found.text).split())


def test_a_plan_says_what_else_could_start(page: Written, cli: RunCli) -> None:
    planned = cli("plan", str(ROOT / "inputs/quickstart"), "--out", "plan.json")
    (reason,) = re.findall(r"RequiredTopology: .*", planned.out)
    text = said(page(json.loads(Path("plan.json").read_text())))
    # 6 of 16 GPUs are held before the plan, 14 after it
    assert "2 usable nodes with 16 GPUs; 10 free now, 2 after the plan." in text
    assert "The largest gang that could start" in text
    assert (
        text.count(reason) == text.count("RequiredTopology") == 1
    )  # what `plan` says, and no other
