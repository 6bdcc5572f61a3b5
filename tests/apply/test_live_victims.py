"""Disruption budgets and pods that stay pending, on a live cluster: nothing is half there unsaid."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_checks import overfull, placed
from live_cluster import Live
from live_objects import Wanted, listed, pods, policy
from live_runs import Killer, apply_words, killed, planned, policy_of, ran, run_words

pytest_plugins = ("live_fixtures",)

Tree = dict[str, Any]

LOW = Wanted("low", 7, 8, preemptible=True)
"""Fills the seven nodes."""

HIGH = Wanted("high", 3, 8, "gate", high=True)


@pytest.fixture(autouse=True)
def no_budget(live: Live) -> Iterator[None]:
    """No test leaves its budget to the next."""
    yield
    live.kubectl("delete", "poddisruptionbudgets", "--all", "-n", live.namespace)


def run_low(live: Live) -> None:
    """Start low, and say of its pods what kubelets would."""
    live.create(LOW)
    assert ran(live, *apply_words(live, planned(live))).code == 0
    live.report_ready(*live.pods())


def guard(live: Live, **spec: object) -> None:
    """A budget over low, once the disruption controller has counted its pods."""
    live.guard("b", LOW.name, {"expectedPods": left(live)}, **spec)


def left(live: Live) -> int:
    return sum(name.startswith("low-") for name in placed(live.pods()))


def test_a_victim_stays_whole_if_its_budget_lets_only_some_of_its_pods_go(live: Live) -> None:
    run_low(live)
    guard(live, minAvailable=6)
    live.create(HIGH)
    plan = planned(live)
    words = apply_words(live, plan, "--allow-evictions")
    tried = ran(live, *words, "--dry-run", "server")
    assert "would be stopped" not in tried.out
    assert "allows 1 of " in tried.out, tried.out + tried.err
    told = ran(live, "apply", "--dry-run=client", str(plan))
    assert "withheld: gang" in told.err, told.err
    for _ in range(2):
        done = ran(live, *words)
        assert (done.code, [call for call in done.calls if call.evicts]) == (7, []), done.err
    assert left(live) == 7


@pytest.mark.slow
@pytest.mark.parametrize("at", [2, 4])
def test_a_victim_cut_by_a_kill_is_reported_until_it_is_gone(live: Live, at: int) -> None:
    """A budget appears after the kill that lets none of the rest go; the runs after it plan anew."""
    run_low(live)
    live.create(HIGH)
    words = apply_words(live, planned(live), "--allow-evictions")
    assert killed(live, Killer(at, after=True), *words).code == -signal.SIGKILL
    live.wait_until(lambda: left(live) == 7 - at, "the evicted pods to go")
    guard(live, minAvailable=7 - at)
    for _ in range(2):
        cut = ran(live, *run_words(live, "--allow-evictions", "--wait", "5s"))
        assert (cut.code, left(live)) == (7, 7 - at), cut.err
        assert cut.err.count("delete --raw") == 7 - at
        status = ran(live, "status", "--lock-namespace", live.lock_namespace)
        assert "half stopped" in status.out, status.out
    live.kubectl("delete", "poddisruptionbudget", "b", "-n", live.namespace)
    for _ in range(2):
        done = ran(live, *run_words(live, "--allow-evictions"))
    assert (done.code, left(live)) == (0, 0), done.err
    live.wait_until(lambda: len(placed(live.pods())) == 3, "the winner")
    assert overfull(live.pods()) == []


def limited(live: Live) -> Path:
    """The policy of ``run`` with a pending limit of two seconds."""
    made = policy(live.run)
    made["spec"]["kubernetes"]["pendingLimit"] = "2s"
    path = live.folder / "limited.yaml"
    path.write_text(json.dumps(made), encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_gang_that_no_scheduler_binds_is_stuck_after_the_limit_and_goes_elsewhere(
    live: Live,
) -> None:
    """Its pods name a scheduler that does not run: no condition ever comes."""
    trees = pods(Wanted("lost", 2, 8), live.namespace, live.run)
    for tree in trees:
        tree["spec"]["schedulerName"] = "nobody"
    live.kubectl("create", "--validate=false", "-f", "-", given=listed(trees))
    words = ["--policy", str(limited(live)), "--lock-namespace", live.lock_namespace]
    ran(live, "run", *words, "--wait", "0s")
    before = nodes_of(live)
    assert len(before) == 2

    live.wait_until(lambda: ran(live, "run", *words, "--wait", "0s").code == 7, "the limit")
    late = ran(live, "run", *words, "--wait", "0s")
    assert "scheduler 'nobody' has not said why" in late.err, late.err
    assert late.err.count("delete --raw") == 2
    status = ran(
        live, "status", "--lock-namespace", live.lock_namespace, "--policy", str(limited(live))
    )
    assert "stuck" in status.out, status.out

    undone = ran(live, "run", *words, "--wait", "0s", "--evict-partial")
    assert "undone" in undone.err, undone.err
    live.wait_until(lambda: live.pods() == {}, "its pods to go")
    for tree in trees:
        tree["spec"]["schedulerName"] = "default-scheduler"
    live.kubectl("create", "--validate=false", "-f", "-", given=listed(trees))
    done = ran(live, "run", "--policy", str(policy_of(live)), *words[2:])
    assert done.code == 0, done.err
    assert before.isdisjoint(nodes_of(live))


def nodes_of(live: Live) -> set[str]:
    """The nodes that pods were let go to."""
    found = (pod["spec"].get("nodeSelector", {}) for pod in live.pods().values())
    return {one["kubernetes.io/hostname"] for one in found if "kubernetes.io/hostname" in one}
