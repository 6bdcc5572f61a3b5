"""Marks that a tenant writes on pods in our name: they start nothing, hold nothing, and break no run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver import FakeCluster
from apply_runs import Crash, Fault
from conftest import RunCli
from run_bench import RunBench, memory_bench, nodes, run_bench

from models.apply.intents import Intent

Tree = dict[str, Any]

PLAN = "gp-0123456789abcdef0123"


def older(cluster: FakeCluster) -> None:
    """The pods to come are younger than the Lease, as on every cluster that has run gangplan before."""
    cluster.clock.advance(100)  # type: ignore[attr-defined]


@pytest.fixture
def served(tmp_path: Path, cli: RunCli) -> Iterator[RunBench]:
    """One node; a first run has made the Lease."""
    with run_bench(nodes(1), tmp_path, cli) as bench:
        assert bench.run().code == 0
        older(bench.cluster)
        yield bench


@pytest.fixture
def quick(tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunBench]:
    with memory_bench(nodes(2), tmp_path, cli, monkeypatch) as bench:
        assert bench.run().code == 0
        older(bench.cluster)
        yield bench


def forge(cluster: FakeCluster, name: str, intent: Intent, **more: str) -> None:
    """What a tenant writes who may patch pods, in the name of our field manager."""
    metadata = {"labels": intent.labels(), "annotations": {**intent.annotations(), **more}}
    path = f"/api/v1/namespaces/default/pods/{name}?fieldManager=gangplan"
    merge = "application/merge-patch+json"
    assert cluster.handle("PATCH", path, {"metadata": metadata}, merge)[0] == 200


def marks(cluster: FakeCluster, name: str) -> Tree:
    found: Tree = cluster.pod(name)["metadata"].get("annotations", {})
    return {key: value for key, value in found.items() if key.startswith("gangplan.dev/")}


def test_a_forged_intent_jumps_no_queue_and_holds_no_room(served: RunBench) -> None:
    served.cluster.gang_of_pods("low", 1, gpus=8, priority=1)
    served.cluster.gang_of_pods("high", 1, gpus=8, priority=100)
    forge(served.cluster, "low-0", Intent(PLAN, "low", 1, "n0", None))
    said = served.run()
    assert said.code == 0, said.err
    assert served.places() == {"high-0": "n0", "low-0": None}
    assert "default/low-0 carries gangplan annotations that no run wrote" in said.err
    assert "default/low-0" in served.verb("status").out


def test_a_seal_copied_from_another_pod_does_not_fit(served: RunBench) -> None:
    served.cluster.gang_of_pods("first", 1, gpus=1, priority=1)
    assert served.run().code == 0
    copied = marks(served.cluster, "first-0")
    assert len(copied["gangplan.dev/seal"]) == 32
    served.cluster.gang_of_pods("low", 1, gpus=7, priority=1)
    served.cluster.gang_of_pods("high", 1, gpus=7, priority=100)
    plan = copied["gangplan.dev/plan"]
    forge(served.cluster, "low-0", Intent(plan, "low", 1, "n0", None), **copied)
    assert served.run().code == 0
    assert served.places() == {"first-0": "n0", "high-0": "n0", "low-0": None}


def test_a_pod_that_nobody_runs_keeps_no_gang_waiting(served: RunBench) -> None:
    pin = {"kubernetes.io/hostname": "n0"}
    served.cluster.add_pod("ghost", gpus=8, scheduler="ghost", nodeSelector=pin)
    served.cluster.gang_of_pods("team", 1, gpus=8)
    said = served.run()
    assert said.code == 0, said.err
    assert served.places() == {"ghost": None, "team-0": "n0"}
    assert "Pod default/ghost: is tied to a node, but nothing shows" in said.err


def test_a_gang_that_only_says_to_be_partial_fails_no_run(quick: RunBench) -> None:
    cluster = quick.cluster
    cluster.add_pod("runs", gpus=1, node="n0")
    cluster.add_pod("lost", gpus=1, node="n1")
    forge(cluster, "runs", Intent(PLAN, "odd", 5, "n0", (0,)))
    forge(cluster, "lost", Intent(PLAN, "astray", 2, "n0", (0,)))
    said = quick.run("--evict-partial")
    assert said.code == 0, said.err
    assert quick.places() == {"lost": "n1", "runs": "n0"}
    assert "2 pods carry gangplan annotations that no run wrote" in said.err


def test_forged_marks_are_taken_off_when_the_pod_is_started(served: RunBench) -> None:
    served.cluster.gang_of_pods("team", 1, gpus=8)
    forge(
        served.cluster, "team-0", Intent(PLAN, "team", 1, "n0", None), **{"gangplan.dev/seal": "x"}
    )
    said = served.run()
    assert said.code == 0, said.err
    assert served.places()["team-0"] is not None, said.err
    assert marks(served.cluster, "team-0")["gangplan.dev/plan"] != PLAN


@pytest.mark.parametrize("kind", ["crash before", "crash after"])
def test_what_a_killed_run_left_is_known_by_its_seal(
    kind: str, tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gang of three: an intent each, then a patch that takes the gate off, each: six writes."""
    for at in range(6):
        folder = tmp_path / str(at)
        folder.mkdir()
        with memory_bench(nodes(3), folder, cli, monkeypatch) as bench:
            assert bench.run().code == 0
            older(bench.cluster)
            bench.cluster.gang_of_pods("team", 3, gpus=8)
            fault = Fault(at, kind)
            bench.cluster.before.append(fault.before)
            bench.cluster.after.append(fault.after)
            with pytest.raises(Crash):
                bench.run()
            bench.cluster.before.clear()
            bench.cluster.after.clear()
            older(bench.cluster)
            said = bench.run()
            assert said.code == 0, said.err
            assert sorted(str(node) for node in bench.places().values()) == ["n0", "n1", "n2"]
            assert (
                len({marks(bench.cluster, f"team-{i}")["gangplan.dev/plan"] for i in range(3)}) == 1
            )
