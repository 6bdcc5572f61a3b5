"""The cluster moves between plan and apply, or under the apply: nothing is written, or it is reported."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from effort import HANG_S, first_fast
from live_checks import overfull, partial, placed
from live_cluster import Live
from live_objects import Wanted, ten_gangs
from live_relay import Answer, Call, Forward
from live_runs import apply_words, placements, planned, ran
from snapshots import environment

pytest_plugins = ("live_fixtures",)


@pytest.mark.parametrize("how", first_fast(["cordoned", "without"]))
def test_a_node_that_is_cordoned_or_gone_makes_the_plan_stale(live: Live, how: str) -> None:
    live.create(*ten_gangs())
    plan = planned(live)
    node = live.nodes[2]
    lost: AbstractContextManager[None] = getattr(live, how)(node)
    with lost:
        done = ran(live, *apply_words(live, plan))
    assert done.code == 6, done.err
    assert node in done.err
    assert [str(call) for call in done.calls if call.writes_pods] == []
    if how == "cordoned":  # and back again: harmless
        assert ran(live, *apply_words(live, plan)).code == 0


def test_a_pod_made_anew_under_its_name_makes_the_plan_stale(live: Live) -> None:
    gang = Wanted("one", 2, 8)
    live.create(gang)
    plan = planned(live)
    live.delete_pods()
    live.create(gang)
    done = ran(live, *apply_words(live, plan))
    assert (done.code, "one-0" in done.err) == (6, True), done.err
    assert [str(call) for call in done.calls if call.writes_pods] == []
    assert ran(live, *apply_words(live, planned(live))).code == 0


def test_a_rival_in_the_planned_room_makes_the_plan_stale(live: Live) -> None:
    live.create(*ten_gangs())
    plan = planned(live)
    taken = placements(plan)["wide-0"][0]
    live.create(Wanted("rival", 1, 1, "rival", node=taken))
    done = ran(live, *apply_words(live, plan))
    assert (done.code, taken in done.err) == (6, True), done.err
    assert [str(call) for call in done.calls if call.writes_pods] == []


class Meanwhile:
    """Does something once, before the ``at``-th start of a pod so named reaches the server.

    Starts on other connections wait until it is done.
    """

    def __init__(self, gang: str, at: int, do: Callable[[Call], object]) -> None:
        self._gang, self._left, self._do = gang, at, do
        self._doing = threading.Lock()

    def __call__(self, call: Call, forward: Forward) -> Answer | None:
        if call.starts and f"/pods/{self._gang}" in call.path:
            with self._doing:
                self._left -= 1
                if self._left == 0:
                    self._do(call)
        return forward()


def undone(live: Live, said: str) -> int:
    """How many commands were printed to undo something; each was run, as a user would paste it."""
    commands = [line for line in said.splitlines() if line.lstrip().startswith("printf ")]
    for command in commands:
        done = subprocess.run(
            command,
            shell=True,
            check=False,
            timeout=HANG_S,
            capture_output=True,
            text=True,
            env=environment(live.folder, KUBECONFIG=str(live.relayed)),
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    return len(commands)


def test_a_gang_that_lost_a_pod_half_way_is_reported_with_the_commands_that_undo_it(
    live: Live,
) -> None:
    live.create(Wanted("one", 3, 8), Wanted("two", 2, 8))
    plan = planned(live)

    def lose(_call: Call) -> None:
        waiting = [name for name, pod in live.pods().items() if "nodeName" not in pod["spec"]]
        live.delete_pods(max(name for name in waiting if name.startswith("one-")))

    done = ran(live, *apply_words(live, plan), meddler=Meanwhile("one", 2, lose))
    assert done.code == 7, done.err
    live.wait_until(lambda: placed(live.pods()).keys() >= {"two-0", "two-1"}, "the other gang")
    left = {name for name in live.pods() if name.startswith("one-")}
    assert undone(live, done.err) == 2
    live.wait_until(lambda: not left & live.pods().keys(), "the commands to undo the gang")
    assert set(live.pods()) == {"two-0", "two-1"}


def test_started_pods_of_a_gang_that_cannot_be_whole_are_evicted_on_demand(live: Live) -> None:
    live.create(Wanted("one", 3, 8), Wanted("two", 2, 8))
    plan = planned(live)
    lose = Meanwhile("one", 2, lambda _: live.delete_pods("one-2"))
    words = apply_words(live, plan, "--evict-partial")
    done = ran(live, *words, meddler=lose)
    assert done.code in {0, 7}, done.err
    live.wait_until(lambda: set(live.pods()) == {"two-0", "two-1"}, "the started pods to go")
    assert placed(live.pods()).keys() == {"two-0", "two-1"}


class Robbery:
    """Before the first pod starts, a rival takes a whole node of another gang: ``gang``."""

    def __init__(self, live: Live, plan: Path) -> None:
        self._live, self._seats = live, placements(plan)
        self.gang = ""

    def __call__(self, call: Call) -> None:
        self.gang = "wide" if "/pods/half-" in call.path else "half"
        room = self._seats[f"{self.gang}-0"][0]
        self._live.create(Wanted("rival", 1, 8, "rival", node=room))


@pytest.mark.slow
def test_a_rival_in_the_room_of_a_pinned_gang_is_reported_and_keeps_it_waiting_no_longer(
    live: Live,
) -> None:
    live.create(*ten_gangs())
    plan = planned(live)
    robbery = Robbery(live, plan)
    words = apply_words(live, plan, "--wait", "1s")
    done = ran(live, *words, meddler=Meanwhile("", 1, robbery))
    assert done.code == 7, done.err  # its pins cannot hold, as long as the rival is there
    assert re.search(rf"/{robbery.gang} +partial +2 ", done.out), done.out
    assert f"/{robbery.gang} is partial; these commands undo it:" in done.err
    live.wait_until(lambda: len(placed(live.pods())) >= 18 + 1, "the other nine gangs")
    assert overfull(live.pods()) == []
    live.delete_pods("rival-0")
    live.wait_until(lambda: placed(live.pods()) == placements(plan), "the gang to be bound")
    assert ran(live, *words).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("how", first_fast(["cordoned", "without"]))
def test_pins_on_a_node_that_is_no_longer_fit_for_them_are_undone_by_what_is_reported(
    live: Live, how: str
) -> None:
    """Nothing of the gang is bound, yet apply and status print the commands that undo it."""
    live.create(Wanted("one", 1, 8))
    plan = planned(live)
    node = placements(plan)["one-0"][0]
    words = apply_words(live, plan, "--wait", "1s")
    with contextlib.ExitStack() as lost:
        spoil = Meanwhile("one", 1, lambda _: lost.enter_context(getattr(live, how)(node)))
        done = ran(live, *words, meddler=spoil)
        assert done.code == 7, done.err
        assert re.search(r"/one +partial +1 .*" + node, done.out), done.out
        again = ran(live, *words)
        assert (again.code, node in again.out) == (7, True), again.err
        told = ran(live, "status", "--lock-namespace", live.lock_namespace).out
        assert re.search(r"/one +stuck +1 of 1 ", told), told
        assert undone(live, told) == 1
    live.wait_until(lambda: live.pods() == {}, "the pinned pod to go")


def test_a_rival_in_the_room_of_a_gang_that_we_bind_is_found_and_reported(live: Live) -> None:
    live.create(*ten_gangs())
    plan = planned(live)
    robbery = Robbery(live, plan)
    words = apply_words(live, plan, "--wait", "1s")
    done = ran(live, *words, meddler=Meanwhile("", 1, robbery))
    assert done.code == 7, done.err
    assert re.search(rf"/{robbery.gang} +partial +2 ", done.out), done.out
    assert undone(live, done.err) == 2
    pods = live.pods()
    assert (len(placed(pods)), partial(pods), overfull(pods)) == (18 + 1, [], [])


class Breakdown:
    """As the first pod starts, the node of a gang that is not begun goes: ``gang``, ``node``."""

    def __init__(self, live: Live, plan: Path) -> None:
        self._live, self._seats = live, placements(plan)
        self.gang = self.node = ""

    def __call__(self, call: Call) -> None:
        self.gang = "wide" if "/pods/half-" in call.path else "half"
        self.node = self._seats[f"{self.gang}-0"][0]
        self._live.kubectl("delete", "node", self.node, "--wait=false")


@pytest.mark.slow
def test_a_node_that_goes_meanwhile_is_found_and_reported(live: Live) -> None:
    live.create(*ten_gangs())
    plan = planned(live)
    breakdown = Breakdown(live, plan)
    words = apply_words(live, plan, "--wait", "1s")
    ran(live, *words, meddler=Meanwhile("", 1, breakdown))
    again = ran(live, *words)
    live.add_nodes(breakdown.node)
    assert again.code == 7, again.err
    (told,) = [line for line in again.out.splitlines() if f"/{breakdown.gang} " in line]
    assert ("partial" in told, breakdown.node in told) == (True, True), told
    live.wait_until(lambda: len(placed(live.pods())) == 20, "pinned pods to follow their node back")
    assert (partial(live.pods()), overfull(live.pods())) == ([], [])
