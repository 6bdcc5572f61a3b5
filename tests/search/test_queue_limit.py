"""``queueLimit``: of a namespace's waiting gangs those beyond the limit wait, whoever sends them."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from bundles import read_all
from compact_documents import HEAD, cluster, gang, written
from outcomes import document_of
from plan_documents import Doc, sealed

from models.instance.gang import Gang
from models.verify.check import check
from planner.read.findings import Remarks
from planner.read.inputs import load
from planner.read.kube.gangs.gangs import leave_out_last
from planner.read.kube.records import KubeGang


def policy(limit: object) -> Doc:
    return {**HEAD, "kind": "Policy", "spec": {"queueLimit": limit, "solve": {"budget": 2}}}


def held(gangs: Sequence[Gang]) -> list[str]:
    return [gang.name for gang in gangs if gang.hold is not None and gang.hold.code == "QueueLimit"]


NOT_PLANNED = "of its 5 waiting gangs are not planned yet (hint: queueLimit in the Policy)"

CROWD = [
    gang("old", submittedAt="2026-11-20T08:00:00Z"),
    gang("older", submittedAt="2026-11-20T07:00:00Z"),
    gang("b-undated"),
    gang("a-undated"),
    gang("urgent", priority=7, submittedAt="2026-11-20T09:00:00Z"),
]


@pytest.mark.parametrize(
    ("limit", "beyond"),
    [
        (5, []),
        (4, ["b-undated"]),
        (3, ["a-undated", "b-undated"]),
        (2, ["a-undated", "b-undated", "old"]),
        (1, ["a-undated", "b-undated", "old", "older"]),
        (None, []),
    ],
)
def test_the_oldest_of_the_highest_priorities_are_planned(
    limit: int | None, beyond: list[str], tmp_path: Path
) -> None:
    loaded = load([written(tmp_path, [cluster(), policy(limit), *CROWD])])
    assert held(loaded.instance.gangs) == beyond
    said = [remark for remark in loaded.remarks if "waiting gangs are not planned" in remark]
    assert said == ([f"namespace crowd: {len(beyond)} {NOT_PLANNED}"] if beyond else [])


def test_running_and_held_gangs_and_other_namespaces_do_not_count(tmp_path: Path) -> None:
    running = gang("running")
    pod = {"role": "worker", "index": 0, "node": "gpu-0", "gpus": [0]}
    running["status"] = {"pods": [pod]}
    strange = gang("strange")
    strange["status"] = {"hold": {"code": "Unsupported", "message": "cannot be planned"}}
    documents = [cluster(), policy(1), running, strange, gang("first"), gang("one", "other")]
    assert held(load([written(tmp_path, documents)]).instance.gangs) == []


@cache
def _plan() -> Doc:
    return document_of(read_all([cluster(), policy(2), *CROWD]))


@pytest.fixture
def plan() -> Doc:
    """A plan with room for eight, and two of five that may start."""
    return copy.deepcopy(_plan())


def test_gangs_beyond_the_limit_wait_even_if_there_is_room(plan: Doc) -> None:
    decisions = {gang["name"]: gang["decision"] for gang in plan["spec"]["gangs"]}
    assert sorted(name for name in decisions if decisions[name] == "place") == ["older", "urgent"]
    codes = {gang["reason"]["code"] for gang in plan["spec"]["gangs"] if gang["reason"]}
    assert codes == {"QueueLimit"}
    assert check(plan) == []


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        (1, "is not held as QueueLimit, but has place 2 of 5"),
        (3, "is held as QueueLimit, but has place 3 of 5"),
    ],
)
def test_the_judge_ranks_the_queue_itself(plan: Doc, limit: int, says: str) -> None:
    plan["instance"]["policy"]["spec"]["queueLimit"] = limit
    found = [one for one in check(sealed(plan)) if one.rule == "queue-limit"]
    assert [one.message.startswith(says) for one in found] == [True]


def waiting(namespace: str, count: int) -> list[KubeGang]:
    found = [KubeGang(namespace, f"g{i}", "Pod", []) for i in range(count)]
    for i, one in enumerate(found):
        one.submitted_at = 1000 - i
    return found


def test_a_plan_lists_so_many_gangs_beyond_the_limits_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("planner.read.kube.gangs.gangs.MAX_BEYOND", 10)
    gangs = [*waiting("few", 4), *waiting("many", 30), *waiting("more", 50)]
    remarks = Remarks()
    left = leave_out_last(gangs, 2, remarks)
    # "few" has two beyond the limit; the others share the eight that remain.
    assert Counter(one.namespace for one in left) == {"few": 4, "many": 6, "more": 6}
    # The oldest have the highest numbers.
    kept = [one.name for one in left if one.namespace == "many"]
    assert kept == [f"g{i}" for i in range(24, 30)]
    assert remarks.lines() == [
        "namespace many: 24 more waiting gangs are left out of the plan",
        "namespace more: 44 more waiting gangs are left out of the plan",
    ]
    assert leave_out_last(gangs, None, Remarks()) == gangs
