"""The bandwidth table of one server model, row by row, for people to read.

Promises: every set of GPUs is in exactly one row, unless the caller bounds the sizes.
Called through ``models.bandwidth`` by ``planner.showing.topology``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import comb

from models.bandwidth.inside import inside_MBps, packing_of
from models.bandwidth.sets import mask_of
from models.hardware import ServerModel


@dataclass(frozen=True, slots=True)
class TableRow:
    """Sets of ``gpus`` GPUs that reach the same: how many there are, and the first of them.

    ``inside`` in MB/s, None = unlimited (one GPU). ``rings`` and ``chains`` are None where no
    link matrix decides (one GPU, or a switch).
    """

    gpus: int
    inside: Fraction | None
    rings: int | None
    chains: int | None
    subsets: int
    example: tuple[int, ...]


def table(model: ServerModel, sizes: Iterable[int] | None = None) -> tuple[TableRow, ...]:
    """Rows by size, the fastest sets first. ``sizes``: only sets of so many GPUs (default: all)."""
    rows: list[TableRow] = []
    for size in sizes if sizes is not None else range(1, model.gpus + 1):
        if size == 1 or model.switched:
            first = tuple(range(size))
            inside = inside_MBps(model, mask_of(first))
            rows.append(TableRow(size, inside, None, None, comb(model.gpus, size), first))
        else:
            rows.extend(_mesh_rows(model, size))
    return tuple(rows)


def _mesh_rows(model: ServerModel, size: int) -> list[TableRow]:
    groups: dict[tuple[Fraction, int, int], list[tuple[int, ...]]] = {}
    for gpus in combinations(range(model.gpus), size):
        packed = packing_of(model, mask_of(gpus))
        inside = inside_MBps(model, mask_of(gpus))
        assert inside is not None, "two or more GPUs have a bandwidth"
        groups.setdefault((inside, packed.rings, packed.chains), []).append(gpus)
    return [
        TableRow(size, *key, len(groups[key]), groups[key][0])
        for key in sorted(groups, reverse=True)
    ]
