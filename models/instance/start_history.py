"""What past waits say of when gangs will start (``models.values.expected_starts`` learns it)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Between:
    """Times, in the unit that was asked in; the start is expected from one to the other, both included."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class Asks:
    """A gang that waits. ``gpus``: its own. ``before``: of it and all that do not come after it.

    ``installed``: of the cluster. ``start``: when it would start by count, in the unit of ``Waits``.
    """

    gpus: int
    before: int
    installed: int
    start: int

    def classes(self) -> Iterator[Hashable]:
        """From near to far."""
        size = self.gpus.bit_length()
        yield size, (4 * self.before // max(1, self.installed)).bit_length() // 2
        yield size
        yield None


@dataclass(frozen=True, slots=True)
class Factors:
    """``ranks``: by class how many factors are known, and their order statistics.

    These, ``early`` and ``late`` are in millionths. ``certain``: ``CERTAIN_S`` in the unit of times.
    """

    ranks: Mapping[Hashable, tuple[int, int, int]]
    early: int
    late: int
    certain: int

    def between(self, now: int, asks: Asks, waiting: Mapping[Hashable, int]) -> Between | None:
        """Between when a gang that waits now is expected to start; None where there is no basis.

        ``waiting``: by class how many wait, itself not counted. If they are more than half of those that have
        started, what they have in common has not been seen yet.
        """
        found = next(((o, self.ranks[o]) for o in asks.classes() if o in self.ranks), None)
        if found is None:
            return None
        own, (known, least, most) = found
        if 2 * waiting.get(own, 0) > known:
            return None
        wait = asks.start - now + self.certain
        earliest = now + max(0, wait * least // self.early - self.certain)
        latest = now + wait * most * self.late // MILLION**2 - self.certain
        return Between(earliest, max(earliest, latest))


@dataclass(frozen=True, slots=True)
class StartHistory:
    """What the traces in an input say. ``left_s``: how long its gangs are expected to run, or to run on."""

    factors: Factors
    left_s: Mapping[tuple[str, str], int]
