"""Effective GPUs over seeds: what is measured, and the figures that the documentation takes from it."""

from __future__ import annotations

import re

from test_docs import ROOT, text

from benchmarks.effective import Run, measure, table
from planner.baselines.rules import BASELINES


def test_spreads_are_those_of_the_runs() -> None:
    runs = [Run(1, 110.0, {"a": 100.0, "b": 50.0}), Run(2, 120.0, {"a": 90.0, "b": 100.0})]
    # plan: mean 115, deviation sqrt(2 x 5^2). Best rules 100 and 100: 10 % and 20 % more, deviation
    # sqrt(2 x 5^2). a: 110 / 100 and 120 / 90 = 1.333, deviation 23.33 / sqrt(2). b: 2.2 and 1.2
    assert list(table(runs))[2:] == [
        "| plan | 115.0 ± 7.1 | |",
        "| best rule of each instance | 100.0 ± 0.0 | 15.0 ± 7.1 % (10.0 to 20.0) |",
        "| `a` | 95.0 ± 7.1 | 21.7 ± 16.5 % (10.0 to 33.3) |",
        "| `b` | 75.0 ± 35.4 | 70.0 ± 70.7 % (20.0 to 120.0) |",
    ]


def test_a_plan_and_every_rule_are_measured_on_the_instance_of_a_seed() -> None:
    run = measure(8, 6, 1, 2)
    assert set(run.rules) == set(BASELINES)
    assert 0 < run.best <= 64  # 8 nodes of 8 GPUs
    assert 0 < run.plan <= 64
    assert run == measure(8, 6, 1, 2)


def test_the_first_lines_of_the_readme_have_the_figure_of_the_benchmarks() -> None:
    known = re.search(
        r"\| best rule of each instance \| .*? \| (.*?) ± (.*?) % \((.*) to (.*)\) \|",
        text(ROOT / "benchmarks" / "README.md"),
    )
    assert known is not None
    mean, deviation, least, most = known.groups()
    start = " ".join(text(ROOT / "README.md").partition("\n## ")[0].split())
    assert f"{mean} % more work" in start
    assert f"standard deviation {deviation} %, from {least} to {most} %" in start
