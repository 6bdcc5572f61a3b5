"""The planning half of ``run``: running gangs stay unless evictions are allowed, the Policy alone."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from building import build, gang, role

from models.instance.gang import ExistingPod, Gang
from models.verify.check import check
from planner.errors import InputError, MissingPathError
from planner.pipelines import plan as planning
from planner.pipelines.adjustments import freeze_running, keep_sizes
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


def elastic(name: str, *pods: int) -> Gang:
    """Two pods run, others as given wait; two to six are allowed."""
    roles = [role("worker", 2, 1, most=6)]
    found = gang(name, roles=roles, stands=[(0, 0, 0, 1), (0, 1, 0, 2)])
    waiting = tuple(ExistingPod(f"{name}-{index}", 0, index) for index in pods)
    return replace(found, pods=(*found.pods, *waiting))


def test_gangs_that_are_to_stay_grow_by_the_pods_that_exist_alone() -> None:
    """Whoever may stop nothing may not let a controller create pods either."""
    frozen = freeze_running(build(gangs=[elastic("a"), elastic("b", 2, 3)]))
    assert [(one.name, one.roles[0].min, one.roles[0].max) for one in frozen.gangs] == [
        ("a", 2, 2),
        ("b", 2, 4),
    ]


def test_gangs_keep_their_sizes_where_no_scale_may_be_set() -> None:
    instance = build(gangs=[elastic("a"), gang("waits")])
    kept = keep_sizes(instance, {"default"})
    assert [kept.size_held(one) for one in kept.gangs] == [True, False]
    others = keep_sizes(instance, {"elsewhere"})
    assert [others.size_held(one) for one in others.gangs] == [False, False]


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
