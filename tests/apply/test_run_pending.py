"""``run`` and pods that stay pending on their pins: reported after the limit, undone, placed elsewhere."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver import FakeCluster
from apply_runs import Crash, Fault
from conftest import RunCli
from run_bench import RunBench, memory_bench, nodes, summary

Tree = dict[str, Any]

WHY = "node(s) had a problem that no object shows"


def refusing(*, groups: bool = False, **pod: Any) -> FakeCluster:  # noqa: ANN401  # fields of pods
    """Gang ``a`` (2 x 8 GPUs) waits, kube-scheduler binds nothing to two of the four nodes."""
    cluster = nodes(4, groups=groups)
    cluster.kubelets = True
    cluster.gang_of_pods("a", 2, gpus=8, comes_back=True, **pod)
    cluster.scheduler.refuses = {"n0": WHY, "n1": WHY}
    return cluster


@pytest.fixture
def bench(tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunBench]:
    with memory_bench(refusing(), tmp_path, cli, monkeypatch) as made:
        yield made


def policy(bench: RunBench, limit: str | None) -> Path:
    path = bench.folder / "policy.json"
    spec = {"kubernetes": {"pendingLimit": limit}}
    document = {"apiVersion": "gangplan.dev/v1alpha1", "kind": "Policy", "spec": spec}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_within_the_limit_a_pending_gang_is_no_failure(bench: RunBench) -> None:
    first = bench.run()
    assert (first.code, "1 pending;" in first.err) == (0, True), first.err
    # Its 16 GPUs, at full speed on an NVSwitch and its NICs, do no work before the scheduler binds it.
    unbound = "0 effective GPUs (0 before; 16 more once all pods are bound)"
    assert f"gangs: 1 pending; 0 waiting; {unbound}" in first.err, first.err
    bench.cluster.advance(300)  # not longer than the limit of 5 minutes
    again = bench.run()
    assert (again.code, "; 0 effective GPUs (0 before" in again.err) == (0, True), again.err


def test_past_the_limit_it_is_reported_by_every_run_and_by_status(bench: RunBench) -> None:
    assert bench.run().code == 0
    bench.cluster.advance(301)
    for _ in range(2):
        late = bench.run()
        assert late.code == 7, late.err
        assert (
            "default/a: partial: pod a-0 was not bound to node n0 within the pending limit"
            in late.err
        )
        assert WHY in late.err
        assert "; 0 effective GPUs (0 before); " in late.err
        assert late.err.count("delete --raw") == 2
    status = bench.verb("status")
    assert "stuck" in status.out, status.out
    assert status.out.count("delete --raw") == 2


def test_it_counts_whatever_the_scheduler_says_or_does_not_say(bench: RunBench) -> None:
    bench.cluster.scheduler.on = False
    assert bench.run().code == 0
    bench.cluster.advance(100)
    early = bench.run()
    assert "; 0 effective GPUs (0 before; 16 more once all pods are bound)" in early.err, early.err
    bench.cluster.advance(201)
    late = bench.run()
    assert "; 0 effective GPUs (0 before); " in late.err
    assert (late.code, "'default-scheduler' has not said why" in late.err) == (7, True), late.err


def test_the_limit_runs_from_the_last_start_of_a_gang_that_was_cut_off(bench: RunBench) -> None:
    """Its scheduler may have waited for the pod that the next run starts."""
    bench.cluster.scheduler.on = False
    death = Fault(1, "crash before")
    bench.cluster.before.append(death.before)
    with contextlib.suppress(Crash):
        bench.run()
    bench.cluster.before.clear()
    assert death.struck
    bench.cluster.advance(1000)
    done = bench.run("--evict-partial")
    assert (done.code, "1 pending;" in done.err) == (0, True), done.err
    bench.cluster.advance(301)
    late = bench.run()
    assert (late.code, "within the pending limit" in late.err) == (7, True), late.err


def test_evict_partial_undoes_it_and_its_new_pods_go_elsewhere(bench: RunBench) -> None:
    """None of its pods is bound; the same run places the new ones, on the nodes that are left."""
    assert bench.run().code == 0
    bench.cluster.advance(301)
    done = bench.run("--evict-partial")
    assert done.code == 0, done.err
    assert bench.places() == {"a-0": "n2", "a-1": "n3"}
    assert "Gang default/a: avoids node n0, n1, where its pods stayed pending too long" in done.err
    assert bench.run().code == 0


def test_undone_by_hand_it_avoids_the_nodes_for_an_hour(bench: RunBench) -> None:
    cluster = bench.cluster
    assert bench.run().code == 0
    cluster.advance(301)
    assert bench.run().code == 7
    for name in ("n2", "n3"):
        cluster.cordon(name)
    for name in ("a-0", "a-1"):
        cluster.remove("Pod", name)
    waits = bench.run()
    assert (waits.code, "1 waiting" in summary(waits)) == (0, True), waits.err
    cluster.advance(3600)
    cluster.scheduler.refuses = {}
    assert bench.run().code == 0
    assert set(bench.places().values()) == {"n0", "n1"}


def test_a_stuck_gang_that_is_bound_after_all_is_said_to_be_well(bench: RunBench) -> None:
    assert bench.run().code == 0
    bench.cluster.advance(301)
    assert bench.run().code == 7
    bench.cluster.scheduler.refuses = {}
    bench.cluster.touch("Node", "n0")
    well = bench.run()
    assert well.code == 0, well.err
    assert "default/a: started: its pods are all bound now" in well.err
    assert "1 started" in summary(well)
    assert "gangplan.dev/notes" not in bench.lease()["metadata"]["annotations"]
    assert "unchanged" in summary(bench.run())


def test_the_policy_sets_the_limit_and_null_is_for_ever(bench: RunBench) -> None:
    short = ("--policy", str(policy(bench, "10s")))
    assert bench.run(*short).code == 0
    bench.cluster.advance(11)
    assert bench.run(*short).code == 7
    assert bench.run().code == 0
    bench.cluster.advance(100_000)
    assert bench.run("--policy", str(policy(bench, None))).code == 0


def test_a_gang_of_a_pod_group_that_waits_as_a_whole_is_stuck_likewise(
    tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = refusing(groups=True, schedulingGroup={"podGroupName": "g"})
    cluster.create(
        {
            "apiVersion": "scheduling.k8s.io/v1alpha2",
            "kind": "PodGroup",
            "metadata": {"name": "g"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        }
    )
    with memory_bench(cluster, tmp_path, cli, monkeypatch) as bench:
        assert bench.run().code == 0
        cluster.advance(301)
        late = bench.run()
        assert late.code == 7, late.err
        assert bench.run("--evict-partial").code == 0
        assert set(bench.places().values()) == {"n2", "n3"}
