"""All-reduce bandwidth among GPUs of one server: a switch, rings and chains of a mesh, or PCIe.

Promises: exact ``Fraction`` MB/s, computed when first asked for, kept per matrix and rates.
Called through ``models.bandwidth``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations

from models.bandwidth.packing import Links, Shape, shape
from models.bandwidth.sets import UnknownRate, mask_of, members
from models.hardware import ServerModel

_SWITCH_SHARE = {
    "PIX": Fraction(1),
    "PXB": Fraction(1),
    "PHB": Fraction(9, 10),
    "NODE": Fraction(8, 10),
}
"""Share of ``pcie_MBps`` by the nvidia-smi name of a path inside one socket."""

_KEPT = 4096
"""Models remembered by identity before that shortcut is dropped and rebuilt."""


@dataclass(slots=True)
class Known:
    """What has been computed for one distinct inside: link matrix and rates.

    ``neighbours``: mask of the GPUs each one has NVLinks to. ``pairs``: p(a, b) in tenths of MB/s,
    None where the link rate is not known. All empty where a switch makes them irrelevant.
    """

    links: Links
    neighbours: tuple[int, ...]
    pairs: tuple[tuple[int | None, ...], ...]
    values: dict[int, Fraction | None] = field(default_factory=dict)
    extremes: dict[tuple[str, int, int], Fraction] = field(default_factory=dict)


def inside_MBps(model: ServerModel, mask: int) -> Fraction | None:
    """All-reduce bandwidth among the GPUs of ``mask`` in one server; None = unlimited (one GPU).

    Raises UnknownRate if a rate or matrix it needs is not known, ValueError on an empty mask.
    """
    known = known_of(model)
    try:
        return known.values[mask]
    except KeyError:
        value = known.values[mask] = _inside_value(model, mask)
        return value


_INSIDE_BY_ID: dict[int, tuple[ServerModel, Known]] = {}
_INSIDE: dict[tuple[object, ...], Known] = {}


def known_of(model: ServerModel) -> Known:
    """What has been computed for models with the same matrix and rates."""
    # Identity first: hashing a matrix at each of millions of calls would cost more than the rest.
    kept = _INSIDE_BY_ID.get(id(model))
    if kept is not None:
        return kept[1]
    rates = (model.link_MBps, model.pcie_MBps, model.sys_MBps)
    # A switch makes the matrix irrelevant, a matrix the number of links.
    key = (
        model.gpus,
        model.switched,
        model.links_per_gpu if model.switched else model.matrix,
        rates,
    )
    found = _INSIDE.get(key)
    if found is None:
        found = _INSIDE[key] = _fresh(model)
    if len(_INSIDE_BY_ID) >= _KEPT:
        _INSIDE_BY_ID.clear()
    # The model is kept too, so that its id is not given to another.
    _INSIDE_BY_ID[id(model)] = (model, found)
    return found


def _fresh(model: ServerModel) -> Known:
    if model.switched or model.matrix is None:
        return Known((), (), ())
    links = tuple(tuple(link_count(cell) for cell in row) for row in model.matrix)
    neighbours = tuple(mask_of(b for b, count in enumerate(row) if count) for row in links)
    gpus = range(model.gpus)
    pairs = tuple(tuple(_tenths(model, a, b) for b in gpus) for a in gpus)
    return Known(links, neighbours, pairs)


def _tenths(model: ServerModel, a: int, b: int) -> int | None:
    if a == b or (model.link_MBps is None and link_count(_path(model, a, b))):
        return None
    tenths = 10 * pair_MBps(model, a, b)
    assert tenths.denominator == 1, "shares of a path are tenths"
    return tenths.numerator


def link_count(cell: str) -> int:
    """Links named by a cell of the matrix: ``NV2`` is 2, every other path 0."""
    return int(cell[2:]) if cell.startswith("NV") and cell[2:].isdigit() else 0


def _inside_value(model: ServerModel, mask: int) -> Fraction | None:
    if mask <= 0 or mask >> model.gpus:
        raise ValueError(
            f"GPU set {mask:#x} is empty or outside the {model.gpus} GPUs of {model.name}"
        )
    count = mask.bit_count()
    if count == 1:
        return None
    if model.switched:
        return switched_MBps(model)
    packed = shape_of(model, mask)
    if packed.best:
        return packed.best * link_rate(model)
    return slowest_pair_MBps(model, mask)


def slowest_pair_MBps(model: ServerModel, mask: int) -> Fraction:
    """The smallest p(a, b) over pairs of the GPUs of ``mask``, two or more."""
    pairs = known_of(model).pairs
    tenths = [pairs[a][b] for a, b in combinations(members(mask), 2)]
    if None in tenths:
        link_rate(model)  # raises: it is not known
    return Fraction(min(rate for rate in tenths if rate is not None), 10)


def shape_of(model: ServerModel, mask: int) -> Shape:
    """The links among two or more GPUs of a server with a link matrix."""
    links = known_of(model).links
    if not links:
        raise UnknownRate(f"the link matrix of server model {model.name} is not known")
    gpus = members(mask)
    return shape(tuple(tuple(links[a][b] for b in gpus) for a in gpus))


def _path(model: ServerModel, a: int, b: int) -> str:
    if model.matrix is None:
        raise UnknownRate(f"the link matrix of server model {model.name} is not known")
    return model.matrix[a][b]


def pair_MBps(model: ServerModel, a: int, b: int) -> Fraction:
    """p(a, b): what one path between two GPUs carries, by its nvidia-smi name."""
    cell = _path(model, a, b)
    links = link_count(cell)
    if links:
        return Fraction(links * link_rate(model))
    if cell == "SYS":
        return min(Fraction(model.sys_MBps), _SWITCH_SHARE["NODE"] * model.pcie_MBps)
    if cell not in _SWITCH_SHARE:
        raise ValueError(f"{cell!r} between GPUs {a} and {b} of {model.name} names no path")
    return _SWITCH_SHARE[cell] * model.pcie_MBps


def link_rate(model: ServerModel) -> int:
    """MB/s of one link. Raises UnknownRate if it is not known."""
    if model.link_MBps is None:
        raise UnknownRate(f"the rate of one link of server model {model.name} is not known")
    return model.link_MBps


def switched_MBps(model: ServerModel) -> Fraction:
    """What every GPU of a switched server, or of an NVLink domain of servers, reaches."""
    return Fraction(_links_per_gpu(model) * link_rate(model))


def _links_per_gpu(model: ServerModel) -> int:
    if model.links_per_gpu is None:
        raise UnknownRate(f"the number of links a GPU of server model {model.name} is not known")
    return model.links_per_gpu
