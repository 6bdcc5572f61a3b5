"""500 servers and a gang of 80 GPUs that none of many plans can start: each has a reason of its own.

Promises: the gang has the highest priority and provably waits; the same arguments give the same Instance.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from benchmarks.building import DGX_H100, EPOCH, GB200_TRAY, Room, assemble, ragged
from models.documents.cluster import Level
from models.hardware import ServerModel
from models.instance.cluster import Cluster, Node
from models.instance.gang import ExistingPod, Gang, Role
from models.instance.instance import Instance

NODES = 500
RACK = 0
ALL, LOW, HIGH = 0xFF, 0x0F, 0xF0
"""Masks of the GPUs of a server: all, and its halves."""


def no_room(shape: str, nodes: int = NODES) -> Instance:
    """One of SHAPES on ``nodes`` servers, in racks."""
    return SHAPES[shape](nodes)


def _small_racks(nodes: int) -> Instance:
    """Ten whole servers of a rack, in racks of eight; everything that runs may be stopped."""
    running = [_on(n, ALL, preemptible=True) for n in range(nodes)]
    return _instance(nodes, 8, [_asking(10, 8), *running])


def _blocked(nodes: int) -> Instance:
    """Racks of ten, of which one GPU belongs to a gang that stays; all else may be stopped."""
    running = [_on(n, ALL, preemptible=True) for n in range(nodes) if n % 10 != n // 10 % 10]
    blocking = [_on(n, 1 << n % 8) for n in range(nodes) if n % 10 == n // 10 % 10]
    return _instance(nodes, 10, [_asking(10, 8), *running, *blocking])


def _peers(nodes: int) -> Instance:
    """Racks of ten, full of gangs that may be stopped, but for a higher priority than this one's."""
    running = [
        _on(n, half, preemptible=True, priority=100) for n in range(nodes) for half in (LOW, HIGH)
    ]
    return _instance(nodes, 10, [_asking(10, 8), *running])


def _pieces(nodes: int) -> Instance:
    """Half of every server may be had, 2,000 GPUs in all, and each pod asks for five of one server."""
    running = [_on(n, HIGH, preemptible=True) for n in range(nodes)]
    staying = [_on(n, LOW, name="stay") for n in range(nodes)]
    return _instance(nodes, 10, [_asking(16, 5, level=None), *running, *staying])


def _nvlink(nodes: int) -> Instance:
    """80 GPUs of one NVLink domain, and a domain has 72; trays of lower gangs may be had everywhere."""
    running = [_on(n, LOW, preemptible=True) for n in range(nodes)]
    return _instance(nodes, 18, [_asking(20, 4), *running], model=GB200_TRAY, nvlink=True)


def _cornered(nodes: int) -> Instance:
    """Racks of ten; in each one GPU is held by a gang that may move and has nowhere to go.

    All other servers are full of gangs that stop for the 80 GPUs, but for nobody else.
    """
    running = [_on(n, ALL, preemptible=True) for n in range(nodes) if n % 10]
    movable = [_on(n, 1, movable=True) for n in range(0, nodes, 10)]
    rest = [_on(n, ALL & ~1, preemptible=True, name="beside") for n in range(0, nodes, 10)]
    return _instance(nodes, 10, [_asking(10, 8), *running, *movable, *rest])


def _tangled(nodes: int) -> Instance:
    """Ragged racks of ten to fourteen servers, gangs of many sizes across them, and a queue.

    Some gangs stay: so many in each rack, on servers of their own, that it never has ten whole ones.
    """
    rng = random.Random(nodes)
    rack_of = ragged(nodes, (10, 14), rng)
    room = Room(_servers(rack_of, DGX_H100))
    gangs: list[Gang] = []
    for rack in range(rack_of[-1] + 1):
        members = [n for n in range(nodes) if rack_of[n] == rack]
        for node in rng.sample(members, max(0, len(members) - 9)):
            own = _worker(f"stay-{node:03d}", 1, rng.randint(1, 4))
            # Nobody stops a gang of the same priority, whatever it says of itself.
            peer = replace(own, priority=100, preemptible=rng.random() < 0.5)
            gangs.append(_stood(room, peer, [node], rng))
    order = list(range(nodes))
    for number in range(nodes):
        pods, gpus = rng.choice(((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (8, 8), (4, 2)))
        start = rng.randrange(nodes)
        gang = _worker(f"job-{number:03d}", pods, gpus, rng.choice((0, 10, 50)))
        gang = replace(gang, preemptible=rng.random() < 0.7, movable=rng.random() < 0.3)
        if pods * gpus <= room.free_gpus - nodes // 2:
            stood = room.stand(gang, order[start:] + order[:start], rng)
            gangs += [] if stood is None else [stood]
    for number in range(nodes // 10):
        pods, gpus = rng.choice(((1, 2), (1, 8), (2, 8), (4, 4)))
        waiting = _worker(f"next-{number:03d}", pods, gpus, rng.choice((0, 10, 50)))
        gangs.append(replace(waiting, submitted_at=EPOCH - rng.randrange(86_400)))
    return _instance(nodes, 10, [_asking(10, 8), *gangs], racks=rack_of)


def _worker(name: str, pods: int, gpus: int, priority: int = 0) -> Gang:
    return Gang("team", name, (Role("worker", pods, pods, 1, gpus),), priority)


def _stood(room: Room, gang: Gang, order: list[int], rng: random.Random) -> Gang:
    stood = room.stand(gang, order, rng)
    assert stood is not None, "the servers are empty"
    return stood


SHAPES: dict[str, Callable[[int], Instance]] = {
    "small-racks": _small_racks,
    "blocked": _blocked,
    "peers": _peers,
    "pieces": _pieces,
    "nvlink": _nvlink,
    "cornered": _cornered,
    "tangled": _tangled,
}
"""Why the gang cannot start, by name."""


def _asking(pods: int, gpus: int, *, level: int | None = RACK) -> Gang:
    role = Role("worker", pods, pods, 1, gpus)
    return Gang("foundation", "pretrain", (role,), 100, submitted_at=EPOCH, required=level)


def _on(
    node: int,
    gpus: int,
    *,
    priority: int = 10,
    preemptible: bool = False,
    movable: bool = False,
    name: str = "",
) -> Gang:
    """A gang of one pod that runs. Its name tells node and GPUs."""
    name = f"{name or 'job'}-{node:03d}-{gpus:02x}"
    return Gang(
        "team",
        name,
        (Role("worker", 1, 1, 1, gpus.bit_count()),),
        priority,
        preemptible=preemptible,
        movable=movable,
        pods=(ExistingPod(f"{name}-worker-0", 0, 0, node=node, gpus=gpus),),
    )


def _instance(
    nodes: int,
    rack_size: int,
    gangs: list[Gang],
    *,
    model: ServerModel = DGX_H100,
    nvlink: bool = False,
    racks: Sequence[int] = (),
) -> Instance:
    """``racks``: the rack of every node, where they are not all of ``rack_size``."""
    level = Level("rack", "example.com/rack", Fraction(1), nvlink)
    rack_of = racks or [n // rack_size for n in range(nodes)]
    return assemble(Cluster("no-room", (level,), _servers(rack_of, model)), gangs)


def _servers(rack_of: Sequence[int], model: ServerModel) -> tuple[Node, ...]:
    return tuple(Node(f"gpu-{n:03d}", model, (f"r{rack:02d}",)) for n, rack in enumerate(rack_of))
