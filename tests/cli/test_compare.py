"""``gangplan compare``: what differs between two plans, who wins, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import RunCli

from models.documents.answers import ComparisonDocument

ROOT = Path(__file__).parents[2]
QUICKSTART = str(ROOT / "inputs" / "quickstart")


@pytest.fixture
def plans(cli: RunCli, tmp_path: Path) -> tuple[str, str]:
    """The plan of the quickstart, and the same without the gang vgg16."""
    files = str(tmp_path / "plain.json"), str(tmp_path / "without.json")
    assert cli("plan", QUICKSTART, "--out", files[0], "-o", "name").code == 0
    assert cli("plan", QUICKSTART, "--without", "vgg16", "--out", files[1], "-o", "name").code == 0
    return files


def test_a_plan_does_not_differ_from_itself(cli: RunCli, plans: tuple[str, str]) -> None:
    done = cli("compare", plans[0], plans[0], "--detailed-exitcode", "-o", "json")
    assert (done.code, done.err) == (0, "")
    found = ComparisonDocument.model_validate_json(done.out).status
    assert (found.same, found.better, found.gangs) == (True, None, ())
    assert len(found.tiers) == 7
    shown = cli("compare", plans[0], "-", stdin=Path(plans[0]).read_bytes())
    assert shown.out.splitlines()[-1] == "no difference"


def test_a_what_if_says_what_changes_for_whom_and_is_not_called_better_or_worse(
    cli: RunCli, plans: tuple[str, str]
) -> None:
    done = cli("compare", *plans, "--detailed-exitcode", "-o", "json")
    assert done.code == 2
    found = ComparisonDocument.model_validate_json(done.out)
    assert found.second.what_if == "without default/vgg16"
    # The quickstart: 13.92 effective GPUs with vgg16 at full speed; four less without it, but resnet50 then
    # gets its quad, which it had at 98 %: 13.92 - 4 + 0.08
    assert (found.first.effective_gpus, found.second.effective_gpus) == (13.92, 10)
    status = found.status
    assert (status.base, status.better, status.decided_by) == ("first", None, None)
    assert (status.input.same, status.input.first_gangs) == (False, ())  # vgg16 is stated
    assert {tier.better for tier in status.tiers} == {None}
    (goodput,) = [tier for tier in status.tiers if tier.name == "goodput/0"]
    assert goodput.first is not None
    assert (goodput.first.value, goodput.first.bound, goodput.first.proven) == (13920, 13920, True)
    effects = {gang.gang: gang.effect for gang in status.gangs}
    assert effects == {"default/vgg16": "gone", "default/resnet50": "elsewhere"}
    (gone,) = [gang for gang in status.gangs if gang.gang == "default/vgg16"]
    assert (gone.changed, gone.second) == (("presence",), None)
    assert gone.first is not None
    assert (gone.first.decision, gone.first.gpus, gone.first.nodes) == ("place", 4, ("v100-1",))
    assert cli("compare", *plans, "-o", "name").out == "".join(
        f"gang/{gang.gang}\n" for gang in status.gangs
    )
    table = cli("compare", *plans).out
    assert "default/vgg16     place -> absent" in table
    assert table.endswith(
        "without default/vgg16, compared with the base:\n"
        "gangs that are on other nodes: default/resnet50\n"
        "gangs that are not there: default/vgg16\n"
        "effective GPUs: 13.92 -> 10\n"
    )
    assert "better" not in table.lower()


def test_what_differs_besides_the_change_is_said(cli: RunCli, tmp_path: Path) -> None:
    files = []
    for count, options in ((2, ()), (3, ("--without", "b"))):
        text = f"""
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {{name: small}}
spec: {{nodes: [{{name: "n-[1-{count}]", model: DGX H100}}]}}
"""
        for name, pods in (("a", 2), ("b", 1), ("c", count)):
            text += f"""---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {{name: {name}}}
