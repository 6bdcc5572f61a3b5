"""``run`` on a live cluster: gangs give way, move, grow and shrink, wait for gates and budgets."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from live_checks import overfull, partial, placed
from live_cluster import Live
from live_objects import Wanted, workload
from live_relay import Answer, Call, Forward
from live_runs import (
    Killer,
    Ran,
    apply_words,
    evictions,
    killed,
    left,
    planned,
    ran,
    run_low,
    run_words,
)

pytest_plugins = ("live_fixtures",)
pytestmark = pytest.mark.slow

Tree = dict[str, Any]

EVICT = "--allow-evictions"
HIGH = Wanted("high", 3, 8, high=True)


def went_well(live: Live, *more: str) -> Ran:
    done = ran(live, *run_words(live, *more))
    assert done.code == 0, done.err
    return done


def all_bound(live: Live, count: int) -> None:
    live.wait_until(lambda: len(placed(live.pods())) == count, f"{count} pods to be bound")
    assert (partial(live.pods()), overfull(live.pods())) == ([], [])


def entry(plan: Path, name: str) -> Tree:
    gangs = json.loads(plan.read_text(encoding="utf-8"))["spec"]["gangs"]
    found: Tree = next(one for one in gangs if one["name"] == name)
    return found


# ---- gangs that give way


@pytest.mark.parametrize(
    "budgets",
    [
        {"some": ({"minAvailable": 5}, 2)},
        {"one": ({"minAvailable": 0}, 7), "two": ({"minAvailable": 0}, 7)},
    ],
)
def test_a_guarded_gang_is_no_victim_of_a_run_until_its_budget_lets_it_go(
    live: Live, budgets: dict[str, tuple[Tree, int]]
) -> None:
    run_low(live)
    for name, (spec, allowed) in budgets.items():
        live.guard(name, "low", {"expectedPods": 7, "disruptionsAllowed": allowed}, **spec)
    live.create(HIGH)
    out = live.folder / "waiting.json"
    kept = went_well(live, EVICT, "--out", str(out))
    assert (evictions(kept), left(live)) == (set(), 7)
    assert entry(out, "low")["decision"] == "keep"
    by = entry(out, "high")["reason"]["fields"]["by"]
    assert [one["gang"] for one in by] == [f"{live.namespace}/low"]
    live.unguard()
    assert len(evictions(went_well(live, EVICT))) == 7
    all_bound(live, 3)


@pytest.mark.parametrize("at", [2, 4])
def test_a_victim_cut_by_a_kill_is_reported_until_it_is_gone(live: Live, at: int) -> None:
    """A budget appears after the kill that lets none of the rest go; the runs after it plan anew."""
    run_low(live)
    live.create(HIGH)
    words = apply_words(live, planned(live), EVICT)
    assert killed(live, Killer(at, after=True), *words).code == -signal.SIGKILL
    live.wait_until(lambda: left(live) == 7 - at, "the evicted pods to go")
    live.guard("b", "low", {"expectedPods": 7 - at}, minAvailable=7 - at)
    for _ in range(2):
        cut = ran(live, *run_words(live, EVICT, "--wait", "5s"))
        assert (cut.code, left(live)) == (7, 7 - at), cut.err
        assert cut.err.count("delete --raw") == 7 - at
        status = ran(live, "status", "--lock-namespace", live.lock_namespace)
        assert "half stopped" in status.out, status.out
    live.unguard()
    for _ in range(2):
        done = ran(live, *run_words(live, EVICT))
    assert (done.code, left(live)) == (0, 0), done.err
    all_bound(live, 3)


# ---- gangs that move

BIG = Wanted("big", 1, 8)


class Controller:
    """Makes the pod of a gang anew once it is evicted, as its template has it: gated, without a pin."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self.evicted: list[str] = []

    def __call__(self, call: Call, forward: Forward) -> Answer:
        answer = forward()
        if call.evicts and answer.code < 300:
            name = call.path.split("/")[-2]
            self.evicted.append(name)
            self._live.wait_until(lambda: name not in self._live.pods(), "the evicted pod to go")
            self._live.create(Wanted(name.removesuffix("-0"), 1, 4, movable=True))
        return answer


