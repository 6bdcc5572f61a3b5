"""All-reduce bandwidth among GPUs of one server: a switch, rings and chains of a mesh, or PCIe.

Promises: exact ``Fraction`` MB/s, computed when first asked for, kept per matrix and rates.
Called through ``models.bandwidth``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations

from models.bandwidth.packing import Shape, shape
from models.bandwidth.sets import UnknownRate, check_choice, mask_of, members
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
class _Known:
    """What has been computed for one distinct inside: link matrix and rates."""

    links: tuple[tuple[int, ...], ...]
    values: dict[int, Fraction | None] = field(default_factory=dict)
    worst: dict[tuple[int, int], Fraction] = field(default_factory=dict)
    best: dict[int, Fraction] = field(default_factory=dict)


def inside_MBps(model: ServerModel, mask: int) -> Fraction | None:
    """All-reduce bandwidth among the GPUs of ``mask`` in one server; None = unlimited (one GPU).

    Raises UnknownRate if a rate or matrix it needs is not known, ValueError on an empty mask.
    """
    known = _inside(model)
    try:
        return known.values[mask]
    except KeyError:
        value = known.values[mask] = _inside_value(model, mask)
        return value


_INSIDE_BY_ID: dict[int, tuple[ServerModel, _Known]] = {}
_INSIDE: dict[tuple[object, ...], _Known] = {}


def _inside(model: ServerModel) -> _Known:
    # Identity first: hashing a matrix at each of millions of calls would cost more than the rest.
    kept = _INSIDE_BY_ID.get(id(model))
    if kept is not None:
        return kept[1]
    rates = (model.link_MBps, model.pcie_MBps, model.sys_MBps)
    # A switch makes the matrix irrelevant, a matrix the number of links.
    decisive = model.links_per_gpu if model.switched else model.matrix
    found = _INSIDE.setdefault((model.gpus, model.switched, decisive, rates), _Known(_links(model)))
    if len(_INSIDE_BY_ID) >= _KEPT:
        _INSIDE_BY_ID.clear()
    # The model is kept too, so that its id is not given to another.
    _INSIDE_BY_ID[id(model)] = (model, found)
    return found


def _links(model: ServerModel) -> tuple[tuple[int, ...], ...]:
    """Direct NVLinks between every two GPUs; empty where they are not known or irrelevant."""
    if model.switched or model.matrix is None:
        return ()
    return tuple(tuple(link_count(cell) for cell in row) for row in model.matrix)


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
        return packed.best * _link_rate(model)
    return min(pair_MBps(model, a, b) for a, b in combinations(members(mask), 2))


def shape_of(model: ServerModel, mask: int) -> Shape:
    """The links among two or more GPUs of a server with a link matrix."""
    links = _inside(model).links
    if not links:
        raise UnknownRate(f"the link matrix of server model {model.name} is not known")
    gpus = members(mask)
    return shape(tuple(tuple(links[a][b] for b in gpus) for a in gpus))


def pair_MBps(model: ServerModel, a: int, b: int) -> Fraction:
    """p(a, b): what one path between two GPUs carries, by its nvidia-smi name."""
    if model.matrix is None:
        raise UnknownRate(f"the link matrix of server model {model.name} is not known")
    cell = model.matrix[a][b]
    links = link_count(cell)
    if links:
        return Fraction(links * _link_rate(model))
    if cell == "SYS":
        return min(Fraction(model.sys_MBps), _SWITCH_SHARE["NODE"] * model.pcie_MBps)
    if cell not in _SWITCH_SHARE:
        raise ValueError(f"{cell!r} between GPUs {a} and {b} of {model.name} names no path")
    return _SWITCH_SHARE[cell] * model.pcie_MBps


def _link_rate(model: ServerModel) -> int:
    if model.link_MBps is None:
        raise UnknownRate(f"the rate of one link of server model {model.name} is not known")
    return model.link_MBps


def switched_MBps(model: ServerModel) -> Fraction:
    """What every GPU of a switched server, or of an NVLink domain of servers, reaches."""
    return Fraction(_links_per_gpu(model) * _link_rate(model))


def _links_per_gpu(model: ServerModel) -> int:
    if model.links_per_gpu is None:
        raise UnknownRate(f"the number of links a GPU of server model {model.name} is not known")
    return model.links_per_gpu


def worst_inside_MBps(model: ServerModel, candidates: int, count: int) -> Fraction | None:
    """The smallest ``inside_MBps`` over sets of ``count`` GPUs within the mask ``candidates``."""
    check_choice(candidates, count)
    known = _inside(model)
    if count == 1 or model.switched:
        return inside_MBps(model, mask_of(members(candidates)[:count]))
    key = (candidates, count)
    if key not in known.worst:
        known.worst[key] = min(_each_value(model, candidates, count))
    return known.worst[key]


def best_inside_MBps(model: ServerModel, count: int) -> Fraction | None:
    """The largest ``inside_MBps`` over sets of ``count`` GPUs of the server; None = unlimited."""
    check_choice(model.all_gpus, count)
    known = _inside(model)
    if count == 1 or model.switched:
        return inside_MBps(model, (1 << count) - 1)
    if count not in known.best:
        known.best[count] = max(_each_value(model, model.all_gpus, count))
    return known.best[count]


def _each_value(model: ServerModel, candidates: int, count: int) -> Iterator[Fraction]:
    for gpus in combinations(members(candidates), count):
        value = inside_MBps(model, mask_of(gpus))
        assert value is not None, "two or more GPUs have a bandwidth"
        yield value
