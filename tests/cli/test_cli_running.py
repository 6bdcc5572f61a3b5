"""``gangplan plan`` with --previous, --defragment and --now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Result, RunCli

EPOCH = {"SOURCE_DATE_EPOCH": "1795248000"}  # 2026-11-21T08:00:00Z

CLUSTER = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: two-racks}
spec:
  levels: [{name: rack}]
  nodes:
  - {name: "a-[1-2]", model: DGX H100, domains: {rack: a}}
  - {name: "b-[1-2]", model: DGX H100, domains: {rack: b}}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: new}
spec:
  submittedAt: 2026-11-20T08:00:00Z
  roles: [{name: worker, replicas: 1, gpus: 8}]
---
apiVersion: gangplan.dev/v1alpha1
kind: Policy
spec: {starvation: {after: 12h}, moves: {maxGangs: 1}}
"""

SCATTERED = """
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: half-a}
spec: {movable: true, roles: [{name: worker, replicas: 1, gpus: 4}]}
status:
  pods: [{role: worker, index: 0, node: a-1, gpus: [0, 1, 2, 3]}]
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: half-b}
spec: {roles: [{name: worker, replicas: 1, gpus: 4}]}
status:
  pods: [{role: worker, index: 0, node: b-1, gpus: [0, 1, 2, 3]}]
"""


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("queue.yaml").write_text(CLUSTER, encoding="utf-8")
    return "queue.yaml"


def planned(result: Result) -> dict[str, Any]:
    assert result.code == 0, result.err
    document: dict[str, Any] = json.loads(result.out)
    return document


def nodes(plan: dict[str, Any], name: str) -> list[str]:
    (found,) = [one for one in plan["spec"]["gangs"] if one["name"] == name]
    return [pod["node"] for pod in found["pods"]]


def objectives(plan: dict[str, Any]) -> list[str]:
    return [one["name"] for one in plan["instance"]["policy"]["spec"]["objectives"]]


def values(plan: dict[str, Any]) -> dict[str, int]:
    return {tier["name"]: tier["value"] for tier in plan["status"]["objectives"]}


@pytest.mark.parametrize("node", ["a-1", "a-2", "b-1", "b-2"])
def test_a_gang_goes_where_an_earlier_plan_wanted_it(node: str, queue: str, cli: RunCli) -> None:
    earlier = planned(cli("plan", queue, "-o", "json"))
    earlier["spec"]["gangs"][0]["pods"][0]["node"] = node
    Path("earlier.json").write_text(json.dumps(earlier), encoding="utf-8")
    again = planned(cli("plan", queue, "--previous", "earlier.json", "-o", "json"))
    assert nodes(again, "new") == [node]  # all four are as good
    assert objectives(again) == [*objectives(earlier), "stability"]
    assert values(again)["stability"] == 0
    places = [{"role": "worker", "index": 0, "node": node}]
    assert again["instance"]["gangs"][0]["status"]["planned"] == places
    # and the plan made so is one to plan near again
    Path("again.json").write_text(json.dumps(again), encoding="utf-8")
    third = planned(cli("plan", queue, "--previous", "again.json", "-o", "json"))
    assert third["instance"] == again["instance"]
    assert third["spec"] == again["spec"]


def test_an_earlier_plan_may_come_from_standard_input(queue: str, cli: RunCli) -> None:
    earlier = cli("plan", queue, "-o", "json").out
    result = cli("plan", queue, "--previous", "-", "-o", "json", stdin=earlier.encode())
    assert values(planned(result))["stability"] == 0
    both = cli("plan", "-", "--previous", "-", stdin=earlier.encode())
    assert (both.code, both.out) == (64, "")
    assert both.err.startswith("error: --previous - and the input both read stdin\n")


def test_what_is_no_plan_is_refused_before_anything_is_read(queue: str, cli: RunCli) -> None:
    for name, code in ((queue, 65), ("nosuch.json", 66)):
        result = cli("plan", queue, "--previous", name)
        assert (result.code, result.out) == (code, "")
        assert result.err.count("error: ") == 1
    assert result.err.splitlines() == [
        "error: cannot read nosuch.json: No such file or directory",
        "hint: check the path",
    ]


def test_remarks_on_an_earlier_plan_are_warnings_and_in_the_plan(queue: str, cli: RunCli) -> None:
    earlier = planned(cli("plan", queue, "-o", "json"))
    earlier["spec"]["gangs"][0]["pods"][0]["node"] = "sold"
    Path("earlier.json").write_text(json.dumps(earlier), encoding="utf-8")
    result = cli("plan", queue, "--previous", "earlier.json", "-o", "json")
    said = [
        "earlier.json places 1 pod on nodes that do not exist: sold",
        "earlier.json places none of these gangs: no pod has a previous place",
    ]
    assert planned(result)["status"]["remarks"] == said
    assert [f"warning: {line}" for line in said] == result.err.splitlines()[:2]


def test_moving_for_its_own_sake_makes_whole_nodes_within_the_budget(
    queue: str, cli: RunCli
) -> None:
    Path("scattered.yaml").write_text(SCATTERED, encoding="utf-8")
    still = planned(cli("plan", queue, "scattered.yaml", "-o", "json"))
    assert "defragment" not in objectives(still)
    assert nodes(still, "half-a") == ["a-1"]
    tidied = planned(cli("plan", queue, "scattered.yaml", "--defragment", "-o", "json"))
    assert objectives(tidied)[2:4] == ["defragment", "disruption"]
    # half-a joins half-b on b-1 and new takes b-2: both nodes of rack a are whole, and so is the rack
    assert nodes(tidied, "half-a") == ["b-1"]
    assert nodes(tidied, "new") == ["b-2"]
    assert values(tidied)["defragment"] == 16 + 16
    assert values(tidied)["disruption"] == 4


def test_ages_are_counted_to_the_time_given(queue: str, cli: RunCli) -> None:
    def ages(*options: str) -> tuple[bool, str]:
        plan = planned(cli("plan", queue, *options, "-o", "json", environ=EPOCH))
        aged = plan["spec"]["gangs"][0].get("aged", False)
        assert ("aged/0" in values(plan)) == aged
        return aged, plan["instance"]["policy"]["spec"]["now"]

    # submitted on the 20th at 8:00, too long from 20:00 on; alone it has waited for no time at all
    assert ages() == (False, "2026-11-20T08:00:00Z")
    assert ages("--now", "2026-11-20T20:00:00Z") == (False, "2026-11-20T20:00:00Z")
    assert ages("--now", "2026-11-20T21:00:01+01:00") == (True, "2026-11-20T20:00:01Z")
    assert ages("--now", "clock") == (True, "2026-11-21T08:00:00Z")


@pytest.mark.parametrize("time", ["yesterday", "2026-11-20", "12:00", "", "now", "Clock"])
def test_a_time_that_is_none_is_64(time: str, queue: str, cli: RunCli) -> None:
    result = cli("plan", queue, "--now", time)
    assert (result.code, result.out) == (64, "")
    assert result.err.splitlines() == [
        f"error: --now: {time!r} is not an RFC 3339 time",
        "hint: write it like 2026-11-20T08:00:00Z, or use clock",
    ]
