"""A tiny cluster with the pods that stay on it, before any other is placed.

Promises: computed once per choice of the pods that stay; says per node whether GPUs given there can be named.
Called by the parts of the exhaustive planner.
"""

from __future__ import annotations

from collections.abc import Sequence

from exhaustive_values import holds_of

from models.instance.instance import Instance
from models.instance.solution import PodPlacement


class Ground:
    """``stays``: the pods of each gang that stay; ``standing``: the GPUs they hold.

    Per node, ``known``: GPUs known to be held; ``unknown``: how many are held or sick and
    not named; ``blind``: whether pods placed there get no GPU indices; ``free``: mask of the GPUs
    that may be given, on a blind node their number.
    """

    def __init__(self, instance: Instance, stays: Sequence[Sequence[PodPlacement]]) -> None:
        self.instance = instance
        self.nodes = instance.cluster.nodes
        self.stays = stays
        gangs = zip(instance.gangs, stays, strict=True)
        self.standing = [holds_of(gang.roles, pods) for gang, pods in gangs]
        known = [0] * len(self.nodes)
        unknown = [node.unknown_unhealthy for node in self.nodes]
        for holds in self.standing:
            for n, (mask, count) in holds.items():
                known[n] |= mask
                unknown[n] += count
        self.known, self.unknown = tuple(known), tuple(unknown)
        self.blind = tuple(
            unknown[n] > 0
            or (
                instance.policy.gpu_binding == "none"
                and node.model is not None
                and not node.model.switched
            )
            for n, node in enumerate(self.nodes)
        )
        masks = [node.healthy & ~held for node, held in zip(self.nodes, known, strict=True)]
        self.free = tuple(
            max(0, mask.bit_count() - unknown[n]) if self.blind[n] else mask
            for n, mask in enumerate(masks)
        )

    def count(self, n: int, left: int) -> int:
        """Number of GPUs that ``left`` stands for on node n."""
        return left if self.blind[n] else left.bit_count()
