"""``show --map``: the cluster in a terminal, a letter for each GPU or a line for each domain."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import handmade
import pytest
import report_plans
from conftest import RunCli
from plan_documents import sealed
from test_docs import ROOT, text

from models.documents.plan import PlanDocument
from planner.show.report.map_view import MapView


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(handmade.plan_text(), encoding="utf-8")


def test_each_gpu_has_a_letter(cli: RunCli, golden: Callable[[str, str], None]) -> None:
    result = cli("show", "plan.json", "--map")
    assert (result.code, result.err) == (0, "next: gangplan verify plan.json\n")
    golden("show-map.txt", result.out)


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_large_cluster_is_folded_to_fit(
    columns: int, cli: RunCli, golden: Callable[[str, str], None]
) -> None:
    Path("large.json").write_text(json.dumps(report_plans.large(600, in_rack=6, racks=10)))
    out = cli("show", "large.json", "--map", environ={"COLUMNS": str(columns)}).out
    assert all(len(line) <= columns for line in out.splitlines())
    golden(f"show-map-folded-{columns}.txt", out)


def test_domains_are_named_by_what_tells_them_apart(cli: RunCli) -> None:
    document = handmade.plan()
    for node in document["instance"]["cluster"]["spec"]["nodes"]:
        node["domains"]["rack"] = (
            f"hypernode-topology-infiniband-tier1-{node['domains']['rack']}-7d8c9b6f55"
        )
    Path("long.json").write_text(json.dumps(document))
    names = {node["domains"]["rack"] for node in document["instance"]["cluster"]["spec"]["nodes"]}
    for columns in (60, 80, 160):
        out = cli("show", "long.json", "--map", environ={"COLUMNS": str(columns)}).out
        titles = [line for line in out.splitlines() if line.strip().startswith("rack ")]
        assert len(titles) == len(names)
        assert all(len(line) <= columns for line in titles)
        assert all("7d8c9b6f55: " in line for line in titles)
        short = [name.removeprefix("hypernode-topology-infiniband-tier1-") for name in names]
        assert all(any(f"rack {name}: " in line for line in titles) for name in short)


def test_hostile_texts_drive_no_terminal(cli: RunCli) -> None:
    Path("hostile.json").write_text(json.dumps(report_plans.hostile()))
    out = cli("show", "hostile.json", "--map").out
    assert out.isascii()
    assert "\x1b" not in out


def test_the_map_is_text(cli: RunCli) -> None:
    result = cli("show", "plan.json", "--map", "-o", "json")
    assert (result.code, result.out) == (64, "")
    assert result.err.startswith("error: --map with -o json\n")


def test_the_map_of_the_docs_is_what_is_printed(cli: RunCli) -> None:
    assert cli("plan", str(ROOT / "inputs/quickstart"), "--out", "quick.json").code == 0
    assert cli("show", "quick.json", "--map").out in text(ROOT / "docs" / "report.md")


@pytest.mark.parametrize(
    ("state", "sign", "mark"),
    [
        ({"unschedulable": True}, "_", "cordoned"),
        ({"ready": False}, "_", "not ready"),
        ({"taints": [{"key": "dedicated", "value": "", "effect": "NoSchedule"}]}, "_", "tainted"),
        ({"unhealthyGpus": list(range(8))}, "x", ""),
        ({"taints": [{"key": "soft", "value": "", "effect": "PreferNoSchedule"}]}, ".", ""),
    ],
)
def test_only_what_every_pod_may_use_looks_free(
    state: dict[str, Any], sign: str, mark: str, cli: RunCli
) -> None:
    """On the terminal and in the page, GPUs and counts: nodes that nobody holds, one of them in a state."""
    document = report_plans.large(6, in_rack=6, racks=1)
    document["spec"]["gangs"], document["instance"]["gangs"] = [], []
    nodes = document["instance"]["cluster"]["spec"]["nodes"]
    for node in nodes:
        node["unschedulable"] = False
    nodes[2].update(state)
    Path("states.json").write_text(json.dumps(sealed(document)))
    out = cli("show", "states.json", "--map").out
    drawn = sign * 8
    assert f"gpu-00002  {drawn}{'  ' * bool(mark)}{mark}" in [
        cell.strip() for line in out.splitlines() for cell in line.split("   ")
    ]
    view = MapView(PlanDocument.model_validate(document))
    node = view.cluster.nodes[2]
    state = {"_": "closed", "x": "unhealthy", ".": "free"}[sign]
    assert {run.pattern for (run,) in view.islands(node, node.after)} == {state}
    rows = {row[0].text: [cell.text for cell in row[1:3]] for row in view.domains.rows}
    assert rows["- block b0"] == (["48", "6"] if sign == "." else ["40", "5"])
