"""Figures of a replay from exact times and step curves: distributions, size classes, fairness, short curves.

Promises: integers and Fractions throughout, so that equal runs give equal figures on every machine. Times are
integers of any one unit, the callers' milliseconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

MOST_POINTS = 500
"""Most points of a curve that is shown."""

Steps = Sequence[tuple[int, tuple[int, ...]]]
"""(time, values) in order of time; values hold until the next time."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean and percentiles of some numbers; None without any."""

    mean: Fraction | None
    p50: int | None
    p99: int | None


def distribution(values: Iterable[int]) -> Distribution:
    """Mean and percentiles of numbers in any order."""
    ordered = sorted(values)
    if not ordered:
        return Distribution(None, None, None)
    mean = Fraction(sum(ordered), len(ordered))
    return Distribution(mean, nearest_rank(ordered, 50), nearest_rank(ordered, 99))


def nearest_rank(ordered: Sequence[int], percent: int) -> int:
    """The smallest of the numbers that so many percent of them do not exceed: nearest rank, not interpolated.

    ``ordered``: ascending, not empty. ``percent``: 1 to 100.
    """
    rank = -(-percent * len(ordered) // 100)
    return ordered[max(rank, 1) - 1]


def by_size(jobs: Iterable[tuple[int, int]]) -> list[tuple[int, list[int]]]:
    """(most GPUs, values) of the size classes 1, 2, 3-4, 5-8, ... that have jobs, ascending.

    ``jobs``: (GPUs, value) of each.
    """
    classes: dict[int, list[int]] = {}
    for gpus, value in jobs:
        classes.setdefault(size_class(gpus), []).append(value)
    return sorted(classes.items())


def size_class(gpus: int) -> int:
    """The least power of 2 that is not below the number of GPUs; 0 for none."""
    return 1 << (gpus - 1).bit_length() if gpus else 0


def jain(shares: Iterable[Fraction | int]) -> Fraction | None:
    """Jain's index, (sum x)^2 / (n sum x^2): 1 if all are equal, 1/n if one has everything.

    None without any share; 1 if all are zero, for then they are equal. Source: Jain, Chiu and Hawe, "A
    Quantitative Measure of Fairness and Discrimination", DEC-TR-301, 1984.
    """
    found = [Fraction(share) for share in shares]
    if not found:
        return None
    squares = sum(share * share for share in found)
    return Fraction(sum(found) ** 2, len(found) * squares) if squares else Fraction(1)


def time_mean(steps: Steps, start: int, end: int) -> tuple[Fraction, ...]:
    """Mean of every value over [start, end), which is not empty; nothing counts before the first time."""
    return tuple(Fraction(area, end - start) for area in _areas(steps, [start, end])[0])


def downsampled(
    steps: Steps, end: int, most: int = MOST_POINTS
) -> list[tuple[int, tuple[Fraction, ...]]]:
    """A step curve up to ``end`` with at most so many points, whose mean over all of it is the same.

    Short curves stay as they are. Of a long one, time is cut into equal parts (as equal as integers are), and
    each point is the mean of its part.
    """
    known = [step for i, step in enumerate(steps) if i == 0 or step[1] != steps[i - 1][1]]
    if len(known) <= most or not known:
        return [(time, tuple(map(Fraction, values))) for time, values in known]
    start = known[0][0]
    parts = min(most, end - start)
    edges = [start + (end - start) * i // parts for i in range(parts + 1)]
    return [
        (edges[i], tuple(Fraction(area, edges[i + 1] - edges[i]) for area in areas))
        for i, areas in enumerate(_areas(known, edges))
    ]


def completion_curve(
    times: Iterable[int], jobs: int, most: int = MOST_POINTS
) -> list[tuple[int, Fraction]]:
    """(time, share of the jobs whose time is not longer): at most so many points, the last the longest.

    ``jobs``: all jobs, with those that never ended and so have no time.
    """
    ordered = sorted(times)
    if not ordered:
        return []
    count = min(most, len(ordered))
    ranks = [-(-len(ordered) * (i + 1) // count) for i in range(count)]
    chosen = dict.fromkeys(ordered[rank - 1] for rank in ranks)
    return [(time, Fraction(bisect_right(ordered, time), jobs)) for time in chosen]


def _areas(steps: Steps, edges: Sequence[int]) -> list[list[int]]:
    """Time x value between neighbouring edges, of every value; edges ascend."""
    width = len(steps[0][1]) if steps else 0
    areas = [[0] * width for _ in edges[1:]]
    part = 0
    for i, (time, values) in enumerate(steps):
        begin = max(time, edges[0])
        end = min(steps[i + 1][0], edges[-1]) if i + 1 < len(steps) else edges[-1]
        while begin < end:
            while edges[part + 1] <= begin:
                part += 1
            until = min(end, edges[part + 1])
            for v, value in enumerate(values):
                areas[part][v] += value * (until - begin)
            begin = until
    return areas
