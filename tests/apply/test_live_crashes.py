"""The program killed with SIGKILL at requests of an apply: run again, it ends as if nothing had happened."""

from __future__ import annotations

import signal

import pytest
from effort import HANG_S, spread
from live_checks import overfull, partial, placed
from live_cluster import Live
from live_objects import ten_gangs
from live_relay import Answer, Call, Forward
from live_runs import Killer, apply_words, killed, placements, planned, ran, started

from models.apply.session import LANES

pytest_plugins = ("live_fixtures",)

DEATHS = ((1, False), (3, True), (5, False), (8, True), (2, True), (9, False))
"""(which write to a pod, whether the server carries it out) of one run after the other. An apply of ten
gangs makes some 40: they die between starts and while marks are written.
``live_sweep`` takes every request in turn."""


@pytest.mark.slow
def test_ten_gangs_end_as_planned_however_often_the_program_is_killed(live: Live) -> None:
    live.create(*ten_gangs())
    plan = planned(live)
    for at, after in spread(DEATHS, 3):
        killer = Killer(at, after)
        ended = killed(live, killer, *apply_words(live, plan))
        assert (ended.code, killer.struck is not None) == (-signal.SIGKILL, True), ended.err
        # What was on its way with it may still arrive: of other gangs under way at most one start each.
        begun = [str(call) for call in killer.then if not call.prepares]
        assert len(begun) < LANES, begun
        assert len(partial(live.pods())) <= LANES
        assert overfull(live.pods()) == []
    last = ran(live, *apply_words(live, plan))
    assert last.code == 0, last.err
    assert placed(live.pods()) == placements(plan)
    assert (partial(live.pods()), overfull(live.pods())) == ([], [])


@pytest.mark.slow
def test_a_signal_lets_it_finish_what_is_under_way_and_the_same_command_resumes(live: Live) -> None:
    live.create(*ten_gangs())
    plan = planned(live)
    starts: list[Call] = []

    def interrupt(call: Call, forward: Forward) -> Answer | None:
        starts.extend([call] if call.starts else [])
        if len(starts) == 3 and call.starts:  # the first pod of the third gang
            process.terminate()
        return forward()

    with live.relay.meddling(interrupt), started(live, *apply_words(live, plan)) as process:
        _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 128 + signal.SIGTERM, err
    # the gangs of two pods that were under way were finished, nothing more began
    assert len(starts) == 2 * LANES
    live.wait_until(
        lambda: len(placed(live.pods())) == 2 * LANES, "the pods that were started to be bound"
    )
    assert partial(live.pods()) == []
    again = ran(live, *apply_words(live, plan))
    assert again.code == 0, again.err  # the lock was released
    assert placed(live.pods()) == placements(plan)
