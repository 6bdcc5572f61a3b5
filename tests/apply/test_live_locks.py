"""Two runs at once, and one after the other: the lock is the cluster's, and so is all that is remembered."""

from __future__ import annotations

import re
import signal
import threading
import time

import pytest
from effort import HANG_S
from live_checks import overfull, partial, placed
from live_cluster import Live
from live_objects import Wanted, ten_gangs
from live_relay import Answer, Call, Forward
from live_runs import Killer, apply_words, killed, placements, planned, ran, run_words, started

pytest_plugins = ("live_fixtures",)


class Hold:
    """Lets the first write to a pod wait until released."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __call__(self, call: Call, forward: Forward) -> Answer | None:
        if call.writes_pods and not self.reached.is_set():
            self.reached.set()
            self.go_on.wait(HANG_S)
        return forward()


def test_of_two_runs_at_once_one_works_and_the_other_says_who_does(live: Live) -> None:
    live.create(Wanted("one", 2, 8), Wanted("two", 2, 8))
    hold = Hold()
    with live.relay.meddling(hold), started(live, *run_words(live)) as first:
        assert hold.reached.wait(HANG_S)
        with started(live, *run_words(live)) as second:
            _, said = second.communicate(timeout=HANG_S)
        hold.go_on.set()
        _, err = first.communicate(timeout=HANG_S)
    assert (first.returncode, second.returncode) == (0, 75), (err, said)
    assert "tester@" in said
    assert re.search(r"gangplan status --release [\w-]+", said), said
    assert len(placed(live.pods())) == 4


@pytest.mark.slow
def test_a_second_run_changes_nothing(live: Live) -> None:
    live.create(*ten_gangs()[:5], *ten_gangs()[5:])
    done = ran(live, *run_words(live))
    assert done.code == 0, done.err
    pods = live.pods()
    assert (len(placed(pods)), partial(pods), overfull(pods)) == (20, [], [])
    again = ran(live, *run_words(live))
    assert again.code == 0, again.err
    assert [str(call) for call in again.calls if call.writes and "/leases" not in call.path] == []
    versions = {name: pod["metadata"]["resourceVersion"] for name, pod in pods.items()}
    assert {n: p["metadata"]["resourceVersion"] for n, p in live.pods().items()} == versions


@pytest.mark.slow
def test_a_run_finishes_what_an_apply_on_another_host_left_half_started(live: Live) -> None:
    live.create(*ten_gangs())
    plan = planned(live)
    # dies in the third gang: two pods of an intent and a start each, and then one pod started
    killer = Killer(2 * 4 + 3, after=True)
    assert killed(live, killer, *apply_words(live, plan)).code == -signal.SIGKILL
    plan.unlink()
    done = ran(live, *run_words(live))
    assert done.code == 0, done.err
    pods = live.pods()
    assert (len(placed(pods)), partial(pods), overfull(pods)) == (20, [], [])


@pytest.mark.slow
def test_the_lock_of_the_dead_is_broken_by_the_id_that_is_reported(live: Live) -> None:
    live.create(Wanted("one", 2, 8))
    plan = planned(live)
    assert killed(live, Killer(1, after=True), *apply_words(live, plan)).code == -signal.SIGKILL
    live.relay.later_s -= 70.0  # no: it died just now
    refused = ran(live, *apply_words(live, plan))
    assert refused.code == 75, refused.err
    told = re.search(r"gangplan status --release ([\w-]+)", refused.err)
    assert told is not None, refused.err
    unlocked = ran(live, "status", "--release", told[1], "--lock-namespace", live.lock_namespace)
    assert unlocked.code == 0, unlocked.err
    begun = time.monotonic()
    assert ran(live, *apply_words(live, plan)).code == 0
    assert time.monotonic() - begun < 60  # it did not wait for the lock to run out
    assert placed(live.pods()) == placements(plan)
