"""In which order other schedulers take gangs, who may start past whom, and who is stopped for whom.

An order gives one gang after another and is told whether each was placed. Promises: it reads the moment, and
changes nothing; of equal gangs the earlier one comes first.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np

from benchmarks.lab.standing import Facts, Standing
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

    ``see``: what is known of a gang; ``count``: GPU seconds by queue, of all jobs so far. ``standing``: what
    is kept of earlier moments, if the caller keeps it.
    """

    instance: Instance
    see: Callable[[Gang], Seen] = lambda _gang: NOTHING_SEEN
    count: Callable[[], Mapping[str, int]] = dict
    standing: Standing = field(default_factory=Standing)

    def of(self, index: int) -> Seen:
        """What is known of a gang."""
        return self.see(self.instance.gangs[index])

    @cached_property
    def used_gpu_s(self) -> Mapping[str, int]:
        """GPU seconds that the jobs of each queue have had."""
        return self.count()

    @cached_property
    def kept(self) -> Standing:
        """What is kept, as of this moment."""
        self.standing.follow(self.instance)
        return self.standing

    @cached_property
    def facts(self) -> list[Facts]:
        """What depends on each gang alone."""
        return self.kept.facts

    @cached_property
    def wanting(self) -> list[int]:
        """Gangs with pods to place, by priority, then by submission."""
        return self.kept.wanting

    @property
    def gpus(self) -> int:
        """Healthy GPUs of the nodes that take pods."""
        return self.kept.gpus

    @cached_property
    def fair_shares(self) -> dict[str, Fraction]:
        """GPUs that are fair for each queue: as many as it asks for and holds, at most the same for all."""
        asked = Counter[str]()
        for facts in self.facts:
            asked[facts.queue] += facts.held + (facts.lacks or 0)
        shares, left = dict[str, Fraction](), Fraction(self.gpus)
        for done, queue in enumerate(sorted(asked, key=lambda name: (asked[name], name))):
            shares[queue] = min(Fraction(asked[queue]), left / (len(asked) - done))
            left -= shares[queue]
        return shares

    def share(self, held: int) -> int:
        """GPUs that a queue borrows that holds so many, times the number of queues: all have equal quotas."""
        return max(0, held * len(self.queues) - self.gpus)

    @cached_property
    def queues(self) -> frozenset[str]:
        """Names of the queues of all gangs."""
        return frozenset(facts.queue for facts in self.facts)


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


def fair(
    moment: Moment, share: Callable[[Moment, int], int] = lambda _moment, held: held
) -> Generator[int, bool, None]:
    """Always a gang of the queue that holds the least: dominant resource fairness, where GPUs dominate.

    Within a queue by priority and submission. Ghodsi et al., "Dominant Resource Fairness", NSDI 2011:
    https://www.usenix.org/conference/nsdi11/dominant-resource-fairness-fair-allocation-multiple-resource-types
    """
    facts, wanting, held = moment.facts, moment.wanting, Counter(moment.kept.held)
    lines: dict[str, list[int]] = {}  # of each queue, places in ``wanting``, the first one last
    for place in range(len(wanting) - 1, -1, -1):
        lines.setdefault(facts[wanting[place]].queue, []).append(place)
    heads = [(share(moment, held[queue]), line[-1], queue) for queue, line in lines.items()]
    heapq.heapify(heads)
    while heads:
        _, place, queue = heapq.heappop(heads)
        own = facts[wanting[place]]
        lines[queue].pop()
        placed = yield wanting[place]
        if placed:
            held[queue] += own.gpus - own.held
        if lines[queue]:
            heapq.heappush(heads, (share(moment, held[queue]), lines[queue][-1], queue))


def fair_above_quota(moment: Moment) -> Generator[int, bool, None]:
    """Always a gang of the queue that borrows the least."""
    return fair(moment, Moment.share)


Held = Counter[str]
"""GPUs that each queue holds, those that are about to change hands counted."""

Victims = Callable[[Moment, Held, int, Sequence[int]], Iterator[int]]
"""(moment, held, who waits, who runs) to those who may stop for it, one by one, as ``held`` shrinks.

Who runs is given in the order of ``latest_first``.
"""


