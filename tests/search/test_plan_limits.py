"""``--time-limit`` and ``--budget`` of ``plan``, and what a plan says that they left out."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from conftest import RunCli
from tiny import tiny

from models.results.plan import compose
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


def test_a_plan_says_which_tiers_were_not_searched_and_how_many_calls_of_solvers_it_took() -> None:
    stop = threading.Event()
    stop.set()
    found = Search(tiny(31, more=("wide",)), stop=stop).run()
    with_gap = [tier.name for tier in found.tiers if tier.gap]
    assert with_gap
    assert found.notes[0] == f"not searched: {', '.join(with_gap)}"
    # one taken from a search that goes on does not stop it
    search = Search(tiny(31, more=("wide",)))
    assert search.best().stopped_by == "budget"
    found = search.run()
    assert (found.stopped_by, search.best().stopped_by) == ("proof", "proof")
    assert not any(note.startswith("not searched") for note in found.notes)
    assert 0 < found.solver_calls <= 10 * len(found.tiers)
    stated = {"name": "tiny", "created_at": "2026-01-01T00:00:00Z", "generator": "tests"}
    made = compose(search.instance, found, **stated)
    assert made["status"]["search"]["solverCalls"] == found.solver_calls


def test_tiers_that_are_implied_take_no_call(cli: RunCli, tmp_path: Path) -> None:
    # one pod on all GPUs of the only server: it starts at full speed, and nothing is left over
    text = INPUT.replace("replicas: 4, gpus: 1", "replicas: 1, gpus: 8")
    (tmp_path / "in.yaml").write_text(text, encoding="utf-8")
    made = json.loads(cli("plan", str(tmp_path / "in.yaml"), "-o", "json").out)
    assert {one["proof"] for one in made["status"]["objectives"]} == {"exact"}
    assert made["status"]["search"]["solverCalls"] == 0
