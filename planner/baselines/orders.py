"""In which order other schedulers take gangs, who may start past whom, and who is stopped for whom.

An order gives one gang after another and is told whether each was placed. Promises: it reads the moment, and
changes nothing; of equal gangs the earlier one comes first.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from models.instance.gang import Gang
from models.instance.instance import Instance

DAY_S = 24 * 60 * 60


@dataclass(frozen=True, slots=True)
class Seen:
    """What a scheduler may know of a gang besides the instance.

    ``held_gpu_s``: GPUs times the time for which it held them so far. ``left_s``: seconds of work that are
    left at full speed, which only perfect knowledge tells. ``ends``: date at which a running one ends.
    """

    held_gpu_s: int = 0
    left_s: int = 0
    ends: int | None = None


NOTHING_SEEN = Seen()


@dataclass(frozen=True)
class Moment:
    """An instance as a scheduler sees it.

    ``see``: what is known of a gang; ``count``: GPU seconds by queue, of all jobs so far.
    """

    instance: Instance
    see: Callable[[Gang], Seen] = lambda _gang: NOTHING_SEEN
    count: Callable[[], Mapping[str, int]] = dict

    def of(self, index: int) -> Seen:
        """What is known of a gang."""
        return self.see(self.instance.gangs[index])

    @cached_property
    def used_gpu_s(self) -> Mapping[str, int]:
        """GPU seconds that the jobs of each queue have had."""
        return self.count()

    @cached_property
    def wanting(self) -> list[int]:
        """Gangs with pods to place, by priority, then by submission."""
        gangs = enumerate(self.instance.gangs)
        found = [i for i, gang in gangs if gang.hold is None and gang.missing()]
        return sorted(found, key=lambda i: (*by_submission(self.instance.gangs[i]), i))

    @cached_property
    def gpus(self) -> int:
        """Healthy GPUs of the nodes that take pods."""
        instance = self.instance
        return sum(n.healthy_gpus for n in instance.cluster.nodes if instance.schedulable(n))

    @cached_property
    def held(self) -> Counter[str]:
        """GPUs that each queue holds."""
        found = Counter[str]()
        for gang in self.instance.gangs:
            found[queue_of(gang)] += gpus_held(gang)
        return found

    @cached_property
    def queues(self) -> list[str]:
        """Names of the queues of all gangs."""
        return sorted({queue_of(gang) for gang in self.instance.gangs})


def queue_of(gang: Gang) -> str:
    """Its queue; its namespace if it has none."""
    return gang.queue or gang.namespace


def gpus_of(gang: Gang) -> int:
    """GPUs of all its pods at its least size."""
    return sum(role.min * role.gpus for role in gang.roles)


def gpus_held(gang: Gang) -> int:
    """GPUs of its pods that run."""
    return sum(gang.roles[pod.role].gpus for pod in gang.running_pods)


def by_submission(gang: Gang) -> tuple[int, ...]:
    """Priority, then submission: the usual place in a queue."""
    return (-gang.priority, gang.submitted_at or 0)


Order = Callable[[Moment], Generator[int, bool, None]]
"""Yields the gangs in turn; is sent whether the last one was placed."""


def in_turn(key: Callable[[Moment, int], tuple[float, ...]] | None = None) -> Order:
    """By a key of each gang; of equal ones, and without a key, by priority and submission."""

    def order(moment: Moment) -> Generator[int, bool, None]:
        found = moment.wanting
        if key is not None:
            found = sorted(found, key=lambda index: key(moment, index))
        for index in found:  # noqa: UP028  # a list is sent nothing
            yield index

    return order


IN_TURN = in_turn()
"""First come, first served."""


def fair(moment: Moment) -> Generator[int, bool, None]:
    """Always a gang of the queue that holds the least: dominant resource fairness, where GPUs dominate.

    Within a queue by priority and submission. Ghodsi et al., "Dominant Resource Fairness", NSDI 2011:
    https://www.usenix.org/conference/nsdi11/dominant-resource-fairness-fair-allocation-multiple-resource-types
    """
    gangs, held = moment.instance.gangs, Counter(moment.held)
    waiting: dict[str, list[int]] = {}
    for index in reversed(moment.wanting):
        waiting.setdefault(queue_of(gangs[index]), []).append(index)
    heads = [(held[queue], _head(gangs, own), queue) for queue, own in waiting.items()]
    heapq.heapify(heads)
    while heads:
        _, _, queue = heapq.heappop(heads)
        index = waiting[queue].pop()
        placed = yield index
        if placed:
            held[queue] += gpus_of(gangs[index]) - gpus_held(gangs[index])
        if waiting[queue]:
            heapq.heappush(heads, (held[queue], _head(gangs, waiting[queue]), queue))


def _head(gangs: Sequence[Gang], waiting: Sequence[int]) -> tuple[int, ...]:
    """Between queues that hold as much: the turn of their first gangs."""
    return (*by_submission(gangs[waiting[-1]]), waiting[-1])


AGE_WEIGHT, FAIRSHARE_WEIGHT, SIZE_WEIGHT = 1_000, 10_000, 1_000
"""PriorityWeightAge, -Fairshare and -JobSize of the example of https://slurm.schedmd.com/priority_multifactor.html"""

