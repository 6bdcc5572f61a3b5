"""The pages of audits, and what the page of a plan says of capacity."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import handmade
import pytest
import report_plans
from conftest import RunCli
from test_report import Elements
from test_walls import ROOT

Written = Callable[[dict[str, Any]], Elements]

API = "gangplan.dev/v1alpha1"
MADE = {"name": "x", "createdAt": "2026-11-20T08:00:00Z", "generator": "gangplan 0.2.0"}


def audit() -> dict[str, Any]:
    status = {
        "gpus": {"installed": 32, "healthy": 31, "held": 2, "free": 30, "stranded": 1.5},
        "strandedWhy": [
            {"cause": "cordoned", "gpus": 1.5, "nodes": 1, "detail": report_plans.SCRIPT}
        ],
        "effectiveGpus": {"before": 1, "unmoved": 2, "allowed": 2, "possible": 18, "bound": 20},
        "lost": {
            "gpus": 17,
            "atMost": 19,
            "slow": 1,
            "waiting": 16,
            "startable": 4,
            "placement": 13,
            "allowed": 1,
            "moneyPerDay": 816.0,
            "moneyPerDayAtMost": 912.0,
            "strandedMoneyPerDay": 72.0,
        },
        "gangs": [
            {
                "gang": "research/old",
                "priority": 0,
                "gpus": 2,
                "bandwidthMBps": 20000,
                "bestMBps": 40000,
                "share": 500,
                "speed": 500,
                "bestSpeed": 1000,
                "lostGpus": 1,
                "replanSpeed": 1000,
                "regainsGpus": 1,
                "nodes": ["v100-4"],
                "domains": {"rack": 1, "node": 1},
                "movable": True,
            }
        ],
        "whole": [{"level": "node", "now": 2, "possible": 3, "domains": 4}],
        "waiting": [
            {
                "gang": "research/whole",
                "priority": 10,
                "gpus": 16,
                "startsIf": "others stood better",
                "moves": [1],
            }
        ],
        "moveSearch": "found",
        "wholeRegain": {"restarts": 1, "gpus": 2},
        "moves": [
            {
                "gangs": [
                    {
                        "gang": "research/old",
                        "gpus": 2,
                        "movable": True,
                        "from": ["v100-4"],
                        "to": ["v100-3"],
                        "speed": 500,
                        "speedAfter": 1000,
                    }
                ],
                "restarts": 1,
                "gpus": 2,
                "lostRuntimeGpuSeconds": 7200,
                "regainsGpus": 17,
                "bandwidth": 1000,
                "wholeNodes": 1,
                "wholeDomains": 0,
                "allowed": True,
            }
        ],
        "objectives": [
            {
                "name": "admission/10",
                "sense": "max",
                "now": 0,
                "possible": 20,
                "bound": 20,
                "gap": 0,
                "proof": "exact",
            }
        ],
        "search": {"solver": "by hand", "seed": 0, "stoppedBy": "proof"},
        "plan": handmade.plan(),
    }
    cluster = {"name": "two-racks", "nodes": 4, "gpus": 32, "levels": []}
    return {
        "apiVersion": API,
        "kind": "Audit",
        "metadata": MADE,
        "cluster": cluster,
        "status": status,
    }


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


def test_an_audit_says_what_is_lost_in_gpus_and_money(page: Written) -> None:
    text = said(page(audit()))
    assert "Audit of two-racks" in text
    assert "GPUs a re-plan regains 17 at most 19" in text
    assert "Regained a day, in money 816 at most 912" in text
    assert "Of these, placement costs 13 the other 4 start without a move" in text
    assert "Stranded GPUs 1.5 of 30 free GPUs; 72 a day" in text
    assert "Gangs that start only in the re-plan 1 of 1 that wait; 16 GPUs" in text
    assert "research/old: v100-4 to v100-3" in text
    assert "The cluster now, and re-planned" in text
    assert report_plans.SCRIPT in text


def test_an_audit_of_a_large_cluster_has_no_map(page: Written) -> None:
    document = audit()
    del document["status"]["plan"]
    found = page(document)
    assert "map" not in [attributes.get("id") for _, attributes in found.tags]
    assert "Running gangs, and what each lacks" in said(found)


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


def test_a_document_with_a_fault_names_its_place(
    cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    document = audit()
    document["status"]["gpus"]["held"] = "two"
    Path("audit.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    result = cli("report", "audit.json", "--out", "report.html")
    assert (result.code, result.out) == (65, "")
    assert "error: status.gpus.held: " in result.err
    assert re.search(r"--> audit.json:\d+:\d+", result.err)
