"""Between when a gang that waits is expected to start, by what others have waited.

First come, first served, with GPUs alike and durations as expected, each gang would start at some time
(``starts_by_count``). Others start before it, or wait for a place that is close together: so gangs like it
say by which factors their waits were off. Like it are gangs of as many GPUs that met a queue as long, each
within a factor of 2 (queues: 4); then those of as many GPUs; then all. The 5 % and 95 % order statistics of
their factors would hold 90 % of exchangeable ones (split conformal prediction). They are not: queues grow for
hours, and who has started by then waited less than those who still wait. So both ends are widened by factors
that follow the misses, as in Gibbs and Candes, "Adaptive Conformal Inference Under Distribution Shift",
NeurIPS 2021: 1 in 20 misses on either side.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence

from models.instance.start_history import MILLION, Asks, Between, Factors

RECENT = 1000
"""Factors of a class that count, the latest: clusters change."""

FIRST = 3 * MILLION
"""The widening at first, in millionths: too wide rather than too narrow while little is known."""

LEAST, MOST = MILLION // 20, 20 * MILLION
MISS, HIT = 10_487, 9_975
"""Ten-thousandths by which the widening changes: exp(0.95 / 20) and exp(-0.05 / 20).

As often down as up if 1 in 20 misses. Steps of a fifth held 83 % on four held-out weeks, these 91 %.
"""

CERTAIN_S = 60
"""Added to both times of a factor, in seconds: a wait of 2 s in place of 1 s is no error."""


def starts_by_count(
    now: int, free: int, ends: Iterable[tuple[int, int]], queue: Iterable[tuple[int, int]]
) -> list[int | None]:
    """When each of a queue would start, in its order, if nothing came and GPUs were alike. None: never.

    ``ends``: when who runs ends, and its GPUs. ``queue``: the GPUs of who waits, and how long it takes.
    """
    coming = list(ends)
    heapq.heapify(coming)
    found, at, never = list[int | None](), now, False
    for gpus, lasts in queue:
        while free < gpus and coming:
            at, given = heapq.heappop(coming)
            free += given
        never |= free < gpus
        found.append(None if never else at)
        if not never:
            free -= gpus
            heapq.heappush(coming, (at + lasts, gpus))
    return found


def ninety(ordered: Sequence[int]) -> tuple[int, int] | None:
    """The order statistics between which the next of exchangeable numbers is in 9 of 10 cases.

    Ranks floor(0.05 (n + 1)) and ceil(0.95 (n + 1)) of ``ordered``, ascending; None below n = 19, where there
    are no such ranks.
    """
    least, most = (len(ordered) + 1) // 20, -(-19 * (len(ordered) + 1) // 20)
    return (ordered[least - 1], ordered[most - 1]) if least else None


class Waits:
    """Waits that were seen, told and asked in order of time. ``second``: in the unit of times, an integer."""

    def __init__(self, second: int = 1) -> None:
        self._certain = CERTAIN_S * second
        self._of: dict[Hashable, _Recent] = defaultdict(_Recent)
        self._waiting: dict[Hashable, tuple[int, Asks, Between | None]] = {}
        self._open = Counter[Hashable]()
        self._due: list[tuple[int, Hashable]] = []
        self._early = self._late = FIRST

    def wait(self, who: Hashable, now: int, asks: Asks) -> Between | None:
        """A gang waits from now on: between when it is expected to start; None where there is no basis.

        ``who``: comparable with others.
        """
        between = self.between(now, asks)
        if between is not None:
            heapq.heappush(self._due, (between.latest, who))
        self._waiting[who] = (now, asks, between)
        self._open.update(asks.classes())
        return between

    def between(self, now: int, asks: Asks) -> Between | None:
        """The same of one that is not followed."""
        self._pass(now)
        return self._factors(asks.classes()).between(now, asks, self._open)

    def factors(self) -> Factors:
        """What has been learned by now."""
        return self._factors(self._of)

    def _factors(self, classes: Iterable[Hashable]) -> Factors:
        """For these classes: the ranks of those that have some."""
        known = ((one, self._of[one].ordered) for one in classes if one in self._of)
        ranks = {
            one: (len(ordered), *both)
            for one, ordered in known
            if (both := ninety(ordered)) is not None
        }
        return Factors(ranks, self._early, self._late, self._certain)

    def start(self, who: Hashable, now: int) -> None:
        """It starts now; nothing happens if it never waited."""
        self._pass(now)
        if who not in self._waiting:
            return
        since, asks, between = self._waiting.pop(who)
        self._open.subtract(asks.classes())
        expected = asks.start - since + self._certain
        for one in asks.classes():
            self._of[one].add((now - since + self._certain) * MILLION // expected)
        if between is not None:
            self._early = _changed(self._early, missed=now < between.earliest)
            if now <= between.latest:
                self._late = _changed(self._late, missed=False)

    def _pass(self, now: int) -> None:
        """Who should have started by now, and waits, has missed the latest time."""
        while self._due and self._due[0][0] < now:
            if heapq.heappop(self._due)[1] in self._waiting:
                self._late = _changed(self._late, missed=True)


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
