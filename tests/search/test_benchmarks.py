"""The seeded instances of benchmarks/ are valid, repeat themselves, and hold what they promise."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from benchmarks.__main__ import BEGIN, END, README, into, misses, page
from benchmarks.cases import HERE
from benchmarks.lab.rules import AT_ONCE
from benchmarks.lab.scheduler import schedule, solution_of
from benchmarks.no_room import SHAPES, no_room
from benchmarks.traps import traps
from models.instance.policy import DEFAULT_OBJECTIVES
from models.results.plan import compose
from models.tiers import TIERS
from models.verify.check import check
from planner.search.solve import solve

NOW = "2026-11-21T12:00:00Z"


def test_the_search_finds_the_one_plan_without_traps_and_no_rule_does() -> None:
    drawn = traps(6, 0)
    solution = solve(drawn.instance)
    assert {tier.name: tier.value for tier in solution.tiers} == drawn.optimum
    for name, rules in AT_ONCE.items():
        found = solution_of(drawn.instance, schedule(drawn.instance, rules), name)
        assert found.tiers[0].value < solution.tiers[0].value, name


LACKS = {  # code, level and pods with room; no five GPUs of one server
    "small-racks": ("Never", "rack", 8),
    "blocked": ("RequiredTopology", "rack", 0),
    "nvlink": ("Never", "rack", 18),
    "pieces": ("NoRoom", None, 0),
}


@pytest.mark.parametrize(
    "shape",
    [pytest.param(s, marks=pytest.mark.slow) if s == "tangled" else s for s in SHAPES],
)
def test_the_large_gang_is_proven_to_wait_and_says_what_it_lacks(shape: str) -> None:
    instance = no_room(shape, 60)
    solution = solve(instance)
    decided = dict(zip([g.name for g in instance.gangs], solution.decisions, strict=True))
    assert decided["pretrain"].decision == "wait"
    tier = next(tier for tier in solution.tiers if tier.name == "goodput/100")
    running = sum(g.weight_gpus for g in instance.gangs if g.running and g.priority == 100)
    assert (tier.value, tier.bound) == (1000 * running, 1000 * running)
    document = compose(instance, solution, name=shape, created_at=NOW, generator="test")
    assert check(document) == []
    if shape != "tangled":  # only there somebody else comes, for whom others stop
        assert all(d.decision == "keep" for name, d in decided.items() if name != "pretrain")
    if shape in LACKS:  # even with preemption
        reason = decided["pretrain"].reason
        assert reason is not None
        fields = reason.fields
        assert (reason.code, fields.level, fields.room_pods) == LACKS[shape]
        assert fields.proven == (reason.code != "Never")


def figures(**more: object) -> dict[str, Any]:
    """Figures of one case."""
    ours = {"vector": [16, 5], "effective": 16.0, "violations": []}
    rivals = {
        "kai": {"vector": [16, 6], "effective": 15.0, "violations": []},
        "tight": {"vector": [15, 9], "effective": 12.5, "violations": ["gpus: held twice"]},
    }
    return {
        "case": "x",
        "instance": "64 servers",
        "seconds": 61.0,
        "first": None,
        "mib": 99,
        "gaps": {"goodput": 0.0, "span": 0.03},
        "starts": ["a/b"],
        "plans": {"gangplan": ours, **rivals},
        **more,
    }


def test_what_misses_its_limit_is_named() -> None:
    limits = {"seconds": 60, "mib": 100, "first": 3, "gaps": {"goodput": 0, "span": 0.02}}
    assert list(misses(figures(), limits | {"starts": {"a/b": False, "a/c": True}})) == [
        "x: kai has a better plan",
        "x: a/b starts",
        "x: a/c waits",
        "x: seconds 61.0, limit 60",
        "x: first None, limit 3",
        "x: gap of span 3.00%, limit 2.0%",
    ]
    assert list(misses({"case": "x", "failed": "killed"}, {})) == ["x: failed: killed"]


def test_the_table_and_the_page_have_the_same_figures() -> None:
    measured = {"x": figures(), "y": {"case": "y", "failed": "killed <b>"}}
    text = into(f"before\n{BEGIN}\nold\n{END}\nafter\n", measured, "2 cores", ["one"])
    assert text.startswith(f"before\n{BEGIN}\n2 cores\n")
    assert text.endswith(f"\none\n{END}\nafter\n")
    row = "| x | 64 servers | 61.0 | - | 99 | 3.00% of span | 16.0 | kai: 15.0 |"
    assert row in text
    shown = page(measured, "2 cores", ["one"])
    assert "kai: 15.0" in shown
    assert "killed &lt;b&gt;" in shown
    with pytest.raises(ValueError, match="no figures between"):
        into("nothing", measured, "", [])


def test_what_is_asked_for_is_asked_of_tiers_that_are_stated_and_the_table_has_every_case() -> None:
    """A limit on another tier could not be missed."""
    listed = {None, *DEFAULT_OBJECTIVES, "stability"}
    stated = {row.name for row in TIERS if row.objective in listed}
    cases = yaml.load((HERE / "cases.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    assert {name for case in cases.values() for name in case.get("gaps", ())} <= stated
    text = README.read_text(encoding="utf-8")
    usual = [name for name, case in cases.items() if not case.get("byName")]
    assert [name for name in usual if f"\n| {name} |" not in text] == []
