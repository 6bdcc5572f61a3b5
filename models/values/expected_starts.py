"""Between when a gang that waits is expected to start, by what others have waited.

Like it are gangs that met a queue as long as it does: the GPUs asked for, to a factor of 4, next to all GPUs;
then all gangs. The 5 % and 95 % order statistics of their waits would hold 90 % of exchangeable waits (split
conformal prediction). Waits are not: queues grow for hours, and who has started by then waited less than
those who still wait. So both are widened by factors that follow the misses, as in Gibbs and Candes,
"Adaptive Conformal Inference Under Distribution Shift", NeurIPS 2021: 1 in 20 misses on either side.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

RECENT = 1000
"""Waits of a class that count, the latest: clusters change."""

MILLION = 1_000_000
FIRST = 3 * MILLION
"""The factors at first, in millionths: too wide rather than too narrow while little is known."""

LEAST, MOST = MILLION // 64, 64 * MILLION
MISS, HIT = 10_095, 9_995
"""Ten-thousandths by which a factor changes: as often down as up if 1 in 20 misses."""


@dataclass(frozen=True, slots=True)
class Between:
    """Times, in the unit that was asked in; the start is expected from one to the other, both included."""

    earliest: int
    latest: int


def ninety(ordered: Sequence[int]) -> tuple[int, int] | None:
    """The order statistics between which the next of exchangeable numbers is in 9 of 10 cases.

    Ranks floor(0.05 (n + 1)) and ceil(0.95 (n + 1)) of ``ordered``, ascending; None below n = 19, where there
    are no such ranks.
    """
    least, most = (len(ordered) + 1) // 20, -(-19 * (len(ordered) + 1) // 20)
    return (ordered[least - 1], ordered[most - 1]) if least else None


class Waits:
    """Waits that were seen. Times are integers of one unit, and are told and asked in order of time."""

    def __init__(self) -> None:
        self._of: dict[int | None, _Recent] = defaultdict(_Recent)
        self._waiting: dict[Hashable, tuple[int, tuple[int | None, ...], Between | None]] = {}
        self._due: list[tuple[int, Hashable]] = []
        self._early = self._late = FIRST

    def wait(self, who: Hashable, now: int, asked: int, gpus: int) -> Between | None:
        """A gang waits from now on: between when it is expected to start; None where there is no basis.

        ``who``: comparable with others. ``asked``: GPUs of all gangs that wait and do not come after it, its
        own included; ``gpus``: of the cluster.
        """
        self._pass(now)
        classes = tuple(_classes(asked, gpus))
        seen = (ninety(self._of[one].ordered) for one in classes if one in self._of)
        found = next((one for one in seen if one is not None), None)
        between = None
        if found is not None:
            earliest = now + found[0] * MILLION // self._early
            between = Between(earliest, max(earliest, now + found[1] * self._late // MILLION))
            heapq.heappush(self._due, (between.latest, who))
        self._waiting[who] = (now, classes, between)
        return between

    def start(self, who: Hashable, now: int) -> None:
        """It starts now; nothing happens if it never waited."""
        self._pass(now)
        if who not in self._waiting:
            return
        since, classes, between = self._waiting.pop(who)
        for one in classes:
            self._of[one].add(now - since)
        if between is not None:
            self._early = _changed(self._early, missed=now < between.earliest)
            if now <= between.latest:
                self._late = _changed(self._late, missed=False)

    def _pass(self, now: int) -> None:
        """Who should have started by now, and waits, has missed the latest time."""
        while self._due and self._due[0][0] < now:
            if heapq.heappop(self._due)[1] in self._waiting:
                self._late = _changed(self._late, missed=True)


def _classes(asked: int, gpus: int) -> Iterator[int | None]:
    yield from ((4 * asked // max(1, gpus)).bit_length() // 2, None)


def _changed(factor: int, *, missed: bool) -> int:
    return min(MOST, max(LEAST, factor * (MISS if missed else HIT) // 10_000))


class _Recent:
    """The latest numbers, in order of size."""

    def __init__(self) -> None:
        self._numbers = deque[int]()
        self.ordered: list[int] = []

    def add(self, number: int) -> None:
        self._numbers.append(number)
        insort(self.ordered, number)
        if len(self._numbers) > RECENT:
            del self.ordered[bisect_left(self.ordered, self._numbers.popleft())]
