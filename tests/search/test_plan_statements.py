"""A statement that the judge refuses is left out, and the plan saved; what a plan does refuses the plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bundles import read_all
from compact_documents import HEAD, cluster, written
from compact_documents import gang as small_gang
from conftest import RunCli
from outcomes import document_of
from plan_documents import sealed

from models.instance.solution import Delayed, GangDecision, Reason, Solution
from models.values.tier_values import Evaluation
from models.verify.check import check
from planner.pipelines import plan as pipeline
from planner.pipelines.timed_search import TimedSearch

NOW = "2026-11-28T10:00:00Z"
AT_10 = 1_795_860_000
HOUR = 3600

Json = dict[str, Any]


def gang(name: str, nodes: int, **more: object) -> Json:
    roles = [{"name": "w", "replicas": nodes, "gpus": 8}]
    spec = {"roles": roles, "submittedAt": "2026-11-28T09:00:00Z", "expectedDuration": "1h", **more}
    return {**HEAD, "kind": "Gang", "metadata": {"name": name, "namespace": "t"}, "spec": spec}


def documents() -> list[Json]:
    """One of two servers is busy until 10:30: ``big`` waits for both until then, ``next`` until 11:30."""
    runs = gang("runs", 1)
    pods = [{"name": "runs-w-0", "role": "w", "index": 0, "node": "gpu-0", "gpus": list(range(8))}]
    runs["status"] = {"startedAt": "2026-11-28T09:30:00Z", "pods": pods}
    rules = {"now": NOW, "reservations": {"perPriority": 2}, "solve": {"budget": 2, "workers": 1}}
    big, behind = gang("big", 2), gang("next", 2, submittedAt="2026-11-28T09:10:00Z")
    return [cluster(2), {**HEAD, "kind": "Policy", "spec": rules}, runs, big, behind]


Change = Callable[[GangDecision], GangDecision]


def reason(one: GangDecision) -> GangDecision:
    return replace(one, reason=Reason.of("Quota", queue="nobody", held=3, limit=3))


def earlier(one: GangDecision) -> GangDecision:
    """A start while another still has the nodes."""
    assert one.reserved is not None
    assert one.reserved.start == AT_10 + HOUR // 2 + HOUR * (one.reserved.gang[1] == "next")
    start = AT_10 + HOUR // 4
    return replace(one, reserved=replace(one.reserved, start=start, end=start + HOUR))


def expected(one: GangDecision) -> GangDecision:
    return replace(one, expected_start=AT_10 + 60)


def late(one: GangDecision) -> GangDecision:
    return replace(one, delayed=Delayed(AT_10, "Arrival", ("t/nobody",)))


def moved(one: GangDecision) -> GangDecision:
    """A running gang elsewhere, which it may not be."""
    return replace(one, pods=tuple(replace(pod, node=1) for pod in one.pods))


def wrong(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Change]) -> None:
    """A search with a fault: what it states of some gangs is changed."""

    class Wrong(TimedSearch):
        def run(self) -> Any:  # noqa: ANN401
            found = super().run()
            decisions = tuple(
                changes.get(gang.name, lambda one: one)(one)
                for gang, one in zip(self._search.instance.gangs, found.decisions, strict=True)
            )
            return replace(found, decisions=decisions)

    monkeypatch.setattr(pipeline, "TimedSearch", Wrong)


@pytest.mark.parametrize(
    ("name", "change", "left_out"),
    [
        ("big", reason, {"reason"}),
        ("big", earlier, {"reserved"}),
        ("next", earlier, {"reserved"}),
        ("big", expected, {"expectedStart"}),
        ("big", late, {"delayed"}),
        ("big", lambda one: late(earlier(one)), {"delayed", "reserved"}),
        ("big", lambda one: reason(late(one)), {"delayed", "reason"}),
    ],
)
def test_a_statement_that_is_refused_is_left_out_with_a_warning(
    name: str,
    change: Change,
    left_out: set[str],
    tmp_path: Path,
    cli: RunCli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong(monkeypatch, {name: change})
    out = tmp_path / "plan.json"
    result = cli("plan", written(tmp_path, documents()), "--out", str(out))
    assert result.code == 0, result.err
    plan = json.loads(out.read_text())
    said = [one for one in plan["status"]["remarks"] if "please report it" in one]
    assert {one.split("`")[1] for one in said} == left_out
    assert all(one.startswith(f"t/{name}: ") and one in result.err for one in said)
    assert cli("verify", str(out)).code == 0
    gangs = {one["name"]: one for one in plan["spec"]["gangs"]}
    for field in left_out - {"reason"}:
        assert gangs[name].get(field) is None
    assert (gangs[name]["reason"]["code"] == "Unstated") == ("reason" in left_out)
    assert gangs["runs"]["decision"] == "keep"
    assert all(("reserved" in gangs[n]) for n in {"big", "next"} - {name}), "others keep theirs"
    # who is before another that holds a reservation says why it holds none
    assert ("passedOver" in gangs["big"]) == (name == "big" and "reserved" in left_out)


def test_a_placement_that_is_refused_refuses_the_plan(
    tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong(monkeypatch, {"runs": moved, "big": reason})
    out = tmp_path / "plan.json"
    result = cli("plan", written(tmp_path, documents()), "--out", str(out))
    assert result.code == 5
    assert not out.exists()
    assert "nothing was saved" in result.err


@pytest.mark.parametrize(
    ("name", "code", "fields", "fine"),
    [
        ("big", "NoRoom", {}, False),
        ("big", "Unstated", None, True),
        ("big", "Unstated", {"gpus": 16}, False),
        ("runs", "Unstated", None, False),  # nor may a gang that runs have one
    ],
)
def test_an_unstated_reason_states_nothing(
    name: str, code: str, fields: Json | None, *, fine: bool
) -> None:
    plan = document_of(read_all(documents()))
    assert check(plan) == []
    (gang,) = (one for one in plan["spec"]["gangs"] if one["name"] == name)
    gang["reason"] = {"code": code, "message": ""} | ({} if fields is None else {"fields": fields})
    assert (check(sealed(plan)) == []) is fine


class Unproven(TimedSearch):
    """An engine's error: the second gang waits, and that is called proven."""

    def run(self) -> Solution:
        found = super().run()
        wait = GangDecision("wait", (), Reason.of("NoRoom", text="by hand"))
        decisions = (found.decisions[0], wait)
        values = Evaluation(self._search.instance, decisions).vector()
        tiers = tuple(
            replace(tier, value=value, best=value, bound=value, proof="numerical")
            for tier, value in zip(found.tiers, values, strict=True)
        )
        return replace(found, decisions=decisions, tiers=tiers)


def test_a_refuted_proof_is_given_up(
    tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "TimedSearch", Unproven)
    where, out = (
        written(tmp_path, [cluster(), small_gang("a"), small_gang("b")]),
        tmp_path / "plan.json",
    )
    result = cli("plan", where, "--out", str(out))
    assert result.code == 0
    status = json.loads(out.read_text())["status"]
    tiers = {tier["name"]: tier for tier in status["objectives"]}
    assert (tiers["goodput/0"]["value"], tiers["goodput/0"]["bound"]) == (1000, 2000)
    assert tiers["goodput/0"]["proof"] is None
    assert status["outcome"] == "feasible"
    assert any("not proven: goodput/0" in note for note in status["notes"])
    assert cli("verify", str(out)).code == 0
