"""Under ``order: shortest``: how long a gang is taken to run, by what its tenant's jobs took.

A tenant is a namespace. Like a gang are the jobs of its tenant, queue and number of GPUs, then all of its
tenant. Each counts by how long it was, so a thousand jobs of a second change nothing of what jobs of a day
say: who wants to be taken for short has to use GPUs for short jobs. Each class is drawn towards the wider one
as by one more gang that takes what is expected there. Jobs of others count only for a tenant that had none
yet: it is expected to be like the middle one of the tenants, so that no single one decides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import replace
from itertools import accumulate
from statistics import median_low

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.queues.bands import UNKNOWN_S, expected_left_s, ran_s


class Lengths:
    """Durations that were measured, in seconds."""

    def __init__(self) -> None:
        self._alike = defaultdict[tuple[str, str | None, int], _Sample](_Sample)
        self._tenants = defaultdict[str, _Sample](_Sample)
        self._usual: int | None = UNKNOWN_S

    def add(self, tenant: str, queue: str | None, gpus: int, seconds: int) -> None:
        """A gang of this tenant, in this queue and with so many GPUs, has ended after so long."""
        self._alike[tenant, queue, gpus].add(max(1, seconds))
        self._tenants[tenant].add(max(1, seconds))
        self._usual = None

    def left_s(self, gang: Gang, ran: int, first: int) -> int:
        """Seconds that it is expected to run on, at least 1; ``first``: before its tenant's jobs count."""
        expected = max(1, first)
        for sample in (
            self._tenants.get(gang.namespace),
            self._alike.get((gang.namespace, gang.queue, gang.most_gpus)),
        ):
            if sample is not None:
                weight, total = sample.beyond(ran)
                expected = (expected * expected + total) // (expected + weight)
        return max(1, expected)

    def usual_s(self, tenant: str) -> int:
        """What is expected of a tenant before its own jobs: those of the middle one if it had none."""
        if tenant in self._tenants:
            return UNKNOWN_S
        if self._usual is None:
            sums = (sample.beyond(0) for sample in self._tenants.values())
            each = (total // weight for weight, total in sums)
            self._usual = max(UNKNOWN_S, median_low(each))
        return self._usual


def expecting(instance: Instance, lengths: Lengths) -> Instance:
    """The instance in which gangs state how long they are expected to run on, unless they did."""

    def expects(gang: Gang) -> Gang:
        if gang.expected_left_s is not None:
            return gang
        usual = lengths.usual_s(gang.namespace)
        first = expected_left_s(gang, instance.policy, instance.now, usual)
        left = lengths.left_s(gang, ran_s(gang, instance.now), first)
        return replace(gang, expected_left_s=left)

    return replace(instance, gangs=tuple(map(expects, instance.gangs)))


class _Sample:
    """Sorted durations, the sums of them and of their squares: made when they are asked for."""

    def __init__(self) -> None:
        self._durations = list[int]()
        self._sums = list[int]()
        self._squares = list[int]()

    def add(self, seconds: int) -> None:
        self._durations.append(seconds)
        self._sums = []

    def beyond(self, ran: int) -> tuple[int, int]:
        """The durations of those that were longer, together, and that sum with each times what it ran on."""
        if not self._sums:
            self._durations.sort()
            self._sums = [0, *accumulate(self._durations)]
            self._squares = [0, *accumulate(one * one for one in self._durations)]
        at = bisect_right(self._durations, ran)
        weight = self._sums[-1] - self._sums[at]
        return weight, self._squares[-1] - self._squares[at] - ran * weight
