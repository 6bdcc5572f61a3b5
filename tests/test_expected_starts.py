"""Intervals of expected starts: ranks, how many hold, and a replay that was worked out by hand."""

from __future__ import annotations

import random

import pytest
from building import build, gang
from hypothesis import given
from hypothesis import strategies as st
from test_replay_simulation import baseline, scenario

from models.instance.start_history import MILLION, Asks, Between
from models.values.expected_starts import (
    FIRST,
    RECENT,
    Waits,
    ninety,
    starts_by_count,
)
from planner.replay.jobs import MS
from planner.replay.simulation import Simulation
from planner.replay.summary import start_intervals


@given(st.lists(st.integers(0, 10**9), max_size=300, unique=True))
def test_the_next_of_exchangeable_numbers_is_between_in_nine_of_ten_places(
    numbers: list[int],
) -> None:
    ordered = sorted(numbers)
    found = ninety(ordered)
    if len(numbers) < 19:  # 0.05 x 20 is the first rank that there is
        assert found is None
        return
    assert found is not None
    # The next number is as likely in each of the n + 1 gaps between those known.
    below = sum(one < found[0] for one in ordered) + 1
    above = sum(one > found[1] for one in ordered) + 1
    places = len(ordered) + 1
    assert 10 * (places - below - above) >= 9 * places
    assert 20 * (below + 1) > places  # and no rank nearer would do on either side
    assert 20 * (above + 1) > places


def asks(now: int, *, gpus: int = 8, before: int = 8, wait: int = 40) -> Asks:
    """Of 80 GPUs; a wait of 40 s, which is 100 s with the minute that counts as certain."""
    return Asks(gpus, before, 80, now + wait)


def ask(waits: Waits, count: int, *, first: int = 0, wait: int = 40) -> list[Between | None]:
    """Gangs one after another, each of which waits for 140 s to 140 + count."""
    said = []
    for number in range(first, first + count):
        now = 10_000 * number
        said.append(waits.wait(number, now, asks(now)))
        waits.start(number, now + wait + number - first)
    return said


def test_without_nineteen_waits_there_is_no_interval() -> None:
    said = ask(Waits(), 20, wait=140)
    assert said[:19] == [None] * 19
    # Waits were 140 to 158 s for 40 s, factors 2 to 2.18: ranks 1 and 19, a third and three times as long.
    now = 190_000
    assert FIRST == 3 * MILLION
    assert said[19] == Between(now + 66 - 60, now + 654 - 60)


def test_times_may_have_any_unit() -> None:
    seconds, ms = Waits(), Waits(1000)
    ask(seconds, 20, wait=140)
    for number in range(20):
        now = 10_000_000 * number
        ms.wait(number, now, asks(now, wait=40_000))
        ms.start(number, now + 1000 * (140 + number))
    one, other = (w.between(10**9, asks(10**9, wait=40 * u)) for w, u in ((seconds, 1), (ms, 1000)))
    assert one is not None
    assert other is not None
    assert (other.latest - 10**9) // 1000 == one.latest - 10**9


def test_who_would_start_later_by_count_is_expected_later() -> None:
    waits = Waits()
    ask(waits, 30)
    soon, late = (waits.between(10**6, asks(10**6, wait=wait)) for wait in (40, 3940))
    assert soon is not None
    assert late is not None
    assert (late.latest - 10**6 + 60) == pytest.approx(40 * (soon.latest - 10**6 + 60), rel=0.01)


def test_gangs_of_its_size_and_queue_count_before_all_others() -> None:
    waits = Waits()
    ask(waits, 30)
    for number in range(30, 60):  # 4 times all GPUs are asked for: these wait ten times as long
        now = 10_000 * number
        waits.wait(number, now, asks(now, gpus=64, before=320))
        waits.start(number, now + 940)
    now = 10**6
    for gpus, before, like in [(8, 8, 1), (64, 320, 10), (8, 8_000, 1), (64, 8, 10)]:
        found = waits.between(now, asks(now, gpus=gpus, before=before))
        assert found is not None
        assert 1 < (found.latest - now + 60) / (100 * like) < 4
    unlike = waits.between(now, asks(now, gpus=1))  # nobody is as small: all gangs count
    assert unlike is not None
    assert unlike.earliest - now + 60 < 100
    assert unlike.latest - now + 60 > 1000


def held(waits: Waits, draws: list[int]) -> list[bool]:
    """Whether each of these waits, one after another, was in its interval; without one it was not."""
    found, now = [], 0
    for number, draw in enumerate(draws):
        between = waits.wait(number, now, asks(now))
        now += draw
        waits.start(number, now)
        found.append(between is not None and between.earliest <= now <= between.latest)
    return found


