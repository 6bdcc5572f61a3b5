"""Clusters of DGX-1 V100 servers, whose cube mesh makes the choice of GPUs matter.

Promises: the same arguments give the same Instance; every waiting gang fits one empty server.
Called through ``benchmarks.instances``.
"""

from __future__ import annotations

import random

from benchmarks.building import DGX1_V100, EPOCH, GIB, Room, assemble, levels, ragged, total_gpus
from models.instance.cluster import Cluster, Node
from models.instance.gang import Gang, Role
from models.instance.instance import Instance

NODE = 2
SIZES = (1, 1, 2, 2, 2, 3, 4, 4, 4, 5, 6, 7, 8)
"""GPUs a gang: powers of two mostly, every other size too."""


def mesh(
    nodes: int,
    gangs: int,
    seed: int,
    *,
    variant: str = "pod",
    demand: float = 1.3,
    priorities: tuple[int, ...] = (0, 50, 100),
) -> Instance:
    """``nodes`` DGX-1 V100 with random GPUs held, and ``gangs`` waiting ones of 1 to 8 GPUs.

    ``variant``: "pod" one pod of k GPUs; "node" k pods of one GPU that must share a server;
    "free" k pods of one GPU that may spread. The queue asks ``demand`` x the GPUs left free.
    """
    rng = random.Random(seed)
    rack_of = ragged(nodes, (4, 8), rng)
    block_of = ragged(rack_of[-1] + 1, (8, 16), rng)
    allocatable = (("cpu", 80_000), ("memory", 500 * GIB), ("pods", 110))
    cluster = Cluster(
        "mesh",
        levels(),
        tuple(
            Node(
                f"v100-{number:04d}", DGX1_V100, (f"b{block_of[rack]}", f"r{rack:03d}"), allocatable
            )
            for number, rack in enumerate(rack_of)
        ),
    )
    queue = [
        _gang(f"job-{i:04d}", rng.choice(SIZES), variant, priorities, rng) for i in range(gangs)
    ]
    free = round(sum(map(total_gpus, queue)) / demand)
    room = Room(cluster.nodes)
    running: list[Gang] = []
    while room.free_gpus > free:
        size = min(rng.choice(SIZES), room.free_gpus - free)
        gang = _gang(f"run-{len(running):04d}", size, "pod", priorities, rng)
        order = rng.sample(range(nodes), nodes)
        standing = room.stand(gang, order, rng)
        if standing is not None:
            running.append(standing)
    return assemble(cluster, (*running, *queue))


def _gang(
    name: str, size: int, variant: str, priorities: tuple[int, ...], rng: random.Random
) -> Gang:
    pods, gpus = (1, size) if variant == "pod" else (size, 1)
    requests = (("cpu", 8000 * gpus), ("memory", 48 * GIB * gpus))
    return Gang(
        "default",
        name,
        (Role("worker", pods, pods, 1, gpus, requests=requests),),
        priority=rng.choice(priorities),
        submitted_at=EPOCH - rng.randrange(86_400),
        required=NODE if variant == "node" else None,
    )
