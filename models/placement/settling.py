"""Which node of a region carries which pods, when only their sizes were decided.

Largest first, a gang's pods together, on the tightest node that holds them: where sizes divide one
another any order of equal sizes works (an s-pod uses exactly s/g of the g-slots wherever it lands), so
the choice may serve locality. Returns None where this packing fails; the caller then takes the flow's own.
Called by ``pooled``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Item = tuple[int, int, int]
"""(GPUs of one set, owner, how many sets)."""


@dataclass
class Settled:
    """``sets``: (owner, node, GPUs) of every set placed."""

    sets: list[tuple[int, int, int]]


def settle(free: dict[int, int], items: Sequence[Item]) -> Settled | None:
    """Pack sets on nodes with so many free GPUs."""
    left = dict(free)
    used: dict[int, set[int]] = {}
    sets: list[tuple[int, int, int]] = []
    for gpus, owner, count in sorted(
        items, key=lambda item: (-item[0], -item[0] * item[2], item[1])
    ):
        rest = count
        while rest:
            n = _best(left, used.setdefault(owner, set()), gpus, rest)
            if n is None:
                return None
            take = min(rest, left[n] // gpus)
            left[n] -= take * gpus
            used[owner].add(n)
            sets += [(owner, n, gpus)] * take
            rest -= take
    return Settled(sets)


def _best(left: dict[int, int], used: set[int], gpus: int, rest: int) -> int | None:
    """A node the owner has, else the tightest that takes all that is left, else the fullest taker."""
    able = [n for n in left if left[n] >= gpus]
    if not able:
        return None
    own = [n for n in able if n in used]
    if own:
        return min(own, key=lambda n: (left[n], n))
    whole = [n for n in able if left[n] // gpus >= rest]
    if whole:
        return min(whole, key=lambda n: (left[n], n))
    return max(able, key=lambda n: (left[n] // gpus, -left[n], -n))
