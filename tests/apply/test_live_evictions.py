"""A gang gives way to one of higher priority: only when allowed, victims first, whole in the end."""

from __future__ import annotations

import re
import signal

import pytest
from live_checks import overfull, partial, placed
from live_cluster import Live
from live_objects import Wanted
from live_runs import Killer, Ran, apply_words, killed, placements, planned, ran

pytest_plugins = ("live_fixtures",)

LOW = Wanted("low", 7, 8, preemptible=True)
"""Fills the seven nodes."""


HIGH = Wanted("high", 2, 8, "gate", high=True)


def evictions(*runs: Ran) -> set[str]:
    """Pods whose eviction was asked for."""
    asked = [call.path for done in runs for call in done.calls if call.evicts]
    return {path.split("/")[-2] for path in asked}


def test_victims_go_first_and_only_when_that_is_allowed(live: Live) -> None:
    live.create(LOW)
    assert ran(live, *apply_words(live, planned(live))).code == 0
    live.create(HIGH)
    plan = planned(live)
    before = placed(live.pods())
    refused = ran(live, *apply_words(live, plan))
    assert refused.code == 7, refused.err
    assert re.search(r"/high +withheld", refused.out), refused.out
    assert placed(live.pods()) == before
    few = ran(live, *apply_words(live, plan, "--allow-evictions", "--max-evictions", "6"))
    assert (few.code, evictions(refused, few)) == (7, set()), few.err
    done = ran(live, *apply_words(live, plan, "--allow-evictions", "--max-evictions", "7"))
    assert done.code == 0, done.err
    order = [
        "evict" if call.evicts else "start" for call in done.calls if call.evicts or call.starts
    ]
    assert order == ["evict"] * 7 + ["start"] * 2
    live.wait_until(lambda: len(placed(live.pods())) == 2, "the winner")
    assert placed(live.pods()) == placements(plan)


@pytest.mark.slow
@pytest.mark.parametrize("at", [4, 6])
def test_a_run_that_dies_between_evictions_is_finished_by_the_next(live: Live, at: int) -> None:
    """What is left of the victim is never reported as partial: the marked ones of its pods go last."""
    live.create(LOW)
    assert ran(live, *apply_words(live, planned(live))).code == 0
    live.create(HIGH)
    plan = planned(live)
    words = apply_words(live, plan, "--allow-evictions")
    assert killed(live, Killer(at, after=True), *words).code == -signal.SIGKILL
    told = ran(live, "status", "--lock-namespace", live.lock_namespace)
    assert "undo" not in told.out, told.out
    done = ran(live, *words)
    assert (done.code, "undoes it" in done.err) == (0, False), done.err
    live.wait_until(lambda: len(placed(live.pods())) == 2, "the winner")
    assert (partial(live.pods()), overfull(live.pods())) == ([], [])
    assert placed(live.pods()) == placements(plan)
