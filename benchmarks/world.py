"""Clusters that look like the world: rack sizes, servers, gang sizes and cpu demands of published traces.

Promises: the same arguments give the same Instance. The figures and their sources are in world.yaml.
Called through ``benchmarks.instances``.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from benchmarks.building import EPOCH, GIB, Room, assemble, levels
from models.documents.policy import SolveLimits
from models.hardware import ServerModel
from models.instance.cluster import Cluster, Node
from models.instance.gang import ExistingPod, Gang, PlannedPod, Role
from models.instance.instance import Instance
from models.instance.policy import Policy
from models.rates.catalogue import find
from planner.read.inputs import load

BLOCK, RACK = 0, 1
PRIORITIES = (0, 50, 100)
DAY_S = 86_400
MOST_GPUS_SHARE = 8
"""A gang asks for at most one GPU in so many of the cluster."""

_INPUTS = Path(__file__).parent.parent / "inputs"
_FIGURES = Path(__file__).with_name("world.yaml")


def recorded(name: str) -> Instance:
    """A cluster of inputs/ as it was recorded or rebuilt from its trace."""
    return load([str(_INPUTS / name)]).instance


def fleet(nodes: int, seed: int, *, occupied: float = 0.85, demand: float = 1.3) -> Instance:
    """``nodes`` servers: A100 and H800 rack by rack, and some without GPUs; cpu binds on many.

    ``occupied``: about the share of the GPUs that running gangs hold, of which a seventh may stop, a seventh
    move and a tenth of those with several pods resize. The queue asks ``demand`` times what is left. One in
    four gangs of several pods has a launcher, half of the gangs name a GPU model.
    """
    rng = random.Random(seed)
    cluster = _cluster(nodes, rng)
    room = Room(cluster.nodes)
    installed = room.free_gpus
    running: list[Gang] = []
    misses = 0
    while room.free_gpus > (1 - occupied) * installed and misses < 200:
        stood = _standing(f"run-{len(running):05d}", cluster, room, installed, rng)
        misses += stood is None
        running += [] if stood is None else [stood]
    queue: list[Gang] = []
    asked = 0
    while asked < demand * room.free_gpus:
        gang = _gang(f"job-{len(queue):05d}", _figures()["gangs"]["jobs"], installed, rng)
        asked += gang.weight_gpus
        queue.append(_waiting(gang, rng))
    policy = Policy(solve=SolveLimits(budget=100_000, time_limit_s=120, workers=2, seed=seed))
    return assemble(cluster, (*running, *queue), policy)


@cache
def _figures() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(_FIGURES.read_text(encoding="utf-8"))
    return found


@cache
def _server(name: str) -> ServerModel:
    model = find(name)
    assert model is not None, f"{name} is in the catalogue"
    return model


def _draw(counts: dict[int, int], rng: random.Random) -> int:
    return rng.choices(list(counts), list(counts.values()))[0]


def _quantile(points: list[int], rng: random.Random) -> int:
    """A number drawn evenly from between the points."""
    place = rng.random() * (len(points) - 1)
    low = int(place)
    return round(points[low] + (place - low) * (points[low + 1] - points[low]))


def _cluster(count: int, rng: random.Random) -> Cluster:
    figures = _figures()
    kinds = figures["servers"]
    nodes: list[Node] = []
    rack, block, racks_left = 0, 0, rng.choice(figures["racks"]["a_block"])
    while len(nodes) < count:
        (kind,) = rng.choices(kinds, [kind["count"] for kind in kinds])
        model = _server(kind["model"]) if kind["model"] else None
        allocatable = (
            ("cpu", kind["cores"] * 1000),
            ("memory", kind["gib"] * GIB),
            ("pods", 110),
        )
        for _ in range(min(_draw(figures["racks"]["hosts"], rng), count - len(nodes))):
            nodes.append(
                Node(
                    f"host-{len(nodes):05d}",
                    model,
                    (f"p{block}", f"t{rack:04d}"),
                    allocatable,
                    unhealthy=1 << rng.randrange(8) if model and rng.random() < 0.01 else 0,
                    unschedulable=rng.random() < 0.01,
                )
            )
        rack, racks_left = rack + 1, racks_left - 1
        if not racks_left:
            block, racks_left = block + 1, rng.choice(figures["racks"]["a_block"])
    return Cluster("fleet", levels("2", "1"), tuple(nodes))


def _gang(name: str, sizes: dict[int, int], installed: int, rng: random.Random) -> Gang:
    """A gang of a size drawn from the table: one pod up to eight GPUs, else pods of eight."""
    most = max(8, installed // MOST_GPUS_SHARE)
    gpus = _draw({size: share for size, share in sizes.items() if size <= most}, rng)
    pods, each = max(1, gpus // 8), min(gpus, 8)
    if 1 < gpus <= 8 and rng.random() < 0.15:
        pods, each = gpus, 1
    # A whole server's pod fits the server with the fewest cores.
    cpu = min(each * _quantile(_figures()["cpu_a_gpu"], rng), 124_000)
    requests = (("cpu", cpu), ("memory", min(each * rng.choice((32, 64, 96)), 960) * GIB))
    model = rng.choice((None, None, "A100", "H800"))
    worker = Role("worker", pods, pods, 1, each, requests=requests, model=model)
    roles: tuple[Role, ...] = (worker,)
    if pods > 1 and rng.random() < 0.25:
        launch = Role("launcher", 1, 1, 1, 0, requests=(("cpu", 2000), ("memory", 8 * GIB)))
        roles = (launch, worker)
    longest = min(limit for limit in _figures()["gangs"]["seconds"] if gpus <= limit)
    return Gang(
        "team-" + rng.choice("abcdef"),
        name,
        roles,
        priority=rng.choice(PRIORITIES),
        submitted_at=EPOCH - rng.randrange(DAY_S),
        expected_duration_s=max(1, _quantile(_figures()["gangs"]["seconds"][longest], rng)),
        pattern="none" if rng.random() < 0.05 else "all-reduce",
    )


def _waiting(gang: Gang, rng: random.Random) -> Gang:
    """One of the queue: with a level that its pods share by need or by wish, perhaps elastic."""
    worker, draw = gang.roles[-1], rng.random()
    if worker.min == 1:
        return gang
    if draw < 0.1:
        step = max(1, worker.min // 2)
        grown = replace(worker, max=worker.min + 2 * step, step=step, elastic=True)
        gang = replace(gang, roles=(*gang.roles[:-1], grown))
    level = RACK if worker.min * worker.gpus <= 32 else BLOCK
    if rng.random() < 0.15:
        return replace(gang, required=level)
    return replace(gang, preferred=level) if rng.random() < 0.6 else gang


def _standing(
    name: str, cluster: Cluster, room: Room, installed: int, rng: random.Random
) -> Gang | None:
    """A gang that runs, its size as likely as a GPU is found held by one; None if it found no room."""
    share = _figures()["gangs"]["gpu_time_permille"]
    held = {size: 1000 * part // size for size, part in share.items()}
    gang = _gang(name, held, installed, rng)
    worker = gang.roles[-1]
    gpu = worker.model or rng.choice(("A100", "H800"))
    start = rng.randrange(len(cluster.nodes))
    order = [*range(start, len(cluster.nodes)), *range(start)]
    if rng.random() < 0.3:
        rng.shuffle(order)
    fitting = [n for n in order if (m := cluster.nodes[n].model) is None or m.gpu == gpu]
    stood = room.stand(gang, fitting, rng)
    if stood is None:
        return None
    draw = rng.random()
    started = EPOCH - rng.randrange(3600, 5 * DAY_S)
    stood = replace(
        stood,
        preemptible=draw < 1 / 7,
        movable=1 / 7 <= draw < 2 / 7,
        submitted_at=started - rng.randrange(3600),
        started_at=started,
        planned=tuple(map(_as_planned, stood.pods)),
    )
    if worker.min > 1 and rng.random() < 0.1:
        step = max(1, worker.min // 4)
        less = min(2, (worker.min - 1) // step) * step
        elastic = replace(
            worker, min=worker.min - less, max=worker.min + 2 * step, step=step, elastic=True
        )
        stood = replace(stood, roles=(*stood.roles[:-1], elastic))
    return stood


def _as_planned(pod: ExistingPod) -> PlannedPod:
    return PlannedPod(pod.role, pod.index, pod.node or 0)
