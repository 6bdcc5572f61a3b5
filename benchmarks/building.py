"""Parts that the instance generators share: servers, instances, and room that fills up.

Promises: data and integers only; no files, no solver; the same seed gives the same instance.
Called by the generators in this folder.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction

from models.documents.cluster import Level
from models.hardware import Nic, ServerModel
from models.instance.cluster import Cluster, Node
from models.instance.gang import ExistingPod, Gang
from models.instance.instance import Instance
from models.instance.policy import Policy
from models.starts.empty_starts import EmptyStarts
from planner.read.instance_builder import default_mix

GIB = 1 << 30
EPOCH = 1_790_000_000
"""Submissions lie in the day before this second (September 2026)."""

_CUBE_MESH = (
    (0, 1, 1, 2, 2, 0, 0, 0),
    (1, 0, 2, 1, 0, 2, 0, 0),
    (1, 2, 0, 2, 0, 0, 1, 0),
    (2, 1, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 1, 1, 2),
    (0, 2, 0, 0, 1, 0, 2, 1),
    (0, 0, 1, 0, 1, 2, 0, 2),
    (0, 0, 0, 1, 2, 1, 2, 0),
)
"""NVLinks between the GPUs of a DGX-1 V100: every row has six; unlinked pairs cross the sockets."""


def _link(row: int, column: int, links: int) -> str:
    if row == column:
        return "X"
    return f"NV{links}" if links else "SYS"


DGX_H100 = ServerModel(
    name="DGX H100",
    gpu="H100",
    gpus=8,
    fabric="nvswitch",
    link_MBps=20600,
    links_per_gpu=18,
    pcie_MBps=40000,
    nics=tuple(Nic(f"nic{gpu}", 400_000, (gpu,)) for gpu in range(8)),
)
DGX1_V100 = ServerModel(
    name="DGX-1 V100",
    gpu="V100",
    gpus=8,
    fabric="direct",
    matrix=tuple(
        tuple(_link(row, column, links) for column, links in enumerate(line))
        for row, line in enumerate(_CUBE_MESH)
    ),
    link_MBps=20000,
    links_per_gpu=6,
    pcie_MBps=10000,
    numa=(0, 0, 0, 0, 1, 1, 1, 1),
    pcie_switch=(0, 0, 1, 1, 2, 2, 3, 3),
    nics=tuple(Nic(f"mlx5_{pair}", 100_000, (2 * pair, 2 * pair + 1)) for pair in range(4)),
)
GB200_TRAY = ServerModel(
    name="GB200 NVL72 compute tray",
    gpu="GB200",
    gpus=4,
    fabric="nvswitch",
    link_MBps=40100,
    links_per_gpu=18,
    pcie_MBps=40000,
    nics=tuple(Nic(f"nic{number}", 400_000) for number in range(4)),
    nvlink_domain_nodes=18,
)


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
    """Free GPUs and other resources of every node while running gangs are put in place.

    ``free[n]`` is a bit mask; ``left[n]`` holds cpu, memory and pods still to be had.
    """

    nodes: tuple[Node, ...]
    free: list[int] = field(init=False)
    left: list[dict[str, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.free = [node.healthy for node in self.nodes]
        self.left = [dict(node.allocatable) for node in self.nodes]

    @property
    def free_gpus(self) -> int:
        return sum(mask.bit_count() for mask in self.free)

    def fits(self, node: int, gpus: int, requests: tuple[tuple[str, int], ...]) -> bool:
        left = self.left[node]
        return (
            self.free[node].bit_count() >= gpus
            and left.get("pods", 1) >= 1
            and all(left.get(name, amount) >= amount for name, amount in requests)
        )

    def take(
        self, node: int, gpus: int, requests: tuple[tuple[str, int], ...], rng: random.Random
    ) -> int:
        """Mask of ``gpus`` random free GPUs of the node, now taken, with the other requests."""
        free = [gpu for gpu in range(self.nodes[node].gpus) if self.free[node] >> gpu & 1]
        mask = sum(1 << gpu for gpu in rng.sample(free, gpus))
        self.free[node] &= ~mask
        for name, amount in (*requests, ("pods", 1)):
            if name in self.left[node]:
                self.left[node][name] -= amount
        return mask

    def stand(self, gang: Gang, order: Iterable[int], rng: random.Random) -> Gang | None:
        """The gang with all its pods standing, first fit over ``order``.

        None, and nothing taken, if they do not all fit.
        """
        order = tuple(order)
        before = (list(self.free), [dict(left) for left in self.left])
        pods: list[ExistingPod] = []
        for number, role in enumerate(gang.roles):
            position = 0
            for index in range(role.min):
                while position < len(order) and not self.fits(
                    order[position], role.gpus, role.requests
                ):
                    position += 1
                if position == len(order):
                    self.free, self.left = before
                    return None
                node = order[position]
                mask = self.take(node, role.gpus, role.requests, rng)
                name = f"{gang.name}-{role.name}-{index}"
                pods.append(ExistingPod(name, number, index, node=node, gpus=mask))
        return replace(gang, pods=tuple(pods))


def ragged(count: int, sizes: tuple[int, int], rng: random.Random) -> tuple[int, ...]:
    """Group number of each of ``count`` members: groups of random sizes, in order."""
    groups: list[int] = []
    group = 0
    while len(groups) < count:
        groups.extend([group] * rng.randint(*sizes))
        group += 1
    return tuple(groups[:count])


def levels(
    block_oversubscription: str = "2", rack_oversubscription: str = "1"
) -> tuple[Level, ...]:
    """Levels block and rack with the given oversubscription."""
    return (
        Level("block", "example.com/block", Fraction(block_oversubscription)),
        Level("rack", "example.com/rack", Fraction(rack_oversubscription)),
    )
