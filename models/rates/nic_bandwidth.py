"""Network bandwidth N(S) out of one server for a set of its GPUs: near NICs, else the fastest far ones.

Values are exact MB/s before division by oversubscription, kept for each distinct list of NICs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from models.hardware import Nic, ServerModel, bits, mask_of
from models.rates.gpu_sets import UnknownRate, check_choice

FAR_NIC_MBPS = Fraction(25000)
"""The most that one NIC gives to GPUs it is not near, whatever its line rate."""

_MAX_STATES = 200_000
"""Most states of the dynamic program over groups of GPUs."""

_MAX_BY_ID = 4096
"""NIC tuples remembered by identity before that shortcut is dropped and rebuilt."""

_Near = tuple[int, int]
"""Sum and maximum of the rates of some NICs, Mbit/s; (0, 0) for no NIC."""


@dataclass(slots=True)
class _Outside:
    """What has been computed for one list of NICs. ``near[n]``: mask of GPUs, -1 = all."""

    nics: tuple[Nic, ...]
    near: tuple[int, ...]
    pcie_MBps: int
    values: dict[int, Fraction] = field(default_factory=dict)
    reachable: dict[int, dict[_Near, int]] = field(default_factory=dict)
    extremes: dict[tuple[int, int], tuple[Fraction, Fraction]] = field(default_factory=dict)


def nics_MBps(model: ServerModel, nics: Sequence[Nic], mask: int) -> Fraction:
    """N(S) of the GPUs of ``mask`` in one server, before division by oversubscription.

    Raises UnknownRate if a speed it needs is not known, ValueError on an empty mask.
    """
    known = _outside_of(model, nics)
    try:
        return known.values[mask]
    except KeyError:
        if mask <= 0:
            raise ValueError("an empty set of GPUs has no NIC bandwidth") from None
        near = [
            _speed(nic) for nic, gpus in zip(known.nics, known.near, strict=True) if gpus & mask
        ]
        rates = (sum(near), max(near, default=0))
        value = known.values[mask] = _value(known, rates, mask.bit_count())
        return value


_BY_NICS: dict[tuple[int, tuple[Nic, ...]], _Outside] = {}
_BY_ID: dict[tuple[int, int], tuple[Sequence[Nic], _Outside]] = {}


def _outside_of(model: ServerModel, nics: Sequence[Nic]) -> _Outside:
    by_id = (model.pcie_MBps, id(nics))
    kept = _BY_ID.get(by_id)
    if kept is not None:
        return kept[1]
    key = (model.pcie_MBps, tuple(nics))
    known = _BY_NICS.get(key)
    if known is None:
        near = tuple(-1 if nic.gpus is None else mask_of(nic.gpus) for nic in key[1])
        known = _BY_NICS[key] = _Outside(key[1], near, model.pcie_MBps)
    if isinstance(nics, tuple):  # what may change is not remembered by identity
        if len(_BY_ID) >= _MAX_BY_ID:
            _BY_ID.clear()
        _BY_ID[by_id] = (nics, known)
    return known


def _value(known: _Outside, near: _Near, count: int) -> Fraction:
    """N of ``count`` GPUs whose near NICs have that sum and maximum."""
    total, fastest = near
    if total:
        # gbps x 125 MB/s is Mbit/s over 8; a far NIC counts half of its rate.
        return min(Fraction(total, 8), count * max(Fraction(known.pcie_MBps), Fraction(fastest, 8)))
    far = sorted((_speed(nic) for nic in known.nics), reverse=True)[:count]
    return sum((min(FAR_NIC_MBPS, Fraction(speed, 16)) for speed in far), Fraction(0))


def _speed(nic: Nic) -> int:
    if nic.megabits is None:
        raise UnknownRate(f"the speed of NIC {nic.name} is not known")
    return nic.megabits


def extreme_nics_MBps(
    model: ServerModel, nics: Sequence[Nic], candidates: int, count: int
) -> tuple[Fraction, Fraction]:
    """The smallest and the largest ``nics_MBps`` over sets of ``count`` GPUs of ``candidates``."""
    check_choice(candidates, count)
    known = _outside_of(model, nics)
    key = (candidates, count)
    if key not in known.extremes:
        if candidates not in known.reachable:
            known.reachable[candidates] = _reachable(known, candidates)
        values = [
            _value(known, near, count)
            for near, counts in known.reachable[candidates].items()
            if counts >> count & 1
        ]
        known.extremes[key] = min(values), max(values)
    return known.extremes[key]


def _reachable(known: _Outside, candidates: int) -> dict[_Near, int]:
    """Sum and maximum of every set of NICs that some GPUs of ``candidates`` are near.

    Each with the possible numbers of those GPUs as bits: bit k for k GPUs. GPUs near the same NICs
    form a group; a NIC that no later group is near is folded into the sum, so few states remain.
    """
    groups: dict[frozenset[int], int] = {}
    for gpu in bits(candidates):
        near = frozenset(n for n, gpus in enumerate(known.near) if gpus >> gpu & 1)
        groups[near] = groups.get(near, 0) + 1
    ordered = sorted(groups.items(), key=lambda group: sorted(group[0]))
    last = {nic: g for g, (near, _) in enumerate(ordered) for nic in near}
    states: dict[tuple[frozenset[int], _Near], int] = {(frozenset(), (0, 0)): 1}
    for g, (near, size) in enumerate(ordered):
        following: dict[tuple[frozenset[int], _Near], int] = {}
        for (open_nics, folded), counts in states.items():
            some = 0
            for taken in range(1, size + 1):
                some |= counts << taken
            for reached, possible in ((open_nics, counts), (open_nics | near, some)):
                closed = [_speed(known.nics[n]) for n in reached if last[n] == g]
                total = folded[0] + sum(closed), max(folded[1], *closed, 0)
                key = frozenset(n for n in reached if last[n] > g), total
                following[key] = following.get(key, 0) | possible
        if len(following) > _MAX_STATES:
            raise ValueError(f"{len(groups)} groups of GPUs near different NICs are too many")
        states = following
    merged: dict[_Near, int] = {}
    for (_, rates), counts in states.items():
        merged[rates] = merged.get(rates, 0) | counts
    return merged
