"""Clusters as operators know them: most GPUs busy in pieces, and a queue that asks for more than is free.

Promises: the same arguments give the same Instance; running gangs stand on GPUs that exist. What it draws is
said by ``cases.yaml``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.building import EPOCH, GIB, Room, assemble, levels, ragged, server
from models.documents.policy import SolveLimits
from models.instance.cluster import Cluster, Node
from models.instance.gang import ExistingPod, Gang, Role
from models.instance.instance import Instance
from models.instance.policy import Policy

BLOCK, RACK, NODE = 0, 1, 2

PIECES = {1: 0.50, 2: 0.24, 4: 0.14, 8: 0.10, 16: 0.02}
"""Share of the gangs that run, by their GPUs."""

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
ODD_SIZES = (3, 5, 6, 7)
"""GPUs of waiting gangs. Odd sizes do not divide one another: slot rows are not exact for them."""


@dataclass(frozen=True)
class Taste:
    """What is drawn. ``servers``: models and their shares; "" for servers without GPUs.

    ``racks``: servers of one, from and to; ``nvlink``: a rack is one NVLink domain. ``occupied``: share of
    the GPUs that running gangs hold, of which shares are ``preemptible`` and ``movable``. The queue asks
    for about ``demand`` times what is free, at most ``largest`` GPUs a gang. ``sizes``: gangs by their
    GPUs, where shares do not follow from the demand. ``odd``: sizes of 3, 5, 6 and 7 too. ``tight``: cpu
    and memory bind on many servers. ``priorities``: how many.
    """

    servers: Mapping[str, int] = field(default_factory=lambda: {"DGX H100": 1})
    racks: tuple[int, int] = (4, 12)
    nvlink: bool = False
    occupied: float = 0.6
    demand: float = 1.2
    preemptible: float = 0.1
    movable: float = 0.1
    largest: int = 512
    sizes: Mapping[int, int] = field(default_factory=dict)
    odd: bool = False
    tight: bool = False
    priorities: int = 3


def busy(nodes: int, waiting: int, seed: int, **taste: object) -> Instance:
    """``nodes`` servers in ragged racks and blocks of 4 to 8 racks, gangs that run, and ``waiting`` ones.

    1 % of the servers has a sick GPU. Of the queue 40 % of the small gangs are pods of one GPU that may
    spread, some are elastic. ``taste``: fields of Taste.
    """
    like = Taste(**taste)  # type: ignore[arg-type]
    rng = random.Random(seed)
    cluster = _cluster(nodes, like, rng)
    room = Room(cluster.nodes)
    running = _running(room, like, rng)
    queue = _queue(cluster, waiting, round(like.demand * room.free_gpus), like, rng)
    policy = Policy(solve=SolveLimits(budget=100_000, time_limit_s=120, workers=2, seed=seed))
    return assemble(cluster, (*running, *queue), policy)


def _cluster(count: int, like: Taste, rng: random.Random) -> Cluster:
    rack_of = ragged(count, tuple(like.racks), rng)  # type: ignore[arg-type]
    block_of = ragged(rack_of[-1] + 1, (4, 8), rng)
    names, shares = list(like.servers), list(like.servers.values())
    of_rack = rng.choices(names, shares, k=rack_of[-1] + 1) if len(names) > 1 else names * count
    models = {name: server(name) if name else None for name in names}
    cores = 128 if like.tight else 208
    allocatable = (("cpu", cores * 1000), ("memory", 1600 * GIB), ("pods", 110))
    nodes = tuple(
        Node(
            f"gpu-{number:05d}",
            model := models[of_rack[rack]],
            (f"b{block_of[rack]}", f"r{rack:04d}"),
            allocatable,
            unhealthy=1 << rng.randrange(model.gpus) if rng.random() < 0.01 and model else 0,
        )
        for number, rack in enumerate(rack_of)
    )
    return Cluster("busy", levels(nvlink=like.nvlink), nodes)


def _requests(
    gpus: int, rng: random.Random | None = None, *, tight: bool = False
) -> tuple[tuple[str, int], ...]:
    """cpu (millicores) and memory (bytes) of a pod; tight: up to 24 cores a GPU of the 16 there are."""
    cores, gib = 12, 96
    if tight and rng is not None:
        cores, gib = rng.choice((8, 12, 16, 20, 24)), rng.choice((64, 128, 200, 256))
    cpu, memory = min(cores * gpus or 2, 124 if tight else 200), min(gib * gpus or 8, 1500)
    return (("cpu", cpu * 1000), ("memory", memory * GIB))


def _priority(like: Taste, rng: random.Random) -> int:
    return 50 * rng.randrange(3) if like.priorities == 3 else rng.randrange(like.priorities)


def _running(room: Room, like: Taste, rng: random.Random) -> list[Gang]:
    """Gangs on random servers until ``occupied`` of the GPUs are held."""
    goal = round(like.occupied * room.free_gpus)
    gangs: list[Gang] = []
    held, count = 0, len(room.nodes)
    most = max(node.gpus for node in room.nodes)
    while held < goal:
        gpus = min(rng.choices(list(PIECES), list(PIECES.values()))[0], max(1, goal - held))
        pods, each = max(1, gpus // most), min(gpus, most)
        start, step = rng.randrange(count), rng.choice((1, 1, count // 2 + 1))
        fitting: list[int] = []
        for offset in range(count):
            n = (start + offset * step) % count
            fits = room.free[n].bit_count() >= each and n not in fitting
            if fits and room.nodes[n].model is room.nodes[(fitting or [n])[0]].model:
                fitting.append(n)
                if len(fitting) == pods:
                    break
        if len(fitting) < pods:
            continue
        name = f"run-{len(gangs):05d}"
        stands = tuple(
            ExistingPod(f"{name}-worker-{i}", 0, i, node=n, gpus=room.take(n, each, rng))
            for i, n in enumerate(fitting)
        )
        held += pods * each
        draw = rng.random()
        gangs.append(
            Gang(
                "team-" + rng.choice("abcd"),
                name,
                (Role("worker", pods, pods, 1, each, requests=_requests(each)),),
                priority=_priority(like, rng),
                submitted_at=EPOCH - rng.randrange(86_400, 10 * 86_400),
                preemptible=draw < like.preemptible,
                movable=like.preemptible <= draw < like.preemptible + like.movable,
                pods=stands,
            )
        )
    return gangs


def _queue(cluster: Cluster, count: int, gpus: int, like: Taste, rng: random.Random) -> list[Gang]:
    """``count`` gangs that ask for about ``gpus`` GPUs in all: the shares of sizes follow from the mean."""
    most = max(node.gpus for node in cluster.nodes)
    largest = min(like.largest, max(most, len(cluster.nodes) // 2))
    sizes: Sequence[int] = [size for size in like.sizes or SIZES if size <= largest]
    sizes = [*sizes, *(ODD_SIZES if like.odd else ())]
    weights = [float(like.sizes.get(size, 0)) for size in sizes]
    low, high = -3.0, 3.0
    for _ in range(0 if like.sizes else 40):  # shares proportional to size ** power
        power = (low + high) / 2
        weights = [size**power for size in sizes]
        drawn = sum(s * w for s, w in zip(sizes, weights, strict=True)) / sum(weights)
        low, high = (power, high) if drawn < gpus / count else (low, power)
    return [
        _waiting(f"job-{number:04d}", rng.choices(sizes, weights)[0], most, like, rng)
        for number in range(count)
    ]


def _waiting(name: str, size: int, most: int, like: Taste, rng: random.Random) -> Gang:
    """``most``: GPUs of a server."""
    spreads = 1 < size <= most and rng.random() < 0.4
    pods, each = (size, 1) if spreads else (max(1, size // most), min(size, most))
    requests = _requests(each, rng, tight=like.tight)
    worker = Role("worker", pods, pods, 1, each, requests=requests)
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
        priority=_priority(like, rng),
        submitted_at=EPOCH - rng.randrange(86_400),
        preemptible=rng.random() < 0.1,
    )
    draw = rng.random()
    if spreads:
        return replace(gang, preferred=NODE) if draw < 0.3 else gang
    if size <= most:
        return gang
    level, limit = (RACK, 4 * most) if size <= 4 * most else (BLOCK, 16 * most)
    if draw < 0.2 and size <= limit:
        return replace(gang, required=level)
    return replace(gang, preferred=level) if draw < 0.6 else gang
