"""Speeds and effective GPUs in the tables of a plan, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from plan_documents import moves
from plan_goodput import goodput_plan

from models.documents.plan import PlanDocument
from models.verify.check import check
from planner.show.plan import plan_tables
from planner.show.plan.proofs import bought
from planner.show.report.page import html
from planner.show.report.plan_page import plan_page
from planner.show.table import Table

EFFECTIVE = {"before": 1.4, "after": 11.04, "oneAtATime": 11.0}
"""Before: gone 1 and old 2 x 200; after: 8000 + 4040 of the goodput tiers less 1000 of cpu, without GPUs."""


def typed(main: str = "goodput", **status: Any) -> PlanDocument:  # noqa: ANN401  # any JSON
    plan = goodput_plan(main)
    plan["status"]["effectiveGpus"] = EFFECTIVE
    assert check(plan) == []
    plan["status"].update(status)
    return PlanDocument.model_validate(plan)


def column(table: Table, title: str) -> dict[str, str]:
    (at,) = [i for i, column in enumerate(table.columns) if column.title == title]
    name = 0 if table.columns[0].title else 1  # after the marks
    return {row[name].text.partition("/")[2]: row[at].text for row in table.rows}


@pytest.mark.parametrize("main", ["goodput", "admission"])
def test_the_speed_of_every_gang_is_shown_and_what_slows_it_down(main: str) -> None:
    plan = typed(main)
    assert column(plan_tables.gangs(plan, wide=False), "SPEED") == {
        "top": "100 %",
        "aged": "32 %",
        "cpu": "100 %",
        "late": "50 %",
        "old": "40 %",
        "part": "50 %",
        "gone": "-",
        "big": "-",
    }
    assert column(plan_tables.gangs(plan, wide=True), "SLOWED BY") == {
        "top": "",
        "aged": "links, GPU model at 40.0 %",
        "cpu": "",
        "late": "GPU model at 50.0 %",
        "old": "GPU model at 40.0 %",
        "part": "GPU model at 50.0 %",
        "gone": "",
        "big": "",
    }


def test_the_causes_are_those_that_count() -> None:
    document = goodput_plan()
    spec = {gang["metadata"]["name"]: gang["spec"] for gang in document["instance"]["gangs"]}
    spec["aged"]["communication"]["speed"] = "ignore"
    spec["late"]["communication"] = {"pattern": "none", "weight": 1}
    (late,) = [gang for gang in document["spec"]["gangs"] if gang["name"] == "late"]
    late["share"] = 300
    causes = column(
        plan_tables.gangs(PlanDocument.model_validate(document), wide=True), "SLOWED BY"
    )
    assert causes["aged"].startswith("links")
    assert "GPU model" not in causes["aged"]
    assert causes["late"] == "GPU model at 50.0 %"
    # h 100, s 50, m 40: without the one of s, it counts as 40, and without all of them all are alike.
    models = {m["name"]: m for m in document["instance"]["cluster"]["spec"]["serverModels"]}
    for name, cause in (("DGX A100", "GPU model at 40.0 %"), ("DGX H100", ""), ("DGX-1 V100", "")):
        del models[name]["relativeSpeed"]
        causes = column(
            plan_tables.gangs(PlanDocument.model_validate(document), wide=True), "SLOWED BY"
        )
        assert causes["late"] == cause


def test_the_summary_says_what_is_effective_now_after_and_of_one_gang_after_another() -> None:
    first = "11.04 of at most 18.4 effective GPUs (1.4 before the plan)"
    assert plan_tables.results(typed())[1] == f"{first}; taking one gang after another: 11"
    unknown = typed(effectiveGpus={"before": 1.4, "after": 11.04})
    assert plan_tables.results(unknown)[1] == first
    older = PlanDocument.model_validate(goodput_plan("admission"))
    assert not any("effective" in line for line in plan_tables.results(older))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(9, 7, 6), (8, 1, 1), (3, 3.04, 8)], "+1 at priority 9, -4.96 at priority 3"),
        ([(0, 11.04, 15)], "-3.96 at priority 0"),
        (
            [(9, 3, 2), (8, 3, 2), (7, 2, 1), (6, 2, 1), (5, 1, 2), (3, 0.04, 7)],
            "+1 at priority 9, +1 at priority 8, +1 at priority 7, +1 at priority 6 and 2 more",
        ),
    ],
)
def test_a_plan_with_fewer_says_what_it_has_for_them(
    rows: list[tuple[int, float, float]], said: str
) -> None:
    stated = {
        "before": 1.4,
        "after": round(sum(after for _, after, _ in rows), 3),
        "oneAtATime": round(sum(alone for _, _, alone in rows), 3),
        "byPriority": [{"priority": p, "after": a, "oneAtATime": one} for p, a, one in rows],
    }
    plan = typed(effectiveGpus=stated)
    said = f"3.96 fewer than one after another: {said}"
    assert plan_tables.results(plan)[2] == bought(plan) == said
    assert said in html(plan_page(plan))


@pytest.mark.parametrize(
    ("gpus", "effective", "said"),
    [
        (8, None, "GPUs in use +8"),
        (8, 8.0, "GPUs in use +8, effective GPUs +8"),
        (8, 6.4, "GPUs in use +8, effective GPUs +6.4"),
        (8, -1.0, "GPUs in use +8, effective GPUs -1"),
        (0, 2.56, "effective GPUs +2.56"),
        (0, 0.0, "nothing that is counted"),
    ],
)
def test_effective_gpus_bought_are_shown_where_gpus_do_not_say_it_all(
    gpus: int, effective: float | None, said: str
) -> None:
    amounts = {"gpus": gpus} if effective is None else {"gpus": gpus, "effectiveGpus": effective}
    plan = typed(moves=[moves(["default/old"], 2, **amounts)])
    assert plan_tables.moves(plan).below[0].text == said
