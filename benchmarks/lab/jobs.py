"""Jobs of a replay: how much of their work is left, and what they hold.

Times are integer milliseconds since the start, work is in permille-GPU x milliseconds: a job does its GPUs
times its predicted speed of it in each millisecond. So all of it is exact.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from models.instance.gang import Gang
from models.instance.solution import PodPlacement
from models.instance.speed import FULL_SPEED

MS = 1000


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job of the trace. ``gang``: as it waits, with the time of its submission."""

    gang: Gang
    submit_ms: int
    duration_ms: int

    @property
    def queue(self) -> str:
        """Its queue; its namespace if it has none."""
        return self.gang.queue or self.gang.namespace

    @property
    def gpus(self) -> int:
        """Its GPUs at its least size."""
        return sum(role.min * role.gpus for role in self.gang.roles)

    @property
    def most_gpus(self) -> int:
        """Its GPUs at its largest size."""
        return sum(role.max * role.gpus for role in self.gang.roles)

    @property
    def least_ms(self) -> int:
        """What it takes at its largest size and full speed, rounded down."""
        most = self.most_gpus
        return self.duration_ms * self.gpus // most if most else self.duration_ms

    @property
    def work(self) -> int:
        """What there is to do, at its least size and full speed."""
        return self.duration_ms * FULL_SPEED * self.gang.weight_gpus


@dataclass(frozen=True, slots=True)
class Run:
    """A job between a start and the next end, move or interruption.

    ``gang``: with its pods. ``gpus``: that it holds. ``rate``: work done in a millisecond. ``since_ms``: when
    it got them, ``from_ms``: when work goes on. ``left``: work then.
    """

    gang: Gang
    pods: tuple[PodPlacement, ...]
    gpus: int
    speed: int
    rate: int
    since_ms: int
    from_ms: int
    left: int

    @property
    def end_ms(self) -> int:
        """When it will have done its work."""
        return self.from_ms + -(-self.left // self.rate)

    def left_at(self, time_ms: int) -> int:
        """Work that is left at a time."""
        return max(0, self.left - max(0, time_ms - self.from_ms) * self.rate)


@dataclass(slots=True)
class JobState:
    """A job in the course of a replay. ``left``: work when it last held GPUs. ``run``: None while it waits.

    ``started``, ``ended``: the first start and the completion, in ms. ``held_gpu_ms``: GPUs times the time
    for which it held them. ``starts``: how often it got GPUs, moves and changes of size included.
    """

    facts: JobFacts
    left: int
    run: Run | None = None
    started: int | None = None
    ended: int | None = None
    held_gpu_ms: int = 0
    starts: int = 0


class Present:
    """Jobs that have come and not ended, and sums over them that each event would else take anew.

    ``gangs``: of all of them, by key. ``asked``: how many that wait need so many GPUs; ``sizes``: how many
    take at most so many. ``busy``: GPUs held; ``effective``: permille-GPU, these times the speed of their
    job. ``used_gpu_s``: by queue, of jobs that do not run.
    """

    def __init__(self, jobs: Sequence[JobState]) -> None:
        self.waiting, self.running = set[int](), set[int]()
        self.gangs: list[Gang] = []
        self.asked, self.sizes = Counter[int](), Counter[int]()
        self.busy = self.effective = 0
        self.used_gpu_s = Counter[str]()
        self._jobs = jobs
        by_key = sorted(range(len(jobs)), key=lambda number: jobs[number].facts.gang.key)
        self._rank = {number: rank for rank, number in enumerate(by_key)}
        self._ranks: list[int] = []

    def enter(self, number: int) -> None:
        """The job came, or has changed: it waits, runs or has ended."""
        job = self._jobs[number]
        if job.run is None:
            self.used_gpu_s[job.facts.queue] += job.held_gpu_ms // MS
        if job.ended is not None:
            return
        at = bisect_left(self._ranks, self._rank[number])
        self._ranks.insert(at, self._rank[number])
        self.gangs.insert(at, job.facts.gang if job.run is None else job.run.gang)
        self._count(job, 1)
        (self.waiting if job.run is None else self.running).add(number)

    def leave(self, number: int) -> None:
        """The job is about to change."""
        job = self._jobs[number]
        if job.run is None:
            self.used_gpu_s[job.facts.queue] -= job.held_gpu_ms // MS
        at = bisect_left(self._ranks, self._rank[number])
        del self._ranks[at], self.gangs[at]
        self._count(job, -1)
        (self.waiting if job.run is None else self.running).discard(number)

    def _count(self, job: JobState, sign: int) -> None:
        self.sizes[job.facts.most_gpus] += sign
        if job.run is None:
            self.asked[job.facts.gpus] += sign
            return
        self.busy += sign * job.run.gpus
        self.effective += sign * job.run.gpus * job.run.speed
