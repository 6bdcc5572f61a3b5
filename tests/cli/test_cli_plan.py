"""``gangplan plan`` where the search or the judge does not do what it usually does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import RunCli

from models.instance.solution import Solution
from models.verify.check import Verdict
from models.verify.violation import Violation
from planner.errors import Fault, NoPlanError
from planner.search.solve import Search

INPUT = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: small}
spec: {nodes: [{name: "h-[1-3]", model: DGX H100}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: pair}
spec: {roles: [{name: worker, replicas: 2, gpus: 8}]}
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(INPUT, encoding="utf-8")
    return "small.yaml"


def never(*_: object, **__: object) -> None:
    raise AssertionError("the search was started")


def test_the_next_command_plans_the_same_again(
    small: str, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("my policy.yaml").write_text(
        "apiVersion: gangplan.dev/v1alpha1\nkind: Policy\n"
        "spec: {objectives: [{name: admission}], solve: {budget: 400000}}\n",
        encoding="utf-8",
    )
    given = "--require pair --time-limit 1m --seed 5"
    options = ["--policy", "my policy.yaml", *given.split()]
    again = f"gangplan plan small.yaml --policy 'my policy.yaml' {given.replace('1m', '60s')}"
    said = cli("plan", small, *options).err.splitlines()[-1]
    assert said == f"next: {again} --out plan.json   (to keep this plan)"

    search = Search.run

    def unproven(self: Search) -> Solution:
        found = search(self)
        tiers = tuple(
            replace(tier, bound=tier.best + (tier.sense == "max")) for tier in found.tiers
        )
        return replace(found, tiers=tiers, stopped_by="budget")

    monkeypatch.setattr(Search, "run", unproven)
    said = cli("plan", small, *options, "--out", "p.json").err.splitlines()[-1]
    # Four times 400,000 is more than may be asked for.
    assert said == f"next: {again} --budget 1000000 --out p.json   (to close the gap)"
    said = cli("plan", small, "--budget", "1000000", "--out", "p.json").err.splitlines()[-1]
    assert said == "next: gangplan verify p.json"


def test_what_cannot_be_done_is_an_error_before_the_search(
    small: str, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Search, "run", never)
    for words, code in (("--out nope/x", 73), ("--out .", 73), (f"--out {small}", 64)):
        assert cli("plan", small, *words.split()).code == code
    assert cli("plan", small, "--require", "pear").code == 64
    assert [path.name for path in Path().iterdir()] == ["small.yaml"]


def test_a_refused_plan_is_5_and_not_saved(
    small: str, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Violation("gpu-shared", f"research/g{i}", "GPU 0 of h-1 twice") for i in range(25)]
    monkeypatch.setattr("models.verify.check.Judge.check", lambda *_, **__: Verdict(found, None))
    result = cli("plan", small, "--out", "plan.json")
    assert (result.code, result.out) == (5, "")
    lines = result.err[result.err.index("error:") :].splitlines()
    assert lines[0] == "error: gpu-shared: research/g0: GPU 0 of h-1 twice"
    # 20 of the 25, then how many there were and a hint
    assert len(lines) == 22
    assert "(25 violations), the first 20 are shown" in lines[20]
    assert not Path("plan.json").exists()


def test_no_plan_within_the_budget_is_4(
    small: str, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object, **__: object) -> None:
        raise NoPlanError(Fault("no usable plan within the budget", "raise --budget"))

    monkeypatch.setattr(Search, "run", none)
    result = cli("plan", small, "--out", "plan.json")
    assert (result.code, result.out) == (4, "")
    assert not Path("plan.json").exists()
