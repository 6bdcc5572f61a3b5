"""``run`` and disruption budgets: victims go all or not at all; one cut off half-way is not forgotten."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver import LOST, Answer, Call, FakeCluster
from apply_runs import Crash, Fault
from conftest import Result, RunCli
from effort import spread
from run_bench import RunBench, memory_bench, nodes, summary

from planner.read.kube.kinds import OTHERS

Tree = dict[str, Any]

PREEMPTIBLE = {"gangplan.dev/preemptible": "true"}
LOW, HIGH = {"app": "low"}, {"app": "high"}


def crowded(count: int = 6, *, comes_back: bool = True, mode: str = "gate") -> FakeCluster:
    """``low`` (4 x 8 GPUs) runs on n0 to n3; ``high`` (3 x 8) waits. Two nodes are free."""
    cluster = nodes(count)
    cluster.kubelets = True
    cluster.gang_of_pods(
        "low",
        4,
        gpus=8,
        mode=mode,
        nodes=["n0", "n1", "n2", "n3"],
        comes_back=comes_back,
        annotations=PREEMPTIBLE,
        labels=LOW,
    )
    cluster.gang_of_pods("high", 3, gpus=8, priority=100, labels=HIGH)
    return cluster


def budget(cluster: FakeCluster, name: str = "b", **spec: object) -> None:
    wanted = {"selector": {"matchLabels": LOW}, **spec}
    cluster.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name},
            "spec": wanted,
        }
    )


def unfinished(bench: RunBench) -> bool:
    """Whether the lease tells of work to go on with; what was stopped and held stays in it."""
    notes = json.loads(bench.lease()["metadata"]["annotations"]["gangplan.dev/notes"])
    return bool(notes.get("stops") or notes.get("avoid"))


@pytest.fixture
def bench(tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunBench]:
    with memory_bench(crowded(), tmp_path, cli, monkeypatch) as made:
        yield made


@pytest.fixture
def unaware(bench: RunBench, monkeypatch: pytest.MonkeyPatch) -> RunBench:
    """The same with plans that know of no budget, as if it came after they were made."""
    known = tuple(kind for kind in OTHERS if kind.name != "PodDisruptionBudget")
    monkeypatch.setattr("planner.cluster.snapshot.OTHERS", known)
    return bench


def evictions(bench: RunBench) -> int:
    return sum("eviction" in path for _, path in bench.written())


def standing(bench: RunBench, gang: str) -> int:
    """Its pods that run."""
    return sum(
        node is not None for name, node in bench.places().items() if name.startswith(f"{gang}-")
    )


def half(bench: RunBench) -> bool:
    return 0 < standing(bench, "low") < 4 or 0 < standing(bench, "high") < 3


@pytest.mark.parametrize(
    "spec",
    [{"minAvailable": 3}, {"minAvailable": 1}, {"minAvailable": "50%"}, {"maxUnavailable": 4}],
    ids=str,
)
def test_nothing_goes_of_a_gang_whose_budget_lets_only_some_of_its_pods_go(
    unaware: RunBench, spec: Tree
) -> None:
    """Percentages and maxUnavailable over pods of a Job cannot be counted: they allow nothing."""
    budget(unaware.cluster, **spec)
    for _ in range(3):
        done = unaware.run("--allow-evictions")
        assert done.code == 7, done.err
        assert "withheld" in done.err
        assert "the disruption budget default/b allows" in done.err
        assert (evictions(unaware), standing(unaware, "low")) == (0, 4)


def test_a_budget_that_lets_all_go_holds_nothing_up(bench: RunBench) -> None:
    budget(bench.cluster, minAvailable=0)
    done = bench.run("--allow-evictions")
    assert done.code == 0, done.err
    assert (evictions(bench), standing(bench, "high")) == (4, 3)
    assert not unfinished(bench)


def tightens(cluster: FakeCluster, after: int) -> None:
    """After so many evictions a budget appears that keeps what is left."""
    seen = 0

    def hook(call: Call) -> None:
        nonlocal seen
        seen += call.path.endswith("/eviction") and call.method == "POST"
        if seen == after and call.path.endswith("/eviction"):
            budget(cluster, minAvailable=4 - after)

    cluster.after.append(hook)


def quiet(bench: RunBench, *options: str) -> Result:
    """Runs until two in a row say the same and write nothing; none may be content with half a gang."""
    last: Result | None = None
    for _ in range(8):
        before = bench.asked()
        done = bench.run("--allow-evictions", *options)
        if half(bench):
            assert done.code != 0, (bench.places(), done.err)
            assert "unchanged" not in summary(done), done.err
        if last is not None and (last.code, bench.written(since=before)) == (done.code, []):
            return done
        last = done
    raise AssertionError(f"no end: {bench.places()}: {last and last.err}")


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_victim_cut_by_a_new_budget_is_reported_until_the_budget_lets_it_go(
    bench: RunBench, after: int
) -> None:
    tightens(bench.cluster, after)
    first = bench.run("--allow-evictions")
    assert first.code == 7, first.err
    assert 0 < standing(bench, "low") < 4
    status = bench.verb("status")
    assert "half stopped" in status.out, status.out
    still = quiet(bench)
    if half(bench):
        assert "these commands undo it" in still.err, still.err
    bench.cluster.remove("PodDisruptionBudget", "b")
    assert quiet(bench).code == 0
    assert standing(bench, "low") in (0, 4)
    assert standing(bench, "high") in (0, 3)
    assert not unfinished(bench)


def test_a_cut_victim_that_is_whole_again_is_well(bench: RunBench) -> None:
    tightens(bench.cluster, 1)
    assert bench.run("--allow-evictions").code == 7
    for index in range(3):
        bench.cluster.remove("Pod", f"high-{index}")
    done = quiet(bench)
    assert done.code == 0, done.err
    assert standing(bench, "low") == 4


def test_evict_partial_finishes_a_cut_victim_without_leave_to_evict_others(
    tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lost pod does not come back."""
    with memory_bench(crowded(comes_back=False), tmp_path, cli, monkeypatch) as bench:
        tightens(bench.cluster, 1)
        assert bench.run("--allow-evictions").code == 7
        bench.cluster.remove("PodDisruptionBudget", "b")
        kept = bench.run()
        assert (kept.code, standing(bench, "low")) == (7, 3), kept.err
        done = bench.run("--evict-partial")
        assert (done.code, standing(bench, "low")) == (0, 0), done.err


