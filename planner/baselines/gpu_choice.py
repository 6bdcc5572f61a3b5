"""How others choose GPUs within a server: the NVIDIA device plugin, Koordinator, and HiveD's buddy cells.

Promises: pure functions of a server model, the mask of its free GPUs and a count; restated from the rules
the projects publish. Called by ``planner.baselines.rules``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

from models.hardware import ServerModel, bits, mask_of
from models.rates.gpu_sets import UnknownRate
from models.rates.server_bandwidth import link_count, pair_MBps

_PCIE_SCORES = {"PIX": 50, "PXB": 40, "PHB": 30, "NODE": 20, "SYS": 10}
_MAX_PARTITIONED = 8
"""More free GPUs than this have too many partitions to list: then the best set alone counts."""


def lowest(free: int, count: int) -> int:
    """The GPUs of the lowest indices."""
    return mask_of(bits(free)[:count])


def _remembered(
    choose: Callable[[ServerModel, int, int], int],
) -> Callable[[ServerModel, int, int], int]:
    """By identity of the model, which is kept: hashing a link matrix costs more than the choice."""
    known: dict[tuple[int, int, int], tuple[ServerModel, int]] = {}

    def remembered(model: ServerModel, free: int, count: int) -> int:
        key = (id(model), free, count)
        if key not in known:
            known[key] = (model, choose(model, free, count))
        return known[key][1]

    return remembered


@_remembered
def device_plugin(model: ServerModel, free: int, count: int) -> int:
    """Best effort of the NVIDIA device plugin: the best set of the best partition into sets of ``count``.

    A partition is worth the sum over the pairs within its sets: 100 for each NVLink, else 10 to 50 by the
    PCIe path. NVLinks through a switch score nothing, so that all sets are alike.

    https://github.com/NVIDIA/go-gpuallocator (gpuallocator/besteffort_policy.go)
    """
    matrix = model.matrix
    if model.switched or matrix is None or count < 2 or free.bit_count() == count:
        return lowest(free, count)

    def score(gpus: tuple[int, ...]) -> int:
        pairs = (matrix[a][b] for a, b in combinations(gpus, 2))
        return sum(100 * link_count(path) or _PCIE_SCORES.get(path, 0) for path in pairs)

    available = bits(free)
    if len(available) > _MAX_PARTITIONED:
        fastest = max(combinations(available, count), key=score)
        return mask_of(fastest)
    best = max(_partitions(available, count), key=lambda sets: sum(map(score, sets)))
    fastest = max((s for s in best if len(s) == count), key=score)
    return mask_of(fastest)


def _partitions(gpus: tuple[int, ...], count: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every way to cut the GPUs into sets of ``count``, at most one of them smaller."""
    if len(gpus) <= count:
        yield (gpus,) if gpus else ()
        return
    first, rest = gpus[0], gpus[1:]
    short = len(gpus) % count
    sizes = {count, short} - {0}
    for size in sorted(sizes, reverse=True):
        for others in combinations(rest, size - 1):
            left = tuple(g for g in rest if g not in others)
            if size == count or len(left) % count == 0:
                yield from (((first, *others), *more) for more in _partitions(left, count))


@_remembered
def koordinator(model: ServerModel, free: int, count: int) -> int:
    """The set with the largest bottleneck, its slowest pair; of equal ones that which breaks least.

    A block of eight free GPUs side by side that stays whole counts 10,000, one of four 100, one of two 1.

    https://github.com/koordinator-sh/koordinator/blob/main/docs/proposals/scheduling/20230314-gpu-topology-aware-scheduling.md
    https://github.com/koordinator-sh/koordinator/blob/main/docs/proposals/scheduling/20241008-gpu-partition-api.md
    """

    def worth(gpus: tuple[int, ...]) -> tuple[float, int]:
        return (_bottleneck(model, gpus), _whole_blocks(free & ~mask_of(gpus), model.gpus))

    chosen = max(combinations(bits(free), count), key=worth)
    return mask_of(chosen)


def _bottleneck(model: ServerModel, gpus: tuple[int, ...]) -> float:
    if model.switched or len(gpus) < 2:
        return 0.0
    try:
        return float(min(pair_MBps(model, a, b) for a, b in combinations(gpus, 2)))
    except UnknownRate:
        return 0.0


def _whole_blocks(free: int, gpus: int) -> int:
    weights = {8: 10_000, 4: 100, 2: 1}
    return sum(
        weight
        for size, weight in weights.items()
        for start in range(0, gpus - size + 1, size)
        if free >> start & (1 << size) - 1 == (1 << size) - 1
    )


@_remembered
def buddy(model: ServerModel, free: int, count: int) -> int:
    """The smallest free cell that holds them, split; without one the lowest GPUs, wherever.

    Cells of a server are its aligned blocks of 1, 2, 4, ... GPUs.
    https://www.usenix.org/conference/osdi20/presentation/zhao-hanyu
    """
    cells = [cell for cell in free_cells(free, model.gpus) if cell.bit_count() >= count]
    smallest = min(cells, key=lambda cell: (cell.bit_count(), cell), default=free)
    return lowest(smallest, count)


def free_cells(free: int, gpus: int) -> list[int]:
    """The largest aligned blocks of GPUs that are wholly free."""
    size = 1
    while size < gpus:
        size *= 2
    cells: list[int] = []
    while size:
        block = (1 << size) - 1
        for start in range(0, gpus, size):
            cell = block << start
            if free & cell == cell:
                cells.append(cell)
                free &= ~cell
        size //= 2
    return cells
