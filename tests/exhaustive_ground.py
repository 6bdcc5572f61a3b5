"""What stands on a tiny cluster before anything is planned, and what may still be started.

Promises: computed once per instance; says per node whether GPUs given there can be named.
Called by the parts of the exhaustive planner.
"""

from __future__ import annotations

from exhaustive_values import holds_of

from models.gang import Gang
from models.instance import Instance
from models.solution import PodPlacement


class Ground:
    """``moving``: gang -> (role, index) of the pods it lacks and may get; ``standing``: what each holds.

    Per node, ``known``: GPUs known to be held; ``unknown``: how many are held or sick and
    not named; ``blind``: whether pods placed there get no GPU indices; ``free``: mask of the GPUs
    that may be given, on a blind node their number.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.nodes = instance.cluster.nodes
        self.moving = {
            g: gang.missing()
            for g, gang in enumerate(instance.gangs)
            if gang.missing() and gang.hold is None
        }
        self.standing = [holds_of(g.roles, standing(g)) for g in instance.gangs]
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


def standing(gang: Gang) -> tuple[PodPlacement, ...]:
    """The pods that run, as they are; a pod without GPUs holds the empty mask."""
    return tuple(
        sorted(
            PodPlacement(p.role, p.index, p.node, p.gpus if gang.roles[p.role].gpus else 0)
            for p in gang.pods
            if p.node is not None
        )
    )