def test_without_the_right_to_read_budgets_a_run_says_so_and_goes_on(unaware: RunBench) -> None:
    def forbidden(call: Call) -> Any:  # noqa: ANN401  # an answer or None
        return (403, {}, {}) if call.path.endswith("/poddisruptionbudgets") else None

    unaware.cluster.before.append(forbidden)
    done = unaware.run("--allow-evictions")
    assert done.code == 0, done.err
    assert "not permitted to list poddisruptionbudgets" in done.err


class FromEviction:
    """Once pods are evicted, refuses what is asked about pods from the ``at``-th request on."""

    def __init__(self, at: int, *, lost: bool) -> None:
        self.at, self.lost, self.seen = at, lost, 0

    def refuse(self, call: Call) -> Answer | None:
        if not self.seen or "/pods" not in call.path:
            return None
        self.seen += 1
        if self.seen <= self.at:
            return None
        user = 'User "gangplan" cannot get resource "pods"'
        message = f'pods is forbidden: {user} in API group "" in the namespace "default"'
        return (403, {"kind": "Status", "reason": "Forbidden", "message": message}, {})

    def see(self, call: Call) -> Answer | None:
        first = call.path.endswith("/eviction") and not self.seen
        self.seen += first
        return LOST if first and self.lost else None


@pytest.mark.parametrize("lost", [False, True], ids=["answered", "lost"])
def test_rights_lost_amid_evictions_leave_no_half_gang_that_is_forgotten(
    tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch, *, lost: bool
) -> None:
    """From each request on pods on, the account may do nothing with them; then it may again.

    ``lost``: the answer to the first eviction is lost, too. ``high`` fits without ``low`` as well.
    """
    for at in range(1, 12):
        folder = tmp_path / str(at)
        folder.mkdir()
        cluster = crowded(6)
        with memory_bench(cluster, folder, cli, monkeypatch) as bench:
            denied = FromEviction(at, lost=lost)
            cluster.before.append(denied.refuse)
            cluster.after.append(denied.see)
            assert bench.run("--allow-evictions").code != 0
            cluster.before.remove(denied.refuse)
            cluster.after.remove(denied.see)
            assert quiet(bench).code == 0
            assert not half(bench)


