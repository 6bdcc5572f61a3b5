"""``gangplan plan``: the pipeline, its exit codes, what it saves and what it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import RunCli

from models.instance.solution import Solution
from models.verify.check import Verdict
from models.verify.violation import Violation
from planner.errors import Fault, NoPlanError
from planner.search.solve import Search

EPOCH = {"SOURCE_DATE_EPOCH": "1795248000"}

INPUT = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: small}
spec:
  levels: [{name: rack}]
  nodes:
  - {name: "h-[1-2]", model: DGX H100, domains: {rack: r1}}
  - {name: h-3, model: DGX H100, domains: {rack: r2}, unhealthyGpus: [7]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: pair, namespace: research}
spec:
  priority: 10
  topology: {required: rack}
  roles: [{name: worker, replicas: 2, gpus: 8}]
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: huge, namespace: research}
spec:
  roles: [{name: worker, replicas: 4, gpus: 8}]
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: twin, namespace: research}
spec: {roles: [{name: worker, replicas: 1, gpus: 4}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: twin, namespace: web}
spec: {roles: [{name: worker, replicas: 1, gpus: 2}]}
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(INPUT, encoding="utf-8")
    return "small.yaml"


def never(*_: object, **__: object) -> None:
    raise AssertionError("the search was started")


@pytest.mark.parametrize("output", ["table", "wide", "name"])
def test_a_plan_is_shown_as_agreed(
    output: str, small: str, cli: RunCli, golden: Callable[[str, str], None]
) -> None:
    result = cli("plan", small, "-o", output, environ=EPOCH)
    assert result.code == 0, result.err
    assert result.err.splitlines()[-1] == (
        "next: gangplan plan small.yaml --out plan.json   (to keep this plan)"
    )
    golden(f"plan-small-{output}.txt", result.out)


def test_a_saved_plan_shows_and_verifies_the_same(
    small: str, cli: RunCli, golden: Callable[[str, str], None]
) -> None:
    planned = cli("plan", small, "--out", "plan.json", "-o", "wide", environ=EPOCH)
    assert planned.code == 0
    assert planned.err.splitlines()[-2:] == ["saved plan.json", "next: gangplan verify plan.json"]
    assert cli("show", "plan.json", "-o", "wide").out == planned.out
    verified = cli("verify", "plan.json")
    assert (verified.code, verified.err) == (0, "next: gangplan show plan.json\n")
    assert len(verified.out.splitlines()) == 1
    golden("verify-small.txt", cli("verify", "plan.json", "-o", "wide").out)


def test_the_document_on_stdout_is_the_file(small: str, cli: RunCli) -> None:
    result = cli("plan", small, "--out", "plan.json", "-o", "json", environ=EPOCH)
    assert result.out == Path("plan.json").read_text(encoding="utf-8")
    plan = json.loads(result.out)
    # 1795248000 s after 1970 is 2026-11-21 08:00:00 UTC
    assert plan["metadata"] == {
        "name": "small-20261121t080000z",
        "createdAt": "2026-11-21T08:00:00Z",
        "generator": "gangplan 0.2.0",
    }


def test_the_same_input_and_seed_give_the_same_bytes(small: str, cli: RunCli) -> None:
    for name in ("one.json", "two.json"):
        assert cli("plan", small, "--out", name, environ=EPOCH).code == 0
    assert Path("one.json").read_bytes() == Path("two.json").read_bytes()


def test_limits_of_the_command_line_are_stated_in_the_plan(small: str, cli: RunCli) -> None:
    options = ["--budget", "7", "--time-limit", "1m30s", "--seed", "5", "--workers", "1"]
    plan = json.loads(cli("plan", small, *options, "-o", "json", environ=EPOCH).out)
    assert plan["instance"]["policy"]["spec"]["solve"] == {
        "budget": 7,
        "timeLimit": "90s",
        "workers": 1,
        "seed": 5,
    }
    assert plan["status"]["search"]["seed"] == 5


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


def test_a_policy_file_replaces_the_policy_of_the_input(small: str, cli: RunCli) -> None:
    Path("policy").mkdir()
    Path("policy/p.yaml").write_text(
        "apiVersion: gangplan.dev/v1alpha1\nkind: Policy\n"
        "spec: {objectives: [{name: admission}], solve: {budget: 3}}\n",
        encoding="utf-8",
    )
    plan = json.loads(cli("plan", small, "--policy", "policy/p.yaml", "-o", "json").out)
    assert [tier["name"] for tier in plan["status"]["objectives"]] == [
        "admission/10",
        "admission/0",
    ]
    assert cli("plan", small, "--policy", "nope.yaml").code == 66


def test_bad_input_is_65_and_a_missing_path_66(small: str, cli: RunCli) -> None:
    Path("bad.yaml").write_text(INPUT.replace("gpus: 8", "gpus: eight"), encoding="utf-8")
    for verb in ("plan", "validate"):
        bad = cli(verb, "bad.yaml")
        assert (bad.code, bad.out) == (65, "")
        assert bad.err.count("error: ") == 2
        # The first role that asks for `eight` stands in line 17, the value in column 45.
        assert "  --> bad.yaml:17:45\n" in bad.err
        assert cli(verb, "nope.yaml").code == 66
    assert small


def test_validate_says_what_was_read(small: str, cli: RunCli) -> None:
    result = cli("validate", small)
    assert result.code == 0
    assert result.out == "valid: 3 nodes, 24 GPUs, 4 gangs (0 running, 4 waiting)\n"
    assert result.err == "next: gangplan plan small.yaml\n"
    assert cli("validate", "-", stdin=INPUT.encode()).out == result.out


def test_a_required_gang_without_room_is_3_and_the_plan_is_saved(small: str, cli: RunCli) -> None:
    result = cli("plan", small, "--require", "research/huge", "--out", "plan.json")
    assert result.code == 3
    assert "error: required gang research/huge cannot be admitted: " in result.err
    assert "GANG" in result.out
    assert cli("verify", "plan.json").code == 0


ONE_SERVER = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: one}
spec: {nodes: [{name: h-1, model: DGX H100}]}
"""