def two_halves(live: Live) -> None:
    """Five nodes full, and two with a movable gang of 4 GPUs each, all started by gangplan."""
    names = ["a", "b", "c", "d"]
    live.create(Wanted("full", 5, 8), *(Wanted(name, 1, 4, movable=True) for name in names))
    went_well(live)
    all_bound(live, 9)
    where = {name: live.pods()[f"{name}-0"]["spec"]["nodeName"] for name in names}
    stays = {place: f"{name}-0" for name, place in where.items()}
    assert len(stays) == 2
    live.delete_pods(*(f"{name}-0" for name in names if f"{name}-0" not in stays.values()))


def test_a_run_moves_a_gang_that_an_earlier_run_started_and_pinned(live: Live) -> None:
    two_halves(live)
    for pod in live.pods().values():
        assert pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": pod["spec"]["nodeName"]}
    live.create(BIG)
    controller = Controller(live)
    done = ran(live, *run_words(live, EVICT), meddler=controller)
    assert (done.code, len(controller.evicted)) == (0, 1), done.err
    all_bound(live, 8)
    again = went_well(live, EVICT)
    assert [str(call) for call in again.calls if call.writes_pods] == []


# ---- elastic gangs of Deployments and StatefulSets

KINDS = ["Deployment", "StatefulSet"]


def outcome(done: Ran, gang: str) -> str:
    """What a run said of the gang."""
    found = re.findall(rf"/{gang}: (\w+)", done.err)
    assert found, done.err
    last: str = found[-1]
    return last


def running(live: Live, gang: str) -> set[str]:
    return placed(live.pods()).keys() & live.of(gang).keys()


def replicas(live: Live, kind: str) -> int:
    path = f"/apis/apps/v1/namespaces/{live.namespace}/{kind.lower()}s/low"
    found: int = live.get(path)["spec"]["replicas"]
    return found


def settled(live: Live, gang: str, count: int) -> None:
    live.wait_until(lambda: len(running(live, gang)) == count, f"{count} pods of {gang} to run")
    assert overfull(live.pods()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_gang_starts_with_what_fits_grows_later_and_shrinks_for_a_higher_one(
    live: Live, kind: str
) -> None:
    """Seven nodes, three of them taken: four of six pods start."""
    live.create(Wanted("wide", 3, 8, "rival"))
    live.wait_until(lambda: len(placed(live.pods())) == 3, "the rivals to be bound")
    low = Wanted("low", 6, 8, preemptible=True)
    live.create_workload(workload(kind, low, live.run, least=2, most=6))
    assert outcome(went_well(live, EVICT), "low") == "started"
    settled(live, "low", 4)
    begun = running(live, "low")

    live.delete_pods("wide-0", "wide-1", "wide-2")
    assert outcome(went_well(live, EVICT), "low") == "started"
    settled(live, "low", 6)
    assert running(live, "low") > begun

    live.create(HIGH)
    assert outcome(went_well(live, EVICT), "low") == "resized"
    settled(live, "high", 3)
    settled(live, "low", 4)
    assert (replicas(live, kind), len(live.of("low"))) == (4, 4)
    if kind == "StatefulSet":
        assert running(live, "low") == {"low-0", "low-1", "low-2", "low-3"}
    went_well(live, EVICT)
    assert len(running(live, "low")) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_gang_grows_beyond_its_pods_by_the_scale_of_its_controller(live: Live, kind: str) -> None:
    low = Wanted("low", 2, 8)
    live.create_workload(workload(kind, low, live.run, least=2, most=4, on_template=True))
    went_well(live)
    settled(live, "low", 2)
    went_well(live)
    assert replicas(live, kind) == 2
    for _ in range(2):  # its controller may take longer than the run waits
        went_well(live, EVICT)
    settled(live, "low", 4)
    assert replicas(live, kind) == 4
