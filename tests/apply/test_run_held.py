"""Age parked behind a tenant's own gate: runs remember until when they saw a gang held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from apiserver import FakeCluster
from conftest import RunCli
from run_bench import RunBench, memory_bench, nodes

from models.apply.notes import MAX_HELD, HeldNote, RunNotes, read_notes

Tree = dict[str, Any]

GATE = {"name": "gangplan.dev/placement"}
OWN = {"name": "example.com/mine"}


@pytest.fixture
def quick(tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401
    with memory_bench(nodes(1), tmp_path, cli, monkeypatch) as bench:
        bench.cluster.gang_of_pods("fills", 1, gpus=8, priority=1000)
        assert bench.run().code == 0
        yield bench


def pass_time(cluster: FakeCluster, seconds: int = 3600) -> None:
    cluster.clock.advance(seconds)  # type: ignore[attr-defined]


def add(bench: RunBench, name: str, *, parked: bool = False) -> None:
    bench.cluster.gang_of_pods(name, 1, gpus=8, priority=1)
    if parked:
        gates(bench.cluster, f"{name}-0", OWN)


def gates(cluster: FakeCluster, name: str, *more: Tree) -> None:
    """As its creator wrote them, or as its tenant takes them off."""
    cluster.pod(name)["spec"]["schedulingGates"] = [GATE, *more]


def end(cluster: FakeCluster, name: str) -> None:
    path = f"/api/v1/namespaces/default/pods/{name}"
    assert cluster.handle("DELETE", path, None)[0] == 200


@pytest.mark.parametrize("parked", [False, True])
def test_a_gang_that_was_parked_does_not_overtake_one_that_waited(
    quick: RunBench, *, parked: bool
) -> None:
    """``early`` is an hour older than ``late``, and counts so only if it could start all the time."""
    add(quick, "early", parked=parked)
    pass_time(quick.cluster)
    add(quick, "late")
    pass_time(quick.cluster)
    assert quick.run().code == 0  # both wait; early is seen behind its gate
    gates(quick.cluster, "early-0")
    for _ in range(2):
        pass_time(quick.cluster)
        assert quick.run().code == 0  # it is remembered after the release, too
    end(quick.cluster, "fills-0")
    assert quick.run().code == 0
    places = quick.places()
    first, other = ("late-0", "early-0") if parked else ("early-0", "late-0")
    assert (places[first], places[other]) == ("n0", None)


def test_what_starts_or_goes_is_forgotten(quick: RunBench) -> None:
    add(quick, "early", parked=True)
    pass_time(quick.cluster)
    assert quick.run().code == 0
    noted = quick.lease()["metadata"]["annotations"]
    assert any("early" in text for text in noted.values())
    end(quick.cluster, "early-0")
    quick.cluster.handle("DELETE", "/apis/batch/v1/namespaces/default/jobs/early", None)
    assert quick.run().code == 0
    noted = quick.lease()["metadata"]["annotations"]
    assert not any("early" in text for text in noted.values())


def test_notes_of_held_gangs_are_read_as_written_and_follow_the_waiting() -> None:
    notes = RunNotes().with_held([("a", "x")], [("a", "x"), ("a", "y")], 5)
    assert read_notes(notes.text()) == notes
    later = notes.with_held([], [("a", "x")], 9)
    assert later.held == (HeldNote(("a", "x"), 5),)
    assert later.with_held([], [("a", "y")], 9).held == ()
    assert later.without_stops([]).held == later.held


def test_a_tenant_with_many_parked_gangs_crowds_out_nobody_nor_himself() -> None:
    many = [("many", f"g{i}") for i in range(MAX_HELD)]
    few = [("few", "x")]
    notes = RunNotes().with_held([*many, *few], [*many, *few], 7)
    assert notes.held == (HeldNote(("few", "x"), 7), HeldNote(("many", ""), 7))
    after = notes.with_held([], many[:1], 8)
    assert after.held == (HeldNote(("many", ""), 7),)
