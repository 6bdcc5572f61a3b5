"""Rule 2.14: while a gang that holds room waits, no gang of lower priority starts.

Gangs of the policy's priority hold room that are known to be able to start (``models.starts.empty_starts``).
"""

from __future__ import annotations

from collections.abc import Sequence

from models.instance.instance import Instance
from models.instance.solution import PodPlacement


def blockers(instance: Instance) -> tuple[int, ...]:
    """Gangs that wait before the plan and hold room until they start, the highest priority first."""
    if instance.outside is not None:
        return instance.outside.blockers
    return () if instance.policy.hold_room_from is None else instance.once(_blockers)


def _blockers(instance: Instance) -> tuple[int, ...]:
    least = instance.policy.hold_room_from
    assert least is not None, "see blockers"
    found = [
        index
        for index, gang in enumerate(instance.gangs)
        if gang.own_priority >= least
        and not gang.running
        and gang.hold is None
        and instance.could_start.can(index)
    ]
    return tuple(sorted(found, key=lambda i: (-instance.gangs[i].priority, i)))


def first_waiting(instance: Instance, pods: Sequence[Sequence[PodPlacement]]) -> int | None:
    """The highest gang that holds room and waits. ``pods``: of every gang."""
    return next((i for i in blockers(instance) if not pods[i]), None)


def barred_by(instance: Instance, pods: Sequence[Sequence[PodPlacement]], gang: int) -> int | None:
    """The gang for which room is held, so that this one must not start; None if there is none."""
    own = instance.gangs[gang]
    for other in () if own.running else blockers(instance):
        if instance.gangs[other].priority <= own.priority:
            return None
        if not pods[other]:
            return other
    return None


def passing(instance: Instance, pods: Sequence[Sequence[PodPlacement]]) -> list[int]:
    """Gangs that start although a gang of higher priority holds room and waits."""
    gangs, first = instance.gangs, first_waiting(instance, pods)
    if first is None:
        return []
    lower = (i for i, gang in enumerate(gangs) if gang.priority < gangs[first].priority)
    return [i for i in lower if pods[i] and not gangs[i].running]
