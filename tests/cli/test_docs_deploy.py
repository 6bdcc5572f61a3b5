"""What the pages about deploying and ``doctor`` say is so."""

from __future__ import annotations

import re

from deploying import DEPLOY, built
from pages import ROOT, text

DEPLOYING = text(ROOT / "docs" / "deploy.md")
DOCTOR = text(ROOT / "docs" / "doctor.md")


def _first_cells(content: str) -> set[str]:
    rows = re.findall(r"^\| (`[^|]*`) \|", content, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def _part(content: str, heading: str) -> str:
    found = content.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    assert found, heading
    return found


def test_every_folder_is_told_of() -> None:
    told = {name for name in _first_cells(DEPLOYING) if name.startswith("deploy/")}
    there = {f"deploy/{path.name}" for path in DEPLOY.iterdir()} - {
        "deploy/tenants",
        "deploy/__pycache__",
    }
    assert told == there | {"deploy/tenants/example"}


def test_every_role_and_every_policy_is_told_of() -> None:
    roles = {
        one["metadata"]["name"]
        for folder in ("evictions", "watch", "dra", "gate", "kueue", "kai")
        for one in built(folder)
        if one["kind"] in {"Role", "ClusterRole"}
    }
    assert _first_cells(_part(DEPLOYING, "Rights")) == roles
    policies = {
        one["metadata"]["name"]
        for one in built("admission")
        if one["kind"] == "ValidatingAdmissionPolicy"
    }
    assert _first_cells(_part(DEPLOYING, "Held back")) == policies


def test_the_exit_codes_of_the_job_are_told_as_they_are() -> None:
    (job,) = [one for one in built("default") if one["kind"] == "CronJob"]
    rules = job["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    codes = ", ".join(map(str, rules[0]["onExitCodes"]["values"][:-1]))
    assert f"exit codes {codes}, {rules[0]['onExitCodes']['values'][-1]}" in DEPLOYING


def test_every_check_of_doctor_is_told_of() -> None:
    told = _first_cells(DOCTOR)
    found = set()
    for path in (ROOT / "planner" / "cli").glob("doctor*.py"):
        calls = r'(?:passed|warned|failed|Finding|_lacking)\(\s*f?"([^"{]+?)(?::? ?\{|")'
        found |= set(re.findall(calls, path.read_text(encoding="utf-8")))
    known = {name.partition(":")[0] for name in told}
    assert {name.partition(":")[0] for name in found} <= known
    assert len(found) > 7
