"""The default mix of future requests, from the gangs and nodes of the input.

Promises: every gang's GPUs at ``max``, zeros left out, plus one whole node a GPU model; permille by
largest remainder, ties to the smaller size. Called by the builder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from models.cluster import Node
from models.gang import Gang


def default_mix(gangs: Iterable[Gang], nodes: Iterable[Node]) -> tuple[tuple[int, int], ...]:
    """(GPUs, permille) ascending by GPUs; sizes that round to nothing are left out."""
    sizes = Counter(sum(role.max * role.gpus for role in gang.roles) for gang in gangs)
    largest: dict[str, int] = {}
    for node in nodes:
        if node.model is not None:
            largest[node.model.gpu] = max(largest.get(node.model.gpu, 0), node.gpus)
    sizes.update(largest.values())
    del sizes[0]
    return tuple((size, share) for size, share in shared_out(sizes) if share)


def shared_out(counts: dict[int, int], whole: int = 1000) -> list[tuple[int, int]]:
    """``whole`` split in proportion to the counts, in integers that add up; ascending by key."""
    total = sum(counts.values())
    if not total:
        return []
    shares = {key: whole * count // total for key, count in counts.items()}
    left = whole - sum(shares.values())
    by_remainder = sorted(counts, key=lambda key: (-(whole * counts[key] % total), key))
    for key in by_remainder[:left]:
        shares[key] += 1
    return sorted(shares.items())
