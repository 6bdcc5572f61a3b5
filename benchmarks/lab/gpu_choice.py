"""How the NVIDIA device plugin chooses GPUs within a server: of its model, free GPUs and a count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

from models.hardware import ServerModel, bits, mask_of
from models.rates.server_bandwidth import link_count

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
