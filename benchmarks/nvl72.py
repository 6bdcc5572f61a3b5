"""GB200 NVL72 racks: 18 trays of 4 GPUs that share one NVLink fabric.

Promises: the same arguments give the same Instance.
Called through ``benchmarks.instances``.
"""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

from benchmarks.building import EPOCH, GB200_TRAY, GIB, Room, assemble, total_gpus
from models.documents.cluster import Level
from models.instance.cluster import Cluster, Node
from models.instance.gang import Gang, Role
from models.instance.instance import Instance

RACK, NODE = 1, 2
SHAPES = (
    (1, 1),
    (1, 2),
    (1, 4),
    (2, 4),
    (4, 4),
    (4, 4),
    (8, 4),
    (16, 4),
    (16, 4),
    (18, 4),
    (32, 4),
)
"""(pods, GPUs a pod): 18 trays fill a rack, 32 need two."""


def nvl72(racks: int, gangs: int, seed: int, *, demand: float = 1.3) -> Instance:
    """``racks`` racks of 18 trays in blocks of four, and ``gangs`` waiting ones.

    A third of the larger gangs must stay in one rack, a third come in slices of 4, 8 or 16 trays.
    """
    rng = random.Random(seed)
    allocatable = (("cpu", 140_000), ("memory", 900 * GIB), ("pods", 110))
    cluster = Cluster(
        "nvl72",
        (
            Level("block", "example.com/block", Fraction(2)),
            Level("rack", "example.com/rack", Fraction(1), nvlink=True),
        ),
        tuple(
            Node(f"tray-{r:02d}-{t:02d}", GB200_TRAY, (f"b{r // 4}", f"r{r:02d}"), allocatable)
            for r in range(racks)
            for t in range(18)
        ),
    )
    queue = [_with_topology(_gang(f"job-{number:04d}", rng), rng) for number in range(gangs)]
    free = min(racks * 72, round(sum(map(total_gpus, queue)) / demand))
    room = Room(cluster.nodes)
    running: list[Gang] = []
    failures = 0
    while room.free_gpus > free and failures < 50:
        gang = _gang(f"run-{len(running):04d}", rng)
        start = rng.randrange(len(cluster.nodes))
        order = [*range(start, len(cluster.nodes)), *range(start)]
        fits = total_gpus(gang) <= room.free_gpus - free
        standing = room.stand(gang, order, rng) if fits else None
        if standing is None:
            failures += 1
        else:
            running.append(standing)
    return assemble(cluster, (*running, *queue))


def _gang(name: str, rng: random.Random) -> Gang:
    pods, gpus = rng.choice(SHAPES)
    requests = (("cpu", 32_000 * gpus), ("memory", 200 * GIB * gpus))
    return Gang(
        "default",
        name,
        (Role("worker", pods, pods, 1, gpus, requests=requests),),
        priority=rng.choice((0, 50, 100)),
        submitted_at=EPOCH - rng.randrange(86_400),
    )


def _with_topology(gang: Gang, rng: random.Random) -> Gang:
    role = gang.roles[0]
    draw = rng.random()
    if role.min < 2:
        return gang
    if draw < 1 / 3 and role.min <= 18:
        return replace(gang, required=RACK)
    if draw < 2 / 3 and role.min >= 4:
        size = rng.choice([size for size in (4, 8, 16) if size <= role.min])
        return replace(gang, roles=(replace(role, slice_size=size, slice_level=RACK),))
    return replace(gang, preferred=RACK)
