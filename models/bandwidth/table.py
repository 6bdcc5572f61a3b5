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

from models.bandwidth.inside import inside_MBps, shape_of
from models.bandwidth.outside import extreme_nics_MBps, nics_MBps
from models.bandwidth.sets import UnknownRate, mask_of, members
from models.hardware import ServerModel


@dataclass(frozen=True, slots=True)
class TableRow:
    """Sets of ``gpus`` GPUs that reach the same: how many there are, and the first of them.

    ``inside`` in MB/s, None = unlimited (one GPU). ``rings`` and ``chains`` are None where no
    link matrix decides (one GPU, or a switch). ``out``: least and most N(S) of these sets through
    the model's own NICs, None where a speed it needs is not known.
    """

    gpus: int
    inside: Fraction | None
    rings: int | None
    chains: int | None
    subsets: int
    example: tuple[int, ...]
    out: tuple[Fraction, Fraction] | None


def table(model: ServerModel, sizes: Iterable[int] | None = None) -> tuple[TableRow, ...]:
    """Rows by size, the fastest sets first. ``sizes``: only sets of so many GPUs (default: all).

    Raises UnknownRate if a link rate or the link matrix it needs is not known.
    """
    rows: list[TableRow] = []
    for size in sizes if sizes is not None else range(1, model.gpus + 1):
        if size > 1 and not model.switched:
            rows.extend(_mesh_rows(model, size))
            continue
        first = tuple(range(size))
        inside = inside_MBps(model, mask_of(first))
        out = _extremes(model, size)
        rows.append(TableRow(size, inside, None, None, comb(model.gpus, size), first, out))
    return tuple(rows)


def _extremes(model: ServerModel, size: int) -> tuple[Fraction, Fraction] | None:
    try:
        return extreme_nics_MBps(model, model.nics, model.all_gpus, size)
    except UnknownRate:
        return None


def _mesh_rows(model: ServerModel, size: int) -> list[TableRow]:
    groups: dict[tuple[Fraction, int, int], list[int]] = {}
    for gpus in combinations(range(model.gpus), size):
        mask = mask_of(gpus)
        packed = shape_of(model, mask)
        inside = inside_MBps(model, mask)
        assert inside is not None, "two or more GPUs have a bandwidth"
        groups.setdefault((inside, packed.rings, packed.chains), []).append(mask)
    return [
        TableRow(size, *key, len(masks), members(masks[0]), _range(model, masks))
        for key, masks in sorted(groups.items(), reverse=True)
    ]


def _range(model: ServerModel, masks: list[int]) -> tuple[Fraction, Fraction] | None:
    try:
        values = [nics_MBps(model, model.nics, mask) for mask in masks]
    except UnknownRate:
        return None
    return min(values), max(values)
