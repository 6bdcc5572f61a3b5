"""A plan whose proof the judge refutes is saved without that proof, not lost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import RunCli
from test_queue_limit import cluster, gang, written

from models.instance.solution import GangDecision, Reason, Solution
from models.values.tier_values import Evaluation
from planner.pipelines import plan as pipeline
from planner.pipelines.timed_search import TimedSearch


class Wrong(TimedSearch):
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
    monkeypatch.setattr(pipeline, "TimedSearch", Wrong)
    where, out = written(tmp_path, [cluster(), gang("a"), gang("b")]), tmp_path / "plan.json"
    result = cli("plan", where, "--out", str(out))
    assert result.code == 0
    status = json.loads(out.read_text())["status"]
    tiers = {tier["name"]: tier for tier in status["objectives"]}
    assert (tiers["goodput/0"]["value"], tiers["goodput/0"]["bound"]) == (1000, 2000)
    assert tiers["goodput/0"]["proof"] is None
    assert status["outcome"] == "feasible"
    assert any("not proven: goodput/0" in note for note in status["notes"])
    assert cli("verify", str(out)).code == 0
