"""Parts that the instances of this folder share. Integers only; the same seed gives the same instance."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction

from models.documents.cluster import Level
from models.hardware import ServerModel
from models.instance.cluster import Cluster, Node
from models.instance.gang import ExistingPod, Gang
from models.instance.instance import Instance
from models.instance.policy import Policy
from models.rates.catalogue import find
from models.starts.empty_starts import EmptyStarts
from planner.read.instance_builder import default_mix

GIB = 1 << 30
EPOCH = 1_790_000_000
"""Submissions lie in the day before this second (September 2026)."""


def server(name: str) -> ServerModel:
    """The server model of the catalogue."""
    model = find(name)
    assert model is not None, f"{name} is in the catalogue"
    return model


DGX_H100, DGX1_V100 = server("DGX H100"), server("DGX-1 V100")
GB200_TRAY = server("GB200 NVL72 compute tray")


def total_gpus(gang: Gang) -> int:
    """GPUs of the gang with every role at its largest count."""
    return sum(role.max * role.gpus for role in gang.roles)


def assemble(cluster: Cluster, gangs: Iterable[Gang], policy: Policy | None = None) -> Instance:
    """The Instance with gangs in order and the default mix written out."""
    ordered = tuple(sorted(gangs, key=lambda gang: gang.key))
    policy = policy or Policy()
    policy = replace(policy, mix=default_mix(ordered, cluster.nodes))
    return Instance(cluster, ordered, policy, starts=EmptyStarts)


@dataclass
class Room:
    """Free GPUs of every node, as masks, while running gangs are put in place."""

    nodes: tuple[Node, ...]
    free: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.free = [node.healthy for node in self.nodes]

    @property
    def free_gpus(self) -> int:
        return sum(mask.bit_count() for mask in self.free)

    def take(self, node: int, gpus: int, rng: random.Random) -> int:
        """Mask of ``gpus`` random free GPUs of the node, now taken."""
        free = [gpu for gpu in range(self.nodes[node].gpus) if self.free[node] >> gpu & 1]
        mask = sum(1 << gpu for gpu in rng.sample(free, gpus))
        self.free[node] &= ~mask
        return mask

    def stand(self, gang: Gang, order: Iterable[int], rng: random.Random) -> Gang | None:
        """The gang of one role with its pods standing, first fit over ``order``; None if they do not fit."""
        (role,) = gang.roles
        where = [n for n in order for _ in range(self.free[n].bit_count() // role.gpus)][: role.min]
        if len(where) < role.min:
            return None
        return replace(
            gang,
            pods=tuple(
                ExistingPod(
                    f"{gang.name}-worker-{i}", 0, i, node=n, gpus=self.take(n, role.gpus, rng)
                )
                for i, n in enumerate(where)
            ),
        )


def ragged(count: int, sizes: tuple[int, int], rng: random.Random) -> tuple[int, ...]:
    """Group number of each of ``count`` members: groups of random sizes, in order."""
    groups: list[int] = []
    group = 0
    while len(groups) < count:
        groups.extend([group] * rng.randint(*sizes))
        group += 1
    return tuple(groups[:count])


def levels(*, nvlink: bool = False) -> tuple[Level, ...]:
    """Levels block, oversubscribed by two, and rack. ``nvlink``: a rack is one NVLink domain."""
    return (
        Level("block", "example.com/block", Fraction(2)),
        Level("rack", "example.com/rack", Fraction(1), nvlink),
    )
