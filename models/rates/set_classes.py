"""Which sets of GPUs have the same bandwidth, inside and out: by count, or up to a permutation."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, islice

from models.hardware import Nic, ServerModel
from models.rates.gpu_sets import mappings, signatures
from models.rates.nic_bandwidth import extreme_nics_MBps
from models.rates.server_bandwidth import link_count, pair_MBps

MAX_AUTOMORPHISMS = 1152
"""Largest group listed whole: two sockets of four like GPUs have (4!)^2 x 2 = 1,152."""


def count_only(model: ServerModel, nics: Sequence[Nic]) -> bool:
    """Whether bandwidth inside and out depends on the number of GPUs alone.

    Raises UnknownRate if the speed of a NIC it needs is not known.
    """
    return _inside_by_count(model) and _nics_by_count(model, tuple(nics))


@lru_cache(maxsize=1024)
def _inside_by_count(model: ServerModel) -> bool:
    if model.switched or model.gpus <= 2:
        return True
    # Where pairs differ, sets of two do. (A link and a PCIe path of one rate are not alike.)
    return len({_path(model, a, b) for a, b in combinations(range(model.gpus), 2)}) == 1


def _path(model: ServerModel, a: int, b: int) -> tuple[int, Fraction]:
    """The links between two GPUs and, where there are none, the rate of their path."""
    if model.matrix is None:
        return (0, Fraction(0))  # pricing two of the GPUs raises UnknownRate
    links = link_count(model.matrix[a][b])
    return (links, Fraction(0)) if links else (0, pair_MBps(model, a, b))


@lru_cache(maxsize=1024)
def _nics_by_count(model: ServerModel, nics: tuple[Nic, ...]) -> bool:
    for count in range(1, model.gpus + 1):
        least, most = extreme_nics_MBps(model, nics, model.all_gpus, count)
        if least != most:
            return False
    return True


def automorphisms(model: ServerModel, nics: Sequence[Nic]) -> tuple[tuple[int, ...], ...]:
    """Permutations p of GPU indices (GPU g becomes p[g]) that change no bandwidth, inside or out.

    A group, in lexicographic order, the identity first. Of a group larger than
    ``MAX_AUTOMORPHISMS`` the permutations that leave the first few GPUs in place.
    """
    return _automorphisms(model, tuple(nics))


@lru_cache(maxsize=1024)
def _automorphisms(model: ServerModel, nics: tuple[Nic, ...]) -> tuple[tuple[int, ...], ...]:
    gpus = range(model.gpus)
    cells = [[_cell(model, nics, a, b) for b in gpus] for a in gpus]
    number = {cell: i for i, cell in enumerate(sorted({cell for row in cells for cell in row}))}
    matrix = [[number[cell] for cell in row] for row in cells]
    reached = sorted(_moved(nic, gpus) for nic in nics)
    for fixed in gpus:
        # A fixed GPU has a colour of its own; the others have that of their NICs.
        start = [g if g < fixed else model.gpus + matrix[g][g] for g in gpus]
        own = signatures(matrix, start)
        tried = list(islice(mappings(matrix, matrix, own, own), MAX_AUTOMORPHISMS + 1))
        if len(tried) <= MAX_AUTOMORPHISMS:
            return tuple(p for p in tried if sorted(_moved(nic, p) for nic in nics) == reached)
    return (tuple(gpus),)


_Cell = tuple[int, Fraction, tuple[tuple[int, int], ...]]


def _cell(model: ServerModel, nics: tuple[Nic, ...], a: int, b: int) -> _Cell:
    """Path between two GPUs (none behind a switch) and the NICs near both."""
    near = [(nic.gpus, nic.megabits or -1) for nic in nics if nic.gpus]
    shared = tuple(sorted((len(gpus), speed) for gpus, speed in near if a in gpus and b in gpus))
    links, rate = (0, Fraction(0)) if model.switched or a == b else _path(model, a, b)
    return links, rate, shared


def _moved(nic: Nic, image: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Near GPUs (-1: all) and speed of a NIC after its GPUs are renamed."""
    near = (-1,) if nic.gpus is None else tuple(sorted(image[g] for g in nic.gpus))
    return near, nic.megabits or -1