@pytest.mark.parametrize("growth", [1, 30])
def test_nine_of_ten_intervals_hold_even_if_waits_become_longer(growth: int) -> None:
    draw = random.Random(0)
    calm = [int(draw.expovariate(1 / 600)) for _ in range(6000)]
    busy = [int(growth * draw.expovariate(1 / 600)) for _ in range(6000)]
    found = held(Waits(), calm + busy)
    assert 0.88 <= sum(found[3000:]) / 9000 <= 0.92  # a standard deviation is 0.003


def test_who_should_have_started_counts_at_once() -> None:
    calm, late = Waits(), Waits()
    for waits in (calm, late):
        ask(waits, 60)
    for number in range(100, 120):
        late.wait(number, 10**6, asks(10**6))  # they never start
    now = 10**7
    usual, wider = (waits.between(now, asks(now)) for waits in (calm, late))
    assert usual is not None
    assert wider is not None
    assert wider.latest - now + 60 > 2.4 * (usual.latest - now + 60)  # 1.0487 ** 20 is 2.6
    assert wider.earliest == usual.earliest


def test_where_more_wait_than_half_of_those_who_started_nothing_is_said() -> None:
    waits = Waits()
    ask(waits, 30)
    said = [waits.wait(number, 10**6, asks(10**6)) for number in range(100, 120)]
    assert [one is not None for one in said] == [True] * 16 + [False] * 4  # 15 wait before the 16th
    waits.start(100, 10**6 + 100)
    assert waits.wait(120, 10**6 + 100, asks(10**6 + 100)) is None  # 19 wait, 31 have started


def test_only_the_latest_waits_count() -> None:
    waits = Waits()
    ask(waits, 30)
    now = 10**7
    for number in range(100, 100 + RECENT):
        waits.wait(number, now, asks(now))
        now += 50_000
        waits.start(number, now)
    found = waits.between(now, asks(now))
    assert found is not None
    assert found.earliest - now > 2_000


def test_by_count_gangs_start_in_turn_as_others_end() -> None:
    ends = [(30, 4), (10, 2), (20, 2)]
    # 1 GPU is free and 2 more at 10: 3 until 25. Then 2 of 20 and these 3: 4 until 35, and 1 until 30.
    # At 30 come 4 and 1, at 35 4: 8 until 36. There are 9 GPUs in all; who comes after 10 never starts.
    queue = [(3, 15), (4, 10), (1, 5), (8, 1), (10, 1), (1, 1)]
    assert starts_by_count(0, 1, ends, queue) == [10, 25, 25, 35, None, None]


def test_a_replay_states_how_good_its_forecasts_were() -> None:
    # One server; each job takes all of it for 100 s, and they come every 10 s: number n starts at 100 n.
    one = build()
    jobs = [(gang(f"j{n:02}", 1, 8), 10 * n, 100) for n in range(40)]
    done = Simulation(scenario(one, jobs), baseline(one, "fifo"))
    done.run()
    assert [job.started for job in done.jobs] == [100 * MS * n for n in range(40)]
    said = done.forecasts
    assert sorted(said) == [*range(1, 40)]  # number 0 did not wait
    assert all(said[n].said_ms == 10 * MS * n for n in said)
    # Of nobody a duration is known yet, and 600 s are taken: number 0 ends at 600, number 1 at 1,200.
    assert said[1].point_ms == 600 * MS
    assert said[2].point_ms == 1200 * MS
    # At 200 s numbers 0 and 1 have ended after 100 s, so that 600 s become
    # (600 + 200) / 3 = 266, then (266 + 200) / 3 = 155, then (155 + 200) / 3 = 118; number 2 has just begun.
    assert said[20].point_ms == (200 + 18 * 118) * MS
    # By 390 s three had waited and started: no basis.
    assert all(one.between is None for one in said.values())
    found = start_intervals(done.jobs, said)
    assert (found.waited, found.stated, found.held, found.median_seconds) == (39, 0, None, None)
    assert found.point_band_seconds is not None


def test_a_replay_states_the_share_of_intervals_that_held() -> None:
    # As above, but a pair of jobs every 500 s: the second waits 100 s each time.
    one = build()
    jobs = [(gang(f"j{n:02}", 1, 8), 500 * (n // 2), 100) for n in range(60)]
    done = Simulation(scenario(one, jobs), baseline(one, "fifo"))
    done.run()
    found = start_intervals(done.jobs, done.forecasts)
    # Of 30 that waited, those after the first 19 have an interval, and all hold: 0 to 420 s at first.
    assert (found.waited, found.stated, found.held) == (30, 11, 1.0)
    assert found.median_seconds is not None
    assert 400 < found.median_seconds < 421
    done.jobs[59].started = None
    assert start_intervals(done.jobs, done.forecasts).held == 0.909  # 10 of 11
