"""What else befalls a run: other runs, lost locks, missing rights, half-started gangs, bugs of our own."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from apiserver import LOST, Answer, Call
from apiserver_kinds import Kind
from conftest import Result, RunCli
from effort import HANG_S
from run_bench import (
    LEASE,
    Cut,
    RunBench,
    events,
    memory_bench,
    nodes,
    summary,
    while_solving,
)

from models.units import epoch_seconds
from planner.cluster import lock
from planner.pipelines.run import _LockedRun


@pytest.fixture
def bench(tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunBench]:
    cluster = nodes(3)
    for name in ("a", "b", "c"):
        cluster.gang_of_pods(name, 2, gpus=4)
    with memory_bench(cluster, tmp_path, cli, monkeypatch) as made:
        yield made


def samples(path: Path) -> dict[str, float]:
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def everything_runs(bench: RunBench) -> bool:
    return None not in bench.places().values()


def test_of_two_runs_one_works_and_the_other_says_who_does(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one comes while the first one solves."""
    second: list[Result] = []
    while_solving(monkeypatch, lambda: second.append(bench.run()))
    first = bench.run()
    assert first.code == 0, first.err
    assert everything_runs(bench)
    (other,) = second
    assert other.code == 75
    assert "locked in namespace gangplan-system by run by tester@" in other.err
    assert "gangplan status --release " in other.err
    assert "run locked (exit 75): nothing changed" in summary(other)


