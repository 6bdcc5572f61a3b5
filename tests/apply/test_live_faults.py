"""Answers that are lost, and refusals, in the middle of an apply: tried again or run again, it is whole."""

from __future__ import annotations

import time
from collections.abc import Callable

from live_checks import overfull, partial, placed
from live_cluster import Live
from live_objects import ten_gangs
from live_relay import Answer, Call, Forward, failure
from live_runs import apply_words, placements, planned, ran

from models.apply.session import LANES

pytest_plugins = ("live_fixtures",)

Fault = Callable[[Forward], Answer | None]


def conflict(_forward: Forward) -> Answer:
    said = "the object has been modified; please apply your changes to the latest version and try again"
    return failure(409, "Conflict", f'Operation cannot be fulfilled on pods "x": {said}')


def broken(_forward: Forward) -> Answer:
    return failure(500, "InternalError", "etcdserver: leader changed")


def crowded(_forward: Forward) -> Answer:
    return failure(
        429, "TooManyRequests", "too many requests, please try again", **{"Retry-After": "1"}
    )


def never_arrived(_forward: Forward) -> None:
    return None


def answer_lost(forward: Forward) -> None:
    forward()


def broken_afterwards(forward: Forward) -> Answer:
    forward()
    return failure(504, "Timeout", "request did not complete within the allotted timeout")


def unprocessable(_forward: Forward) -> Answer:
    return failure(422, "Invalid", 'Pod "x" is invalid: spec: Forbidden: somebody forbids it')


PASSING: tuple[Fault, ...] = (
    conflict,
    broken,
    never_arrived,
    answer_lost,
    broken_afterwards,
    crowded,
)


class Faults:
    """Something goes wrong at each of these writes to pods; ``met``: how often it did."""

    def __init__(self, at: dict[int, Fault]) -> None:
        self._at = at
        self._writes = 0
        self.met = 0

    def __call__(self, call: Call, forward: Forward) -> Answer | None:
        if not call.writes_pods:
            return forward()
        self._writes += 1
        fault = self._at.get(self._writes)
        if fault is None:
            return forward()
        self.met += 1
        return fault(forward)


def test_what_passes_is_tried_again_and_the_gangs_are_whole(live: Live) -> None:
    live.create(*ten_gangs())
    plan = planned(live)
    # every third write of the forty from the second on: intents and starts, each kind of fault twice
    faults = Faults({2 + 3 * turn: PASSING[turn % 6] for turn in range(12)})
    done = ran(live, *apply_words(live, plan), meddler=faults)
    assert faults.met == 12
    assert (partial(live.pods()), overfull(live.pods())) == ([], [])
    assert done.code in {0, 7}, done.err  # a conflict may stop a gang; never the others
    again = ran(live, *apply_words(live, plan))
    assert again.code == 0, again.err
    assert placed(live.pods()) == placements(plan)


def test_a_pod_that_is_refused_stops_its_gang_alone(live: Live) -> None:
    live.create(*ten_gangs())
    plan = planned(live)
    done = ran(live, *apply_words(live, plan), meddler=Faults({1: unprocessable}))
    assert done.code == 7, done.err
    live.wait_until(lambda: len(placed(live.pods())) == 18, "the other nine gangs")
    assert (partial(live.pods()), overfull(live.pods())) == ([], [])
    again = ran(live, *apply_words(live, plan))
    assert again.code == 0, again.err
    assert placed(live.pods()) == placements(plan)


def test_an_answer_that_comes_too_late_is_looked_after(live: Live) -> None:
    live.create(*ten_gangs())
    plan = planned(live)

    def late(forward: Forward) -> Answer:
        answer = forward()
        time.sleep(2.5)
        return answer

    faults = Faults({25: late})
    done = ran(live, *apply_words(live, plan, "--request-timeout", "2s"), meddler=faults)
    assert done.code == 0, done.err
    assert placed(live.pods()) == placements(plan)


def unread(call: Call) -> Answer:
    """403 as of a server that has just started and has read no roles yet."""
    verb = {"GET": "get", "PATCH": "patch"}.get(call.method, "create")
    said = f'pods "x" is forbidden: User "u" cannot {verb} resource "pods" in API group ""'
    return failure(403, "Forbidden", said)


def test_a_server_that_denies_everything_for_a_moment_is_asked_again(live: Live) -> None:
    live.create(*ten_gangs())
    plan = planned(live)
    writes, since = 0, 0.0

    def restarted(call: Call, forward: Forward) -> Answer | None:
        nonlocal writes, since
        writes += call.writes_pods
        if writes == 5 and not since:
            since = time.monotonic()
        denied = since and time.monotonic() - since < 1.5
        return unread(call) if denied and "/pods" in call.path else forward()

    done = ran(live, *apply_words(live, plan), meddler=restarted)
    assert since
    assert done.code == 0, done.err
    assert placed(live.pods()) == placements(plan)


def test_a_right_that_is_lost_in_mid_gang_is_called_that(live: Live) -> None:
    live.create(*ten_gangs())
    plan = planned(live)
    writes = 0

    def lost(call: Call, forward: Forward) -> Answer | None:
        nonlocal writes
        writes += call.writes_pods
        return unread(call) if writes > 4 and call.writes_pods else forward()

    done = ran(live, *apply_words(live, plan), meddler=lost)
    assert done.code == 7, done.err
    assert "not permitted: " in done.out + done.err
    assert "does not answer" not in done.out + done.err
    live.wait_until(lambda: len(placed(live.pods())) == 4, "the pods that were started")
    assert len(partial(live.pods())) <= LANES
    again = ran(live, *apply_words(live, plan))
    assert again.code == 0, again.err
    assert placed(live.pods()) == placements(plan)
