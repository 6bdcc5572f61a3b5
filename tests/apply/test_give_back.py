"""``gangplan status --give-back-after``: pods at the gate of a gangplan that is away, and no others."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from apiserver import Call
from apiserver_http import FakeWire, serving
from apply_runs import Crash, Fault
from conftest import RunCli
from deploying import TENANT, USER, install
from run_bench import LOCK, Benches, Cut, RunBench, nodes
from snapshots import environment

from planner.cluster.lock import acquire, this_run

pytest_plugins = ("run_fixtures",)

AWAY = ("status", "--give-back-after", "2h")
OTHER = "kueue.x-k8s.io/admission"
GATE = "gangplan.dev/placement"


@pytest.fixture
def bench(memory: Benches) -> RunBench:
    """Two gangs that fit and one that does not, after a run; then a pod that it has not seen."""
    cluster = nodes(2)
    for name, size in (("a", 1), ("b", 1), ("wide", 3)):
        cluster.gang_of_pods(name, size, gpus=8)
    made = memory(cluster)
    made.ran()
    cluster.add_pod("late", gpus=1, gates=[OTHER, GATE])
    return made


def gated(bench: RunBench) -> set[str]:
    """The pods at our gate."""
    return {
        pod["metadata"]["name"]
        for pod in bench.cluster.pods()
        if {"name": GATE} in pod["spec"].get("schedulingGates", [])
    }


WAITING = {"late", "wide-0", "wide-1", "wide-2"}


def test_while_plans_are_made_nothing_is_given_back(bench: RunBench) -> None:
    bench.cluster.advance(2 * 3600 - 10)
    begun = bench.asked()
    done = bench.verb(*AWAY)
    assert (done.code, gated(bench), bench.written(begun)) == (0, WAITING, [])
    assert "less than 2h: nothing was given back" in done.err


def test_without_a_plan_for_so_long_all_that_waits_goes_to_its_schedulers(bench: RunBench) -> None:
    bench.cluster.advance(2 * 3600 + 10)
    before = bench.last_run()
    done = bench.verb(*AWAY)
    assert (done.code, gated(bench)) == (0, set())
    assert "no plan for 2h" in done.err
    assert "4 pods given back: default/late, default/wide-0, default/wide-1" in done.err
    late = bench.cluster.pod("late")["spec"]
    assert late["schedulingGates"] == [{"name": OTHER}]  # that is somebody else's
    assert "nodeSelector" not in bench.cluster.pod("wide-0")["spec"]
    assert bench.last_run() == before
    assert bench.verb(*AWAY).err.endswith("no pod to give back\n")


def test_runs_that_make_no_plan_do_not_count(bench: RunBench) -> None:
    bench.cluster.advance(2 * 3600 + 10)
    with bench.meddled(lambda call: (500, {}, {}) if call.path == "/api/v1/nodes" else None):
        bench.ran(code=69)
    assert bench.verb(*AWAY).code == 0
    assert gated(bench) == set()


def test_without_any_run_the_oldest_pod_counts(memory: Benches) -> None:
    made = memory(nodes(1))
    assert "no plan was ever made" in made.verb(*AWAY).err
    made.cluster.gang_of_pods("a", 2, gpus=4)
    made.cluster.advance(3600)
    made.cluster.add_pod("young", gpus=1, gates=[GATE])
    assert (made.verb(*AWAY).code, len(gated(made))) == (0, 3)
    made.cluster.advance(3601)
    assert (made.verb(*AWAY).code, gated(made)) == (0, set())


def test_a_run_at_work_is_not_away(bench: RunBench) -> None:
    bench.cluster.advance(2 * 3600 + 10)
    acquire(FakeWire(bench.cluster), this_run({"USER": "ada"}, "run"), namespace=LOCK)
    assert (bench.verb(*AWAY).code, gated(bench)) == (75, WAITING)


@pytest.mark.parametrize("at", range(3))
def test_a_gang_that_a_killed_run_was_starting_is_completed_first(at: int, memory: Benches) -> None:
    cluster = nodes(2)
    cluster.gang_of_pods("a", 2, gpus=8)
    cluster.gang_of_pods("wide", 3, gpus=8)
    made = memory(cluster)
    made.killed(Fault(at, "crash after"), ())
    cluster.advance(3 * 3600)
    assert made.verb(*AWAY).code == 0
    assert gated(made) == set()
    assert made.standing("a") == 2 or not made.placed("a"), (
        "a is started whole, or given back whole"
    )
    pinned = {
        pod["metadata"]["name"]
        for pod in cluster.pods()
        if "kubernetes.io/hostname" in pod["spec"].get("nodeSelector", {})
    }
    assert pinned in (set(), {"a-0", "a-1"})


def test_the_rest_of_a_gang_that_cannot_be_completed_is_left_to_run(memory: Benches) -> None:
    cluster = nodes(2)
    cluster.gang_of_pods("a", 2, gpus=8)
    made = memory(cluster)
    with made.meddled(Cut(1)):
        made.ran(code=7)
    (left,) = gated(made)
    for number in (0, 1):
        made.patch(f"/api/v1/nodes/n{number}", {"spec": {"unschedulable": True}})
    cluster.advance(3 * 3600)
    done = made.verb(*AWAY)
    assert (done.code, gated(made)) == (0, {left})
    assert f"left to run: 1 pod of gangs that have started in part: default/{left}" in done.err


@pytest.fixture
def unplanned(memory: Benches) -> RunBench:
    """Four pods that no run has seen, for two hours and more."""
    cluster = nodes(1)
    cluster.gang_of_pods("wide", 3, gpus=8)
    cluster.add_pod("late", gpus=1, gates=[OTHER, GATE])
    cluster.advance(2 * 3600 + 10)
    return memory(cluster)


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("kind", ["crash before", "crash after", "lost before", "lost after", 500])
def test_cut_off_anywhere_the_next_attempt_gives_back_the_rest(
    at: int, kind: str | int, unplanned: RunBench
) -> None:
    fault = Fault(at, kind)
    with unplanned.meddled(fault.before, after=(fault.after,)), contextlib.suppress(Crash):
        unplanned.verb(*AWAY)
    assert fault.struck
    unplanned.cluster.advance(100)
    assert unplanned.verb(*AWAY).code == 0
    assert gated(unplanned) == set()
    assert unplanned.lease_is_free()


def test_a_pod_made_again_under_the_name_keeps_its_gate(unplanned: RunBench) -> None:

    def swap(call: Call) -> None:
        if call.method == "PATCH" and "/pods/late" in call.path:
            unplanned.cluster.before.clear()
            unplanned.cluster.remove("Pod", "late")
            unplanned.cluster.add_pod("late", gpus=1, gates=[GATE])

    with unplanned.meddled(swap):
        assert unplanned.verb(*AWAY).code == 0
    assert gated(unplanned) == {"late"}


@pytest.mark.parametrize("after", ["29m", "0s", "soon"])
def test_a_time_in_which_a_run_may_still_work_is_refused(after: str, bench: RunBench) -> None:
    done = bench.verb("status", "--give-back-after", after)
    assert (done.code, gated(bench)) == (64, WAITING)


def test_the_shipped_account_may_and_says_where_it_may_not(tmp_path: Path, cli: RunCli) -> None:
    cluster = nodes(1)
    for namespace in (TENANT, "elsewhere"):
        cluster.gang_of_pods("a", 2, gpus=8, namespace=namespace)
    install(cluster)
    cluster.tokens["t"] = USER
    cluster.advance(3 * 3600)
    with serving(cluster, tmp_path) as endpoint:
        environ = environment(tmp_path, KUBECONFIG=str(endpoint.as_user("t")))
        done = cli(*AWAY, environ=environ)
    assert done.code == 7, done.err
    assert f"2 pods given back: {TENANT}/a-0, {TENANT}/a-1" in done.err
    line = "not permitted to give back pods in elsewhere: bind gangplan-starting there"
    assert f"warning: {line}" in done.err
    waits = {
        pod["metadata"]["namespace"] for pod in cluster.pods() if "schedulingGates" in pod["spec"]
    }
    assert waits == {"elsewhere"}
