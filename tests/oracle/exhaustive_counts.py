"""What pods of tiny instances count where GPUs are counted: 1 a GPU, or thousandths where pods have parts.

Promises: own figures for the parts that the generators draw; nothing of ``models.instance.gpu_units``.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from models.instance.cluster import Node
from models.instance.gang import Gang, Role
from models.instance.instance import Instance

PARTS = {
    "0.4": Fraction(4, 10),
    "0.5": Fraction(5, 10),
    "0.7": Fraction(7, 10),
    "0.25": Fraction(1, 4),
    "0.3-60": Fraction(6, 10),  # of the memory three tenths, of the cores six
    "20480Mi-60": Fraction(6, 10),
    "49152Mi": Fraction(6, 10),  # of 80 GiB
    "8192Mi-30": Fraction(3, 10),
    "1g.10gb": Fraction(1, 7),  # one of seven compute slices; of the memory an eighth
    "2g.20gb": Fraction(2, 7),
    "3g.40gb": Fraction(4, 8),  # of the memory half; of the compute slices three sevenths
}
"""The larger share of a GPU that each part takes."""


def pod_counts(role: Role) -> int:
    """What a pod of the role counts."""
    if role.thousandths is None:
        return role.gpus
    total = 1000 * role.gpus
    for name, amount in role.requests:
        if name.startswith(("nvidia.com/mig-", "share.gangplan.dev/")):
            part = name.removeprefix("nvidia.com/mig-").removeprefix("share.gangplan.dev/")
            total += amount * int(1000 * PARTS[part.partition("x")[0]])
    return total


def least_counts(gang: Gang) -> int:
    """What a gang counts at ``min``."""
    return sum(role.min * pod_counts(role) for role in gang.roles)


def counted(gang: Gang, roles: Iterable[int]) -> int:
    """What one pod of each of these roles counts."""
    return sum(pod_counts(gang.roles[r]) for r in roles)


def whole_gpu(instance: Instance) -> int:
    """What a whole GPU counts."""
    thousandths = any(r.thousandths is not None for g in instance.gangs for r in g.roles)
    return 1000 if thousandths else 1


def sick(instance: Instance, node: Node) -> int:
    """Mask of its GPUs on which no promise counts: where parts count, those that have some are none."""
    return node.unhealthy & ~(node.partitioned if whole_gpu(instance) > 1 else 0)


def sound_gpus(instance: Instance, node: Node) -> int:
    """What the GPUs of a node count that are in order."""
    unit = whole_gpu(instance)
    unknown = node.unknown_unhealthy - (node.unknown_partitioned if unit > 1 else 0)
    return unit * max(0, node.gpus - sick(instance, node).bit_count() - unknown)
