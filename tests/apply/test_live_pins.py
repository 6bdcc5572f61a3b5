"""Gangs that gangplan started in gate mode move again, as if they were not pinned."""

from __future__ import annotations

import pytest
from effort import first_fast
from live_checks import annotations_of, overfull, partial, placed
from live_cluster import Live
from live_objects import Wanted
from live_relay import Answer, Call, Forward
from live_runs import Killer, apply_words, killed, planned, ran, run_words

pytest_plugins = ("live_fixtures",)

BIG = Wanted("big", 1, 8)


class Controller:
    """Makes the pod of a gang anew once it is evicted, as its template has it: gated, without a pin."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self.evicted: list[str] = []

    def __call__(self, call: Call, forward: Forward) -> Answer | None:
        return self.answer(call, forward)

    def answer(self, call: Call, forward: Forward) -> Answer:
        answer = forward()
        if call.evicts and answer.code < 300:
            name = call.path.split("/")[-2]
            self.evicted.append(name)
            self._live.wait_until(lambda: name not in self._live.pods(), "the evicted pod to go")
            self._live.create(Wanted(name.removesuffix("-0"), 1, 4, movable=True))
        return answer


class Dying(Killer):
    """A run that is killed, and a controller that outlives it."""

    controller: Controller

    def __call__(self, call: Call, forward: Forward) -> Answer | None:
        return super().__call__(call, lambda: self.controller.answer(call, forward))


def two_halves(live: Live) -> None:
    """Five nodes full, and two with a movable gang of 4 GPUs each, all started by gangplan."""
    names = ["a", "b", "c", "d"]
    live.create(Wanted("full", 5, 8), *(Wanted(name, 1, 4, movable=True) for name in names))
    done = ran(live, *run_words(live))
    assert done.code == 0, done.err
    live.wait_until(lambda: len(placed(live.pods())) == 9, "all pods to be bound")
    nodes = {name: live.pods()[f"{name}-0"]["spec"]["nodeName"] for name in names}
    stays = {node: f"{name}-0" for name, node in nodes.items()}
    assert len(stays) == 2
    live.delete_pods(*(f"{name}-0" for name in names if f"{name}-0" not in stays.values()))


def test_a_started_pod_is_pinned_and_the_record_of_its_pin_stays(live: Live) -> None:
    live.create(Wanted("one", 4, 8))
    assert ran(live, *run_words(live)).code == 0
    assert ran(live, *run_words(live)).code == 0
    for pod in live.pods().values():
        assert pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": pod["spec"]["nodeName"]}
        assert annotations_of(pod)["gangplan.dev/pin"] == "hostname"
    again = ran(live, *run_words(live))
    assert [str(call) for call in again.calls if call.writes_pods] == []


def test_a_run_moves_a_gang_that_an_earlier_run_started(live: Live) -> None:
    two_halves(live)
    live.create(BIG)
    controller = Controller(live)
    done = ran(live, *run_words(live, "--allow-evictions"), meddler=controller)
    assert done.code == 0, done.err
    assert len(controller.evicted) == 1
    live.wait_until(lambda: len(placed(live.pods())) == 8, "all pods to be bound")
    assert (partial(live.pods()), overfull(live.pods())) == ([], [])
    assert ran(live, *run_words(live, "--allow-evictions")).code == 0
    assert len(controller.evicted) == 1


@pytest.mark.parametrize("first", ["defragment", "big"])
def test_a_plan_of_what_the_server_lists_moves_it_too(live: Live, first: str) -> None:
    two_halves(live)
    options = ("--defragment",) if first == "defragment" else ()
    if first == "big":
        live.create(BIG)
    controller = Controller(live)
    words = apply_words(live, planned(live, first, *options), "--allow-evictions")
    done = ran(live, *words, meddler=controller)
    assert done.code == 0, done.err
    assert len(controller.evicted) == 1
    live.wait_until(lambda: len(placed(live.pods())) == 7 + (first == "big"), "all pods")
    halves = {p["spec"]["nodeName"] for n, p in live.pods().items() if n[0] in "acd" or n == "b-0"}
    assert len(halves) == 1
    assert (partial(live.pods()), overfull(live.pods())) == ([], [])


@pytest.mark.parametrize(
    "strike", first_fast([(2, True), (1, True), (2, False), (3, True), (4, False), (5, True)])
)
def test_a_move_that_is_killed_anywhere_is_finished_by_later_runs(
    live: Live, strike: tuple[int, bool]
) -> None:
    """At this write to a pod, once the server carried it out or before."""
    two_halves(live)
    live.create(BIG)
    controller = Controller(live)
    killer = Dying(*strike)
    killer.controller = controller
    words = run_words(live, "--allow-evictions", "--wait", "5s")
    killed(live, killer, *words)
    codes = [ran(live, *words, meddler=controller).code for _ in range(2)]
    assert codes[-1] == 0, codes
    live.wait_until(lambda: len(placed(live.pods())) == 8, "all pods to be bound")
    assert (partial(live.pods()), overfull(live.pods())) == ([], [])
