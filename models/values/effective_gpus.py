"""Effective GPUs, in permille-GPU: the sum of GPUs x speed over the gangs that run whole.

They are stated whatever the policy lists. The goodput tiers count the same, and a gang without GPUs as one
GPU, so that it starts; here it counts nothing.
"""

from __future__ import annotations

from collections import Counter

from models.instance.instance import Instance
from models.instance.solution import ByPriority
from models.values.tier_values import Evaluation, speed_before


def gpus_at_speed(evaluation: Evaluation) -> list[int]:
    """Permille-GPU of every gang that runs whole, 0 for others and for those without GPUs."""
    return [
        line.gang.least_units * line.speed if line.admitted and line.speed is not None else 0
        for line in evaluation.lines
    ]


def effective_before(instance: Instance) -> int:
    """What the gangs are worth that run whole before the plan."""
    speeds = ((gang, speed_before(instance, i)) for i, gang in enumerate(instance.gangs))
    return sum(gang.least_units * speed for gang, speed in speeds if speed is not None)


def effective_after(evaluation: Evaluation) -> int:
    """What the gangs are worth that a plan admits; a running one counts the smaller of its two speeds."""
    return sum(gpus_at_speed(evaluation))


def effective_by_priority(evaluation: Evaluation) -> ByPriority:
    """What a plan makes of the gangs of each priority, those without any left out."""
    found = Counter[int]()
    for line, gpus in zip(evaluation.lines, gpus_at_speed(evaluation), strict=True):
        found[line.gang.own_priority] += gpus
    return tuple((priority, found[priority]) for priority in sorted(+found, reverse=True))
