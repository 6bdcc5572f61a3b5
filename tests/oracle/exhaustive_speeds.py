"""How fast a gang of a tiny instance runs on the GPUs it has, straight from section 8 of the contract.

Promises: exact rationals until the two floors; own code, written out as the contract has it.
Called by the exhaustive planner and by the valuing of plans beside it.
"""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from math import floor

from models.instance.gang import Gang
from models.instance.instance import Instance


def by_speed(instance: Instance) -> bool:
    """Whether the policy counts GPUs by the speed at which they run."""
    return any(objective.name == "goodput" for objective in instance.policy.objectives)


def speed(gang: Gang, share: int | None, relative: int) -> int:
    """Permille, in steps of 20; ``share``: permille of the ideal bandwidth, None if nothing has one."""
    communicates = share is not None and gang.pattern != "none"
    c = 1000 * gang.fraction if communicates else Fraction(0)
    s = max(1, share or 0)
    x = floor(1000 * relative / (1000 - c + 1000 * c / s))
    return 20 * floor(Fraction(x, 20))


def relative_speed(instance: Instance, gang: Gang, nodes: Collection[int]) -> int:
    """Permille of the fastest GPU of the cluster that the slowest of the gang reaches.

    ``nodes``: those on which it holds GPUs. GPUs of unknown speed are as slow as any that is known; 1000
    where none is.
    """
    cluster = instance.cluster
    stated = [n.model.relative_speed for n in cluster.nodes if n.model is not None and n.gpus]
    known = [speed for speed in stated if speed is not None]
    if not gang.counts_speed or not nodes or not known:
        return 1000
    of_gang = [model.relative_speed for n in nodes if (model := cluster.nodes[n].model) is not None]
    slowest = min(min(known) if speed is None else speed for speed in of_gang)
    return floor(1000 * slowest / max(known))
