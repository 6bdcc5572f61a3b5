"""Plans of many gangs: what shares a row, what is selected, and that nothing is wider than the terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plan_changes
import pytest
from conftest import RunCli
from plan_documents import sealed

from planner.show.text import width

LLAMA, LATE, BATCH = "llama", "late", "batch"


def crowd(starts: int, stops: int, moves: int, waits: int, keeps: int, name: str) -> dict[str, Any]:
    """The plan of ``plan_changes`` with so many gangs of each decision in its place of one; 512 nodes."""
    plan = plan_changes.plan()
    asked = {gang["metadata"]["name"]: gang for gang in plan["instance"]["gangs"]}
    decided = {gang["name"]: gang for gang in plan["spec"]["gangs"]}
    plan["instance"]["gangs"], plan["spec"]["gangs"] = [], []
    models = (
        ("llama", starts),
        ("batch", stops),
        ("tune", moves),
        ("late", waits),
        ("fixed", keeps),
    )
    for like, count in models:
        for i in range(count):
            own, namespace = f"{name}-{like}-{i * 7:04}", f"team-{i % 5}"
            ask = json.loads(json.dumps(asked[like]))
            ask["metadata"] = {"name": own, "namespace": namespace}
            ask["spec"]["priority"] = i % 3
            decision = {**decided[like], "name": own, "namespace": namespace}
            if like == LATE:
                decision["reason"] = {"code": "NoRoom", "message": f"needs {i} GPUs; 3 are free"}
            plan["instance"]["gangs"].append(ask)
            plan["spec"]["gangs"].append(decision)
    nodes = plan["instance"]["cluster"]["spec"]["nodes"]
    nodes += [{**nodes[0], "name": f"m{i:04}"} for i in range(512 - len(nodes))]
    return sealed(plan)


def save(plan: dict[str, Any], folder: Path) -> str:
    path = folder / "plan.json"
    path.write_text(json.dumps(plan), encoding="utf-8")
    return str(path)


def named(out: str) -> set[str]:
    """Gangs named in words of the output, ranges unfolded."""
    gangs = out.partition("DECISION")[2].partition("TIER")[0]
    found = set(re.findall(r"[a-z-]+-(?:llama|batch|tune|late|fixed)-\d{4}", gangs))
    joined = re.sub(r",\s+", ",", gangs)
    for stem, ranges in re.findall(r"([a-z-]+-(?:llama|batch|tune)-)\[([\d,-]+)\]", joined):
        for part in ranges.split(","):
            low, _, high = part.partition("-")
            found |= {f"{stem}{i:04}" for i in range(int(low), int(high or low) + 1)}
    return found


@pytest.mark.parametrize("name", ["job", "a-rather-long-name-of-a-job"])
def test_300_gangs_are_80_lines_of_100_columns_that_name_all_that_happens(
    name: str, cli: RunCli, tmp_path: Path
) -> None:
    plan = crowd(120, 40, 30, 60, 50, name)
    out = cli("show", save(plan, tmp_path)).out
    lines = out.splitlines()
    assert len(lines) <= 78, out
    assert max(map(width, lines)) <= 100
    happens = {
        gang["name"] for gang in plan["spec"]["gangs"] if gang["decision"] not in ("keep", "wait")
    }
    assert len(happens) == 190
    assert named(out) & happens == happens
    assert "120 start, 30 move, 40 are stopped, 60 wait, 50 stay as they are" in out
    # each reason has a number of its own: as many rows as fit, and a count of the others
    shown = len(re.findall(r"^   team-\d/\S+late\S+ .*wait", out, re.MULTILINE))
    assert shown == 6
    left, gpus = 60 - shown, 8 * (60 - shown)  # each asks for 8
    assert f"and {left} more gangs wait, for {gpus} GPUs: NoRoom {left}; --all" in " ".join(
        out.split()
    )
    assert "50 running gangs stay as they are, on 200 GPUs" in out  # 4 GPUs each
    for row in (r"\+  120 gangs +0 to 2  place", "-  40 gangs +0 to 2  preempt", ">  30 gangs "):
        assert re.search(f"^{row}", out, re.MULTILINE), out


@pytest.mark.parametrize("columns", [80, 100, 160])
def test_whoever_is_folded_is_counted_by_code_and_no_sentence_is_theirs(
    columns: int, cli: RunCli, tmp_path: Path
) -> None:
    plan = crowd(60, 20, 10, 200, 50, "job")
    late = [gang for gang in plan["spec"]["gangs"] if "late" in gang["name"]]
    for i, gang in enumerate(late):
        code = "Outranked" if i % 4 == 0 else "NoRoom"
        fields = {"gpus": 8, "roomGpus": i, "counted": "running"}
        gang["reason"] = {"code": code, "message": "", "fields": fields}
    path = save(plan, tmp_path)
    flat = " ".join(cli("show", path, environ={"COLUMNS": str(columns)}).out.split())
    found = re.search(
        r"and (\d+) more gangs wait, for ([\d,]+) GPUs: NoRoom (\d+), Outranked (\d+)", flat
    )
    assert found is not None, flat
    left, gpus, no_room, outranked = (int(one.replace(",", "")) for one in found.groups())
    assert (left, gpus) == (no_room + outranked, 8 * left)
    assert no_room <= 150
    assert outranked <= 50
    # what is shown of the others is theirs alone
    assert len(re.findall(r"(?:NoRoom|Outranked): needs 8 GPUs", flat)) == 200 - left
    every = " ".join(cli("show", path, "--all", environ={"COLUMNS": str(columns)}).out.split())
    assert len(re.findall(r"(?:NoRoom|Outranked): needs 8 GPUs", every)) == 200


def long_names(document: dict[str, Any]) -> None:
    """Two names of the longest kind."""
    for gang in document["instance"]["gangs"]:
        gang["metadata"]["name"] += "-" + "x" * 40
    for gang in document["spec"]["gangs"]:
        gang["name"] += "-" + "x" * 40


@pytest.mark.parametrize(
    ("columns", "change"),
    [(columns, lambda _: None) for columns in (48, 80, 100, 200)]
    + [(columns, long_names) for columns in (80, 100)],
)
def test_nothing_is_wider_than_the_terminal(
    columns: int, change: Callable[[dict[str, Any]], None], tmp_path: Path, cli: RunCli
) -> None:
    plan = plan_changes.plan()
    change(plan)
    path = save(sealed(plan), tmp_path)
    for options in ((), ("--all",), ("-owide",), ("--gang", plan["spec"]["gangs"][0]["name"])):
        out = cli("show", path, *options, environ={"COLUMNS": str(columns)}).out
        assert max(map(width, out.splitlines())) <= columns, out
