"""A cluster that is busy: much of what runs may stop, move, shrink or grow, and a queue that wants its room.

Promises: the same arguments give the same Instance; running gangs stand on GPUs that exist.
Called through ``benchmarks.instances``.
"""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

from benchmarks.building import EPOCH, Room, assemble
from benchmarks.switched import RACK, switched
from models.documents.policy import DAY_S, LOST_RUNTIME, Disruption, Objective
from models.instance.cluster import Cluster
from models.instance.gang import Gang, PlannedPod, Role
from models.instance.instance import Instance
from models.instance.policy import DEFAULT_OBJECTIVES, Moves, Policy

PRIORITIES = (0, 20, 50, 100)
HOUR_S = 3600

SHAPES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 4), (2, 8), (4, 8), (4, 8), (8, 8), (4, 2), (6, 4))
"""(pods, GPUs a pod) of what runs."""

MOVES = Moves(max_gangs=12, max_gpus=96, min_gain=Fraction(1, 2))
POLICY = Policy(
    objectives=tuple(Objective(name) for name in (*DEFAULT_OBJECTIVES, "stability")),
    moves=MOVES,
    disruption=Disruption(LOST_RUNTIME, DAY_S),
    starvation_after_s=DAY_S,
    now=EPOCH,
)


def running(nodes: int, waiting: int, standing: int, seed: int, *, held: float = 0.85) -> Instance:
    """``nodes`` DGX H100 with ``standing`` gangs that run on about ``held`` of the GPUs, and a queue.

    Of those that run a third is preemptible, a third movable (half of these anywhere, not side by
    side), a sixth elastic, a sixth fixed; one in fifty lost a pod. Of those that wait a sixth is
    elastic, one in ten has waited for days, and most were in a previous plan, which may have wanted
    nodes that are taken by now.
    """
    rng = random.Random(seed)
    base = switched(
        nodes, waiting, seed, occupied=0.6, demand=1.2, priorities=PRIORITIES, max_pods=16
    )
    queue = [_waiting(gang, rng) for gang in base.gangs if not gang.running]
    room = Room(base.cluster.nodes)
    stand = _standing(base.cluster, room, standing, round(held * room.free_gpus), rng)
    planned = [_planned(gang, base.cluster, rng) for gang in queue]
    return assemble(base.cluster, (*stand, *planned), POLICY)


def _waiting(gang: Gang, rng: random.Random) -> Gang:
    """One of the queue, perhaps elastic, perhaps waiting for days."""
    if rng.random() < 0.1 and gang.submitted_at is not None:
        gang = replace(gang, submitted_at=gang.submitted_at - rng.randint(1, 3) * DAY_S)
    worker = gang.roles[-1]
    if rng.random() < 1 / 6 and worker.slice_size is None:
        step = max(1, worker.min // 2)
        worker = replace(worker, max=worker.min + step * rng.randint(1, 3), step=step, elastic=True)
        gang = replace(gang, roles=(*gang.roles[:-1], worker))
    return gang


def _standing(
    cluster: Cluster, room: Room, count: int, gpus: int, rng: random.Random
) -> list[Gang]:
    """``count`` gangs that hold about ``gpus`` GPUs: shapes are drawn so that it comes out."""
    gangs: list[Gang] = []
    left = gpus
    while len(gangs) < count:
        aim = left / (count - len(gangs))
        fitting = [s for s in SHAPES if s[0] * s[1] <= max(1, 4 * aim)]
        larger = [s for s in fitting if s[0] * s[1] >= aim / 4] or fitting
        kind = len(gangs) % 6
        order = _order(cluster, 0.5 if kind in (2, 3) else 0.2, rng)
        gang = _drawn(f"run-{len(gangs):04d}", rng.choice(larger), kind, rng)
        stood = room.stand(gang, order, rng)
        if stood is None:
            stood = room.stand(_drawn(gang.name, (1, 1), kind, rng), order, rng)
        if stood is None:
            raise ValueError(f"{count} gangs do not fit on {len(cluster.nodes)} nodes")
        left -= sum((pod.gpus or 0).bit_count() for pod in stood.pods)
        gangs.append(_in_time(_elastic(stood, rng) if kind == 4 else stood, rng))
    several = [i for i, gang in enumerate(gangs) if len(gang.pods) > 2]
    for number in several[: max(1, count // 50)]:
        gangs[number] = replace(gangs[number], pods=gangs[number].pods[:-1])
    return gangs


def _order(cluster: Cluster, scattered: float, rng: random.Random) -> list[int]:
    """Nodes in the order they are filled: from anywhere on; of ``scattered`` of the gangs, anyhow."""
    order = list(range(len(cluster.nodes)))
    start = rng.randrange(len(order))
    order = order[start:] + order[:start]
    if rng.random() < scattered:
        rng.shuffle(order)
    return order


def _drawn(name: str, shape: tuple[int, int], kind: int, rng: random.Random) -> Gang:
    """``kind``: 0, 1 preemptible; 2, 3 movable; 4 elastic, and one of both; 5 fixed."""
    pods, gpus = shape
    role = Role("worker", pods, pods, 1, gpus, requests=(("cpu", gpus * 12_000),))
    low = kind in (0, 1) and rng.random() < 0.8
    either = rng.random() < 0.5
    return Gang(
        "team-" + rng.choice("abcd"),
        name,
        (role,),
        priority=rng.choice(PRIORITIES[:2] if low else PRIORITIES),
        submitted_at=EPOCH - rng.randrange(2 * HOUR_S, 6 * DAY_S),
        preemptible=kind in (0, 1) or (kind == 4 and either),
        movable=kind in (2, 3) or (kind == 4 and not either),
        preferred=RACK if pods > 1 and rng.random() < 0.5 else None,
        pattern="none" if rng.random() < 0.08 else "all-reduce",
    )


def _elastic(gang: Gang, rng: random.Random) -> Gang:
    """Its pods are one of several allowed counts; now and then it waits for its checkpoint to resize."""
    (role,) = gang.roles
    count = role.min
    step = 1 if count < 4 else 2
    least = count - step * rng.randrange((count - 1) // step + 1)
    most = count + step * rng.randint(0, 3)
    held = EPOCH + rng.randrange(HOUR_S) if rng.random() < 0.25 else None
    role = replace(role, min=least, max=most, step=step, elastic=True)
    return replace(gang, roles=(role,), resize_after=held)


def _in_time(gang: Gang, rng: random.Random) -> Gang:
    """When it started, when it was last saved, and the plan that put it where it stands."""
    submitted = gang.submitted_at or 0
    started = rng.randrange(submitted, EPOCH)
    saved = rng.randrange(max(started, EPOCH - 4 * HOUR_S), EPOCH) if rng.random() < 0.6 else None
    planned = tuple(
        PlannedPod(pod.role, pod.index, pod.node) for pod in gang.pods if pod.node is not None
    )
    return replace(gang, started_at=started, last_checkpoint=saved, planned=planned)


def _planned(gang: Gang, cluster: Cluster, rng: random.Random) -> Gang:
    """Where the previous plan wanted its pods: nodes side by side, as many pods a node as have room."""
    if rng.random() < 0.3:
        return gang
    start = rng.randrange(len(cluster.nodes))
    pods: list[PlannedPod] = []
    taken = 0
    for number, role in enumerate(gang.roles):
        for index in range(role.min):
            node = (start + taken // 8) % len(cluster.nodes)
            pods.append(PlannedPod(number, index, node))
            taken += role.gpus
    return replace(gang, planned=tuple(sorted(pods)))