OLDEST_S = 7 * DAY_S
"""PriorityMaxAge, Slurm's default."""


def multifactor(moment: Moment, index: int) -> tuple[float, ...]:
    """Slurm's multifactor priority, negated: age, size, and fair share of the queue among all.

    The fair share factor is 2^(-usage / share), with equal shares. https://slurm.schedmd.com/priority_multifactor.html
    """
    gang, now = moment.instance.gangs[index], moment.instance.now
    age = min(1.0, max(0, now - (gang.submitted_at or now)) / OLDEST_S)
    total = sum(moment.used_gpu_s.values())
    usage = moment.used_gpu_s.get(queue_of(gang), 0) / total if total else 0.0
    factor = 2.0 ** (-usage * max(1, len(moment.queues)))
    size = gpus_of(gang) / max(1, moment.gpus)
    worth = AGE_WEIGHT * age + FAIRSHARE_WEIGHT * factor + SIZE_WEIGHT * size
    return (-gang.priority, -worth)


ATTAINED_GPU_S = 3_200
"""GPU seconds up to which a job is in the first of two queues: Tiresias-L of the paper's testbed."""


def least_attained(moment: Moment, index: int) -> tuple[float, ...]:
    """Two queues by attained service, each by submission: discretised two-dimensional LAS.

    Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019:
    https://www.usenix.org/conference/nsdi19/presentation/gu
    """
    gang = moment.instance.gangs[index]
    lower = moment.of(index).held_gpu_s >= ATTAINED_GPU_S
    return (-gang.priority, lower, gang.submitted_at or 0)


def remaining_time(moment: Moment, index: int) -> tuple[float, ...]:
    """The shortest remaining time first: a bound of what orders that know nothing can reach."""
    return (-moment.instance.gangs[index].priority, moment.of(index).left_s)


def remaining_service(moment: Moment, index: int) -> tuple[float, ...]:
    """The least remaining GPU time first."""
    gang = moment.instance.gangs[index]
    return (-gang.priority, moment.of(index).left_s * gpus_of(gang))


class Profile:
    """GPUs that are free from now on, by count: steps (date, free). Durations are those of the trace."""

    def __init__(self, moment: Moment) -> None:
        now, instance = moment.instance.now, moment.instance
        ends = Counter[int]()
        for index, gang in enumerate(instance.gangs):
            if gang.running:
                ends[max(now + 1, moment.of(index).ends or now + 1)] += gpus_held(gang)
        free = moment.gpus - sum(ends.values())
        self.times, self.free = [now], [free]
        for date in sorted(ends):
            free += ends[date]
            self.times.append(date)
            self.free.append(free)

    def earliest(self, gpus: int, seconds: int) -> int | None:
        """The first date from which so many GPUs are free for so long; None if they never are."""
        begin = 0
        for i, free in enumerate(self.free):
            if free < gpus:
                begin = i + 1
            elif i + 1 < len(self.times) and self.times[i + 1] < self.times[begin] + seconds:
                continue
            else:
                return self.times[begin]
        return self.times[begin] if begin < len(self.times) else None

    def reserve(self, begin: int, seconds: int, gpus: int) -> None:
        """They are not free then."""
        for date in (begin, begin + max(1, seconds)):
            at = next((i for i, time in enumerate(self.times) if time >= date), len(self.times))
            if at == len(self.times) or self.times[at] != date:
                self.times.insert(at, date)
                self.free.insert(at, self.free[at - 1])
        for i, time in enumerate(self.times):
            if begin <= time < begin + max(1, seconds):
                self.free[i] -= gpus
