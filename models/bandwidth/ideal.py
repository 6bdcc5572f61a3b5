"""The best bandwidth that so many GPUs can reach on servers of one model, as made.

Promises: exact ``Fraction`` MB/s; health and a node's own NICs play no part.
Called through ``models.bandwidth``.
"""

from __future__ import annotations

from fractions import Fraction

from models.bandwidth.extremes import best_inside_MBps
from models.bandwidth.inside import inside_MBps, switched_MBps
from models.bandwidth.outside import nics_MBps
from models.hardware import ServerModel


def ideal_MBps(model: ServerModel, count: int) -> Fraction | None:
    """The best that ``count`` GPUs reach on servers of this model; None = unlimited (one GPU).

    Raises UnknownRate if a rate it needs is not known.
    """
    if count < 1:
        raise ValueError(f"no ideal for {count} GPUs")
    if count <= model.gpus:
        return best_inside_MBps(model, count)
    if count <= model.gpus * model.nvlink_domain_nodes:
        return switched_MBps(model)
    out = nics_MBps(model, model.nics, model.all_gpus)
    inside = inside_MBps(model, model.all_gpus)
    return out if inside is None else min(inside, out)
