"""``run`` and pods that stay pending on their pins: reported after the limit, undone, placed elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from apiserver import FakeCluster
from apply_runs import Fault
from run_bench import Benches, RunBench, nodes, pod_group, summary

pytest_plugins = ("run_fixtures",)

WHY = "node(s) had a problem that no object shows"


def refusing(*, groups: bool = False, **pod: Any) -> FakeCluster:  # noqa: ANN401  # fields of pods
    """Gang ``a`` (2 x 8 GPUs) waits, kube-scheduler binds nothing to two of the four nodes."""
    cluster = nodes(4, groups=groups, kubelets=True)
    cluster.gang_of_pods("a", 2, gpus=8, comes_back=True, **pod)
    cluster.scheduler.refuses = {"n0": WHY, "n1": WHY}
    return cluster


@pytest.fixture
def bench(memory: Benches) -> RunBench:
    return memory(refusing())


@pytest.fixture
def stuck(bench: RunBench) -> RunBench:
    """The gang was started a second longer ago than the limit of five minutes."""
    bench.ran()
    bench.cluster.advance(301)
    return bench


def test_within_the_limit_a_pending_gang_is_no_failure(bench: RunBench) -> None:
    # Its 16 GPUs, at full speed on an NVSwitch and its NICs, do no work before the scheduler binds it.
    unbound = "0 effective GPUs (0 before; 16 more once all pods are bound)"
    assert f"gangs: 1 pending; 0 waiting; {unbound}" in bench.ran().err
    bench.cluster.advance(300)  # not longer than the limit of 5 minutes
    before = bench.asked()
    assert "; 0 effective GPUs (0 before" in bench.ran("--wait", "1h").err
    # the pins are the scheduler's by now: nothing is written, and nothing waited for
    assert bench.written(since=before) == []
    bench.cluster.advance(1)
    bench.ran(code=7)


def test_past_the_limit_it_is_reported_by_every_run_and_by_status(stuck: RunBench) -> None:
    said = "default/a: partial: pod a-0 was not bound to node n0 within the pending limit"
    for _ in range(2):
        late = stuck.ran(code=7).err
        assert said in late
        assert WHY in late
        assert "; 0 effective GPUs (0 before); " in late
        assert late.count("delete --raw") == 2
    status = stuck.verb("status").out
    assert ("stuck" in status, status.count("delete --raw")) == (True, 2)


def test_it_counts_whatever_the_scheduler_says_or_does_not_say(bench: RunBench) -> None:
    bench.cluster.scheduler.on = False
    bench.ran()
    bench.cluster.advance(100)
    assert "; 0 effective GPUs (0 before; 16 more once all pods are bound)" in bench.ran().err
    bench.cluster.advance(201)
    late = bench.ran(code=7).err
    assert "; 0 effective GPUs (0 before); " in late
    assert "'default-scheduler' has not said why" in late


def test_the_limit_runs_from_the_last_start_of_a_gang_that_was_cut_off(bench: RunBench) -> None:
    """Its scheduler may have waited for the pod that the next run starts."""
    bench.cluster.scheduler.on = False
    death = Fault(1, "crash before")
    bench.killed(death, ())
    assert death.struck
    bench.cluster.advance(900)
    assert "1 pending;" in bench.ran("--evict-partial").err
    bench.cluster.advance(301)
    assert "within the pending limit" in bench.ran(code=7).err


def test_evict_partial_undoes_it_and_its_new_pods_go_elsewhere(stuck: RunBench) -> None:
    """None of its pods is bound; the same run places the new ones, on the nodes that are left."""
    said = stuck.ran("--evict-partial").err
    assert stuck.places() == {"a-0": "n2", "a-1": "n3"}
    assert "Gang default/a: avoids node n0, n1, where it did not start" in said
    stuck.ran()


def test_undone_by_hand_it_avoids_the_nodes_for_an_hour(stuck: RunBench) -> None:
    cluster = stuck.cluster
    stuck.ran(code=7)
    for name in ("n2", "n3"):
        cluster.cordon(name)
    for name in ("a-0", "a-1"):
        cluster.remove("Pod", name)
    assert "1 waiting" in summary(stuck.ran())
    cluster.scheduler.refuses = {}
    cluster.advance(3500)
    stuck.ran()
    assert set(stuck.places().values()) == {None}
    cluster.advance(100)
    stuck.ran()
    assert set(stuck.places().values()) == {"n0", "n1"}


def test_a_stuck_gang_that_is_bound_after_all_is_said_to_be_well(stuck: RunBench) -> None:
    stuck.ran(code=7)
    stuck.cluster.scheduler.refuses = {}
    stuck.cluster.touch("Node", "n0")
    well = stuck.ran()
    assert "default/a: started: its pods are all bound now" in well.err
    assert "1 started" in summary(well)
    assert stuck.noted("notes") == ""
    assert "unchanged" in summary(stuck.ran())


def test_the_policy_sets_the_limit_and_null_is_for_ever(bench: RunBench) -> None:
    def limit(text: str | None) -> tuple[str, str]:
        spec = {"kubernetes": {"pendingLimit": text}}
        return ("--policy", bench.file("policy.json", "Policy", spec))

    bench.ran(*limit("10s"))
    bench.cluster.advance(11)
    bench.ran(*limit("10s"), code=7)
    bench.ran()
    bench.cluster.advance(100_000)
    bench.ran(*limit(None))


def test_a_gang_of_a_pod_group_that_waits_as_a_whole_is_stuck_likewise(memory: Benches) -> None:
    cluster = refusing(groups=True, schedulingGroup={"podGroupName": "g"})
    pod_group(cluster, "g", 2)
    bench = memory(cluster)
    bench.ran()
    cluster.advance(301)
    bench.ran(code=7)
    bench.ran("--evict-partial")
    assert set(bench.places().values()) == {"n2", "n3"}
