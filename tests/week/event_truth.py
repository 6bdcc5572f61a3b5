"""The figures of a made-up fortnight, counted from its events by other means: no code of the product.

Whole pods on nodes of eight GPUs; a set of gangs fits if some assignment of all its pods does. Every
assignment is tried, which small clusters allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import combinations

from benchmarks.fortnight import DAY_S, Fortnight, Job

Shape = tuple[int, int]
"""Pods, and GPUs of each."""

Free = tuple[int, ...]

SLOW = 420
"""Permille lost by a gang on two racks. Eight NICs of 50,000 MB/s behind an oversubscription of 4 give
100,000 of the 370,800 MB/s inside a server, a share of 269; 1000 / (0.75 + 0.25 / 0.269) = 595, in steps of
20: 580."""


def gpus(job: Job) -> int:
    return job.pods * job.gpus


def moments(made: Fortnight) -> Iterator[tuple[int, int]]:
    """(time, seconds to the next event) from the start of the fortnight to its end."""
    last = made.setting.days * DAY_S
    times = {0, last}
    for job in made.jobs:
        times.update(t for t in (job.submit, job.start, job.end) if t is not None and t < last)
    ordered = sorted(times)
    for one, following in zip(ordered, ordered[1:], strict=False):
        yield one, following - one


def running(made: Fortnight, time: int) -> list[Job]:
    return [j for j in made.jobs if j.start is not None and j.start <= time < (j.end or 0)]


def waiting(made: Fortnight, time: int) -> list[Job]:
    return [j for j in made.jobs if j.submit <= time and (j.start is None or j.start > time)]


def free_of(made: Fortnight, jobs: Iterable[Job]) -> Free:
    free = [8] * made.setting.nodes
    for job in jobs:
        for node, mask in job.places:
            free[node] -= mask.bit_count()
    return tuple(free)


@cache
def packs(free: Free, shape: Shape) -> frozenset[Free]:
    """What may be free once a gang of this shape was placed, nodes in order of what they have."""
    found = {free}
    for _ in range(shape[0]):
        found = {
            tuple(sorted((*one[:n], one[n] - shape[1], *one[n + 1 :])))
            for one in found
            for n in range(len(one))
            if one[n] >= shape[1]
        }
    return frozenset(found)


@cache
def best(free: Free, must: tuple[Shape, ...], may: tuple[tuple[Shape, str], ...],
         room: tuple[tuple[str, int], ...]) -> int:  # fmt: skip
    """Most GPUs of ``may`` beside all of ``must``; -1 where these do not fit. ``room``: left in queues."""
    if must:
        return max((best(one, must[1:], may, room) for one in packs(free, must[0])), default=-1)
    if not may:
        return 0
    (shape, queue), rest = may[0], may[1:]
    most, size, left = best(free, (), rest, room), shape[0] * shape[1], dict(room)
    if left.get(queue, size) >= size:
        less = tuple((name, one - size * (name == queue)) for name, one in room)
        for one in packs(free, shape):
            most = max(most, size + best(one, (), rest, less))
    return most


def idle(made: Fortnight, time: int, *, restarts: int = 0, limits: bool = True) -> int:
    """GPUs of waiting gangs that could run, if so many running ones may restart elsewhere."""
    runs, waits = running(made, time), waiting(made, time)
    may = tuple(sorted(((j.pods, j.gpus), j.queue) for j in waits))
    room: tuple[tuple[str, int], ...] = ()
    if limits:
        held = {
            name: sum(gpus(j) for j in runs if j.queue == name) for name, _ in made.setting.limits
        }
        room = tuple((name, most - held[name]) for name, most in made.setting.limits)
    found = 0
    for number in range(restarts + 1):
        for moved in combinations(runs, number):
            stay = [j for j in runs if j not in moved]
            must = tuple(sorted((j.pods, j.gpus) for j in moved))
            found = max(found, best(tuple(sorted(free_of(made, stay))), must, may, room))
    return found


def lost(made: Fortnight, restarts: int) -> dict[str, float]:
    """GPU-hours lost to each cause over the fortnight."""
    found = dict.fromkeys(("order", "fragmentation", "quotas", "spread"), 0.0)
    rack = -(-made.setting.nodes // made.setting.racks)
    for time, seconds in moments(made):
        order = idle(made, time)
        parts = {
            "order": order,
            "fragmentation": idle(made, time, restarts=restarts) - order,
            "quotas": idle(made, time, limits=False) - order,
            "spread": sum(
                gpus(job) * SLOW / 1000
                for job in running(made, time)
                if len({node // rack for node, _ in job.places}) > 1
            ),
        }
        for cause, amount in parts.items():
            found[cause] += amount * seconds / 3600
    return found


def fits(free: Sequence[int], job: Job) -> bool:
    return bool(packs(tuple(sorted(free)), (job.pods, job.gpus)))
