"""Remarks on queues that are promised what the cluster does not have.

It has 32 GPUs of H100 in two racks, and 8 of V100 in one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import RunCli
from test_kube_queues import kai
from test_kube_queues import read as read_objects
from test_queue_status import queue, save

from planner.read.inputs import load

A, B = "queue a: ", "queue a, b: "
RACK = {"count": 1, "level": "rack"}


@pytest.mark.parametrize(
    ("queues", "says"),
    [
        (
            [queue("a", guarantee={"models": {"H900": 8}})],
            [f"{A}GPUs of model h900: 8 promised to all queues together, and the cluster has none"],
        ),
        (
            [queue("a", cells=[{"count": 2, "gpus": 9}]), queue("b")],
            [
                f"{A}cells of 9 GPUs of h100: 2 promised to all queues together, and the cluster has none"
            ],
        ),
        (
            [queue("a", cells=[RACK, RACK]), queue("b", cells=[RACK])],
            [
                f"{B}cells of level rack of h100: 3 promised to all queues together, and the cluster has 2"
            ],
        ),
        (
            [queue("a", guarantee={"gpus": 30}), queue("b", guarantee={"gpus": 11})],
            [f"{B}GPUs: 41 promised to all queues together, and the cluster has 40"],
        ),
        (  # one that is in another is not promised anything beside it
            [queue("a", guarantee={"gpus": 40}), queue("b", parent="a", guarantee={"gpus": 40})],
            [],
        ),
        (
            [
                queue("a", parent="b", guarantee={"gpus": 21}),
                queue("b", guarantee={"gpus": 20}),
                queue("c", parent="b", guarantee={"gpus": 20}),
            ],
            ["queue a, b, c: GPUs: 41 promised to all queues together, and the cluster has 40"],
        ),
        (
            [queue("a", guarantee={"models": {"V100": 8}}, limit={"models": {"V100": 7}})],
            [f"{A}its guarantee is above its limit"],
        ),
        ([queue("a", cells=[RACK], limit={"gpus": 15})], [f"{A}its guarantee is above its limit"]),
        ([queue("a", cells=[RACK, RACK], guarantee={"gpus": 40}, limit={"gpus": 40})], []),
    ],
)
def test_a_promise_that_cannot_be_kept_is_a_remark(
    queues: list[dict[str, Any]], says: list[str], tmp_path: Path
) -> None:
    remarks = load([save(tmp_path, *queues)]).remarks
    assert [line.partition(" (hint: ")[0] for line in remarks] == says


def test_domains_without_a_name_are_no_cells(tmp_path: Path) -> None:
    path = Path(save(tmp_path, queue("a", cells=[RACK])))
    path.write_text(path.read_text().replace("domains:", "labels:"))
    (remark,) = (line for line in load([str(path)]).remarks if line.startswith("queue"))
    assert remark.startswith(
        f"{A}cells of level rack of h100: 1 promised to all queues together, and the cluster has none"
    )


def test_many_queues_are_one_line_of_validate_and_plan(cli: RunCli, tmp_path: Path) -> None:
    path = save(tmp_path, *(queue(f"q{i:03}", guarantee={"gpus": 1}) for i in range(500)))
    line = (
        "queue q000, q001, q002 and 497 more: GPUs: 500 promised to all queues together, "
        "and the cluster has 40"
    )
    for verb in ("validate", "plan"):
        assert cli(verb, path).err.count(line) == 1


def test_queues_of_others_are_looked_at_too(tmp_path: Path) -> None:
    found = read_objects(tmp_path, kai("a", quota=10_000), kai("b", quota=1, limit=0))
    told = [line for line in found.remarks if "promised to all queues together" in line]
    assert [line.partition(" promised")[0] for line in told] == [f"{B}GPUs: 10,001"]