def gang(name: str, priority: int = 0, gpus: int = 8, submitted: int = 8) -> str:
    return (
        f"---\napiVersion: gangplan.dev/v1alpha1\nkind: Gang\nmetadata: {{name: {name}}}\n"
        f"spec:\n  priority: {priority}\n  submittedAt: 2026-11-20T{submitted:02}:00:00Z\n"
        f"  roles: [{{name: worker, replicas: 1, gpus: {gpus}}}]\n"
    )


@pytest.mark.parametrize(
    ("gangs", "code"),
    [
        # Of higher priority, and room for one of the two.
        ([gang("a", priority=5), gang("b")], 3),
        # Equal, but a has waited an hour longer.
        ([gang("a", submitted=7), gang("b")], 3),
        # Equal, but a and c are worth 8 GPUs together, b only 6.
        ([gang("a", gpus=4), gang("c", gpus=4), gang("b", gpus=6)], 3),
        # Equal in everything: a plan with b is as good.
        ([gang("a"), gang("b")], 0),
        # One is admitted, the other as good.
        ([gang("a", gpus=4), gang("c", gpus=4), gang("b", gpus=8)], 0),
    ],
)
def test_cannot_be_admitted_means_that_a_plan_with_it_is_worse(
    gangs: list[str], code: int, cli: RunCli, tmp_path: Path
) -> None:
    path = tmp_path / "in.yaml"
    path.write_text(ONE_SERVER + "".join(gangs), encoding="utf-8")
    names = ["a", "b"] if code == 0 else ["b"]
    required = [option for name in names for option in ("--require", name)]
    result = cli("plan", str(path), *required)
    assert result.code == code
    if code == 0:
        # Both together do not fit, so one is left out, and the plan says so.
        assert result.err.count("warning: required gang default/") == 1


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("pear", "did you mean pair?"),
        ("research/pear", "did you mean research/pair?"),
        ("zzz", "the input has no gang of that name"),
        ("twin", "say which: research/twin, web/twin"),
        ("web/pair", "did you mean"),
        ("", "the input has no gang of that name"),
    ],
)
def test_an_unclear_required_gang_is_64_before_the_search(
    name: str, hint: str, small: str, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Search, "run", never)
    result = cli("plan", small, "--require", name)
    assert (result.code, result.out) == (64, "")
    assert f"\nhint: {hint}" in result.err


def test_a_target_that_cannot_be_written_is_73_before_the_search(
    small: str, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Search, "run", never)
    for target in ("nope/plan.json", ".", "small.yaml/plan.json"):
        result = cli("plan", small, "--out", target)
        assert (result.code, result.out) == (73, ""), result.err
    assert cli("plan", small, "--out", "small.yaml").code == 64
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


def test_json_log_has_one_object_a_line_and_ends_with_a_summary(small: str, cli: RunCli) -> None:
    result = cli("plan", small, "--log-format", "json", "--out", "plan.json", "-o", "name")
    events: list[dict[str, Any]] = [json.loads(line) for line in result.err.splitlines()]
    kinds = [event["type"] for event in events if event["type"] != "solve_progress"]
    assert kinds == ["read", "solve_done", "verify_done", "summary"]
    summary = events[-1]
    assert (summary["status"], summary["exit_code"], summary["gap"]) == ("optimal", 0, 0.0)
    # pair and both twins start, huge waits
    assert (summary["placed"], summary["kept"], summary["waiting"]) == (3, 0, 1)
    assert summary["effective_gpus"] == {"before": 0.0, "after": 22.0, "one_at_a_time": 22.0}
    assert summary["gained_by_priority"] == {}
    assert list(summary["seconds"]) == ["read", "solve", "check", "save"]
    digests = json.loads(Path("plan.json").read_text(encoding="utf-8"))["status"]["digests"]
    assert summary["digests"] == digests
    assert result.out == "gang/research/pair\ngang/research/twin\ngang/web/twin\n"
