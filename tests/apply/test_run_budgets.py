"""``run`` and disruption budgets: victims go all or not at all; one cut off half-way is not forgotten."""

from __future__ import annotations

import json
from typing import Any

import pytest
from apiserver import LOST, Answer, Call, FakeCluster
from conftest import Result
from run_bench import EVICT, PREEMPTIBLE, Benches, RunBench, budget, nodes, summary

from planner.read.kube.kinds import OTHERS

pytest_plugins = ("run_fixtures",)

Tree = dict[str, Any]


def crowded(*, comes_back: bool = True) -> FakeCluster:
    """``low`` (4 x 8 GPUs) runs on n0 to n3; ``high`` (3 x 8) waits. Two nodes are free."""
    cluster = nodes(6, kubelets=True)
    where = ["n0", "n1", "n2", "n3"]
    more = {"comes_back": comes_back, "annotations": PREEMPTIBLE, "labels": {"app": "low"}}
    cluster.gang_of_pods("low", 4, nodes=where, **more)  # type: ignore[arg-type]
    cluster.gang_of_pods("high", 3, priority=100, labels={"app": "high"})
    return cluster


@pytest.fixture
def bench(memory: Benches) -> RunBench:
    return memory(crowded())


@pytest.fixture
def unaware(bench: RunBench, monkeypatch: pytest.MonkeyPatch) -> RunBench:
    """The same with plans that know of no budget, as if it came after they were made."""
    known = tuple(kind for kind in OTHERS if kind.name != "PodDisruptionBudget")
    monkeypatch.setattr("planner.cluster.snapshot.OTHERS", known)
    return bench


def unfinished(bench: RunBench) -> bool:
    """Whether the lease tells of work to go on with; what was stopped and held stays in it."""
    notes = json.loads(bench.noted("notes"))
    return bool(notes.get("stops") or notes.get("avoid"))


def half(bench: RunBench) -> bool:
    return 0 < bench.standing("low") < 4 or 0 < bench.standing("high") < 3


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
    for _ in range(2):
        done = unaware.ran(EVICT, code=7)
        assert "withheld" in done.err
        assert "the disruption budget default/b allows" in done.err
        assert (unaware.evictions(), unaware.standing("low")) == (0, 4)


def test_a_budget_that_lets_all_go_holds_nothing_up(bench: RunBench) -> None:
    budget(bench.cluster, minAvailable=0)
    bench.ran(EVICT)
    assert (bench.evictions(), bench.standing("high")) == (4, 3)
    assert not unfinished(bench)


@pytest.mark.parametrize(
    "budgets", [{"b": {"minAvailable": 1}}, {"b": {"minAvailable": 0}, "c": {"minAvailable": 0}}]
)
def test_a_plan_takes_no_guarded_gang_and_says_for_whom_the_other_waits(
    bench: RunBench, budgets: dict[str, Tree]
) -> None:
    """No eviction passes two budgets over one pod, whatever they allow."""
    bench.cluster.cordon("n5")
    for name, spec in budgets.items():
        budget(bench.cluster, name=name, **spec)
    out = bench.folder / "plan.json"
    bench.ran(EVICT, "--out", str(out))
    assert (bench.evictions(), bench.standing("low")) == (0, 4)
    found = {one["name"]: one for one in json.loads(out.read_bytes())["spec"]["gangs"]}
    assert (found["low"]["decision"], found["high"]["decision"]) == ("keep", "wait")
    by = found["high"]["reason"]["fields"]["by"]
    assert [one["gang"] for one in by] == ["default/low"]
    for name in budgets:
        bench.cluster.remove("PodDisruptionBudget", name)
    bench.ran(EVICT)
    assert (bench.evictions(), bench.standing("high")) == (4, 3)


def tightens(cluster: FakeCluster, after: int) -> None:
    """After so many evictions a budget appears that keeps what is left."""
    seen = 0

    def hook(call: Call) -> None:
        nonlocal seen
        evicts = call.path.endswith("/eviction") and call.method == "POST"
        seen += evicts
        if evicts and seen == after:
            budget(cluster, minAvailable=4 - after)

    cluster.after.append(hook)


def quiet(bench: RunBench, *options: str) -> Result:
    """Runs until one writes nothing; none may be content with half a gang."""
    for _ in range(8):
        before = bench.asked()
        done = bench.run(EVICT, *options)
        if half(bench):
            assert done.code != 0, (bench.places(), done.err)
            assert "unchanged" not in summary(done), done.err
        if not bench.written(since=before):
            return done
    raise AssertionError(f"no end: {bench.places()}: {done.err}")


@pytest.mark.parametrize("after", [1, 3])
def test_a_victim_cut_by_a_new_budget_is_reported_until_the_budget_lets_it_go(
    bench: RunBench, after: int
) -> None:
    tightens(bench.cluster, after)
    bench.ran(EVICT, code=7)
    assert 0 < bench.standing("low") < 4
    assert "half stopped" in bench.verb("status").out
    still = quiet(bench)
    if half(bench):
        assert "these commands undo it" in still.err, still.err
    bench.cluster.remove("PodDisruptionBudget", "b")
    assert quiet(bench).code == 0
    assert bench.standing("low") in (0, 4)
    assert bench.standing("high") in (0, 3)
    assert not unfinished(bench)


def test_a_cut_victim_that_is_whole_again_is_well(bench: RunBench) -> None:
    tightens(bench.cluster, 1)
    bench.ran(EVICT, code=7)
    for index in range(3):
        bench.cluster.remove("Pod", f"high-{index}")
    done = quiet(bench)
    assert (done.code, bench.standing("low")) == (0, 4), done.err


def test_evict_partial_finishes_a_cut_victim_without_leave_to_evict_others(
    memory: Benches,
) -> None:
    """Its lost pod does not come back."""
    bench = memory(crowded(comes_back=False))
    tightens(bench.cluster, 1)
    bench.ran(EVICT, code=7)
    bench.cluster.remove("PodDisruptionBudget", "b")
    bench.ran(code=7)
    assert bench.standing("low") == 3
    bench.ran("--evict-partial")
    assert bench.standing("low") == 0


def test_without_the_right_to_read_budgets_a_run_says_so_and_goes_on(unaware: RunBench) -> None:
    def forbidden(call: Call) -> Answer | None:
        return (403, {}, {}) if call.path.endswith("/poddisruptionbudgets") else None

    unaware.cluster.before.append(forbidden)
    assert "not permitted to list poddisruptionbudgets" in unaware.ran(EVICT).err


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
    memory: Benches, *, lost: bool
) -> None:
    """From a request on pods on, the account may do nothing with them; then it may again.

    ``lost``: the answer to the first eviction is lost, too. ``high`` fits without ``low`` as well.
    """
    base = memory(crowded())
    for at in (1, 6) if lost else (2, 4):
        bench, denied = base.fork(), FromEviction(at, lost=lost)
        with bench.meddled(denied.refuse, after=(denied.see,)):
            assert bench.run(EVICT).code != 0
        assert quiet(bench).code == 0
        assert not half(bench)
