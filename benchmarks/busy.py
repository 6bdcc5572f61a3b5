"""Clusters as operators know them: most GPUs busy in pieces, and a queue that asks for more than is free.

Promises: the same arguments give the same Instance; running gangs stand on GPUs that exist.
Called through ``benchmarks.instances``.
"""

from __future__ import annotations

import random
from dataclasses import replace

from benchmarks.building import DGX_H100, EPOCH, GIB, assemble, levels, ragged
from models.documents.policy import SolveLimits
from models.instance.cluster import Cluster, Node
from models.instance.gang import ExistingPod, Gang, Role
from models.instance.instance import Instance
from models.instance.policy import Policy

BLOCK, RACK, NODE = 0, 1, 2
PRIORITIES = (0, 50, 100)

PIECES = ((1, 0.50), (2, 0.24), (4, 0.14), (8, 0.10), (16, 0.02))
"""(GPUs, share) of the gangs that run; 16 is two whole servers."""

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""GPUs of waiting gangs."""


def busy(
    nodes: int, waiting: int, seed: int, *, occupied: float = 0.6, demand: float = 1.2
) -> Instance:
    """``nodes`` DGX H100 in ragged racks of 4 to 12 servers, in blocks of 4 to 8 racks.

    ``occupied``: share of the GPUs that running gangs hold; a tenth of these may stop, a tenth may
    move. 1 % of the servers has a sick GPU. The ``waiting`` gangs ask for about ``demand`` times
    what is free: 1 to 512 GPUs, 40 % of the small ones as pods of one GPU that may spread, some
    elastic, three priorities.
    """
    rng = random.Random(seed)
    cluster = _cluster(nodes, rng)
    free = [node.healthy for node in cluster.nodes]
    running = _running(free, occupied, rng)
    left = sum(mask.bit_count() for mask in free)
    queue = _queue(cluster, waiting, round(demand * left), rng)
    policy = Policy(solve=SolveLimits(budget=100_000, time_limit_s=120, workers=2, seed=seed))
    return assemble(cluster, (*running, *queue), policy)


def _cluster(count: int, rng: random.Random) -> Cluster:
    rack_of = ragged(count, (4, 12), rng)
    block_of = ragged(rack_of[-1] + 1, (4, 8), rng)
    allocatable = (("cpu", 208_000), ("memory", 1600 * GIB), ("pods", 110))
    nodes = tuple(
        Node(
            f"gpu-{number:05d}",
            DGX_H100,
            (f"b{block_of[rack]}", f"r{rack:04d}"),
            allocatable,
            unhealthy=1 << rng.randrange(8) if rng.random() < 0.01 else 0,
        )
        for number, rack in enumerate(rack_of)
    )
    return Cluster("busy", levels("2", "1"), nodes)


def _requests(gpus: int) -> tuple[tuple[str, int], ...]:
    return (("cpu", 12_000 * gpus or 2_000), ("memory", (96 * gpus or 8) * GIB))


def _running(free: list[int], occupied: float, rng: random.Random) -> list[Gang]:
    """Gangs on random servers until ``occupied`` of the GPUs are held."""
    goal = round(occupied * sum(mask.bit_count() for mask in free))
    sizes, shares = zip(*PIECES, strict=True)
    gangs: list[Gang] = []
    held = 0
    count = len(free)
    while held < goal:
        gpus = min(rng.choices(sizes, shares)[0], max(1, goal - held))
        pods = max(1, gpus // 8)
        each = gpus // pods
        start, step = rng.randrange(count), rng.choice((1, 1, count // 2 + 1))
        fitting = []
        for offset in range(count):
            n = (start + offset * step) % count
            if free[n].bit_count() >= each and n not in fitting:
                fitting.append(n)
                if len(fitting) == pods:
                    break
        if len(fitting) < pods:
            continue
        name = f"run-{len(gangs):05d}"
        stands = tuple(
            ExistingPod(f"{name}-worker-{i}", 0, i, node=n, gpus=_take(free, n, each, rng))
            for i, n in enumerate(fitting)
        )
        held += pods * each
        draw = rng.random()
        gangs.append(
            Gang(
                "team-" + rng.choice("abcd"),
                name,
                (Role("worker", pods, pods, 1, each, requests=_requests(each)),),
                priority=rng.choice(PRIORITIES),
                submitted_at=EPOCH - rng.randrange(86_400, 10 * 86_400),
                preemptible=draw < 0.1,
                movable=0.1 <= draw < 0.2,
                pods=stands,
            )
        )
    return gangs


def _take(free: list[int], n: int, gpus: int, rng: random.Random) -> int:
    own = rng.sample([g for g in range(8) if free[n] >> g & 1], gpus)
    mask = sum(1 << g for g in own)
    free[n] &= ~mask
    return mask


def _queue(cluster: Cluster, count: int, gpus: int, rng: random.Random) -> list[Gang]:
    """``count`` gangs that ask for about ``gpus`` GPUs in all: the shares of sizes follow from the mean."""
    mean = gpus / count
    largest = min(512, max(8, len(cluster.nodes) // 2))
    sizes = [size for size in SIZES if size <= largest]
    low, high = -3.0, 3.0
    for _ in range(40):  # shares proportional to size ** power
        power = (low + high) / 2
        weights = [size**power for size in sizes]
        drawn = sum(s * w for s, w in zip(sizes, weights, strict=True)) / sum(weights)
        low, high = (power, high) if drawn < mean else (low, power)
    gangs = []
    for number in range(count):
        size = rng.choices(sizes, weights)[0]
        gangs.append(_waiting(f"job-{number:04d}", size, rng))
    return gangs


def _waiting(name: str, size: int, rng: random.Random) -> Gang:
    spreads = 1 < size <= 8 and rng.random() < 0.4
    pods, each = (size, 1) if spreads else (max(1, size // 8), min(size, 8))
    worker = Role("worker", pods, pods, 1, each, requests=_requests(each))
    if pods > 1 and rng.random() < 0.1:
        step = max(1, pods // 2)
        worker = replace(worker, max=pods + 2 * step, step=step, elastic=True)
    roles: tuple[Role, ...] = (worker,)
    if pods > 1 and rng.random() < 0.1:
        roles = (Role("launcher", 1, 1, 1, 0, requests=_requests(0)), worker)
    gang = Gang(
        "team-" + rng.choice("abcd"),
        name,
        roles,
        priority=rng.choice(PRIORITIES),
        submitted_at=EPOCH - rng.randrange(86_400),
        preemptible=rng.random() < 0.1,
    )
    return _with_topology(gang, size, spreads=spreads, rng=rng)


def _with_topology(gang: Gang, size: int, *, spreads: bool, rng: random.Random) -> Gang:
    draw = rng.random()
    if spreads:
        return replace(gang, preferred=NODE) if draw < 0.3 else gang
    if size <= 8:
        return gang
    if size <= 32:
        if draw < 0.2:
            return replace(gang, required=RACK)
        return replace(gang, preferred=RACK) if draw < 0.6 else gang
    if draw < 0.2 and size <= 128:
        return replace(gang, required=BLOCK)
    return replace(gang, preferred=BLOCK) if draw < 0.6 else gang
