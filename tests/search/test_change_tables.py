"""The tables of running gangs that change: where they go, what they lose, what moves gain."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import plan_changes
import pytest
import yaml
from conftest import RunCli

from models.documents.plan import PlanDocument
from models.results.plan import compose
from planner.show.plan import plan_tables as changes
from planner.show.table import Table, draw
from planner.show.text import lasting, width

PLAN = plan_changes.plan()
THEN_LLAMA = " (then default/llama)"
"""llama comes to n01 and n02."""


@pytest.fixture
def plan_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(json.dumps(PLAN), encoding="utf-8")
    return "plan.json"


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    document = copy.deepcopy(PLAN)
    change(document)
    return document


def typed(document: dict[str, Any]) -> PlanDocument:
    return PlanDocument.model_validate(document)


def cells(table: Table, column: str) -> list[str]:
    """Text of one column, by its title."""
    number = [c.title for c in table.columns].index(column)
    return [row[number].text for row in table.rows]


@pytest.mark.parametrize("output", ["table", "wide", "name"])
def test_formats_are_as_agreed(
    output: str, plan_file: str, cli: RunCli, golden: Callable[[str, str], None]
) -> None:
    result = cli("show", plan_file, "-o", output)
    assert (result.code, result.err) == (0, "next: gangplan verify plan.json\n")
    golden(f"show-changes-{output}.txt", result.out)


def test_json_and_yaml_hold_what_moves_bought(plan_file: str, cli: RunCli) -> None:
    assert json.loads(cli("show", plan_file, "-o", "json").out) == PLAN
    assert yaml.load(cli("show", plan_file, "-o", "yaml").out, Loader=yaml.CSafeLoader) == PLAN
    got = bought(gpus=8, bandwidth=8000, nodes=-1, gangs=["default/llama"])
    moved = {"gangs": ["default/tune"], "gpus": 4, "bought": got, "gain": 2.0}
    assert PLAN["status"]["moves"] == [moved]
    given = plan_changes.instance()
    solution = replace(plan_changes.solution(given), moves=())
    document = compose(given, solution, name="n", created_at="2026-11-21T12:00:00Z", generator="g")
    assert "moves" not in document["status"], "a plan that moves nothing"


def test_the_documented_tables_are_those_of_this_plan(plan_file: str, cli: RunCli) -> None:
    page = (Path(__file__).parents[2] / "docs" / "plan.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    heads = ("RUNNING GANG", "GPUS   GAIN  MOVED TOGETHER")
    tables = [block for block in blocks if block.startswith(heads)]
    out = cli("show", plan_file).out
    assert [f"\n\n{table}\n" in out for table in tables] == [True, True]


@pytest.mark.parametrize("columns", [60, 80, 100, 160])
def test_on_a_terminal_every_line_fits_and_no_name_is_broken(columns: int) -> None:
    def lengthen(document: dict[str, Any]) -> None:
        names = [f"default/a-rather-long-name-of-a-gang-{i}" for i in "ab"]
        moved: dict[str, Any] = {"gangs": ["default/tune", *names], "gpus": 16, "gain": 0.75}
        moved["bought"] = bought(gpus=-4, nodes=2)
        document["status"]["moves"].append(moved)

    plan = typed(changed(lengthen))
    drawn = draw(changes.changes(plan), width=columns, color=False)
    drawn += draw(changes.moves(plan), width=columns, color=False)
    assert all(width(line) <= columns for line in drawn.splitlines()), drawn
    words = drawn.replace(",", " ").split()
    for name in ("shrink", "a-rather-long-name-of-a-gang-a", "a-rather-long-name-of-a-gang-b"):
        assert f"default/{name}" in words
    for place in ("n01:0-3", "n06:0-3", "n05:4-7"):
        assert place in words


# --- what changes for a running gang


def test_pods_and_gpus_before_and_after_and_where() -> None:
    table = changes.changes(typed(PLAN))
    rows = {row[0].text.partition("/")[2]: [cell.text for cell in row[1:]] for row in table.rows}
    assert rows == {
        "half": ["complete", "1 -> 2", "4 -> 8", "-", "-> n05:4-7"],
        # 90 minutes since the checkpoint
        "tune": ["move", "1", "4", "1h30m", f"n01:0-3 -> n06:0-3{THEN_LLAMA}"],
        "serve": ["resize", "2 -> 3", "8 -> 12", "-", "-> n06:4-7"],
        "shrink": ["resize", "2 -> 1", "8 -> 4", "", "n05:4-7 -> (then default/half)"],
        # 26 hours since it started
        "batch": ["preempt", "1 -> 0", "8 -> 0", "1d2h", f"n02 ->{THEN_LLAMA}"],
    }


def test_those_who_come_are_named_the_highest_priority_first() -> None:
    def come(*priorities: int) -> Callable[[dict[str, Any]], None]:
        def change(document: dict[str, Any]) -> None:
            (llama,) = [g for g in document["spec"]["gangs"] if g["name"] == "llama"]
            (asks,) = [g for g in document["instance"]["gangs"] if g["metadata"]["name"] == "llama"]
            for number, priority in enumerate(priorities):
                document["spec"]["gangs"].append({**llama, "name": f"new-{number}"})
                ask = copy.deepcopy(asks)
                ask["metadata"]["name"] = f"new-{number}"
                ask["spec"]["priority"] = priority
                document["instance"]["gangs"].append(ask)
            asks["spec"]["priority"] = priorities[0]

        return change

    def told(*priorities: int) -> str:
        table = changes.changes(typed(changed(come(*priorities))))
        (way,) = [way for way in cells(table, "FROM -> TO") if way.startswith("n02 ->")]
        return way

    # batch has priority 0; llama is of the first priority named.
    assert told(0, 7) == "n02 -> (then default/new-1, default/llama, default/new-0)"
    assert told(0, 0) == "n02 -> (then default/llama, default/new-0, default/new-1)"
    assert (
        told(3, 5, 4, 9) == "n02 -> (then default/new-3, default/new-1, default/new-2 and 2 more)"
    )


def test_a_gang_that_waited_too_long_is_marked(plan_file: str, cli: RunCli) -> None:
    out = cli("show", plan_file).out
    assert "place, aged" in out
    assert out.count("aged ") == 1


# --- what moves bought


def bought(
    gpus: int = 0, bandwidth: int = 0, nodes: int = 0, domains: int = 0, gangs: Sequence[str] = ()
) -> dict[str, Any]:
    return {
        "gangs": list(gangs),
        "gpus": gpus,
        "bandwidth": bandwidth,
        "wholeNodes": nodes,
        "wholeDomains": domains,
    }


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (bought(), "nothing that is counted"),
        (bought(gpus=1, gangs=["a/b"]), "lets a/b run, GPUs in use +1"),
        (bought(gpus=9, gangs=["a/b", "a/c"]), "lets a/b, a/c run, GPUs in use +9"),
        (bought(gpus=9, gangs=["a/b-1", "a/b-2"]), "lets a/b-[1-2] run, GPUs in use +9"),
        (bought(bandwidth=1000, nodes=1), "GPUs at full bandwidth +1, free whole nodes +1"),
        (bought(bandwidth=66), "GPUs at full bandwidth +0.066"),
        (bought(nodes=2, domains=2), "free whole nodes +2, free whole racks +2"),
        # A higher gang instead of lower ones: fewer GPUs in all.
        (
            bought(gpus=-4, bandwidth=-12_500, gangs=["a/b"]),
            "lets a/b run, GPUs in use -4, GPUs at full bandwidth -12.5",
        ),
        (bought(gangs=["a/b"]), "lets a/b run"),
        (bought(nodes=-1, domains=-1), "free whole nodes -1, free whole racks -1"),
    ],
)
def test_what_moves_bought_is_said_in_words(what: dict[str, Any], said: str) -> None:
    moved = {"gangs": ["default/tune"], "gpus": 2, "bought": what, "gain": -0.5}
    plan = typed(changed(lambda d: d["status"].update(moves=[moved])))
    table = changes.moves(plan)
    assert [c.text for c in table.rows[0]] == ["2", "-0.500", "default/tune"]
    assert table.below[0].text == said


def test_a_duration_is_told_in_its_two_largest_units() -> None:
    told = {0: "0s", 59: "59s", 60: "1m", 3599: "59m", 3600: "1h", 11_520: "3h12m", 86_400: "1d"}
    told |= {187_200: "2d4h", 90_000: "1d1h", 86_460: "1d", 100_000_000: "1,157d9h"}
    assert {seconds: lasting(seconds) for seconds in told} == told


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda d: d["instance"]["gangs"][0]["status"].update(startedAt="yesterday"),
            "instance.gangs[0].status.startedAt: 'yesterday' is not an RFC 3339 time",
        ),
        (
            lambda d: d["instance"]["policy"]["spec"].update(now=5),
            "instance.policy.spec.now: expected an RFC 3339 time, not the number 5",
        ),
        (
            lambda d: d["status"]["moves"][0].update(gain="much"),
            "status.moves[0].gain: expected a number, not the text 'much'",
        ),
        (
            lambda d: d["status"].update(moves={}),
            "status.moves: expected a list, not an object",
        ),
        (
            lambda d: d["spec"]["gangs"][0].update(aged="yes"),
            "spec.gangs[0].aged: expected true or false, not the text 'yes'",
        ),
    ],
)
def test_a_plan_of_the_wrong_shape_is_65_and_names_the_field(
    change: Callable[[dict[str, Any]], object], said: str, cli: RunCli, plan_file: str
) -> None:
    Path(plan_file).write_text(json.dumps(changed(change)), encoding="utf-8")
    result = cli("show", plan_file)
    assert (result.code, result.out) == (65, "")
    assert f"error: {said}\n  --> plan.json:1:" in result.err


def test_hostile_names_of_moved_gangs_drive_no_terminal(plan_file: str, cli: RunCli) -> None:
    evil = "a/\x1b[31mred\u202e"
    moved = {
        "gangs": [evil, "default/tune"],
        "gpus": 1,
        "bought": bought(gpus=1, gangs=[evil]),
        "gain": 1.0,
    }
    document = changed(lambda d: d["status"].update(moves=[moved]))
    Path(plan_file).write_text(json.dumps(document), encoding="utf-8")
    out = cli("show", plan_file).out
    assert not {c for c in out if not c.isprintable()} - {"\n"}
    assert "a/\\e[31mred\\u202e" in out
