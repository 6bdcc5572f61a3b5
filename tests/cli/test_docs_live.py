"""What the pages about applying and cron say is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from conftest import RunCli
from pages import ROOT, code_blocks, text

from models.apply import terms
from models.apply.requests import Outcome
from models.documents.policy import PolicyDocument
from models.instance.policy import kubernetes_policy
from planner import errors

APPLY = ROOT / "docs" / "apply.md"
CRON = ROOT / "docs" / "cron.md"


def part(path: Path, heading: str) -> str:
    """A chapter of a document."""
    found = text(path).partition(f"\n## {heading}")[2].partition("\n## ")[0]
    assert found, heading
    return found


def codes(table: str) -> set[int]:
    rows = re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)
    return {int(code) for row in rows for code in row.split(",")}


def test_every_outcome_is_told_of() -> None:
    told = re.findall(r"^\| `(\w+)` \|", part(APPLY, "Outcomes"), re.MULTILINE)
    assert sorted(told) == sorted(Outcome)


def test_labels_and_annotations_told_of_are_those_that_are_written() -> None:
    told = set(re.findall(r"`(gangplan\.dev/[a-z-]+)`", part(APPLY, "What it does")))
    assert told == {terms.PLAN, *terms.KEYS}


def test_exit_codes_told_of_are_known_and_none_is_left_out_for_the_cron_job() -> None:
    known = {
        error.exit_code
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.GangplanError)
    }
    everything = known | {0, 7, 129, 130, 143}
    assert codes(part(APPLY, "Exit codes")) <= everything
    assert codes(part(CRON, "Exit codes")) == everything | {3}


def test_every_option_of_apply_is_told_of(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    cli("apply", "--help")
    offered = set(re.findall(r"(--[a-z-]+)", capsys.readouterr().out))
    assert "--yes" in offered
    told = set(re.findall(r"`(--[a-z-]+)", text(APPLY)))
    everywhere = {"--color", "--debug", "--help", "--log-format", "--out", "--output"}
    assert offered - everywhere == told & offered - everywhere


def test_the_policy_for_cron_is_one() -> None:
    (policy,) = code_blocks(text(CRON), "yaml")
    assert PolicyDocument.model_validate(yaml.load(policy, Loader=yaml.CSafeLoader))


def test_the_pods_that_wait_are_what_the_policy_looks_for_by_default() -> None:
    gated = yaml.load(code_blocks(text(APPLY), "yaml")[0], Loader=yaml.CSafeLoader)
    document = {"apiVersion": "gangplan.dev/v1alpha1", "kind": "Policy"}
    settings = kubernetes_policy(PolicyDocument.model_validate(document).spec.kubernetes)
    assert gated["spec"]["schedulingGates"] == [{"name": settings.scheduling_gate}]
