"""Everything at once, cut off at any request: budgets, volumes, elastic sets, records of members, evictions.

The invariants are read from the server's store alone.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from apiserver import FakeCluster
from apply_runs import Crash, Fault
from conftest import Result, RunCli
from effort import spread
from live_checks import overfull
from run_bench import RunBench, memory_bench, summary

from models.apply.session import LANES

Tree = dict[str, Any]


def crowded() -> FakeCluster:
    """Nine nodes of 8 GPUs.

    ``low`` runs on three of them and may be stopped; ``high`` needs its room. ``set`` fills what is left.
    """
    cluster = FakeCluster(workloads=True, kubelets=True)
    for number in range(9):
        cluster.add_node(f"n{number}")
    for number in range(3, 9):
        cluster.cordon(f"n{number}")
    cluster.gang_of_pods(
        "low",
        3,
        nodes=["n0", "n1", "n2"],
        comes_back=True,
        annotations={"gangplan.dev/preemptible": "true"},
        labels={"app": "low"},
    )
    return cluster


def arrive(cluster: FakeCluster) -> None:
    """What the run that is cut off finds."""
    for number in range(3, 9):
        cluster.change("Node", f"n{number}", lambda tree: {**tree, "spec": {}})
    cluster.gang_of_pods("mid", 2, priority=50, comes_back=True)
    cluster.gang_of_pods("tail", 2, priority=40, comes_back=True)
    cluster.gang_of_pods("high", 3, priority=100, comes_back=True)
    cluster.create(elastic())


def elastic() -> Tree:
    labels = {"app": "set"}
    limits = {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}}
    pod: Tree = {
        "containers": [{"name": "main", "image": "image", "resources": limits}],
        "terminationGracePeriodSeconds": 0,
        "schedulingGates": [{"name": "gangplan.dev/placement"}],
    }
    notes = {"gangplan.dev/min": "1", "gangplan.dev/max": "3", "gangplan.dev/preemptible": "true"}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "set", "namespace": "default", "annotations": notes},
        "spec": {
            "replicas": 1,
            "serviceName": "set",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def budget(cluster: FakeCluster, least: int) -> None:
    cluster.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "b"},
            "spec": {"selector": {"matchLabels": {"app": "low"}}, "minAvailable": least},
        }
    )


def half(bench: RunBench) -> list[str]:
    """Gangs of which some pods are bound and others are not."""
    states: dict[str, set[bool]] = {}
    for name, place in bench.places().items():
        gang = name.rpartition("-")[0]
        if gang != "set":  # one of its pods is enough
            states.setdefault(gang, set()).add(place is not None)
    return [gang for gang, found in states.items() if len(found) == 2]


def half_started(bench: RunBench) -> list[str]:
    """Gangs of which some pods are gated and others are not."""
    states: dict[str, set[bool]] = {}
    for pod in bench.cluster.pods():
        gang = pod["metadata"]["name"].rpartition("-")[0]
        states.setdefault(gang, set()).add(bool(pod["spec"].get("schedulingGates")))
    return [gang for gang, found in states.items() if len(found) == 2]


def checked(bench: RunBench, *options: str) -> Result:
    """A run, and that it is not content with half a gang."""
    done = bench.run("--allow-evictions", *options)
    assert overfull({pod["metadata"]["name"]: pod for pod in bench.cluster.pods()}) == []
    if half(bench):
        assert done.code != 0, (half(bench), bench.places(), done.err)
        assert "unchanged" not in summary(done), done.err
    bench.cluster.advance(100)
    return done


def quiet(bench: RunBench, *options: str) -> Result:
    """Runs until two in a row say the same and the second writes nothing."""
    last: Result | None = None
    for _ in range(8):
        before = bench.asked()
        done = checked(bench, *options)
        if last is not None and (last.code, bench.written(since=before)) == (done.code, []):
            return done
        last = done
    raise AssertionError(f"no end: {bench.places()}: {last and last.err}")


def killed(bench: RunBench, fault: Fault, *options: str) -> bool:
    """A run that dies of the fault, if it comes to that; whether it did. Its lock has ended."""
    cluster = bench.cluster
    cluster.before.append(fault.before)
    cluster.after.append(fault.after)
    with contextlib.suppress(Crash):
        bench.run("--allow-evictions", *options)
    cluster.before.clear()
    cluster.after.clear()
    cluster.advance(100)
    return fault.struck


CRASHES = ("crash before", "crash after")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "happens"),
    [
        *((kind, "nothing") for kind in (*CRASHES, "lost after", 403)),
        *(("crash after", what) for what in ("budget", "lost pod", "slow")),
    ],
)
def test_cut_off_at_any_request_all_is_brought_to_an_end(
    tmp_path: Path,
    cli: RunCli,
    monkeypatch: pytest.MonkeyPatch,
    kind: str | int,
    happens: str,
) -> None:
    """``happens`` between the fault and the next run; every other time that one meets a fault, too."""
    for at in spread(range(120), 60, thorough=10):
        folder = tmp_path / str(at)
        folder.mkdir()
        cluster = crowded()
        with memory_bench(cluster, folder, cli, monkeypatch) as bench:
            assert bench.run().code == 0
            arrive(cluster)
            if not killed(bench, Fault(at, kind, every=True), "--wait", "2s"):
                return
            assert len(half_started(bench)) <= LANES
            if happens == "budget":
                budget(cluster, 2)
            elif happens == "lost pod":
                cluster.remove("Pod", "tail-1")
            elif happens == "slow":
                cluster.advance(3000)
            if at % 2:
                killed(bench, Fault(at // 2, kind, every=True))
            try:
                quiet(bench, "--wait", "2s")
                if happens == "budget":
                    cluster.remove("PodDisruptionBudget", "b")
                    quiet(bench, "--wait", "2s")
                elif half(bench):
                    quiet(bench, "--wait", "2s", "--evict-partial")
                done = quiet(bench)
                assert (done.code, half(bench), half_started(bench)) == (0, [], []), done.err
            except AssertionError as error:
                raise AssertionError(f"killed at {at}: {error}") from error


def spread_out() -> FakeCluster:
    """``low`` (4 x 4 GPUs) may move; pods of ``wide`` that go later spread it over four of five nodes."""
    cluster = FakeCluster(workloads=True, kubelets=True)
    for number in range(5):
        cluster.add_node(f"n{number}")
    cluster.gang_of_pods("wide", 4, gpus=4, nodes=["n0", "n1", "n2", "n3"])
    cluster.gang_of_pods(
        "low",
        4,
        gpus=4,
        comes_back=True,
        annotations={"gangplan.dev/movable": "true"},
        labels={"app": "low"},
    )
    cluster.cordon("n4")
    return cluster


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["crash before", "crash after"])
@pytest.mark.parametrize("options", [(), ("--evict-partial",)], ids=["kept", "evicted"])
def test_a_move_of_a_gang_that_gangplan_pinned_is_mended_wherever_it_was_cut_off(
    tmp_path: Path,
    cli: RunCli,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    options: tuple[str, ...],
) -> None:
    for at in spread(range(120), 60, thorough=10):
        folder = tmp_path / str(at)
        folder.mkdir()
        cluster = spread_out()
        with memory_bench(cluster, folder, cli, monkeypatch) as bench:
            assert bench.run().code == 0
            for index in range(4):
                cluster.remove("Pod", f"wide-{index}")
            cluster.change("Node", "n4", lambda tree: {**tree, "spec": {}})
            cluster.gang_of_pods("high", 3, gpus=8, priority=100)
            cluster.advance(100)
            if not killed(bench, Fault(at, kind, every=True), "--wait", "2s", *options):
                return
            if at % 2:
                killed(bench, Fault(at // 2, kind, every=True), *options)
            try:
                assert quiet(bench, "--wait", "2s", *options).code == 0
                # where one pod of low had gone, low is left alone for a while
                cluster.advance(3600)
                done = quiet(bench, "--wait", "2s", *options)
                places = bench.places()
                assert done.code == 0, done.err
                assert None not in places.values(), (places, done.err)
            except AssertionError as error:
                raise AssertionError(f"killed at {at}: {error}") from error


@pytest.mark.slow
@pytest.mark.parametrize("kind", CRASHES)
@pytest.mark.parametrize("bound", [0, 3])
def test_undoing_a_gang_that_stays_pending_is_finished_wherever_it_was_cut_off(
    tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch, kind: str, bound: int
) -> None:
    """Of its four pods so many are bound; the nodes of the others refuse them."""
    for at in spread(range(120), 60, thorough=10):
        folder = tmp_path / str(at)
        folder.mkdir()
        cluster = FakeCluster(workloads=True, kubelets=True)
        for number in range(8):
            cluster.add_node(f"n{number}")
        cluster.scheduler.refuses = {f"n{number}": "no" for number in range(bound, 4)}
        cluster.gang_of_pods("a", 4, comes_back=True, labels={"app": "low"})
        undoing = ("--wait", "2s", "--evict-partial")
        with memory_bench(cluster, folder, cli, monkeypatch) as bench:
            assert bench.run().code == 0
            assert sum(node is not None for node in bench.places().values()) == bound
            cluster.advance(301)
            if not killed(bench, Fault(at, kind, every=True), *undoing):
                return
            assert len(half_started(bench)) <= LANES
            if at % 2:
                killed(bench, Fault(at // 2, kind, every=True), *undoing)
            try:
                for _ in range(3):
                    checked(bench, *undoing)
                done = quiet(bench, *undoing)
                assert (done.code, half(bench)) == (0, []), done.err
                assert None not in bench.places().values()
            except AssertionError as error:
                raise AssertionError(f"killed at {at}: {error}") from error
