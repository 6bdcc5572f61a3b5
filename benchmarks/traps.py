"""Instances whose best plan is known because it was made first and then forgotten.

Promises: the same arguments give the same instance; the stated values are optimal by construction.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from benchmarks.building import DGX_H100, EPOCH, Room, assemble, levels, ragged
from models.instance.cluster import Cluster, Node
from models.instance.gang import ExistingPod, Gang, Role
from models.instance.instance import Instance
from models.instance.policy import Policy

RACK = 1
DAY_S = 86_400

POLICY = Policy(starvation_after_s=None)
"""Ages decide nothing but `waiting`: old decoys do not go first."""


@dataclass(frozen=True)
class Planted:
    """``optimum``: tier name to value, for the tiers that the construction fixes."""

    instance: Instance
    optimum: dict[str, int]


def traps(nodes: int, seed: int) -> Planted:
    """A queue with one perfect plan of every tier, and decoys that who takes one gang at a time takes first.

    Every server has 8 or 4 free GPUs. Hidden are gangs of one pod of 4 or 8 GPUs, some pinned, and of several
    whole servers of one rack; together they fill everything. Decoys ask 3 or 6 GPUs a pod, are older, and
    larger than the pods of 4. No sum of threes and fours is 4 or 8 with a three in it, so a plan that uses a
    decoy has less goodput, and the hidden plan is the only best one: all hidden gangs, each on one server
    or on as few whole ones as can be, and nothing left over.
    """
    rng = random.Random(seed)
    cluster = _cluster(nodes, rng)
    room = Room(cluster.nodes)
    hidden: list[Gang] = []
    held: list[Gang] = []
    for rack in cluster.domains[RACK]:
        nodes_left = list(rack.nodes)
        rng.shuffle(nodes_left)
        while nodes_left:
            if len(nodes_left) > 2 and rng.random() < 0.4:
                span = rng.randint(2, min(4, len(nodes_left)))
                hidden.append(_wide(span, rng))
                nodes_left = nodes_left[span:]
                continue
            node = nodes_left.pop()
            sizes = rng.choice(((8,), (4, 4), (4,)))
            if sum(sizes) == 4:
                held.append(_held(node, room, rng, 4))
            hidden += [_pinned(_gang("", 1, size), cluster.nodes[node], rng) for size in sizes]
    hidden = [replace(gang, submitted_at=EPOCH - rng.randrange(DAY_S)) for gang in hidden]
    decoys = [
        replace(
            _gang("", gang.roles[0].min if gang.roles[0].gpus == 8 else 1, rng.choice((3, 6))),
            submitted_at=EPOCH - DAY_S - rng.randrange(DAY_S),
        )
        for gang in hidden
    ]
    gangs = [*hidden, *decoys]
    rng.shuffle(gangs)
    named = [replace(gang, name=f"job-{number:04d}") for number, gang in enumerate(gangs)]
    instance = assemble(cluster, (*named, *held), POLICY)
    waiting = sum(gang.weight_gpus * instance.age(gang) for gang in hidden)
    levels_used = sum(g.weight_gpus * (g.roles[0].min - 1) for g in hidden if g.roles[0].gpus == 8)
    free = sum(gang.weight_gpus for gang in hidden)
    optimum = {
        "goodput/0": 1000 * (free + sum(gang.weight_gpus for gang in held)),
        "waiting/0": waiting,
        "disruption": 0,
        "preference": sum(g.weight_gpus for g in hidden if g.preferred is not None),
        "bandwidth": sum(1000 * g.weight_gpus for g in (*hidden, *held) if g.weight_gpus > 1),
        "span": levels_used,
        "stranded": 0,
    }
    return Planted(instance, optimum)


def _cluster(count: int, rng: random.Random) -> Cluster:
    rack_of = ragged(count, (4, 8), rng)
    return Cluster(
        "planted",
        levels(),
        tuple(
            Node(f"gpu-{number:04d}", DGX_H100, (f"b{rack // 4}", f"r{rack:03d}"))
            for number, rack in enumerate(rack_of)
        ),
    )


def _held(node: int, room: Room, rng: random.Random, gpus: int) -> Gang:
    mask = room.take(node, gpus, rng)
    name = f"run-{node:04d}"
    pod = ExistingPod(f"{name}-worker-0", 0, 0, node=node, gpus=mask)
    return replace(_gang(name, 1, gpus), pods=(pod,))


def _wide(span: int, rng: random.Random) -> Gang:
    gang = _gang("", span, 8)
    return replace(gang, required=RACK) if rng.random() < 0.5 else replace(gang, preferred=RACK)


def _pinned(gang: Gang, node: Node, rng: random.Random) -> Gang:
    """Sometimes only the node, or its rack, will do."""
    draw = rng.random()
    if draw < 0.15:
        return _selecting(gang, ("kubernetes.io/hostname", node.name))
    if draw < 0.35:
        return _selecting(gang, ("example.com/rack", node.domains[RACK] or ""))
    return gang


def _selecting(gang: Gang, label: tuple[str, str]) -> Gang:
    return replace(gang, roles=tuple(replace(r, node_selector=(label,)) for r in gang.roles))


def _gang(name: str, pods: int, gpus: int) -> Gang:
    return Gang("default", name, (Role("worker", pods, pods, 1, gpus),), submitted_at=EPOCH)
