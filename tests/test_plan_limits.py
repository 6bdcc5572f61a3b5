"""``--time-limit`` and ``--budget`` of ``plan``, and what a plan says that they left out."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from conftest import RunCli
from tiny import tiny

from planner.search.solve import Search

INPUT = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: one-server}
spec: {nodes: [{name: v100-1, model: DGX-1 V100}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: four}
spec: {roles: [{name: worker, replicas: 4, gpus: 1}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Policy
spec: {solve: {budget: 700, timeLimit: 5s}}
"""


@pytest.mark.parametrize(
    ("options", "budget", "limit"),
    [
        ((), 700, "5s"),
        (("--time-limit", "90s"), 900, "90s"),  # 10 for each second
        (("--time-limit", "20s"), 700, "20s"),  # 200 is less than the policy's
        (("--time-limit", "90s", "--budget", "3"), 3, "90s"),
        (("--time-limit", "30d"), 1_000_000, "2592000s"),  # the largest
    ],
)
def test_a_time_limit_alone_is_not_cut_short_by_the_budget(
    options: tuple[str, ...], budget: int, limit: str, cli: RunCli, tmp_path: Path
) -> None:
    (tmp_path / "in.yaml").write_text(INPUT, encoding="utf-8")
    made = cli("plan", str(tmp_path / "in.yaml"), "-o", "json", *options)
    solve = json.loads(made.out)["instance"]["policy"]["spec"]["solve"]
    assert (made.code, solve["budget"], solve["timeLimit"]) == (0, budget, limit)


def test_a_plan_says_which_tiers_were_not_searched() -> None:
    stop = threading.Event()
    stop.set()
    found = Search(tiny(31, more=("wide",)), stop=stop).run()
    with_gap = [tier.name for tier in found.tiers if tier.gap]
    assert with_gap
    assert found.notes[0] == f"not searched: {', '.join(with_gap)}"


def test_a_plan_that_is_proven_was_searched() -> None:
    found = Search(tiny(31, more=("wide",))).run()
    assert found.stopped_by == "proof"
    assert not any(note.startswith("not searched") for note in found.notes)


def test_a_plan_taken_from_a_search_that_goes_on_does_not_stop_it() -> None:
    search = Search(tiny(31, more=("wide",)))
    assert search.best().stopped_by == "budget"
    assert search.run().stopped_by == "proof"
    assert search.best().stopped_by == "proof"
