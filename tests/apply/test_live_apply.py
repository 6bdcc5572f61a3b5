"""``apply`` on a live cluster that fails it, moves under it, or outlives it; and the same plan again."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable

import pytest
from effort import HANG_S
from live_checks import overfull, partial, placed
from live_cluster import Live
from live_objects import Wanted, ten_gangs
from live_relay import Answer, Call, Forward
from live_runs import (
    Killer,
    Ran,
    apply_words,
    killed,
    placements,
    planned,
    ran,
    run_words,
)
from snapshots import environment

from models.apply.session import LANES

pytest_plugins = ("live_fixtures",)


def wrote_pods(done: Ran) -> list[str]:
    return [str(call) for call in done.calls if call.writes_pods]


def well(live: Live) -> bool:
    """No gang is partial, no GPU given twice."""
    pods = live.pods()
    return (partial(pods), overfull(pods)) == ([], [])


@pytest.mark.slow
def test_an_answer_that_comes_too_late_is_looked_after(live: Live) -> None:
    live.create(*ten_gangs())
    plan = planned(live)
    writes = 0

    def late(call: Call, forward: Forward) -> Answer | None:
        nonlocal writes
        writes += call.writes_pods
        answer = forward()
        if writes == 25 and call.writes_pods:
            time.sleep(2.5)
        return answer

    done = ran(live, *apply_words(live, plan, "--request-timeout", "2s"), meddler=late)
    assert done.code == 0, done.err
    assert placed(live.pods()) == placements(plan)


# ---- the cluster moved between plan and apply


@pytest.mark.slow
def test_what_moved_makes_the_plan_stale_and_nothing_is_written(live: Live) -> None:
    """A node is closed, a rival stands in the room, a pod is made anew, a node is gone."""
    gangs = ten_gangs()
    live.create(*gangs)
    plan = planned(live)
    taken, half = placements(plan)["wide-0"][0], gangs[-1]

    def stale(about: str) -> None:
        done = ran(live, *apply_words(live, plan))
        assert (done.code, about in done.err, wrote_pods(done)) == (6, True, []), done.err

    with live.cordoned(live.nodes[2]):
        stale(live.nodes[2])
    live.create(Wanted("rival", 1, 1, "rival", node=taken))
    stale(taken)
    live.delete_pods("rival-0")
    live.delete_pods("half-0", "half-1")
    live.create(half)
    stale("half-0")
    plan = planned(live)
    with live.without(live.nodes[2]):
        stale(live.nodes[2])
    plan = planned(live)
    assert ran(live, *apply_words(live, plan)).code == 0
    assert placed(live.pods()) == placements(plan)


# ---- the cluster moves under it


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
    env = environment(live.folder, KUBECONFIG=str(live.relayed))
    for command in commands:
        done = subprocess.run(
            command,
            shell=True,
            check=False,
            timeout=HANG_S,
            capture_output=True,
            text=True,
            env=env,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    return len(commands)


@pytest.mark.parametrize("evicts", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_gang_that_lost_a_pod_half_way_is_undone_by_the_commands_reported_or_on_demand(
    live: Live, *, evicts: bool
) -> None:
    live.create(Wanted("one", 3, 8), Wanted("two", 2, 8))
    plan = planned(live)
    more = ("--evict-partial",) if evicts else ()
    lose = Meanwhile("one", 2, lambda _: live.delete_pods("one-2"))
    done = ran(live, *apply_words(live, plan, *more), meddler=lose)
    if not evicts:
        assert (done.code, undone(live, done.err)) == (7, 2), done.err
    live.wait_until(lambda: set(live.pods()) == {"two-0", "two-1"}, "the started pods to go")
    live.wait_until(lambda: len(placed(live.pods())) == 2, "the other gang")


@pytest.mark.slow
def test_a_rival_in_the_room_of_a_gang_is_reported_and_keeps_it_waiting_no_longer(
    live: Live,
) -> None:
    """It takes a whole node of another gang before the first pod starts."""
    live.create(*ten_gangs())
    plan = planned(live)
    robbed: list[str] = []

    def rob(call: Call) -> None:
        robbed.append("wide" if "/pods/half-" in call.path else "half")
        room = placements(plan)[f"{robbed[0]}-0"][0]
        live.create(Wanted("rival", 1, 8, "rival", node=room))

    words = apply_words(live, plan, "--wait", "1s")
    done = ran(live, *words, meddler=Meanwhile("", 1, rob))
    assert done.code == 7, done.err  # its pins cannot hold, as long as the rival is there
    assert re.search(rf"/{robbed[0]} +partial +2 ", done.out), done.out
    assert f"/{robbed[0]} is partial; these commands undo it:" in done.err
    live.wait_until(lambda: len(placed(live.pods())) >= 18 + 1, "the other nine gangs")
    assert overfull(live.pods()) == []
    live.delete_pods("rival-0")
    live.wait_until(lambda: placed(live.pods()) == placements(plan), "the gang to be bound")
    assert ran(live, *words).code == 0


# ---- killed, stopped, locked

DEATHS = ((1, False), (8, True), (5, False), (2, True))
"""(which write to a pod or record, whether the server carries it out) of one run after the other. An apply
of ten gangs makes some 40: they die between starts and while records are written."""


@pytest.mark.slow
@pytest.mark.parametrize("last", ["apply", "run"])
def test_ten_gangs_end_as_planned_however_often_the_program_is_killed(
    live: Live, last: str
) -> None:
    """The same command finishes it, and so does a run on another host, without the plan."""
    live.create(*ten_gangs())
    plan = planned(live)
    for at, after in DEATHS if last == "apply" else DEATHS[1:2]:
        killer = Killer(at, after)
        ended = killed(live, killer, *apply_words(live, plan))
        assert (ended.code, killer.struck is not None) == (-signal.SIGKILL, True), ended.err
        # What was on its way with it may still arrive: of other gangs under way at most one start each.
        begun = [str(call) for call in killer.then if not call.prepares]
        assert len(begun) < LANES, begun
        assert len(partial(live.pods())) <= LANES
        assert overfull(live.pods()) == []
    done = ran(live, *(apply_words(live, plan) if last == "apply" else run_words(live)))
    assert done.code == 0, done.err
    assert (len(placed(live.pods())), well(live)) == (20, True)
    if last == "apply":
        assert placed(live.pods()) == placements(plan)