def guarded_for_a_time(bench: RunBench, needed: int | None) -> None:
    """Runs under a budget that needs so many pods, if any, then without it."""
    if needed is not None:
        budget(bench.cluster, minAvailable=needed)
    quiet(bench)
    if needed is not None:
        bench.cluster.remove("PodDisruptionBudget", "b")
        assert quiet(bench).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["crash before", "crash after"])
@pytest.mark.parametrize("later", [None, 3, 4], ids=["no-budget", "needs-3", "needs-4"])
@pytest.mark.parametrize("count", [4, 6])
def test_killed_at_any_request_no_run_is_content_with_half_a_gang(
    tmp_path: Path,
    cli: RunCli,
    monkeypatch: pytest.MonkeyPatch,
    *,
    kind: str,
    later: int | None,
    count: int,
) -> None:
    """After the kill a budget appears, or not; ``high`` fits without ``low`` or does not."""
    for at in spread(range(60), 15, thorough=5):
        folder = tmp_path / str(at)
        folder.mkdir()
        cluster = crowded(count)
        with memory_bench(cluster, folder, cli, monkeypatch) as bench:
            if not killed(bench, Fault(at, kind, every=True)):
                return
            guarded_for_a_time(bench, later)
            assert not half(bench)


def movable(count: int = 5) -> FakeCluster:
    """``low`` (4 x 4 GPUs) stands on four of five nodes and may move; ``high`` (3 x 8) waits."""
    cluster = nodes(count)
    cluster.kubelets = True
    cluster.gang_of_pods(
        "low",
        4,
        gpus=4,
        nodes=["n0", "n1", "n2", "n3"],
        comes_back=True,
        annotations={"gangplan.dev/movable": "true"},
        labels=LOW,
    )
    cluster.gang_of_pods("high", 3, gpus=8, priority=100, labels=HIGH)
    return cluster


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["crash before", "crash after"])
@pytest.mark.parametrize("later", [None, 3])
def test_killed_at_any_request_of_a_move_no_run_is_content_with_half_a_gang(
    tmp_path: Path,
    cli: RunCli,
    monkeypatch: pytest.MonkeyPatch,
    *,
    kind: str,
    later: int | None,
) -> None:
    """Two or three pods of ``low`` move together, the others stay."""
    for at in spread(range(70), 17, thorough=5):
        folder = tmp_path / str(at)
        folder.mkdir()
        cluster = movable()
        with memory_bench(cluster, folder, cli, monkeypatch) as bench:
            if not killed(bench, Fault(at, kind, every=True)):
                return
            guarded_for_a_time(bench, later)
            assert (standing(bench, "low"), standing(bench, "high")) == (4, 3)


def killed(bench: RunBench, fault: Fault) -> bool:
    """A run that dies of the fault, if it comes to that; whether it did. Its lock has ended."""
    cluster = bench.cluster
    cluster.before.append(fault.before)
    cluster.after.append(fault.after)
    with contextlib.suppress(Crash):
        bench.run("--allow-evictions")
    cluster.before.clear()
    cluster.after.clear()
    cluster.advance(120)
    return fault.struck
