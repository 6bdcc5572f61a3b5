"""Jobs of a replay: how much of their work is left, and what they hold.

Times are integer milliseconds since the start, work is in permille-GPU x milliseconds: a job does its GPUs
times its predicted speed of it in each millisecond. So all of it is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.instance.gang import Gang
from models.instance.solution import PodPlacement
from models.instance.speed import FULL_SPEED


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
    def least_ms(self) -> int:
        """What it takes at its largest size and full speed, rounded down."""
        most = sum(role.max * role.gpus for role in self.gang.roles)
        return self.duration_ms * self.gpus // most if most else self.duration_ms

    @property
    def work(self) -> int:
        """What there is to do, at its least size and full speed."""
        return self.duration_ms * FULL_SPEED * self.gang.weight_gpus


@dataclass(frozen=True, slots=True)
class Run:
    """A job between a start and the next end, move or interruption.

    ``gang``: with its pods. ``gpus``: that it holds. ``rate``: work done in a millisecond. ``since_ms``: when
    it got them, ``from_ms``: when work goes on. ``left``: work then. ``bandwidth_MBps``: 0 for one GPU.
    """

    gang: Gang
    pods: tuple[PodPlacement, ...]
    gpus: int
    speed: int
    rate: int
    since_ms: int
    from_ms: int
    left: int
    bandwidth_MBps: int

    @property
    def end_ms(self) -> int:
        """When it will have done its work."""
        return self.from_ms + -(-self.left // self.rate)

    def checkpoint_ms(self, now_ms: int, every_ms: int) -> int:
        """The last time at which its work was saved. ``every_ms``: 0 for work that is never lost."""
        done = max(0, now_ms - self.from_ms)
        return self.from_ms + (done if every_ms == 0 else done // every_ms * every_ms)

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
