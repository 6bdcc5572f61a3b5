"""What is measured while a replay goes on: levels from event to event, and counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Level(NamedTuple):
    """What holds until the next event: GPUs in order, held by jobs, and asked for by those that wait.

    ``effective``: permille-GPU, GPUs held times the speed of their job. ``gpu_MBps``: sum of GPUs times the
    bandwidth of their gang.
    """

    usable: int
    busy: int
    waiting: int
    effective: int
    gpu_MBps: int


@dataclass(slots=True)
class Measures:
    """``steps``: (time in ms, level from then on). ``lost_gpu_ms``: of work done twice, and of restarts.

    ``preemptions``, ``moves``: of jobs, by plans. ``restarts``: starts after these.
    """

    steps: list[tuple[int, Level]] = field(default_factory=list)
    preemptions: int = 0
    moves: int = 0
    restarts: int = 0
    lost_gpu_ms: int = 0

    def step(self, now_ms: int, level: Level) -> None:
        """From now on this holds."""
        if not self.steps or level != self.steps[-1][1]:
            self.steps.append((now_ms, level))
