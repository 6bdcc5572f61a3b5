"""Intervals of expected starts: ranks, how many hold, and a replay that was worked out by hand."""

from __future__ import annotations

import random

import pytest
from building import build, gang
from hypothesis import given
from hypothesis import strategies as st
from test_replay_simulation import baseline, scenario

from models.values.expected_starts import FIRST, MILLION, RECENT, Between, Waits, ninety
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


def ask(waits: Waits, count: int, *, asked: int = 8) -> list[Between | None]:
    """Gangs one after another, each of which waits for 100 to 100 + count."""
    said = []
    for number in range(count):
        now = 10_000 * number
        said.append(waits.wait(number, now, asked, 80))
        waits.start(number, now + 100 + number)
    return said


def test_without_nineteen_waits_there_is_no_interval() -> None:
    said = ask(Waits(), 20)
    assert said[:19] == [None] * 19
    # Waits were 100 to 118: ranks 1 and 19, a third and three times as long.
    now = 190_000
    assert FIRST == 3 * MILLION
    assert said[19] == Between(now + 33, now + 354)


def test_gangs_with_a_queue_as_long_count_before_all_others() -> None:
    waits = Waits()
    ask(waits, 30)
    for number in range(30, 60):  # 4 times all GPUs are asked for: these wait for 5,000
        waits.wait(number, 10_000 * number, 320, 80)
        waits.start(number, 10_000 * number + 5_000)
    long, short = (waits.wait(n, 10**6, asked, 80) for n, asked in ((60, 320), (61, 8)))
    unlike = waits.wait(62, 10**6, 8_000, 80)  # nobody met such a queue: all gangs count
    assert long is not None
    assert short is not None
    assert unlike is not None
    assert long.earliest > 10**6 + 1_000 > short.latest - 100
    assert unlike.earliest == short.earliest
    assert unlike.latest == long.latest


def held(waits: Waits, draws: list[int]) -> list[bool]:
    """Whether each of these waits, one after another, was in its interval; without one it was not."""
    found, now = [], 0
    for number, draw in enumerate(draws):
        between = waits.wait(number, now, 8, 80)
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
        ask(waits, 30)
    for number in range(100, 150):
        late.wait(number, 10**6, 8, 80)  # they never start
    now = 10**7
    usual, wider = (waits.wait(200, now, 8, 80) for waits in (calm, late))
    assert usual is not None
    assert wider is not None
    assert wider.latest - now > 1.5 * (usual.latest - now)  # 1.0095 ** 50 is 1.6
    assert wider.earliest == usual.earliest


def test_only_the_latest_waits_count() -> None:
    waits = Waits()
    ask(waits, 30)
    now = 10**7
    for number in range(100, 100 + RECENT):
        waits.wait(number, now, 8, 80)
        now += 50_000
        waits.start(number, now)
    found = waits.wait(10**6, now, 8, 80)
    assert found is not None
    assert found.earliest - now > 10_000


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
    # Of 30 that waited, those after the first 19 have an interval, and all hold: 33 to 300 s at first.
    assert (found.waited, found.stated, found.held) == (30, 11, 1.0)
    assert found.median_seconds is not None
    assert 250 < found.median_seconds < 267
    done.jobs[59].started = None
    assert start_intervals(done.jobs, done.forecasts).held == 0.909  # 10 of 11
