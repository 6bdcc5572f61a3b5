"""``gangplan run``: what it starts, what it leaves alone, what moves meanwhile, with the real kubectl too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from apiserver import FakeCluster
from conftest import RunCli
from run_bench import (
    RunBench,
    events,
    memory_bench,
    nodes,
    run_bench,
    summary,
    while_solving,
)

from planner.pipelines import run as pipeline

PREEMPTIBLE = {"gangplan.dev/preemptible": "true"}


def queue() -> FakeCluster:
    """Four nodes; gang a fills two of them, b one more, and big does not fit."""
    cluster = nodes(4)
    cluster.gang_of_pods("a", 2, gpus=8)
    cluster.gang_of_pods("b", 2, gpus=4)
    cluster.gang_of_pods("big", 8, gpus=8)
    return cluster


@pytest.fixture
def served(tmp_path: Path, cli: RunCli) -> Iterator[RunBench]:
    with run_bench(queue(), tmp_path, cli) as bench:
        yield bench


@pytest.fixture
def four(tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunBench]:
    with memory_bench(queue(), tmp_path, cli, monkeypatch) as bench:
        yield bench


def whole(bench: RunBench, *gangs: str) -> bool:
    return all(
        node is not None
        for name, node in bench.places().items()
        if name.rpartition("-")[0] in gangs
    )


def test_a_run_starts_what_fits_and_a_second_one_writes_nothing_but_its_lock(
    served: RunBench,
) -> None:
    first = served.run()
    assert first.code == 0, first.err
    assert whole(served, "a", "b")
    assert {served.places()[f"big-{i}"] for i in range(8)} == {None}
    said = summary(first)
    assert "run applied (exit 0): plan gp-" in said
    assert "gangs: 2 started; 1 waiting (1 can never start); 24 effective GPUs (0 before); " in said
    note = served.last_run()
    assert (note["status"], note["exit_code"]) == ("applied", 0)
    assert note["counts"] == {"started": 2, "waiting": 1, "evicted": 0}
    assert note["effective_gpus"] == 24
    before, places = served.asked(), served.places()
    second = served.run()
    assert second.code == 0, second.err
    assert served.written(since=before) == []
    assert served.places() == places
    assert "run unchanged (exit 0)" in summary(second)
    paths = [call.path for call in served.cluster.calls[before:] if call.method == "GET"]
    listed = [path for path in paths if path.endswith(("/nodes", "/pods"))]
    assert listed == ["/api/v1/nodes", "/api/v1/pods"]


def test_json_lines_are_of_the_fixed_types_and_one_is_the_summary(served: RunBench) -> None:
    found = events(served.run("--log-format", "json"))
    types = [one["type"] for one in found]
    order = ["read", "solve_done", "verify_done", "change", "apply_start", "apply_done", "summary"]
    assert [kind for kind in dict.fromkeys(types) if kind in order] == order
    changed = {one["gang"]: one["starts"] for one in found if one["type"] == "change"}
    assert changed == {"default/a": 2, "default/b": 2}
    done = found[types.index("apply_done")]
    assert (done["gangs"], done["partial"], done["stop"]) == ({"started": 2}, [], None)
    last = found[-1]
    assert (last["verb"], last["status"], last["context"]) == ("run", "applied", "test")
    assert (last["gangs"], last["waiting"], last["evicted"]) == ({"started": 2}, 1, 0)
    assert last["plan"].startswith("gp-")
    assert {"connect", "lock", "recover", "snapshot", "solve", "check", "apply", "total"} <= set(
        last["seconds"]
    )


def test_nothing_is_read_from_a_terminal_and_nothing_is_printed_on_stdout(four: RunBench) -> None:
    result = four.run()
    assert (result.code, result.out) == (0, "")


def full() -> FakeCluster:
    """Two nodes held by a preemptible gang; another of a higher priority waits for both."""
    cluster = nodes(2)
    cluster.gang_of_pods("low", 2, gpus=8, nodes=["n0", "n1"], annotations=PREEMPTIBLE)
    cluster.gang_of_pods("high", 2, gpus=8, priority=100)
    return cluster


def test_running_gangs_stay_unless_evictions_are_allowed(
    tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with memory_bench(full(), tmp_path, cli, monkeypatch) as bench:
        kept = bench.run()
        assert kept.code == 0, kept.err
        assert bench.written() == []
        assert "1 waiting" in summary(kept)
        few = bench.run("--allow-evictions", "--max-evictions", "1")
        assert few.code == 7, few.err
        assert [path for method, path in bench.written() if "eviction" in path] == []
        allowed = bench.run("--allow-evictions")
        assert allowed.code == 0, allowed.err
        assert "2 pods evicted" in summary(allowed)
        assert [bench.places()[f"high-{i}"] is not None for i in (0, 1)] == [True, True]
        assert "low-0" not in bench.places()


def cordon(bench: RunBench, *names: str) -> None:
    for name in names:
        bench.cluster.cordon(name)


def test_a_cluster_that_moves_meanwhile_is_planned_once_more(
    four: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of the nodes it used are cordoned when the first search ends."""
    while_solving(monkeypatch, lambda: cordon(four, "n0", "n1"))
    result = four.run("--log-format", "json")
    assert result.code == 0, result.err
    last = events(result)[-1]
    assert last["replanned"] is True
    assert last["status"] == "applied"
    used = {node for node in four.places().values() if node is not None}
    assert used == {"n2", "n3"}


def test_a_cluster_that_moves_again_is_left_alone(
    four: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_solving(monkeypatch, lambda: cordon(four, "n0", "n1"), lambda: cordon(four, "n2", "n3"))
    result = four.run()
    assert result.code == 6, result.err
    assert four.written() == []
    assert "run stale (exit 6)" in summary(result)
    assert "is cordoned" in result.err
    assert four.last_run()["exit_code"] == 6


def test_a_plan_that_cannot_be_applied_is_refused_and_the_lock_given_back(
    four: RunBench, tmp_path: Path
) -> None:
    """A gang of a document has no pods in the cluster: there is nothing to start."""
    path = tmp_path / "gang.yaml"
    path.write_text(
        "apiVersion: gangplan.dev/v1alpha1\nkind: Gang\nmetadata: {name: imagined}\n"
        "spec: {roles: [{name: worker, replicas: 1, gpus: 1}]}\n",
        encoding="utf-8",
    )
    result = four.run(str(path))
    assert result.code == 65, result.err
    assert four.written() == []
    assert four.last_run()["exit_code"] == 65
    summary(result)


def test_the_lock_tells_which_plan_is_being_applied(
    four: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    applied = pipeline._LockedRun._apply

    def applying(self: pipeline._LockedRun, *given: object) -> None:
        seen.append(four.lease()["metadata"]["annotations"]["gangplan.dev/plan"])
        applied(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline._LockedRun, "_apply", applying)
    result = four.run("--log-format", "json")
    assert result.code == 0
    assert seen == [events(result)[-1]["plan"]]
