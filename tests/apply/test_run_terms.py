"""The terms of a gang on a cluster: written when it starts, read back by later runs, sealed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver import FakeCluster
from apply_runs import Crash, Fault
from conftest import RunCli
from run_bench import RunBench, memory_bench, nodes, run_bench

from models.apply.intents import Terms, read_terms

Tree = dict[str, Any]

PREEMPTIBLE = "gangplan.dev/preemptible"
TERMS = "gangplan.dev/terms"
JOB = "/apis/batch/v1/namespaces/default/jobs/low"


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


def notes(cluster: FakeCluster, name: str) -> Tree:
    found: Tree = cluster.pod(name)["metadata"].get("annotations", {})
    return found


def annotate(cluster: FakeCluster, path: str, **written: str | None) -> None:
    """What a tenant writes."""
    body = {"metadata": {"annotations": {f"gangplan.dev/{k}": v for k, v in written.items()}}}
    assert cluster.handle("PATCH", path, body, "application/merge-patch+json")[0] == 200


def start_low(bench: RunBench, size: int = 2) -> None:
    """A preemptible gang that fills the node, and whose pods are made again."""
    mark = {PREEMPTIBLE: "true"}
    bench.cluster.gang_of_pods(
        "low", size, gpus=8 // size, comes_back=True, priority=1, annotations=mark
    )
    assert bench.run().code == 0
    assert bench.places() == {f"low-{i}": "n0" for i in range(size)}


def come_high(bench: RunBench) -> str:
    """A gang of higher priority that needs the node, and a run that may evict; what the run says."""
    bench.cluster.gang_of_pods("high", 1, gpus=8, priority=100)
    older(bench.cluster)
    return bench.run("--allow-evictions").err


def test_a_gang_starts_with_its_terms_under_the_seal(served: RunBench) -> None:
    start_low(served)
    for i in range(2):
        found = notes(served.cluster, f"low-{i}")
        assert read_terms(found[TERMS]) == Terms(1, preemptible=True)
        assert len(found["gangplan.dev/seal"]) == 32


def test_a_tenant_cannot_take_back_that_his_gang_may_be_stopped(served: RunBench) -> None:
    start_low(served)
    annotate(served.cluster, JOB, preemptible=None)
    said = come_high(served)
    assert "Job default/low: was started as preemptible; that holds until it ends" in said
    assert "low-0" not in served.places() or served.places()["low-0"] is None
    assert served.run("--allow-evictions").code == 0
    assert served.places()["high-0"] == "n0"


def test_without_any_seal_its_word_counts_and_the_marks_are_reported(served: RunBench) -> None:
    start_low(served)
    annotate(served.cluster, JOB, preemptible=None)
    for i in range(2):
        annotate(served.cluster, f"/api/v1/namespaces/default/pods/low-{i}", terms="priority=1")
    said = come_high(served)
    assert "carry gangplan annotations that no run wrote" in said
    assert "was started as preemptible" not in said
    assert served.places()["high-0"] is None


def test_a_tenant_who_forges_terms_gains_nothing(served: RunBench) -> None:
    served.cluster.gang_of_pods("low", 1, gpus=8, priority=1, annotations={PREEMPTIBLE: "true"})
    annotate(
        served.cluster,
        "/api/v1/namespaces/default/pods/low-0",
        terms="priority=1000",
        plan="gp-" + "0" * 20,
    )
    assert served.run().code == 0
    assert read_terms(notes(served.cluster, "low-0")[TERMS]) == Terms(1, preemptible=True)
    come_high(served)
    assert served.run("--allow-evictions").code == 0
    assert served.places()["high-0"] == "n0"


@pytest.mark.parametrize("kind", ["crash before", "crash after"])
def test_a_gang_that_a_later_run_completes_has_the_terms_of_its_start(
    kind: str, tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tenant takes his word back between the kill and the run that completes the gang."""
    for at in range(4, 6):
        folder = tmp_path / str(at)
        folder.mkdir()
        with memory_bench(nodes(1), folder, cli, monkeypatch) as bench:
            assert bench.run().code == 0
            older(bench.cluster)
            bench.cluster.gang_of_pods(
                "low", 3, gpus=2, priority=1, annotations={PREEMPTIBLE: "true"}
            )
            fault = Fault(at, kind)
            bench.cluster.before.append(fault.before)
            bench.cluster.after.append(fault.after)
            with pytest.raises(Crash):
                bench.run()
            bench.cluster.before.clear()
            bench.cluster.after.clear()
            annotate(bench.cluster, JOB, preemptible=None)
            older(bench.cluster)
            said = bench.run()
            assert said.code == 0, said.err
            found = [notes(bench.cluster, f"low-{i}")[TERMS] for i in range(3)]
            assert found == [Terms(1, preemptible=True).text()] * 3


def test_a_gang_whose_pods_are_made_again_one_by_one_is_no_younger(served: RunBench) -> None:
    """Its tenant deletes one pod after the other, always before the minRunTime of the rest is over."""
    policy = served.folder / "policy.yaml"
    kind = "apiVersion: gangplan.dev/v1alpha1\nkind: Policy\n"
    policy.write_text(f"{kind}spec: {{minRunTime: 1h}}\n", encoding="utf-8")
    words = ("--allow-evictions", "--policy", str(policy))
    start_low(served)
    begun = int(served.cluster.clock())
    served.cluster.gang_of_pods("high", 1, gpus=8, priority=100)
    for i in range(2):
        served.cluster.clock.advance(1700)  # type: ignore[attr-defined]
        path = f"/api/v1/namespaces/default/pods/low-{i}"
        assert served.cluster.handle("DELETE", path, None)[0] == 200
        said = served.run(*words)
        assert said.code == 0, said.err
        assert served.places() == {"low-0": "n0", "low-1": "n0", "high-0": None}
        terms = Terms(1, preemptible=True, since=begun)
        assert read_terms(notes(served.cluster, f"low-{i}")[TERMS]) == terms
    served.cluster.clock.advance(300)  # type: ignore[attr-defined]  # 3,700 s, the last pod 300
    for _ in range(2):
        served.run(*words)
    assert served.places()["high-0"] == "n0"
