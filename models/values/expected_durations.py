"""How long a gang is expected to run, by the durations of others like it that have ended.

Like it are, from near to far, gangs of its queue (or namespace) with as many GPUs, gangs with as many GPUs,
and all gangs. Of those that ran longer than it has run so far the mean of what they ran on counts: a job
that has run for a day is not expected to end within an hour. Each class is drawn towards the wider one as if
one more gang had been seen that takes what is expected there (with 1, 3 and 10 completion times were the
same). That durations of the same user and size predict the next one is a finding of Hu et al.,
"Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters", SC 2021.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator

import numpy as np
from numpy.typing import NDArray

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.queues.bands import UNKNOWN_S

PRIOR = 1


class Durations:
    """Durations that were seen, in seconds."""

    def __init__(self) -> None:
        self._of: dict[Hashable, _Sample] = defaultdict(_Sample)

    def add(self, who: str, gpus: int, seconds: int) -> None:
        """A gang of this queue, with so many GPUs, has ended after so long."""
        for key in _classes(who, gpus):
            self._of[key].add(seconds)

    def left_s(self, who: str, gpus: int, ran_s: int = 0) -> int:
        """Seconds that a gang is expected to run on, at least 1, after it has run for ``ran_s``."""
        expected = max(UNKNOWN_S, ran_s)
        for key in reversed([*_classes(who, gpus)]):
            if key in self._of:
                count, total = self._of[key].beyond(ran_s)
                expected = (PRIOR * expected + total) // (PRIOR + count)
        return max(1, expected)


def _classes(who: str, gpus: int) -> Iterator[Hashable]:
    yield from ((who, gpus), gpus, None)


def expected_lefts(instance: Instance, durations: Durations) -> dict[tuple[str, str], int]:
    """Seconds that each gang is expected to run on, where it does not say so itself, for forecasts of starts.

    Nobody is expected to run longer than its ``expectedDuration``: here it harms none but itself.
    """

    def expects(gang: Gang) -> int:
        if gang.expected_left_s is not None:
            return gang.expected_left_s
        gpus = sum(role.min * role.gpus for role in gang.roles)
        ran = instance.now - gang.started_at if gang.running and gang.started_at is not None else 0
        left = durations.left_s(gang.queue or gang.namespace, gpus, max(0, ran))
        if gang.expected_duration_s is not None and gang.expected_duration_s > ran:
            left = min(left, gang.expected_duration_s - ran)
        return left

    return {gang.key: expects(gang) for gang in instance.gangs}


class _Sample:
    """Sorted durations; what is new is sorted in when it is asked for."""

    def __init__(self) -> None:
        self._new: list[int] = []
        self._sorted: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._sums = np.zeros(1, dtype=np.int64)

    def add(self, seconds: int) -> None:
        self._new.append(seconds)

    def beyond(self, seconds: int) -> tuple[int, int]:
        """How many were longer, and by how much all of them together."""
        if self._new:
            self._sorted = np.sort(np.concatenate([self._sorted, self._new]), kind="stable")
            self._sums = np.concatenate([[0], np.cumsum(self._sorted)])
            self._new = []
        at = int(np.searchsorted(self._sorted, seconds, side="right"))
        count = len(self._sorted) - at
        return count, int(self._sums[-1] - self._sums[at]) - count * seconds
