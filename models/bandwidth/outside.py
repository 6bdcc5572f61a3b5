"""Bandwidth out of one server for a set of its GPUs: near NICs, or else the fastest far ones.

Promises: exact ``Fraction`` MB/s before division by oversubscription; kept per distinct NICs.
Called through ``models.bandwidth``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from models.bandwidth.sets import UnknownRate, check_choice, mask_of, members
from models.hardware import Nic, ServerModel

FAR_NIC_MBPS = Fraction(25000)
"""Most that one NIC brings to GPUs it is not near, whatever its line rate."""

MOST_STATES = 200_000
"""Most different sets of NICs that a choice of GPUs is followed through."""

_Near = tuple[int, int]
"""Sum and fastest of the rates of some NICs, Mbit/s; (0, 0) for no NIC."""

_KEPT = 4096
"""NIC tuples remembered by identity before that shortcut is dropped and rebuilt."""


@dataclass(slots=True)
class _Known:
    """What has been computed for one distinct list of NICs. ``near[n]``: mask, -1 = every GPU."""

    nics: tuple[Nic, ...]
    near: tuple[int, ...]
    pcie_MBps: int
    values: dict[int, Fraction] = field(default_factory=dict)
    reaches: dict[int, dict[_Near, int]] = field(default_factory=dict)
    extremes: dict[tuple[int, int], tuple[Fraction, Fraction]] = field(default_factory=dict)


def nics_MBps(model: ServerModel, nics: Sequence[Nic], mask: int) -> Fraction:
    """N(S): what the NICs bring out of (and into) one server for the GPUs of ``mask``.

    Before division by oversubscription. Raises UnknownRate if a speed it needs is not known,
    ValueError on an empty mask.
    """
    known = _outside(model, nics)
    try:
        return known.values[mask]
    except KeyError:
        if mask <= 0:
            raise ValueError("an empty set of GPUs has no NIC bandwidth") from None
        near = [
            _speed(nic) for nic, gpus in zip(known.nics, known.near, strict=True) if gpus & mask
        ]
        together = (sum(near), max(near, default=0))
        value = known.values[mask] = _value(known, together, mask.bit_count())
        return value


_OUTSIDE: dict[tuple[int, tuple[Nic, ...]], _Known] = {}
_OUTSIDE_BY_ID: dict[tuple[int, int], tuple[Sequence[Nic], _Known]] = {}


def _outside(model: ServerModel, nics: Sequence[Nic]) -> _Known:
    by_id = (model.pcie_MBps, id(nics))
    kept = _OUTSIDE_BY_ID.get(by_id)
    if kept is not None:
        return kept[1]
    key = (model.pcie_MBps, tuple(nics))
    known = _OUTSIDE.get(key)
    if known is None:
        near = tuple(-1 if nic.gpus is None else mask_of(nic.gpus) for nic in key[1])
        known = _OUTSIDE[key] = _Known(key[1], near, model.pcie_MBps)
    if isinstance(nics, tuple):  # what may change is not remembered by identity
        if len(_OUTSIDE_BY_ID) >= _KEPT:
            _OUTSIDE_BY_ID.clear()
        _OUTSIDE_BY_ID[by_id] = (nics, known)
    return known


def _value(known: _Known, near: _Near, count: int) -> Fraction:
    """N of so many GPUs beside NICs of that sum and that fastest rate, in Mbit/s; (0, 0): none."""
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


def worst_nics_MBps(
    model: ServerModel, nics: Sequence[Nic], candidates: int, count: int
) -> Fraction:
    """The smallest ``nics_MBps`` over sets of ``count`` GPUs within the mask ``candidates``."""
    return extreme_nics_MBps(model, nics, candidates, count)[0]


def extreme_nics_MBps(
    model: ServerModel, nics: Sequence[Nic], candidates: int, count: int
) -> tuple[Fraction, Fraction]:
    """The smallest and the largest ``nics_MBps`` over sets of ``count`` GPUs of ``candidates``."""
    check_choice(candidates, count)
    known = _outside(model, nics)
    key = (candidates, count)
    if key not in known.extremes:
        if candidates not in known.reaches:
            known.reaches[candidates] = _reaches(known, candidates)
        values = [
            _value(known, near, count)
            for near, counts in known.reaches[candidates].items()
            if counts >> count & 1
        ]
        known.extremes[key] = min(values), max(values)
    return known.extremes[key]


def _reaches(known: _Known, candidates: int) -> dict[_Near, int]:
    """Sum and fastest rate of every set of NICs that GPUs of ``candidates`` can be near together.

    Each with the counts of GPUs that do, as bits: bit k for k GPUs. GPUs beside the same NICs are
    taken together; a NIC that no later group is near is folded into the sum, so few states remain.
    """
    groups: dict[frozenset[int], int] = {}
    for gpu in members(candidates):
        near = frozenset(n for n, gpus in enumerate(known.near) if gpus >> gpu & 1)
        groups[near] = groups.get(near, 0) + 1
    ordered = sorted(groups.items(), key=lambda group: sorted(group[0]))
    last = {nic: g for g, (near, _) in enumerate(ordered) for nic in near}
    states: dict[tuple[frozenset[int], _Near], int] = {(frozenset(), (0, 0)): 1}
    for g, (near, size) in enumerate(ordered):
        following: dict[tuple[frozenset[int], _Near], int] = {}
        for (open_nics, folded), counts in states.items():
            for reached, more in (
                (open_nics, counts),
                (open_nics | near, _one_or_more(counts, size)),
            ):
                closed = [_speed(known.nics[n]) for n in reached if last[n] == g]
                total = folded[0] + sum(closed), max(folded[1], *closed, 0)
                state = frozenset(n for n in reached if last[n] > g), total
                following[state] = following.get(state, 0) | more
        if len(following) > MOST_STATES:
            raise ValueError(f"{len(groups)} groups of GPUs beside different NICs are too many")
        states = following
    return _merged(states)


def _one_or_more(counts: int, size: int) -> int:
    """Counts after taking one GPU of a group of ``size``, or two, ... or all of them."""
    taken = 0
    for more in range(1, size + 1):
        taken |= counts << more
    return taken


def _merged(states: dict[tuple[frozenset[int], _Near], int]) -> dict[_Near, int]:
    merged: dict[_Near, int] = {}
    for (_, near), counts in states.items():
        merged[near] = merged.get(near, 0) | counts
    return merged
