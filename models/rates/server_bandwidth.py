"""All-reduce bandwidth among GPUs of one server: through a switch, rings and chains, or PCIe.

Values are exact MB/s, computed when first needed and kept for each distinct matrix and its rates.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from math import comb

from models.hardware import ServerModel, bits, mask_of
from models.rates.gpu_sets import UnknownRate, check_choice
from models.rates.nic_bandwidth import extreme_nics_MBps, nics_MBps
from models.rates.rings import Links, Shape, chain_in_links, shape

_SWITCH_SHARE = {
    "PIX": Fraction(1),
    "PXB": Fraction(1),
    "PHB": Fraction(9, 10),
    "NODE": Fraction(8, 10),
}
"""Share of ``pcie_MBps`` by the nvidia-smi name of a path inside one socket."""

_MAX_BY_ID = 4096
"""Models remembered by identity before that shortcut is dropped and rebuilt."""

_FEW_SETS = 100
"""Up to this many sets all are priced: every choice among 8 GPUs."""


@dataclass(slots=True)
class _Inside:
    """What has been computed for one link matrix and its rates; empty behind a switch.

    ``pairs``: p(a, b) in tenths of MB/s, None where the link rate is not known.
    """

    links: Links
    pairs: tuple[tuple[int | None, ...], ...]
    values: dict[int, Fraction | None] = field(default_factory=dict)
    best: dict[int, Fraction] = field(default_factory=dict)


def inside_MBps(model: ServerModel, mask: int) -> Fraction | None:
    """All-reduce bandwidth among the GPUs of ``mask`` in one server; None = unlimited (one GPU).

    Raises UnknownRate if a rate or matrix it needs is not known, ValueError on an empty mask.
    """
    known = _inside_of(model)
    try:
        return known.values[mask]
    except KeyError:
        value = known.values[mask] = _inside_value(model, mask)
        return value


_BY_ID: dict[int, tuple[ServerModel, _Inside]] = {}
_BY_RATES: dict[tuple[object, ...], _Inside] = {}


def _inside_of(model: ServerModel) -> _Inside:
    # Identity first: hashing a matrix at each of millions of calls would cost more than the rest.
    kept = _BY_ID.get(id(model))
    if kept is not None:
        return kept[1]
    rates = (model.link_MBps, model.pcie_MBps, model.sys_MBps)
    wiring = model.links_per_gpu if model.switched else model.matrix
    key = (model.gpus, model.switched, wiring, rates)
    found = _BY_RATES.get(key)
    if found is None:
        found = _BY_RATES[key] = _new_inside(model)
    if len(_BY_ID) >= _MAX_BY_ID:
        _BY_ID.clear()
    # The model is kept too, so that its id is not given to another.
    _BY_ID[id(model)] = (model, found)
    return found


def _new_inside(model: ServerModel) -> _Inside:
    if model.switched or model.matrix is None:
        return _Inside((), ())
    links = tuple(tuple(link_count(cell) for cell in row) for row in model.matrix)
    gpus = range(model.gpus)
    return _Inside(links, tuple(tuple(_tenths(model, a, b) for b in gpus) for a in gpus))


def _tenths(model: ServerModel, a: int, b: int) -> int | None:
    if a == b or (model.link_MBps is None and link_count(_path(model, a, b))):
        return None
    tenths = 10 * pair_MBps(model, a, b)
    assert tenths.denominator == 1, "shares of a path are tenths"
    return tenths.numerator


def link_count(cell: str) -> int:
    """Number of links in a cell of the matrix: 2 for ``NV2``, 0 for every other path."""
    return int(cell[2:]) if cell.startswith("NV") and cell[2:].isdigit() else 0


def _inside_value(model: ServerModel, mask: int) -> Fraction | None:
    if mask <= 0 or mask >> model.gpus:
        raise ValueError(
            f"GPU set {mask:#x} is empty or outside the {model.gpus} GPUs of {model.name}"
        )
    if mask.bit_count() == 1:
        return None
    if model.switched:
        return switched_MBps(model)
    best = _shape_of(model, mask).best
    return best * _link_rate(model) if best else _slowest_pair_MBps(model, mask)


def _slowest_pair_MBps(model: ServerModel, mask: int) -> Fraction:
    pairs = _inside_of(model).pairs
    tenths = [pairs[a][b] for a, b in combinations(bits(mask), 2)]
    if None in tenths:
        _link_rate(model)  # raises UnknownRate
    return Fraction(min(rate for rate in tenths if rate is not None), 10)


def _shape_of(model: ServerModel, mask: int) -> Shape:
    links = _inside_of(model).links
    if not links:
        raise UnknownRate(f"the link matrix of server model {model.name} is not known")
    gpus = bits(mask)
    return shape(tuple(tuple(links[a][b] for b in gpus) for a in gpus))


def _path(model: ServerModel, a: int, b: int) -> str:
    if model.matrix is None:
        raise UnknownRate(f"the link matrix of server model {model.name} is not known")
    return model.matrix[a][b]


def pair_MBps(model: ServerModel, a: int, b: int) -> Fraction:
    """p(a, b): the rate of one path between two GPUs, by its nvidia-smi name."""
    cell = _path(model, a, b)
    links = link_count(cell)
    if links:
        return Fraction(links * _link_rate(model))
    if cell == "SYS":
        return min(Fraction(model.sys_MBps), _SWITCH_SHARE["NODE"] * model.pcie_MBps)
    if cell not in _SWITCH_SHARE:
        raise ValueError(f"{cell!r} between GPUs {a} and {b} of {model.name} is no known path")
    return _SWITCH_SHARE[cell] * model.pcie_MBps


def _link_rate(model: ServerModel) -> int:
    if model.link_MBps is None:
        raise UnknownRate(f"the rate of one link of server model {model.name} is not known")
    return model.link_MBps


def switched_MBps(model: ServerModel) -> Fraction:
    """The rate of every GPU of a switched server, or of an NVLink domain of servers."""
    if model.links_per_gpu is None:
        raise UnknownRate(f"the number of links a GPU of server model {model.name} is not known")
    return Fraction(model.links_per_gpu * _link_rate(model))


def best_inside_MBps(model: ServerModel, count: int) -> Fraction | None:
    """The largest ``inside_MBps`` over sets of ``count`` GPUs of the server; None = unlimited.

    Raises UnknownRate if a rate or matrix it needs is not known.
    """
    check_choice(model.all_gpus, count)
    if count == 1 or model.switched:
        return inside_MBps(model, (1 << count) - 1)
    known = _inside_of(model)
    if count not in known.best:
        known.best[count] = _best(model, count)
    return known.best[count]


def _best(model: ServerModel, count: int) -> Fraction:
    """Prices sets in the order of an upper bound, until no set left can be better."""
    sets = [mask_of(gpus) for gpus in combinations(range(model.gpus), count)]
    if len(sets) <= _FEW_SETS:
        return max(inside_MBps(model, mask) or Fraction(0) for mask in sets)
    best = Fraction(0)
    for bound, negative in sorted(((_bound(model, mask), -mask) for mask in sets), reverse=True):
        if bound <= best:
            break
        best = max(best, inside_MBps(model, -negative) or Fraction(0))
    return best


def _bound(model: ServerModel, mask: int) -> Fraction:
    """Upper bound of ``inside_MBps`` from the degrees."""
    links = _inside_of(model).links
    gpus = bits(mask)
    degrees = [sum(links[a][b] for b in gpus) for a in gpus]
    slowest = _slowest_pair_MBps(model, mask)
    if not all(degrees):
        return slowest
    chains = min(sum(degrees) // 2 // (len(gpus) - 1), *degrees)
    most = max(Fraction(min(degrees)), chains * chain_in_links(len(gpus)))
    return max(slowest, most * _link_rate(model))


@dataclass(frozen=True, slots=True)
class TableRow:
    """Sets of ``gpus`` GPUs with the same bandwidth: how many there are, and the first of them.

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
    """Bandwidth table: every set of GPUs is in one row; rows by size, the fastest sets first.

    ``sizes``: only sets of these sizes (default: all). Raises UnknownRate if a link rate or the
    link matrix is needed and not known.
    """
    rows: list[TableRow] = []
    for size in sizes if sizes is not None else range(1, model.gpus + 1):
        if size > 1 and not model.switched:
            rows.extend(_mesh_rows(model, size))
            continue
        first = tuple(range(size))
        inside = inside_MBps(model, mask_of(first))
        try:
            out = extreme_nics_MBps(model, model.nics, model.all_gpus, size)
        except UnknownRate:
            out = None
        rows.append(TableRow(size, inside, None, None, comb(model.gpus, size), first, out))
    return tuple(rows)


def _mesh_rows(model: ServerModel, size: int) -> list[TableRow]:
    groups: dict[tuple[Fraction, int, int], list[int]] = {}
    for gpus in combinations(range(model.gpus), size):
        mask = mask_of(gpus)
        found = _shape_of(model, mask)
        inside = inside_MBps(model, mask)
        assert inside is not None, "two or more GPUs have a bandwidth"
        groups.setdefault((inside, found.rings, found.chains), []).append(mask)
    return [
        TableRow(size, *key, len(masks), bits(masks[0]), _nics_range(model, masks))
        for key, masks in sorted(groups.items(), reverse=True)
    ]


def _nics_range(model: ServerModel, masks: list[int]) -> tuple[Fraction, Fraction] | None:
    try:
        values = [nics_MBps(model, model.nics, mask) for mask in masks]
    except UnknownRate:
        return None
    return min(values), max(values)