@dataclass(frozen=True)
class Room:
    """How room is made for a gang that waits, by stopping others.

    ``victims``: stopped in this order until the gang has a place. ``again``: only if all of them then find
    other places at once. ``fair``: whether what queues hold after it is allowed, given who waited and of
    whom queues gave.
    """

    victims: Victims
    again: bool = False
    fair: Callable[[Moment, Held, int, set[str]], bool] = lambda *_of: True


def latest_first(moment: Moment, running: Sequence[int]) -> list[int]:
    """Of the lowest priority first, then who started last."""

    def key(index: int) -> tuple[int, int, int]:
        gang = moment.facts[index].gang
        return (gang.priority, -(gang.started_at or 0), index)

    return sorted(running, key=key)


MOST_CONSOLIDATED = 16
"""Gangs that KAI's consolidation tries to move for one: maxNumberConsolidationPreemptees, its default."""


def consolidated(moment: Moment, held: Held, index: int, running: Sequence[int]) -> Iterator[int]:
    """Those who started last, if there are GPUs enough for all."""
    del moment, held, index
    yield from running[:MOST_CONSOLIDATED]


def reclaimed(moment: Moment, held: Held, index: int, running: Sequence[int]) -> Iterator[int]:
    """KAI's reclaim: for a queue that stays within its fair share, of queues above theirs.

    The queue that holds the most of its fair share gives first.
    https://github.com/NVIDIA/KAI-Scheduler/blob/main/docs/fairness/README.md
    """
    own, shares = moment.facts[index], moment.fair_shares
    if held[own.queue] + own.gpus > shares[own.queue]:
        return
    lines = _lines(moment, running, own.queue)
    while lines:
        queue = max(lines, key=lambda name: (held[name] / shares[name], name))
        if held[queue] <= shares[queue]:
            return
        yield lines[queue].pop(0)
        if not lines[queue]:
            del lines[queue]


def within_fair_share(moment: Moment, held: Held, index: int, gave: set[str]) -> bool:
    """Afterwards the queue holds no more of its fair share than any queue that gave."""
    own, shares = moment.facts[index].queue, moment.fair_shares
    return all(held[own] * shares[name] <= held[name] * shares[own] for name in gave)


def of_lower_priority(
    moment: Moment, held: Held, index: int, running: Sequence[int]
) -> Iterator[int]:
    """Those of its own queue that have a lower priority."""
    del held
    facts, own = moment.facts, moment.facts[index]
    for victim in running:
        if facts[victim].gang.priority >= own.gang.priority:
            return  # and so are those behind it
        if facts[victim].queue == own.queue:
            yield victim


def borrowed(moment: Moment, held: Held, index: int, running: Sequence[int]) -> Iterator[int]:
    """Kueue's fair preemption in a cohort whose queues have equal nominal quotas and may borrow all.

    reclaimWithinCohort Any, withinClusterQueue LowerPriority, and the strategies LessThanOrEqualToFinalShare
    and LessThanInitialShare. https://kueue.sigs.k8s.io/docs/concepts/preemption/#fair-sharing
    """
    facts, own, taken = moment.facts, moment.facts[index], set[int]()
    lower = list(of_lower_priority(moment, held, index, running))
    for final in (True, False):
        lines = _lines(moment, running, own.queue)
        if lower:
            lines[own.queue] = lower
        while lines:
            queue = max(lines, key=lambda name: (moment.share(held[name]), name))
            victim = next(
                (
                    one
                    for one in lines[queue]
                    if one not in taken and _may_take(moment, held, own, facts[one], final=final)
                ),
                None,
            )
            if victim is None:
                del lines[queue]
                continue
            taken.add(victim)
            yield victim


def _may_take(moment: Moment, held: Held, own: Facts, victim: Facts, *, final: bool) -> bool:
    """Whether a strategy of Kueue's allows it. ``final``: LessThanOrEqualToFinalShare."""
    if victim.queue == own.queue:
        return True
    theirs = held[victim.queue]
    if moment.share(theirs) <= 0:
        return False  # it borrows nothing
    after = moment.share(held[own.queue] + own.gpus)
    if not after:
        return True  # within its own quota
    return after <= moment.share(theirs - victim.held) if final else after < moment.share(theirs)


