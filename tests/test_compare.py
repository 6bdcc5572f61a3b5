"""``gangplan compare``: what differs between two plans, who wins, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import RunCli

from models.documents.comparison import ComparisonDocument

ROOT = Path(__file__).parent.parent
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


def test_tiers_gangs_and_the_better_plan_are_named(cli: RunCli, plans: tuple[str, str]) -> None:
    done = cli("compare", *plans, "--detailed-exitcode", "-o", "json")
    assert done.code == 2
    found = ComparisonDocument.model_validate_json(done.out)
    assert found.second.what_if == "without default/vgg16"
    # The quickstart: 13.92 effective GPUs with vgg16 at full speed; four less without it.
    assert found.first.effective_gpus == 13.92
    status = found.status
    assert (status.better, status.decided_by) == ("first", "goodput/0")
    (goodput,) = [tier for tier in status.tiers if tier.name == "goodput/0"]
    assert goodput.first is not None
    assert (goodput.first.value, goodput.first.bound, goodput.first.proven) == (13920, 13920, True)
    (gone,) = [gang for gang in status.gangs if gang.gang == "default/vgg16"]
    assert (gone.changed, gone.second) == (("presence",), None)
    assert gone.first is not None
    assert (gone.first.decision, gone.first.gpus, gone.first.nodes) == ("place", 4, ("v100-1",))
    # The other way round, the other one wins at the same tier.
    turned = json.loads(cli("compare", *reversed(plans), "-o", "json").out)["status"]
    assert (turned["better"], turned["decidedBy"]) == ("second", "goodput/0")
    assert cli("compare", *plans, "-o", "name").out == "".join(
        f"gang/{gang.gang}\n" for gang in status.gangs
    )
    table = cli("compare", *plans).out
    assert "default/vgg16     place -> absent" in table
    assert table.splitlines()[-1] == "the first plan is better: it wins at goodput/0"


def test_a_tier_that_one_plan_lacks_decides_nothing(cli: RunCli, tmp_path: Path) -> None:
    files = []
    for name, objectives in (("one", "[{name: goodput}, {name: span}]"), ("two", "[{name: span}]")):
        policy, saved = tmp_path / f"{name}.yaml", str(tmp_path / f"{name}.json")
        policy.write_text(
            f"apiVersion: gangplan.dev/v1alpha1\nkind: Policy\nspec: {{objectives: {objectives}}}\n"
        )
        assert cli("plan", QUICKSTART, "--policy", str(policy), "--out", saved).code == 0
        files.append(saved)
    status = json.loads(cli("compare", *files, "-o", "json").out)["status"]
    assert [(tier["name"], tier["second"] is None) for tier in status["tiers"]] == [
        ("goodput/0", True),
        ("span", False),
    ]
    assert status["decidedBy"] in (None, "span")
    assert "their policies list other objectives, or other tolerances" in status["remarks"]


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
