"""The planning half of ``run``: running gangs stay unless evictions are allowed, the Policy alone."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from building import gang, role

from models.instance.gang import ExistingPod, Gang
from models.verify.check import check
from planner.errors import InputError, MissingPathError
from planner.pipelines import plan as planning
from planner.read.inputs import read_policy
from planner.show.console import Console

INPUTS = Path(__file__).parents[2] / "inputs"


def decisions(*, keep_running: bool, folder: str = "preemption") -> dict[str, str]:
    wish = planning.PlanRequest(
        paths=(str(INPUTS / folder),), budget=10, keep_running=keep_running, workers=1
    )
    console = Console(stdout=io.StringIO(), stderr=io.StringIO(), environ={})
    planned = planning.plan(wish, console, created_at="2026-11-21T00:00:00Z")
    document = json.loads(planned.text)
    assert check(document) == []
    return {one["name"]: one["decision"] for one in document["spec"]["gangs"]}


def elastic(name: str, *pods: int) -> Gang:
    """Two pods run, others as given wait; two to six are allowed."""
    roles = [role("worker", 2, 1, most=6)]
    found = gang(name, roles=roles, stands=[(0, 0, 0, 1), (0, 1, 0, 2)])
    waiting = tuple(ExistingPod(f"{name}-{index}", 0, index) for index in pods)
    return replace(found, pods=(*found.pods, *waiting))


POLICY = """\
apiVersion: gangplan.dev/v1alpha1
kind: Policy
spec:
  kubernetes: {schedulingGate: example.com/gate}
"""


def test_the_policy_is_read_without_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    for found in (read_policy([str(tmp_path)]), read_policy([], policy=str(path))):
        assert found.kubernetes.scheduling_gate == "example.com/gate"
    assert read_policy([]).kubernetes.scheduling_gate == "gangplan.dev/placement"


def test_the_policy_of_the_option_goes_before_that_of_the_paths(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    other = tmp_path / "other.yaml"
    other.write_text(POLICY.replace("example.com/gate", "example.com/other"), encoding="utf-8")
    found = read_policy([str(path)], policy=str(other))
    assert found.kubernetes.scheduling_gate == "example.com/other"


def test_a_policy_that_is_wrong_or_missing_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.replace("spec:", "spec: {solve: {budget: no}}\nmore:"), encoding="utf-8")
    with pytest.raises(InputError):
        read_policy([], policy=str(path))
    path.write_text(POLICY.replace("Policy", "Gang"), encoding="utf-8")
    with pytest.raises(InputError):
        read_policy([], policy=str(path))
    with pytest.raises(MissingPathError):
        read_policy([str(tmp_path / "nowhere.yaml")])