def test_a_lock_that_was_lost_during_the_search_ends_the_run_before_it_writes(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def steal() -> None:
        tree = copy.deepcopy(bench.lease())
        tree["spec"]["holderIdentity"] = "0123456789"
        assert bench.cluster.handle("PUT", LEASE, tree)[0] == 200

    while_solving(monkeypatch, steal)
    result = bench.run("--log-format", "json")
    assert result.code == 75, result.err
    assert bench.written() == []
    assert bench.lease()["spec"]["holderIdentity"] == "0123456789"
    assert "it was taken over" in events(result)[-2]["error"]


def test_the_lock_is_kept_alive_while_the_solver_works(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock of six seconds is due for renewal after two; a real one lasts a minute."""
    monkeypatch.setattr(lock, "acquire", partial(lock.acquire, duration_s=6))
    renewed: list[bool] = []

    def renewals() -> int:
        return sum(call.method == "PUT" and call.path == LEASE for call in bench.cluster.calls)

    def wait_for_one() -> None:
        before, deadline = renewals(), time.monotonic() + HANG_S
        while renewals() == before and time.monotonic() < deadline:
            time.sleep(0.02)
        renewed.append(renewals() > before)

    while_solving(monkeypatch, wait_for_one)
    bench.run()
    assert renewed == [True]


@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("leases", "update leases.coordination.k8s.io gangplan in namespace gangplan-system"),
        ("nodes", "list nodes"),
        # without it the pods of a job would be taken for gangs of one
        ("jobs", "list jobs.batch in all namespaces"),
        ("patch pods", "patch pods in namespace default"),
    ],
)
def test_a_missing_right_is_named_before_anything_of_a_gang_is_written(
    path: str, right: str, bench: RunBench
) -> None:
    verb, resource = right.split(maxsplit=1)[0], right.split()[1].partition(".")[0]

    def deny(call: Call) -> Answer | None:
        if not call.path.endswith("/selfsubjectaccessreviews"):
            return None
        asked = call.body["spec"]["resourceAttributes"]
        allowed = (asked["verb"], asked["resource"]) != (verb, resource) or "subresource" in asked
        return 201, {"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}}, {}

    bench.cluster.before.append(deny)
    result = bench.run()
    assert result.code == 77, (path, result.err)
    assert f"not permitted: {right}" in result.err
    assert bench.written() == []
    assert bench.lease_is_free()
    assert "run not permitted (exit 77)" in summary(result)


@pytest.mark.parametrize(
    ("kind", "plural", "group"),
    [
        ("Cohort", "cohorts", "kueue.x-k8s.io"),
        ("ElasticQuota", "elasticquotas", "scheduling.x-k8s.io"),
    ],
)
def test_a_run_goes_on_with_the_role_of_a_version_that_read_no_quotas(
    bench: RunBench, kind: str, plural: str, group: str
) -> None:
    def deny(call: Call) -> Answer | None:
        if not call.path.endswith("/selfsubjectaccessreviews"):
            return None
        allowed = call.body["spec"]["resourceAttributes"]["resource"] != plural
        return 201, {"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}}, {}

    version = "v1beta2" if kind == "Cohort" else "v1alpha1"
    bench.cluster.kinds.serve(Kind(kind, plural, group, version, kind != "Cohort", custom=True))
    bench.cluster.before.append(deny)
    result = bench.run()
    assert result.code == 0, result.err


def test_a_kind_that_is_left_out_needs_no_right(bench: RunBench) -> None:
    def deny(call: Call) -> Answer | None:
        if not call.path.endswith("/selfsubjectaccessreviews"):
            return None
        allowed = call.body["spec"]["resourceAttributes"]["resource"] != "jobs"
        return 201, {"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}}, {}

    bench.cluster.before.append(deny)
    result = bench.run("--skip", "jobs.batch")
    assert result.code == 0, result.err


def test_a_gang_that_can_no_longer_be_whole_is_reported_by_every_run(bench: RunBench) -> None:
    """Cut after one start of the first gang; then its other pod is deleted."""
    bench.cluster.before.append(Cut(1))
    assert bench.run().code == 7
    bench.cluster.before.clear()
    bench.cluster.advance(120)
    (begun,) = [name for name, node in bench.places().items() if node is not None]
    other = begun[:-1] + ("1" if begun.endswith("0") else "0")
    bench.cluster.remove("Pod", other)
    result = bench.run()
    assert result.code == 7, result.err
    assert f"default/{begun[:-2]}: partial" in result.err
    assert "kubectl --context=test delete --raw /api/v1/namespaces/default/pods/" in result.err
    waiting = [name for name, node in bench.places().items() if node is None]
    assert waiting == []  # the other gangs are started
    assert "1 partial" in summary(result)
    assert (
        result.err.count("is partial; these commands undo it:") == 1
    )  # though recovering and applying see it


def test_a_gang_that_is_undone_counts_to_the_evictions_of_the_run(
    tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One eviction is allowed; undoing the partial gang takes it, so the preemption has to wait."""
    cluster = nodes(2)
    preemptible = {"gangplan.dev/preemptible": "true"}
    cluster.gang_of_pods("low", 1, gpus=8, nodes=["n0"], annotations=preemptible)
    cluster.gang_of_pods("a", 2, gpus=4)
    with memory_bench(cluster, tmp_path, cli, monkeypatch) as bench:
        cluster.before.append(Cut(1))
        assert bench.run().code == 7
        cluster.before.clear()
        cluster.advance(120)
        (begun,) = [n for n, node in bench.places().items() if node == "n1"]
        cluster.remove("Pod", "a-1" if begun == "a-0" else "a-0")
        cluster.gang_of_pods("high", 2, gpus=8, priority=9)
        allowed = ("--allow-evictions", "--evict-partial", "--max-evictions", "1")
        result = bench.run(*allowed)
        assert result.code == 7, result.err
        assert begun not in bench.places()
        assert bench.places()["low-0"] == "n0"
        evictions = [path for _, path in bench.written() if path.endswith("/eviction")]
        assert len(evictions) == 1
        assert bench.run(*allowed).code == 0
        assert [bench.places()[f"high-{i}"] is not None for i in (0, 1)] == [True, True]


def test_metrics_tell_how_it_went_and_keep_the_last_success(
    bench: RunBench, tmp_path: Path
) -> None:
    path = tmp_path / "gangplan.prom"
    begun = time.time()
    assert bench.run("--metrics-file", str(path)).code == 0
    good = samples(path)
    success = good["gangplan_last_success_timestamp_seconds"]
    assert begun <= success <= time.time()
    assert (good["gangplan_exit_code"], good["gangplan_started_gangs"]) == (0, 3)
    assert (good["gangplan_pending_gangs"], good["gangplan_evicted_pods"]) == (0, 0)
    assert 'gangplan_phase_seconds{phase="solve"}' in good
    missing = bench.run("--metrics-file", str(path), "--policy", str(tmp_path / "nowhere"))
    assert missing.code == 66
    assert samples(path) == {
        "gangplan_last_success_timestamp_seconds": success,
        "gangplan_exit_code": 66,
    }
    summary(missing)


def test_a_target_that_cannot_be_written_is_found_before_the_cluster_is_asked(
    bench: RunBench, tmp_path: Path
) -> None:
    for option in ("--metrics-file", "--out"):
        result = bench.run(option, str(tmp_path / "nowhere" / "file"))
        assert result.code == 73, result.err
        assert "run failed (exit 73)" in summary(result)
        assert result.err.count("error: ") == 1
    assert bench.cluster.calls == []


def test_a_bug_gives_the_lock_back_and_is_one_summary_too(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(_LockedRun, "_apply", broken)
    path = tmp_path / "gangplan.prom"
    result = bench.run("--log-format", "json", "--metrics-file", str(path))
    assert result.code == 1
    assert events(result)[-2]["error"] == "unexpected RuntimeError: a bug"
    assert (bench.last_run()["status"], bench.last_run()["exit_code"]) == ("failed", 1)
    assert samples(path)["gangplan_exit_code"] == 1


def test_a_server_that_is_gone_is_unavailable(bench: RunBench) -> None:
    bench.cluster.before.append(lambda _: LOST)
    result = bench.run("--log-format", "json")
    assert result.code == 69, result.err
    assert events(result)[-1]["status"] == "unavailable"


def test_a_server_that_goes_during_the_recording_is_unavailable_and_nothing_is_written(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> None:
        bench.cluster.before.append(lambda _: LOST)

    while_solving(monkeypatch, gone)
    result = bench.run()
    assert result.code in (69, 75), result.err
    assert bench.written() == []
    assert "the lock was not released" in result.err
    summary(result)


@pytest.mark.parametrize("words", [("-",), ("--policy", "-")])
def test_a_run_reads_no_stdin(words: tuple[str, ...], bench: RunBench) -> None:
    result = bench.run(*words)
    assert result.code == 64
    assert "run does not read stdin" in result.err
    assert bench.cluster.calls == []


def cordon_all_but_two(bench: RunBench) -> None:
    """Gangs of two times 4 GPUs go to three nodes at least, so the plan relied on one of these."""
    for name in ("n0", "n1"):
        bench.cluster.cordon(name)


def test_the_time_limit_holds_for_the_plan_that_is_made_once_more_too(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "plan.json"
    bench.cluster.add_node("n3")
    while_solving(monkeypatch, lambda: cordon_all_but_two(bench))
    result = bench.run("--time-limit", "7s", "--out", str(out), "--log-format", "json")
    assert result.code == 0, result.err
    assert events(result)[-1]["replanned"] is True
    solve = json.loads(out.read_bytes())["instance"]["policy"]["spec"]["solve"]
    assert solve["timeLimit"] == "7s"


def test_a_native_pod_group_is_started(
    tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = nodes(2, groups=True)
    cluster.put(
        {
            "apiVersion": "scheduling.k8s.io/v1alpha2",
            "kind": "PodGroup",
            "metadata": {"name": "a"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        }
    )
    cluster.gang_of_pods("a", 2, gpus=8, schedulingGroup={"podGroupName": "a"})
    with memory_bench(cluster, tmp_path, cli, monkeypatch) as made:
        result = made.run()
        assert result.code == 0, result.err
        assert everything_runs(made)


def test_moves_of_the_cluster_that_the_plan_does_not_rely_on_are_none(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new gang, a new node and a label that no pod selects appear while the solver works."""

    def happen() -> None:
        bench.cluster.add_node("n9")
        bench.cluster.gang_of_pods("late", 1, gpus=1)
        bench.cluster.touch("Pod", "a-0")

    while_solving(monkeypatch, happen)
    result = bench.run("--log-format", "json")
    assert result.code == 0, result.err
    assert events(result)[-1]["replanned"] is False
    assert bench.places()["late-0"] is None
    assert bench.run().code == 0
    assert everything_runs(bench)


def test_ages_are_counted_by_the_servers_clock(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The clock of this host is years off; that of the server stands still."""
    monkeypatch.setattr(time, "time", lambda: 4_000_000_000.0)
    out = tmp_path / "plan.json"
    assert bench.run("--out", str(out)).code == 0
    made = json.loads(out.read_bytes())["metadata"]["createdAt"]
    assert epoch_seconds(made) - int(bench.cluster.clock()) in (0, 1, 2)
