"""Effective GPUs over seeds: what is measured, and the figures that the documentation takes from it."""

from __future__ import annotations

import re

from test_docs import ROOT, text

from benchmarks.busy import busy
from benchmarks.effective import Run, instance_of, measure, table
from benchmarks.lab.rules import AT_ONCE


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
    assert set(run.rules) == set(AT_ONCE)
    assert 0 < run.best <= 64  # 8 nodes of 8 GPUs
    assert 0 < run.plan <= 64
    assert run == measure(8, 6, 1, 2)


def test_plans_that_stop_and_move_nothing_keep_all_that_runs() -> None:
    """The rules keep all that runs in any case: theirs are the same figures."""
    free, fixed = measure(8, 6, 1, 2), measure(8, 6, 1, 2, fixed=True)
    assert fixed.rules == free.rules
    drawn = busy(8, 6, 1)
    running = {gang.key for gang in drawn.gangs if gang.pods}
    instance = instance_of(8, 6, 1, 2, fixed=True)
    assert {gang.key for gang in instance.gangs if gang.preemptible or gang.movable} == {
        gang.key for gang in drawn.gangs if gang.preemptible and gang.key not in running
    }
    assert any(gang.preemptible or gang.movable for gang in drawn.gangs if gang.pods)


def test_the_first_lines_of_the_readme_have_the_figures_of_the_benchmarks() -> None:
    """Those of plans that stop and move nothing come first, in both."""
    known = re.findall(
        r"\| best rule of each instance \| .*? \| (.*?) ± (.*?) % \((.*) to (.*)\) \|",
        text(ROOT / "benchmarks" / "README.md"),
    )
    (mean, deviation, least, most), (also, also_deviation, also_least, also_most) = known
    start = " ".join(text(ROOT / "README.md").partition("\n## ")[0].split())
    fixed = "where nothing that runs may be stopped or moved"
    assert (
        f"{mean} % over the best of ten schedulers' published rules {fixed}, {also} % where"
        in start
    )
    assert f"standard deviations {deviation} and {also_deviation} %" in start
    assert f"from {least} to {most} % and from {also_least} to {also_most} %" in start
