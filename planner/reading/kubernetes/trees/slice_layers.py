"""Slice layers of a role: which of them ask anything, and whether they stand inside one another.

Promises: pure arithmetic on (size, depth) pairs; depth counts levels from the widest, ``node`` last.
Called by ``trees.gangs``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Layer = tuple[int, int]


def telling(layers: Sequence[Layer]) -> list[Layer]:
    """The layers without those that others imply, finest first.

    Pods that share a domain share every wider one; so a layer of larger slices at the same or a
    narrower level says all that one of smaller slices says.
    """
    kept: list[Layer] = []
    for size, depth in sorted(set(layers), key=lambda layer: (layer[0], -layer[1])):
        if kept and kept[-1][0] == size:
            continue  # the same slices at a wider level
        while kept and depth >= kept[-1][1]:
            kept.pop()
        kept.append((size, depth))
    return kept


def nest(layers: Sequence[Layer]) -> bool:
    """Whether every slice of a layer is cut from one slice of the next; finest first."""
    return all(outer[0] % inner[0] == 0 for inner, outer in pairwise(layers))
