"""docs/limits.md states bounds as they are; tests of bounds that have no better place."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from plan_busy import busy_plan

from models.verify.adaptor import MAX_BITS
from models.verify.check import check
from planner.read import findings
from planner.read.findings import Finding, Findings, Remarks
from planner.read.kube.devices import claims
from planner.read.kube.dialects import base as dialects
from planner.read.sources import Source

ROOT = Path(__file__).resolve().parents[2]
LIMITS = {
    "models.documents.base.MAX_ITEMS": "200,000 entries a list",
    "models.documents.cluster.MAX_LEVELS": "| 10 |",
    "models.documents.gang.MAX_GPUS_A_POD": "| 1,000,000; 100,000 |",
    "models.documents.server.MAX_GPUS": "| 1,024 |",
    "models.host_ranges.MAX_NAMES": "| 200,000 | refused, before",
    "models.instance.policy.QUEUE_LIMIT": "| 5,000, or",
    "models.documents.policy.MAX_BUDGET": "| 1,000,000 | usage error",
    "planner.cluster.proxy.MAX_BYTES": "| 256 MiB | a list",
    "planner.read.findings.MAX_FAULTS": "| 20 | the first by place",
    "planner.read.json_items.MAX_OBJECT": "32 MiB of text",
    "planner.read.kube.dialects.base.MAX_ANNOTATION": "65,536",
    "planner.read.kube.gangs.roles.MAX_SIZE": "| 1,000,000; 20,000 if",
    "planner.read.kube.pruning.MAX_TEXT": "| 1,000; 4,096",
    "planner.read.kube.pods.pod_rules.MAX_RULES": "| 20 | the gang",
    "planner.read.kube.pods.pods.MAX_PRIORITY": "2,000,000,000",
    "planner.read.kube.dialects.gpus.MAX_POD_GPUS": "| 100,000; 10^15",
    "planner.read.kube.templates.waiting.MAX_PODS": "| 10,000; 50,000",
    "planner.read.parser.MAX_ALIASED": "stand for | 100,000",
    "planner.read.plan_files.MAX_PLAN_BYTES": "512 MiB",
    "planner.read.slurm.jobs.MAX_TASKS": "| 1,000; 20,000 |",
    "planner.read.sources.MAX_BYTES": "| 256 MiB, 64 levels",
    "planner.search.promises.forecast.MAX_GANGS": "| 1,000 | those later",
}
"""Constants, and what docs/limits.md says of them."""


def test_the_page_states_the_bounds_of_the_program() -> None:
    page = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    for constant, said in LIMITS.items():
        assert said in page
        units = {"KiB": 2**10, "MiB": 2**20}
        meant = {
            int(number.replace(",", "")) * units.get(unit, 1)
            for number, unit in re.findall(r"([\d,]*\d) ?(KiB|MiB)?", said)
        }
        module, _, name = constant.rpartition(".")
        assert getattr(importlib.import_module(module), name) in meant, constant


def test_a_long_annotation_is_not_parsed() -> None:
    room = dialects.MAX_ANNOTATION - 2
    assert dialects.json_value("[" + " " * room + "]") == []
    assert dialects.json_value("[" + " " * (room + 1) + "]") is None
    assert dialects.comma_list("1" + "," * dialects.MAX_ANNOTATION) == ()


def test_a_long_expression_is_not_searched() -> None:
    short = "device.attributes['gpu.nvidia.com'].type == 'mig'"
    padded = short.ljust(10_000)
    assert claims.means_part(padded)
    assert not claims.means_part(padded + " ")


def test_remarks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "MAX_REMARKS", 3)
    remarks = Remarks()
    for number in range(15):
        remarks.add(f"Pod p-{number}", f"odd {number}")
    assert len(remarks.all) == 3
    assert remarks.lines()[-1] == "and 12 more remarks"


def test_faults_are_gathered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "MAX_GATHERED", 30)
    found = Findings()
    for number in range(100):
        assert found.full == (number >= 30)
        found.add(Finding(Source("x.yaml", "a: 1\n", "yaml"), (0,), f"fault {number}"))
    assert len(found.unplaced) == 30


def test_a_value_of_a_tier_has_an_end() -> None:
    plan = busy_plan()
    for bits, found in ((MAX_BITS, False), (MAX_BITS + 1, True)):
        plan["status"]["objectives"][0]["bound"] = 1 << (bits - 1)
        said = [str(one) for one in check(plan)]
        assert any("is too large" in line for line in said) == found
