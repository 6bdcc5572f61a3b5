"""Bandwidth out of one server for a set of its GPUs: near NICs, or else the fastest far ones.

Promises: exact ``Fraction`` MB/s before division by oversubscription; kept per distinct NICs.
Called through ``models.bandwidth``.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

from models.bandwidth.sets import UnknownRate, check_choice, mask_of, members
from models.hardware import Nic, ServerModel

FAR_NIC_MBPS = Fraction(25000)
"""Most that one NIC brings to GPUs it is not near, whatever its line rate."""

_KEPT = 4096
"""NIC tuples remembered by identity before that shortcut is dropped and rebuilt."""


def nics_MBps(model: ServerModel, nics: Sequence[Nic], mask: int) -> Fraction:
    """N(S): what the NICs bring out of (and into) one server for the GPUs of ``mask``.

    Before division by oversubscription. Raises UnknownRate if a speed it needs is not known.
    """
    values = _outside(model, nics)
    try:
        return values[mask]
    except KeyError:
        value = values[mask] = _nics_value(model.pcie_MBps, tuple(nics), mask)
        return value


_OUTSIDE: dict[tuple[int, tuple[Nic, ...]], dict[int, Fraction]] = {}
_OUTSIDE_BY_ID: dict[tuple[int, int], tuple[Sequence[Nic], dict[int, Fraction]]] = {}


def _outside(model: ServerModel, nics: Sequence[Nic]) -> dict[int, Fraction]:
    by_id = (model.pcie_MBps, id(nics))
    kept = _OUTSIDE_BY_ID.get(by_id)
    if kept is not None:
        return kept[1]
    values = _OUTSIDE.setdefault((model.pcie_MBps, tuple(nics)), {})
    if isinstance(nics, tuple):  # what may change is not remembered by identity
        if len(_OUTSIDE_BY_ID) >= _KEPT:
            _OUTSIDE_BY_ID.clear()
        _OUTSIDE_BY_ID[by_id] = (nics, values)
    return values


def _nics_value(pcie_MBps: int, nics: tuple[Nic, ...], mask: int) -> Fraction:
    if mask <= 0:
        raise ValueError("an empty set of GPUs has no NIC bandwidth")
    count = mask.bit_count()
    near = [nic for nic in nics if nic.gpus is None or mask_of(nic.gpus) & mask]
    if near:
        speeds = [Fraction(_speed(nic), 8) for nic in near]
        return min(sum(speeds, Fraction(0)), count * max(Fraction(pcie_MBps), *speeds))
    fastest = sorted((_speed(nic) for nic in nics), reverse=True)[:count]
    return sum((min(FAR_NIC_MBPS, Fraction(speed, 16)) for speed in fastest), Fraction(0))


def _speed(nic: Nic) -> int:
    if nic.megabits is None:
        raise UnknownRate(f"the speed of NIC {nic.name} is not known")
    return nic.megabits


def worst_nics_MBps(
    model: ServerModel, nics: Sequence[Nic], candidates: int, count: int
) -> Fraction:
    """The smallest ``nics_MBps`` over sets of ``count`` GPUs within the mask ``candidates``."""
    check_choice(candidates, count)
    return min(
        nics_MBps(model, nics, mask_of(gpus)) for gpus in combinations(members(candidates), count)
    )
