"""Clusters of switched servers (DGX H100) in ragged racks and blocks, partly occupied, with a queue.

Promises: the same arguments give the same Instance; running gangs stand on GPUs that exist.
Called through ``benchmarks.instances``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from benchmarks.building import DGX_H100, EPOCH, GIB, Room, assemble, levels, ragged, total_gpus
from models.instance.cluster import Cluster, Node
from models.instance.gang import Gang, Role
from models.instance.instance import Instance

BLOCK, RACK, NODE = 0, 1, 2

SMALL_SHAPES = ((1, 1), (1, 1), (1, 2), (1, 4), (1, 8), (2, 1), (2, 2), (4, 1), (2, 4), (4, 2))
LARGE_SHAPES = ((2, 8), (2, 8), (4, 8), (4, 8), (8, 8), (16, 8), (8, 4), (16, 2), (32, 8))
ODD_SHAPES = ((1, 3), (1, 5), (1, 6), (2, 3), (1, 7), (3, 6))
"""(pods, GPUs a pod). Odd sizes do not divide one another: slot rows are not exact for them."""


@dataclass(frozen=True)
class _Taste:
    """What the queue of one instance is drawn from. ``large_share``: of gangs drawn large."""

    priorities: tuple[int, ...]
    small: tuple[tuple[int, int], ...]
    large: tuple[tuple[int, int], ...]
    large_share: float
    tight: bool


def switched(
    nodes: int,
    gangs: int,
    seed: int,
    *,
    rack_sizes: tuple[int, int] = (4, 8),
    block_sizes: tuple[int, int] = (4, 8),
    rack_oversubscription: str = "1",
    priorities: tuple[int, ...] = (0, 50, 100),
    demand: float = 1.35,
    occupied: float = 0.5,
    max_pods: int = 32,
    tight: bool = False,
    odd_sizes: bool = False,
    carried: bool = False,
    incomplete: int = 1,
) -> Instance:
    """``nodes`` DGX H100, ``gangs`` waiting ones asking about ``demand`` x the free GPUs.

    ``occupied``: share of the GPUs held by running gangs, roughly; gang sizes are drawn so that the
    demand comes out. ``tight``: cpu and memory bind on many nodes. ``odd_sizes``: pods of 3, 5, 6
    and 7 GPUs too. ``carried``: some running gangs are preemptible or movable. ``incomplete``: so
    many running gangs lack their last pod.
    """
    rng = random.Random(seed)
    cluster = _cluster(nodes, rack_sizes, block_sizes, rack_oversubscription, rng, tight=tight)
    small = SMALL_SHAPES + (ODD_SHAPES if odd_sizes else ())
    large = tuple(shape for shape in LARGE_SHAPES if shape[0] <= max_pods)
    mean = demand * (1 - occupied) * nodes * 8 / gangs
    taste = _Taste(priorities, small, large, _large_share(mean, small, large), tight)
    queue = _queue(gangs, cluster, taste, rng)
    free = min(nodes * 8, round(sum(map(total_gpus, queue)) / demand))
    running = _running(cluster, free, taste, incomplete, rng, carried=carried)
    return assemble(cluster, (*running, *queue))


def priorities(count: int, seed: int = 0) -> Instance:
    """64 nodes and 300 waiting gangs with ``count`` distinct priorities, otherwise one and the same.

    The gangs are cut into ``count`` groups by one fixed order, so only the number of priorities
    differs between priorities(3) and priorities(300).
    """
    base = switched(64, 300, seed, priorities=(0,), occupied=0.2, max_pods=8, incomplete=0)
    waiting = [gang.key for gang in base.gangs if not gang.running]
    random.Random(seed + 1).shuffle(waiting)
    rank = {key: position * count // len(waiting) for position, key in enumerate(waiting)}
    gangs = tuple(replace(gang, priority=rank.get(gang.key, 0)) for gang in base.gangs)
    return replace(base, gangs=gangs)


def _large_share(
    mean: float, small: tuple[tuple[int, int], ...], large: tuple[tuple[int, int], ...]
) -> float:
    """Share of large gangs that makes ``mean`` GPUs a gang, kept within 3 and 90 percent."""
    of_small = sum(pods * gpus for pods, gpus in small) / len(small)
    of_large = sum(pods * gpus for pods, gpus in large) / len(large)
    return min(0.9, max(0.03, (mean - of_small) / (of_large - of_small)))


def _cluster(
    count: int,
    rack_sizes: tuple[int, int],
    block_sizes: tuple[int, int],
    rack_oversubscription: str,
    rng: random.Random,
    *,
    tight: bool,
) -> Cluster:
    rack_of = ragged(count, rack_sizes, rng)
    block_of = ragged(rack_of[-1] + 1, block_sizes, rng)
    cores = 128 if tight else 208
    allocatable = (("cpu", cores * 1000), ("memory", 1600 * GIB), ("pods", 110))
    nodes = tuple(
        Node(
            f"gpu-{number:04d}",
            DGX_H100,
            (f"b{block_of[rack]}", f"r{rack:03d}"),
            allocatable,
            unhealthy=1 << rng.randrange(8) if rng.random() < 0.02 else 0,
            unschedulable=rng.random() < 0.01,
        )
        for number, rack in enumerate(rack_of)
    )
    return Cluster("switched", levels("2", rack_oversubscription), nodes)


def _requests(gpus: int, rng: random.Random, *, tight: bool) -> tuple[tuple[str, int], ...]:
    """cpu (millicores) and memory (bytes) of a pod; tight: up to 24 cores a GPU of the 16 there are."""
    cores = gpus * (rng.choice((8, 12, 16, 20, 24)) if tight else 12) or 2
    gib = gpus * (rng.choice((64, 128, 200, 256)) if tight else 96) or 8
    return (("cpu", min(cores, 124 if tight else 200) * 1000), ("memory", min(gib, 1500) * GIB))


def _gang(name: str, taste: _Taste, rng: random.Random) -> Gang:
    """A gang of a drawn shape, without topology: workers, sometimes a master, sometimes a launcher."""
    pods, gpus = rng.choice(taste.large if rng.random() < taste.large_share else taste.small)
    worker = Role("worker", pods, pods, 1, gpus, requests=_requests(gpus, rng, tight=taste.tight))
    roles: tuple[Role, ...] = (worker,)
    draw = rng.random()
    if draw < 0.12:
        roles = (
            Role("launcher", 1, 1, 1, 0, requests=_requests(0, rng, tight=taste.tight)),
            worker,
        )
    elif draw < 0.20 and pods > 1:
        roles = (
            replace(worker, name="master", min=1, max=1),
            replace(worker, min=pods - 1, max=pods - 1),
        )
    return Gang(
        "team-" + rng.choice("abcd"),
        name,
        roles,
        priority=rng.choice(taste.priorities),
        submitted_at=EPOCH - rng.randrange(86_400),
        pattern="none" if rng.random() < 0.08 else "all-reduce",
        weight=rng.choice((1, 1, 1, 1, 1, 1, 2, 3)),
    )


def _with_topology(gang: Gang, rack_gpus: int, rng: random.Random) -> Gang:
    """The gang with a required or preferred level, or slices, that an empty cluster could meet."""
    draw = rng.random()
    if total_gpus(gang) <= 8:
        alone = sum(role.min for role in gang.roles) == 1
        if alone or draw < 0.4:
            return gang
        return replace(gang, required=NODE) if draw < 0.7 else replace(gang, preferred=NODE)
    return _wide_topology(gang, total_gpus(gang), rack_gpus, draw, rng)


def _wide_topology(gang: Gang, gpus: int, rack_gpus: int, draw: float, rng: random.Random) -> Gang:
    """The same for a gang of several servers. ``draw``: which rule, between 0 and 1."""
    worker = gang.roles[-1]
    wished = gang
    if worker.min >= 4 and worker.gpus == 8 and draw < 0.2:
        sliced = replace(worker, slice_size=rng.choice((2, 4)), slice_level=RACK)
        wished = replace(gang, roles=(*gang.roles[:-1], sliced), preferred=BLOCK)
    elif draw < 0.4:
        wished = replace(gang, required=RACK if gpus <= rack_gpus else BLOCK)
    elif draw < 0.5:
        wished = replace(gang, required=BLOCK, preferred=RACK)
    elif draw < 0.75:
        wished = replace(gang, preferred=RACK if gpus <= 2 * rack_gpus else BLOCK)
    elif draw < 0.82 and gpus <= rack_gpus:
        wished = replace(gang, roles=(*gang.roles[:-1], replace(worker, required=RACK)))
    return wished


def _queue(count: int, cluster: Cluster, taste: _Taste, rng: random.Random) -> list[Gang]:
    """Waiting gangs; one in eight repeats an earlier one, half of these with its submit time too."""
    rack_gpus = 8 * min(
        len(rack.nodes) for rack in cluster.domains[RACK][:-1] or cluster.domains[RACK]
    )
    gangs: list[Gang] = []
    for number in range(count):
        name = f"job-{number:04d}"
        if gangs and rng.random() < 0.125:
            again = replace(rng.choice(gangs), name=name)
            if rng.random() < 0.5:
                again = replace(again, submitted_at=EPOCH - rng.randrange(86_400))
            gangs.append(again)
        else:
            gangs.append(_with_topology(_gang(name, taste, rng), rack_gpus, rng))
    return gangs


def _running(
    cluster: Cluster,
    free: int,
    taste: _Taste,
    incomplete: int,
    rng: random.Random,
    *,
    carried: bool,
) -> list[Gang]:
    """Gangs that stand, until about ``free`` GPUs are left: most kept together, some scattered."""
    room = Room(cluster.nodes)
    gangs: list[Gang] = []
    failures = 0
    while room.free_gpus > free and failures < 50:
        gang = _gang(f"run-{len(gangs):04d}", taste, rng)
        order = list(range(len(cluster.nodes)))
        start = rng.randrange(len(order))
        order = order[start:] + order[:start]
        if rng.random() < 0.25:
            rng.shuffle(order)
        if total_gpus(gang) > room.free_gpus - free + 4:
            failures += 1
            continue
        standing = room.stand(gang, order, rng)
        if standing is None:
            failures += 1
            continue
        if carried and rng.random() < 0.2:
            standing = replace(standing, preemptible=True, movable=rng.random() < 0.5)
        gangs.append(standing)
    for number in [i for i, gang in enumerate(gangs) if len(gang.pods) > 2][:incomplete]:
        gangs[number] = replace(gangs[number], pods=gangs[number].pods[:-1])
    return gangs
