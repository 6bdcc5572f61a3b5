"""The planning half of ``run``: running gangs stay unless evictions are allowed, the Policy alone."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from building import build, gang

from models.verify.check import check
from planner.errors import InputError, MissingPathError
from planner.pipelines import plan as planning
from planner.pipelines.plan import freeze_running
from planner.read.inputs import load, read_policy
from planner.show.console import Console

INPUTS = Path(__file__).parent.parent / "inputs"


def decisions(*, keep_running: bool, folder: str = "preemption") -> dict[str, str]:
    wish = planning.PlanRequest(
        paths=(str(INPUTS / folder),), budget=10, keep_running=keep_running, workers=1
    )
    console = Console(stdout=io.StringIO(), stderr=io.StringIO(), environ={})
    planned = planning.plan(wish, console, created_at="2026-11-21T00:00:00Z")
    assert check(planned.document) == []
    return {one["name"]: one["decision"] for one in planned.document["spec"]["gangs"]}


def test_running_gangs_are_neither_stopped_nor_moved_where_they_are_to_stay() -> None:
    """The same queue stops some of them otherwise, so it is the option that keeps them."""
    running = {
        gang.name for gang in load([str(INPUTS / "preemption")]).instance.gangs if gang.running
    }
    assert running
    free = decisions(keep_running=False)
    assert any(free[name] == "preempt" for name in running)
    kept = decisions(keep_running=True)
    assert {kept[name] for name in running} == {"keep"}


def test_only_running_gangs_lose_the_right_to_stop_and_move() -> None:
    stands = gang("stands", preemptible=True, movable=True, stands=[(0, 0, 0, 1)])
    waits = gang("waits", preemptible=True, movable=True)
    kept = {one.name: one for one in freeze_running(build(gangs=[stands, waits])).gangs}
    assert (kept["stands"].preemptible, kept["stands"].movable) == (False, False)
    assert kept["stands"].pods == stands.pods
    assert kept["waits"] == waits


POLICY = """\
apiVersion: gangplan.dev/v1alpha1
kind: Policy
spec:
  kubernetes: {schedulerName: ours, schedulingGate: example.com/gate}
"""


def test_the_policy_is_read_without_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    for found in (read_policy([str(tmp_path)]), read_policy([], policy=str(path))):
        assert found.kubernetes.scheduler_name == "ours"
        assert found.kubernetes.scheduling_gate == "example.com/gate"
    assert read_policy([]).kubernetes.scheduler_name == "gangplan"


def test_the_policy_of_the_option_goes_before_that_of_the_paths(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    other = tmp_path / "other.yaml"
    other.write_text(POLICY.replace("ours", "theirs"), encoding="utf-8")
    found = read_policy([str(path)], policy=str(other))
    assert found.kubernetes.scheduler_name == "theirs"


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
