"""Rule 2.23: in a strict queue no gang starts while an earlier one of it waits.

A line has the gangs that name a strict queue, wait, and are known to be able to start
(``models.starts.empty_starts``); others wait for nobody in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from models.instance.gang import Gang
from models.instance.instance import Instance, Lines, once
from models.instance.solution import PodPlacement
from models.queues.queue_shares import queue_of
from models.queues.reservations import queue_place

Pods = Sequence[Sequence[PodPlacement]]
"""Of every gang."""


@once
def lines(instance: Instance) -> Lines:
    """The gangs of each strict queue that are planned in turn, the first one first."""
    if not any(queue.strict for queue in instance.queues):
        return ()
    found = dict[int, list[int]]()
    for index, (gang, queue) in enumerate(zip(instance.gangs, queue_of(instance), strict=True)):
        if queue is None or not instance.queues[queue].strict:
            continue
        if not gang.running and gang.hold is None and instance.could_start.can(index):
            found.setdefault(queue, []).append(index)
    return tuple(
        tuple(sorted(line, key=lambda index: _turn(instance, index)))
        for _, line in sorted(found.items())
    )


def _turn(instance: Instance, gang: int) -> tuple[object, ...]:
    """Its place among those of its queue: which are within the guarantee does not matter."""
    return queue_place(instance, instance.gangs[gang])[1:]


def place_in_line(instance: Instance, gang: Gang) -> tuple[int, int] | None:
    """(line, place in it) of a gang; None for one that is in none."""
    return _places(instance).get(gang.key)


@once
def _places(instance: Instance) -> dict[tuple[str, str], tuple[int, int]]:
    return {
        instance.gangs[gang].key: (number, place)
        for number, line in enumerate(lines(instance))
        for place, gang in enumerate(line)
    }


def line_up(instance: Instance, gangs: Iterable[int]) -> list[int]:
    """The gangs; those of one line exchange their places among them so that they are in its order."""
    found, positions = list(gangs), dict[int, list[int]]()
    for position, gang in enumerate(found):
        at = place_in_line(instance, instance.gangs[gang])
        if at is not None:
            positions.setdefault(at[0], []).append(position)
    for own in positions.values():
        ordered = sorted((found[i] for i in own), key=lambda g: _turn(instance, g))
        for position, gang in zip(own, ordered, strict=True):
            found[position] = gang
    return found


def must_wait(instance: Instance, pods: Pods, gang: int) -> bool:
    """Whether the one right before it in its queue waits."""
    before = _right_before(instance, gang)
    return before is not None and not pods[before]


def behind(instance: Instance, pods: Pods, gang: int) -> int | None:
    """The first gang of its queue that waits before it, in a plan that keeps the rule; None without one."""
    before, at = _right_before(instance, gang), place_in_line(instance, instance.gangs[gang])
    if before is None or at is None or pods[before]:
        return None
    line = lines(instance)[at[0]]
    return line[bisect_left(line, 1, hi=at[1], key=lambda other: not pods[other])]


def overtaking(instance: Instance, pods: Pods) -> list[int]:
    """Gangs that start although an earlier one of their queue waits."""
    found = list[int]()
    for line in lines(instance):
        waiting = (i for i, gang in enumerate(line) if not pods[gang])
        found += (gang for gang in line[next(waiting, len(line)) :] if pods[gang])
    return found


def pairs(instance: Instance) -> Iterator[tuple[int, int]]:
    """(gang, the one right after it in its line)."""
    for line in lines(instance):
        yield from zip(line, line[1:], strict=False)


def _right_before(instance: Instance, gang: int) -> int | None:
    at = place_in_line(instance, instance.gangs[gang])
    return None if at is None or not at[1] else lines(instance)[at[0]][at[1] - 1]
