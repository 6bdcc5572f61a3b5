"""The judge of ``live_rounds.py`` finds what it is there to find; and a few of its rounds."""

from __future__ import annotations

import json
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from live_cluster import opened
from live_objects import Wanted
from live_rounds import MIN_RUN_S, Job, Rounds

Tree = dict[str, Any]


class Still:
    """A cluster of three nodes with these pods; nothing can be created."""

    nodes = ("a", "b", "c")
    namespace = "team"

    def __init__(self, folder: Path, *there: Tree) -> None:
        self.folder = folder
        self.there = {pod["metadata"]["name"]: pod for pod in there}

    def pods(self) -> dict[str, Tree]:
        return dict(self.there)

    def delete_pods(self, *names: str) -> None:
        self.there = {name: pod for name, pod in self.there.items() if name not in names}

    def kubectl(self, *arguments: str, given: Tree | None = None) -> str:
        del given
        return " ".join(arguments)

    run = "r"


def bound(name: str, node: str, gpus: int, indices: str = "") -> Tree:
    labels, notes = {"gang": name.rpartition("-")[0]}, {"gangplan.dev/gpus": indices}
    amounts = {"nvidia.com/gpu": str(gpus)}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels, "annotations": notes},
        "spec": {"nodeName": node, "containers": [{"resources": {"requests": amounts}}]},
    }


def filled(folder: Path, *, ran_s: float) -> tuple[Rounds, Still]:
    """A borrower on all nodes for so many seconds, and a gang that its owner's guarantee covers."""
    live, now = (
        Still(folder, *(bound(f"s-{i}", node, 8) for i, node in enumerate("abc"))),
        time.time(),
    )
    rounds = Rounds(live, Random(1))  # type: ignore[arg-type]  # as much of a Live as is used
    rounds.jobs["s"] = Job(
        Wanted("s", 3, 8, preemptible=True), "spare", now - 200, None, 500, now - ran_s
    )
    rounds.jobs["o"] = Job(Wanted("o", 2, 8), "owner", now - 50, None, 50)
    return rounds, live


@pytest.mark.parametrize(("ran_s", "found"), [(3 * MIN_RUN_S, 1), (MIN_RUN_S, 0)])
def test_a_gang_within_its_guarantee_that_waits_for_borrowers_is_found(
    tmp_path: Path, ran_s: float, found: int
) -> None:
    rounds, _ = filled(tmp_path, ran_s=ran_s)
    for _ in range(2):
        rounds._check_guarantee()
    assert [one for one in rounds.faults if "within its guarantee" in one] == rounds.faults
    assert len(rounds.faults) == found


@pytest.mark.parametrize(("ran_s", "early"), [(MIN_RUN_S - 5, True), (MIN_RUN_S + 5, False)])
def test_an_early_eviction_and_a_partial_one_are_found(
    tmp_path: Path, ran_s: float, early: bool
) -> None:
    rounds, live = filled(tmp_path, ran_s=ran_s)
    before = rounds._bound()
    del live.there["s-0"]
    rounds._notice(before)
    said = [f"evicted after {ran_s:.0f} s, minRunTime {MIN_RUN_S} s"] if early else []
    assert rounds.faults == [f"s: {one}" for one in ("only ['s-0'] of 3 pods are gone", *said)]


def test_a_gpu_given_twice_is_found(tmp_path: Path) -> None:
    rounds, live = filled(tmp_path, ran_s=1)
    live.there = {one["metadata"]["name"]: one for one in (bound("x-0", "a", 4, "0,1,2,3"),)}
    rounds._check_no_gpu_twice("now")
    assert rounds.faults == []
    live.there["y-0"] = bound("y-0", "a", 4, "3,4,5,6")
    rounds._check_no_gpu_twice("now")
    assert rounds.faults == ["now: a: GPU 3 is given to x-0 and to y-0"]


@pytest.mark.parametrize("cause", [False, True])
def test_a_promise_that_moves_later_is_found_unless_there_is_a_cause(
    tmp_path: Path, cause: bool
) -> None:
    rounds, live = filled(tmp_path, ran_s=1)
    for start in ("2100-01-01T00:00:00Z", "2100-01-01T00:00:10Z", "2100-01-01T00:10:00Z"):
        gang = {"name": "s2", "decision": "wait", "reserved": {"start": start}}
        rounds._plan.write_text(json.dumps({"spec": {"gangs": [gang]}}), encoding="utf-8")
        rounds.jobs["s2"] = Job(Wanted("s2", 3, 8), "spare", 0, None, 50)
        if cause:
            rounds.arrivals.append((time.time(), rounds.jobs["o"]))
        rounds._check_promises()
    assert live.pods()
    assert len(rounds.faults) == (not cause)


@pytest.mark.slow
def test_rounds_with_kills_break_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, nodes=3) as live:
        rounds = Rounds(live, Random(7))
        for number in range(1, 6):
            rounds.play(number)
    assert rounds.faults == []
