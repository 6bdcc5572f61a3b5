"""docs/faq.md: its figures are recomputed."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from effort import spread
from pages import ROOT, text

from benchmarks.lab.rules import AT_ONCE
from benchmarks.lab.scheduler import schedule
from models.instance.instance import Instance
from models.values.effective_gpus import effective_after, effective_before
from models.values.tier_values import Evaluation
from planner.read.inputs import load
from planner.search.solve import solve
from planner.show.text import number

FAQ = ROOT / "docs" / "faq.md"
RULES = ("tight", "kueue", "kai", "volcano")
"""Of the columns, in their order."""


def figures(instance: Instance) -> list[str]:
    """Effective GPUs before, of each of the rules, and of the plan."""
    brief = replace(instance.policy, solve=replace(instance.policy.solve, budget=4))
    plan = solve(replace(instance, policy=brief))
    found = [effective_before(instance)]
    found += [
        effective_after(Evaluation(instance, schedule(instance, AT_ONCE[name]))) for name in RULES
    ]
    found.append(effective_after(Evaluation(instance, plan.decisions)))
    return [number(value / 1000) for value in found]


def test_the_figures_are_those_of_the_rules_and_of_the_plan(request: pytest.FixtureRequest) -> None:
    table = text(FAQ).partition("<!-- figures:")[2].partition("<!-- end of figures")[0]
    rows = re.findall(
        r"^(\| \[.*?\]\(\.\./((?:tests/)?inputs/.*?)(?:/README\.md)?\).*?) \| (.*) \|$",
        table,
        re.MULTILINE,
    )
    assert len(rows) == 5
    for head, name, cells in spread(rows, 3):
        known = " | ".join(figures(load([str(ROOT / name)]).instance))
        if request.config.getoption("--refresh-golden"):
            FAQ.write_text(
                text(FAQ).replace(f"{head} | {cells} |", f"{head} | {known} |"), encoding="utf-8"
            )
        else:
            assert cells == known, name
            # nobody has a better plan
            assert float(known.split(" | ")[-1].replace(",", "")) >= max(
                float(one.replace(",", "")) for one in known.split(" | ")
            )
