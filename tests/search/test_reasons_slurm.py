"""Reasons of jobs as Slurm states them; every plan is judged.

Servers have 8 GPUs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import RunCli
from outcomes import NOW
from slurm_output import job, node, number, read, running

from models.instance.solution import Reason
from models.results.plan import compose
from models.verify.check import check
from planner.read.instance_builder import LoadedInput
from planner.search.solve import solve
from planner.show.reason_words import words


def reasons(found: LoadedInput) -> dict[str, Reason]:
    """Why gangs wait, by name; the judge agrees."""
    solution = solve(found.instance)
    document = compose(found.instance, solution, words, name="p", created_at=NOW, generator="test")
    assert check(document) == []
    pairs = zip(found.instance.gangs, solution.decisions, strict=True)
    return {gang.name: one.reason for gang, one in pairs if one.reason is not None}


def held(reason: Reason) -> list[tuple[str, int]]:
    return [(one.gang, one.gpus) for one in reason.fields.by]


def on(name: int, first: int, last: int, called: str) -> dict[str, Any]:
    """A job that runs on these nodes, whole."""
    nodes = range(first, last + 1)
    detail = ["gpu:h100:8(IDX:0-7)" for _ in nodes]
    asked = f"cpu={32 * len(nodes)},mem=1M,node={len(nodes)},gres/gpu={8 * len(nodes)}"
    return running(name, f"n[{first:03}-{last:03}]", detail, name=called, tres_alloc_str=asked)


def dit(nodes: int = 40) -> dict[str, Any]:
    asked = f"cpu={32 * nodes},mem=1M,node={nodes},billing=1,gres/gpu={8 * nodes}"
    return job(9, name="dit", node_count=number(nodes), tres_req_str=asked, tasks=number(nodes))


@pytest.mark.parametrize(
    ("spare", "names"),
    [
        # 40 nodes, of which llama-70 holds six and the others two each: 30 are free, all must end
        (0, ["llama-70", "moe", "vit"]),
        # with two more a small job is needless, with six moe and vit: they hold fewer GPUs than llama-70
        (2, ["llama-70", "vit"]),
        (4, ["llama-70"]),
        (6, ["moe", "vit"]),
    ],
)
def test_a_slurm_job_names_the_jobs_without_all_of_which_it_could_start(
    spare: int, names: list[str], tmp_path: Path
) -> None:
    nodes = [node(f"n{i:03}") for i in range(1, 41 + spare)]
    jobs = [on(1, 1, 6, "llama-70"), on(2, 7, 8, "moe"), on(3, 9, 10, "vit"), dit()]
    reason = reasons(read(tmp_path, nodes, jobs))["9-dit"]
    assert (reason.code, reason.fields.pods, reason.fields.room_pods) == ("NoRoom", 40, 30 + spare)
    gpus = {
        "llama-70": ("mchen/1-llama-70", 48),
        "moe": ("mchen/2-moe", 16),
        "vit": ("mchen/3-vit", 16),
    }
    assert sorted(held(reason)) == sorted(gpus[name] for name in names)


def test_nobody_is_named_whose_end_would_not_do_nor_who_starts(tmp_path: Path) -> None:
    """Twelve jobs of one node each hold what dit lacks: more than are named. Another job starts here."""
    nodes = [node(f"n{i:03}") for i in range(1, 43)]
    small = [on(100 + i, i, i, f"small-{i}") for i in range(1, 13)]
    new = job(50, name="new", priority=number(90))
    found = reasons(read(tmp_path, nodes, [*small, dit(), new]))
    reason = found["9-dit"]
    # 42 nodes without twelve and the one that starts; at least ten small jobs would have to end
    assert (reason.code, reason.fields.room_pods, held(reason)) == ("NoRoom", 29, [])
    assert "50-new" not in found


def test_a_reservation_that_is_in_the_way_is_said_in_the_words_of_slurm(
    cli: RunCli, tmp_path: Path
) -> None:
    # both jobs need a node, and one of the two is reserved
    reserved = node("n1", state=["IDLE", "RESERVED"], reservation="demo")
    read(tmp_path, [reserved, node("n2")], [job(1), job(2)])
    plan = str(tmp_path / "plan.json")
    assert cli("plan", str(tmp_path), "--out", plan).code == 0
    shown = cli("explain", plan, "2-train").out
    assert "n1:0-7      end the Slurm reservation of these nodes" in shown
    assert "excluded: taint --reservation=demo\n" in shown
