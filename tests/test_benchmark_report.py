"""The report of benchmarks/: what is compared with its limits, what is shown, and what is measured again."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks import run
from benchmarks.instances import CASES
from benchmarks.measure import milestones
from benchmarks.page import page
from benchmarks.report import BEGIN, END, collapsed, into_readme, lines, markdown, percent
from benchmarks.run import DEFAULT_CASES, README
from benchmarks.verdict import best_baseline, better_baselines, misses
from models.instance.policy import DEFAULT_OBJECTIVES
from models.tiers import TIERS

Tree = dict[str, Any]

NOTHING: Tree = {"cases": {}, "ratios": [], "startup_seconds": {}}


def plan(*vector: int, **more: object) -> Tree:
    """Figures of one plan."""
    return {
        "vector": list(vector),
        "effective": {"100": vector[0], "0": 8},
        "gpu_GBps": 123,
        "span": 4,
        "stranded": 1500,
        "s": 0.5,
        "violations": [],
        **more,
    }


def figures(tiers: Sequence[Tree] = (), **more: object) -> Tree:
    """Figures of one case."""
    return {
        "case": "small",
        "instance": "64 nodes",
        "nodes": 64,
        "seed": 1,
        "time_limit_s": 60,
        "outcome": "optimal",
        "stopped_by": "proof",
        "solve_s": 1.25,
        "first_s": 0.25,
        "near_s": 0.5,
        "proof_s": 1.0,
        "peak_mib": 99,
        "starts": [],
        "plans": {"gangplan": plan(16)},
        "tiers": list(tiers),
        "key": {"commit": "abc"},
        "date": "2026-11-22",
        **more,
    }


def tier(name: str, **more: object) -> Tree:
    return {"name": name, "value": 1, "best": 1, "bound": 1, "scale": 1, "gap": 0.0,
            "proof": "exact", "s": 0.5, "near_s": 0.4, **more}  # fmt: skip


def test_figures_worse_than_expected_are_named() -> None:
    limits = {"seconds": 60, "peak_mib": 100, "first": 3, "gaps": {"bandwidth": 0.02}}
    expected = {
        "cases": {"large": limits},
        "ratios": [{"of": "b", "to": "a", "at_most": 3}],
        "startup_seconds": {"show": 0.3},
    }
    found = {
        "large": figures([tier("bandwidth", gap=0.03)], solve_s=61.0, peak_mib=100, first_s=None),
        "a": figures(solve_s=1.0),
        "b": figures(solve_s=3.1),
    }
    assert list(misses(found, {"show": 0.31}, expected)) == [
        "large: solve_s 61.0, limit 60",
        "large: first_s None, limit 3",
        "large: gap of bandwidth 3.00%, limit 2.0%",
        "b: 3.1 x the time of a",
        "gangplan show: 0.31 s, limit 0.3 s",
    ]


def test_figures_within_expectation_are_not_named() -> None:
    expected = {**NOTHING, "cases": {"large": {"seconds": 60, "peak_mib": 953}}}
    found = figures(solve_s=60, peak_mib=953)
    assert list(misses({"large": found}, {"show": 0.3}, expected)) == []


def test_a_better_baseline_and_an_unlawful_plan_are_named() -> None:
    plans = {
        "gangplan": plan(16, 5),
        "kai": plan(16, 6),
        "fgd": plan(15, 9, violations=["gpus: held twice"]),
        "hived": plan(16, 5),
    }
    found = figures(plans=plans)
    assert better_baselines(found) == ["kai"]
    assert best_baseline(found) == "kai"
    assert list(misses({"x": found}, {}, NOTHING)) == [
        "x: fgd: 1 violations, first: gpus: held twice",
        "x: kai has a better plan",
    ]


def test_figures_of_starts_and_of_single_tiers_are_compared() -> None:
    found = figures([tier("admission/100", s=6.0)], starts=["a/b"])
    limits = {"tier_seconds": {"admission/100": 5}, "starts": {"a/b": False, "a/c": True}}
    assert list(misses({"x": found}, {}, {**NOTHING, "cases": {"x": limits}})) == [
        "x: a/b starts", "x: a/c waits", "x: admission/100 took 6.0 s, limit 5 s",
    ]  # fmt: skip


def test_a_milestone_counts_from_when_it_holds_to_the_end() -> None:
    tiers = [tier("admission/0", scale=100), tier("span", scale=100)]
    events = [
        (1.0, "admission/0", 90, None),
        (2.0, "admission/0", None, 100),  # 10 % open
        (3.0, "admission/0", 99, None),  # 1 %
        (4.0, "span", 100, 95),  # 5 %, enough for span
        (5.0, "span", 110, None),  # lost for a while
        (6.0, "span", 98, None),
        (7.0, "admission/0", 100, None),
        (8.0, "span", 95, None),
    ]
    assert milestones(events, tiers, 9.0) == {"first_s": 1.0, "near_s": 6.0, "proof_s": 8.0}
    # Open at the end: never.
    tiers[1]["gap"] = 0.03
    assert milestones(events, tiers, 9.0)["proof_s"] is None
    # Nothing was reported of a tier that is closed at the end: when the search ended.
    assert milestones(events[:3], [tier("stranded")], 9.0)["near_s"] == 9.0


def test_hundreds_of_tiers_are_shown_as_one_row_a_family() -> None:
    tiers = [
        {"name": f"admission/{p}", "value": p, "best": p, "bound": p + (p == 7), "gap": 0.0 + (p == 7),
         "proof": None if p == 7 else "exact", "s": float(p), "near_s": None if p == 7 else 1.0}
        for p in range(30)
    ]  # fmt: skip
    (row,) = collapsed(tiers)
    assert row["name"] == "admission (30 tiers)"
    assert row["value"] == sum(range(30))
    assert row["bound"] == sum(range(30)) + 1
    assert (row["gap"], row["proof"], row["s"], row["near_s"]) == (1.0, None, 29.0, None)
    assert collapsed(tiers[:20]) == tiers[:20]


def test_a_gap_is_printed_as_zero_only_where_it_is_zero() -> None:
    shown = [percent(gap) for gap in (0.0, 0.00001, 0.0234, 3.0, 12.0)]
    assert shown == ["0", "0.00%", "2.34%", "300%", "> 1000%"]


def test_the_readme_tables_are_written_between_their_markers(tmp_path: Path) -> None:
    plans = {"gangplan": plan(16), "kai": plan(12)}
    found = figures([tier("admission/0", gap=0.025)], plans=plans)
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    broken = {"case": "large", "failed": "killed"}
    rows = markdown({"small": found, "large": broken}, {"--help": 0.123}, ["a: b"])
    into_readme(readme, list(rows))
    text = readme.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| small | optimal | 1.2 | 99 | 0.25 | 0.50 | 1.00 | 2.50% | - | - |" in text
    assert "| large | failed | |" in text
    assert "| small | gangplan | 16 / 8 | 123 | 4 | 1,500 | 0.5 |" in text
    assert "| small | kai | 12 / 8 | 123 | 4 | 1,500 | 0.5 |" in text
    assert "| `gangplan --help` | 0.123 |" in text
    assert "\n- a: b\n" in text
    assert "Every figure is within expected.yaml." in list(markdown({}, {}, []))


def test_a_readme_without_markers_is_refused(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("nothing here\n")
    with pytest.raises(ValueError, match="no figures between"):
        into_readme(readme, [])


def test_the_readme_lists_every_case_and_every_case_exists() -> None:
    text = README.read_text(encoding="utf-8").partition("## Baselines")[0]
    rows = re.findall(r"(?m)^\| (`.*?`) \|", text)
    named = re.findall(r"`([^`]+)`", " ".join(rows))
    prefixes = tuple(re.sub("[A-Z]+$", "", name) for name in named if name[-1].isupper())
    assert [case for case in CASES if case not in named and not case.startswith(prefixes)] == []
    assert set(DEFAULT_CASES) <= set(CASES)


def test_the_page_is_one_document_with_plots_and_without_links() -> None:
    plans = {"gangplan": plan(16), "kai <b>": plan(12)}
    found = {
        f"busy-{n}": figures([tier("admission/0")], plans=plans, nodes=n, near_s=n / 50)
        for n in (64, 512, 4096)
    }
    found["busy-1024"] = figures(nodes=1024, near_s=None, plans={"gangplan": plan(1, span=None)})
    broken = {"case": "large", "failed": "x < y"}
    text = page({**found, "large": broken}, {"show": 0.1}, ["a: b"], "2 cores")
    assert "kai &lt;b&gt;" in text
    assert "x &lt; y" in text
    assert "Not reached at 1,024 nodes." in text
    assert not re.search(r"(src|href)=|@import|url\(", text)
    drawings = re.findall(r"(?s)<svg.*?</svg>", text)
    # Five charts a case, four of all cases, and one of time against size.
    assert len(drawings) == 5 * 4 + 4 + 1
    for drawing in drawings:
        numbers = [
            float(value)
            for element in ET.fromstring(drawing).iter()
            for name, value in element.attrib.items()
            if name in {"x", "y", "width", "height", "x1", "x2", "y1", "y2"}
        ]
        assert 0 <= min(numbers) <= max(numbers) <= 800


def test_lines_for_a_terminal_name_the_milestones_and_the_best_baseline() -> None:
    found = figures([tier("span")], plans={"gangplan": plan(16), "kai": plan(12)}, near_s=None)
    text = "\n".join(lines(found))
    assert "first plan 0.25 s, within 1 % -, proven 1.00 s" in text
    assert "best baseline kai; better than ours: none" in text


def test_a_case_is_measured_again_only_if_something_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def measured(case: str, limits: list[str]) -> Tree:
        asked.append(case)
        return {"failed": "x"} if case == "bad" else {"value": len(asked)}

    def value(limits: list[str], commit: str, *, date: str = "22", fresh: bool = False) -> object:
        return run._figures("x", limits, {"commit": commit, "date": date}, fresh=fresh)["value"]

    monkeypatch.setattr(run, "FIGURES", tmp_path / "figures")
    monkeypatch.setattr(run, "_measured", measured)
    assert value([], "a") == 1
    assert value([], "a", date="23") == 1
    assert value(["--budget", "5"], "a") == 2
    assert value(["--budget", "5"], "b") == 3
    assert value(["--budget", "5"], "b", fresh=True) == 4
    assert json.loads((tmp_path / "figures" / "x.json").read_text())["value"] == 4
    for _ in range(2):  # a failure is not kept
        assert run._figures("bad", [], {"commit": "a", "date": "22"}, fresh=False)["failed"] == "x"
    assert asked == ["x"] * 4 + ["bad"] * 2


def test_what_is_asked_for_is_asked_of_tiers_that_are_stated() -> None:
    """A limit on another tier could not be missed."""
    asked = yaml.safe_load((README.parent / "expected.yaml").read_text(encoding="utf-8"))
    names = {
        name.partition("/")[0]
        for case in asked["cases"].values()
        for key in ("gaps", "tier_seconds")
        for name in case.get(key, ())
    }
    listed = {None, *DEFAULT_OBJECTIVES, "stability"}
    assert names <= {row.name for row in TIERS if row.objective in listed}