def _lines(moment: Moment, running: Sequence[int], but: str) -> dict[str, list[int]]:
    """Those who run, by queue; without one queue."""
    lines: dict[str, list[int]] = {}
    for victim in running:
        if moment.facts[victim].queue != but:
            lines.setdefault(moment.facts[victim].queue, []).append(victim)
    return lines


AGE_WEIGHT, FAIRSHARE_WEIGHT, SIZE_WEIGHT = 1_000, 10_000, 1_000
"""PriorityWeightAge, -Fairshare and -JobSize of the example of https://slurm.schedmd.com/priority_multifactor.html"""

OLDEST_S = 7 * DAY_S
"""PriorityMaxAge, Slurm's default."""


def multifactor(moment: Moment, index: int) -> tuple[float, ...]:
    """Slurm's multifactor priority, negated: age, size, and fair share of the queue among all.

    The fair share factor is 2^(-usage / share), with equal shares. https://slurm.schedmd.com/priority_multifactor.html
    """
    facts, now = moment.facts[index], moment.instance.now
    gang = facts.gang
    age = min(1.0, max(0, now - (gang.submitted_at or now)) / OLDEST_S)
    total = sum(moment.used_gpu_s.values())
    usage = moment.used_gpu_s.get(facts.queue, 0) / total if total else 0.0
    factor = 2.0 ** (-usage * max(1, len(moment.queues)))
    size = facts.gpus / max(1, moment.gpus)
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


def remaining_service(moment: Moment, index: int) -> tuple[float, ...]:
    """The least remaining GPU time first: what an order with perfect knowledge reaches."""
    facts = moment.facts[index]
    return (-facts.gang.priority, moment.of(index).left_s * facts.gpus)


class Profile:
    """GPUs that are free from now on, by count: ``times`` of steps, ``free`` from each on.

    Durations are those of the trace.
    """

    def __init__(self, moment: Moment) -> None:
        now = moment.instance.now
        ends = Counter[int]()
        for index, facts in enumerate(moment.facts):
            if facts.held:
                ends[max(now + 1, moment.of(index).ends or now + 1)] += facts.held
        dates = sorted(ends)
        self.times = np.array([now, *dates], dtype=np.int64)
        held = np.array([ends[date] for date in dates], dtype=np.int64)
        self.free = np.append(0, np.cumsum(held)) + moment.gpus - held.sum()
        self._lacks = dict[int, int | None]()

    def fits_now(self, gpus: int, seconds: int) -> bool:
        """Whether so many GPUs are free from now on for so long."""
        if gpus not in self._lacks:  # few sizes are asked for, again and again
            short = self.free < gpus
            self._lacks[gpus] = int(self.times[short.argmax()]) if short.any() else None
        date = self._lacks[gpus]
        return date is None or date >= self.times[0] + max(1, seconds)

    def earliest(self, gpus: int, seconds: int) -> int | None:
        """The first date from which so many GPUs are free for so long; None if they never are."""
        short = np.flatnonzero(self.free < gpus)
        begins, last = np.append(0, short + 1), len(self.times) - 1
        if begins[-1] > last:  # too few at the end of all
            begins, ends = begins[:-1], self.times[short]
            long_enough = ends >= self.times[begins] + max(1, seconds)
        else:
            ends = self.times[short]
            long_enough = np.append(ends >= self.times[begins[:-1]] + max(1, seconds), True)
        return int(self.times[begins[long_enough.argmax()]]) if long_enough.any() else None

    def reserve(self, begin: int, seconds: int, gpus: int) -> None:
        """They are not free then."""
        end = begin + max(1, seconds)
        for date in (begin, end):
            at = int(np.searchsorted(self.times, date))
            if at == len(self.times) or self.times[at] != date:
                self.times = np.insert(self.times, at, date)
                self.free = np.insert(self.free, at, self.free[at - 1])
        self.free[slice(*np.searchsorted(self.times, (begin, end)))] -= gpus
        self._lacks.clear()
