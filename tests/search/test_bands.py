"""Order ``shortest``: bands within a priority, by the GPU time that gangs are expected to need.

The bands are worked out by hand; the planner, the exhaustive planner and the judge agree on plans with them.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from building import build, gang, instance_document
from effort import first_fast
from outcomes import planned
from tiny_busy import busy

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.queues.bands import BANDS, LIMITS_GPU_S, UNKNOWN_S, banded
from planner.read.inputs import instance_from_document

NOW = 1_000_000
DAY_S = 24 * 60 * 60


def shortest(*gangs: Gang, starvation: int | None = DAY_S, trust: bool = False) -> Instance:
    """One server of eight GPUs."""
    instance = build(gangs=gangs)
    policy = replace(instance.policy, order="shortest", now=NOW, starvation_after_s=starvation)
    return banded(replace(instance, policy=replace(policy, trust_durations=trust)))


def runs(name: str, gpus: int, *, since_s: int, first: int = 0, **more: object) -> Gang:
    mask = (1 << gpus) - 1 << first
    found = gang(name, 1, gpus, stands=[(0, 0, 0, mask)], preemptible=True)
    return replace(found, started_at=NOW - since_s, **more)


def waits(name: str, gpus: int, **more: object) -> Gang:
    return replace(gang(name, 1, gpus), submitted_at=NOW - 60, **more)


def bands(instance: Instance) -> dict[str, int]:
    assert all(one.own_priority == 0 for one in instance.gangs)
    return {one.name: BANDS - 1 - one.priority for one in instance.gangs}


@pytest.mark.parametrize(
    ("gpus", "left_s", "band"),
    [(1, 1, 0), (1, 600, 0), (1, 601, 1), (8, 75, 0), (8, 76, 1), (8, 3600, 3), (8, 10**7, 9)],
)
def test_a_band_is_what_four_times_the_gpu_time_of_the_one_before_is_enough_for(
    gpus: int, left_s: int, band: int
) -> None:
    assert bands(shortest(waits("a", gpus, expected_left_s=left_s))) == {"a": band}
    ran = shortest(runs("a", gpus, since_s=0, expected_left_s=left_s))
    assert bands(ran) == {"a": max(0, band - 1)}, "who runs is one band better"


@pytest.mark.parametrize(
    ("one", "left_s", "trusted_s"),
    [
        (waits("a", 8), UNKNOWN_S, UNKNOWN_S),
        (waits("a", 8, expected_duration_s=7200), UNKNOWN_S, 7200),
        (waits("a", 8, expected_duration_s=60), UNKNOWN_S, 60),
        (runs("a", 8, since_s=7200), 7200, 7200),
        (runs("a", 8, since_s=100), UNKNOWN_S, UNKNOWN_S),
        (runs("a", 8, since_s=600, expected_duration_s=7200), UNKNOWN_S, 6600),
        (runs("a", 8, since_s=7200, expected_duration_s=7260), 7200, 60),
        (runs("a", 8, since_s=7200, expected_duration_s=7200), 7200, 7200),
        (runs("a", 8, since_s=60, runs_since=NOW - 7200), 7200, 7200),
    ],
)
def test_without_an_estimate_the_time_it_ran_counts_and_its_word_only_where_it_is_trusted(
    one: Gang, left_s: int, trusted_s: int
) -> None:
    """Its word counts until it is over; a pod that started again makes it no younger."""
    stated = shortest(replace(one, expected_left_s=left_s))
    assert bands(shortest(one)) == bands(stated)
    trusted = shortest(replace(one, expected_left_s=trusted_s))
    assert bands(shortest(one, trust=True)) == bands(trusted)


def test_who_has_waited_too_long_is_in_the_first_band_and_stays_there_when_it_runs() -> None:
    old = waits("old", 8, expected_left_s=10**6)
    old = replace(old, submitted_at=NOW - DAY_S - 1)
    assert bands(shortest(old))["old"] == 0
    assert bands(shortest(replace(old, submitted_at=NOW - DAY_S)))["old"] > 0
    assert bands(shortest(old, starvation=None))["old"] > 0
    ran = runs("ran", 8, since_s=100, expected_left_s=10**6, submitted_at=NOW - DAY_S - 101)
    assert bands(shortest(ran))["ran"] == 0
    assert bands(shortest(replace(ran, submitted_at=NOW - DAY_S - 100)))["ran"] > 0


def test_a_short_gang_stops_a_long_one_of_its_priority_that_may_be_stopped() -> None:
    long, short = (
        runs("long", 8, since_s=3600, expected_left_s=36_000),
        waits("short", 8, expected_left_s=60),
    )
    outcome = planned(shortest(long, short))
    assert outcome.decisions() == {"long": "preempt", "short": "place"}
    reason = outcome.of("long").reason
    assert reason is not None
    assert [one.priority for one in reason.fields.by] == [0], "named with the priority it states"
    firm = planned(shortest(replace(long, preemptible=False), short))
    assert firm.decisions() == {"long": "keep", "short": "wait"}
    similar = planned(shortest(long, replace(short, expected_left_s=20_000)))
    assert similar.decisions() == {"long": "keep", "short": "wait"}


def test_a_plan_states_own_priorities_and_its_instance_is_read_as_it_was() -> None:
    instance = shortest(
        waits("a", 8, expected_left_s=60, priority=7), runs("b", 8, since_s=100, priority=-3)
    )
    document = instance_document(instance)
    assert [one["spec"]["priority"] for one in document["gangs"]] == [7, -3]
    again = instance_from_document(document)
    assert [one.priority for one in again.gangs] == [one.priority for one in instance.gangs]


@pytest.mark.parametrize("seed", first_fast(range(120), 25))
def test_planner_exhaustive_planner_and_judge_agree_on_bands(seed: int) -> None:
    draws, instance = Random(seed), busy(seed)
    gangs = tuple(
        replace(
            one,
            priority=one.priority // 2,
            preemptible=one.preemptible or draws.random() < 0.5,
            expected_left_s=draws.choice([None, 60, 4000, 10**6]),
            expected_duration_s=draws.choice([None, 600, 10**5]),
        )
        for one in instance.gangs
    )
    policy = replace(instance.policy, order="shortest", now=instance.now)
    policy = replace(policy, trust_durations=seed % 2 == 1)
    planned(banded(replace(instance, gangs=gangs, policy=policy)))


def test_the_limits_are_those_of_the_documentation() -> None:
    assert LIMITS_GPU_S[:3] == (600, 2400, 9600)
    assert len(LIMITS_GPU_S) == BANDS - 1
