"""Figures of replays: percentiles, Jain's index, and short curves that keep their area."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from planner.replay.summary import (
    ExactDistribution,
    by_size,
    completion_curve,
    downsampled,
    exact_distribution,
    jain,
    nearest_rank,
    size_class,
    time_mean,
)


def test_percentiles_are_nearest_ranks() -> None:
    # Wikipedia's example of the method: of 15, 20, 35, 40, 50 the percentiles 5, 30, 40, 50 and 100.
    ordered = [15, 20, 35, 40, 50]
    found = [nearest_rank(ordered, percent) for percent in (5, 30, 40, 50, 100)]
    assert found == [15, 20, 20, 35, 50]


def test_a_distribution_of_numbers_in_any_order() -> None:
    # 1 to 200, backwards: the 100th of 200 numbers is the median, the 198th the 99th percentile.
    assert exact_distribution(range(200, 0, -1)) == ExactDistribution(
        Fraction(201, 2), 100, 190, 198
    )
    assert exact_distribution([7]) == ExactDistribution(Fraction(7), 7, 7, 7)
    assert exact_distribution([]) == ExactDistribution()


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(1, 100))
def test_a_percentile_is_the_least_number_that_so_many_do_not_exceed(
    values: list[int], percent: int
) -> None:
    found = nearest_rank(sorted(values), percent)
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < percent * len(values)


def test_sizes_are_classes_of_powers_of_two() -> None:
    assert [size_class(gpus) for gpus in (1, 2, 3, 4, 5, 8, 9, 160)] == [1, 2, 4, 4, 8, 8, 16, 256]
    assert by_size([(12, 5), (1, 3), (16, 4), (1, 9)]) == [(1, [3, 9]), (16, [5, 4])]


def test_jains_index() -> None:
    # (1 + 2 + 3)^2 / (3 (1 + 4 + 9)) = 36/42.
    assert jain([1, 2, 3]) == Fraction(6, 7)
    assert jain([5, 5, 5]) == 1
    assert jain([1, 0, 0, 0]) == Fraction(1, 4)
    assert jain([0, 0]) == 1
    assert jain([]) is None


def test_means_over_time_weigh_values_by_how_long_they_hold() -> None:
    # 4 GPUs from 0 to 10, 8 from 10 to 40, 0 from 40 on.
    steps = [(0, (4,)), (10, (8,)), (40, (0,))]
    assert time_mean(steps, 0, 50) == (Fraction(4 * 10 + 8 * 30, 50),)
    assert time_mean(steps, 5, 15) == (Fraction(6),)
    # Before the first step nothing runs.
    assert time_mean([(10, (8,))], 0, 20) == (Fraction(4),)


def test_short_curves_stay_as_they_are_and_repeated_values_go() -> None:
    steps = [(0, (4, 1)), (10, (4, 1)), (20, (0, 2))]
    curve = [(time, [int(value) for value in values]) for time, values in downsampled(steps, 30)]
    assert curve == [(0, [4, 1]), (20, [0, 2])]
    assert downsampled([], 30) == []


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 9), st.integers(0, 9)), min_size=1),
    st.integers(1, 30),
    st.integers(1, 12),
)
def test_a_shortened_curve_has_few_points_and_the_same_mean(
    parts: list[tuple[int, int, int]], last: int, most: int
) -> None:
    steps, time = [], 3
    for seconds, a, b in parts:
        steps.append((time, (a, b)))
        time += seconds
    end = time + last
    curve = downsampled(steps, end, most)
    assert 1 <= len(curve) <= max(most, 1)
    assert curve[0][0] == 3
    ends = [time for time, _ in curve[1:]] + [end]
    areas = [
        sum((until - time) * values[v] for (time, values), until in zip(curve, ends, strict=True))
        for v in (0, 1)
    ]
    assert tuple(areas) == tuple((end - 3) * mean for mean in time_mean(steps, 3, end))


@given(st.lists(st.integers(0, 1000), min_size=1), st.integers(0, 5), st.integers(1, 10))
def test_a_completion_curve_rises_to_the_share_that_ended(
    times: list[int], unfinished: int, most: int
) -> None:
    jobs = len(times) + unfinished
    curve = completion_curve(times, jobs, most)
    assert len(curve) <= most
    assert curve[-1] == (max(times), Fraction(len(times), jobs))
    for time, share in curve:
        assert share == Fraction(sum(one <= time for one in times), jobs)
    assert curve == sorted(set(curve))