spec: {{submittedAt: 2026-11-20T08:00:00Z, roles: [{{name: w, replicas: {pods}, gpus: 8}}]}}
"""
        (tmp_path / "in.yaml").write_text(text, encoding="utf-8")
        files.append(str(tmp_path / f"{count}.json"))
        assert cli("plan", str(tmp_path / "in.yaml"), *options, "--out", files[-1]).code == 0
    lines = cli("compare", *files).out.splitlines()
    besides = "the inputs differ, besides the what-if: "
    assert f"{besides}nodes only in the what if plan: n-3" in lines
    assert f"{besides}gangs whose requests or pods differ: default/c" in lines
    assert not any("default/b" in line and line.startswith(besides) for line in lines)


def test_of_one_input_the_better_plan_is_named_with_the_tier_that_decides(
    cli: RunCli, tmp_path: Path
) -> None:
    # the worse plan is the better one without its only gang
    text = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: small}
spec: {nodes: [{name: "n-[1-2]", model: DGX H100}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: a}
spec: {submittedAt: 2026-11-20T08:00:00Z, roles: [{name: w, replicas: 2, gpus: 8}]}
"""
    (tmp_path / "in.yaml").write_text(text, encoding="utf-8")
    best, worse = str(tmp_path / "best.json"), str(tmp_path / "worse.json")
    assert cli("plan", str(tmp_path / "in.yaml"), "--out", best).code == 0
    plan = json.loads(Path(best).read_text(encoding="utf-8"))
    plan["spec"]["gangs"][0] |= {"decision": "wait", "pods": []}
    (goodput,) = (one for one in plan["status"]["objectives"] if one["name"] == "goodput/0")
    goodput["value"] = 0
    Path(worse).write_text(json.dumps(plan), encoding="utf-8")
    done = cli("compare", worse, best)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[-1] == "the second plan is better: goodput/0 is the first tier that differs"
    assert "gangs that run instead of waiting: default/a" in lines
    turned = cli("compare", best, worse).out.splitlines()
    assert turned[-1] == "the first plan is better: goodput/0 is the first tier that differs"
    assert "gangs that wait instead of running: default/a" in turned


@pytest.mark.parametrize(
    ("paths", "code", "said"),
    [
        ((str(ROOT / "README.md"), "PLAN"), 65, "not JSON"),
        (("PLAN", QUICKSTART), 65, "a plan is one JSON file, this is a folder"),
        (("PLAN", "/nowhere.json"), 66, "cannot read /nowhere.json"),
        (("-", "-"), 64, "both plans read stdin"),
    ],
)
def test_a_file_that_is_no_plan_is_one_clear_error(
    cli: RunCli, plans: tuple[str, str], paths: tuple[str, ...], code: int, said: str
) -> None:
    refused = cli("compare", *(plans[0] if one == "PLAN" else one for one in paths))
    assert (refused.code, refused.out) == (code, "")
    assert refused.err.count("error:") == 1
    assert said in refused.err


def test_where_an_earlier_plan_had_gangs_is_no_difference_of_what_they_ask_for(
    cli: RunCli, tmp_path: Path
) -> None:
    text = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: small}
spec: {nodes: [{name: "n-[1-2]", model: DGX H100}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: a}
spec: {submittedAt: 2026-11-20T08:00:00Z, roles: [{name: w, replicas: 1, gpus: 8}]}
"""
    (tmp_path / "in.yaml").write_text(text, encoding="utf-8")
    first, second = str(tmp_path / "first.json"), str(tmp_path / "second.json")
    assert cli("plan", str(tmp_path / "in.yaml"), "--out", first).code == 0
    again = cli("plan", str(tmp_path / "in.yaml"), "--previous", first, "--out", second)
    assert again.code == 0, again.err
    said = cli("compare", first, second).out
    assert "the inputs differ" not in said
    assert "their policies" not in said
    assert said.endswith("neither plan is better: every tier that both have is equal\n")
