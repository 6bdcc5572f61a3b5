"""How the slices of a role cut its pods: by floor(index / size), whatever the first index is.

Promises: pods are interchangeable, so of a waiting gang's slices only the numbers are told: a short one
at the head (where the first index is no multiple of the size), whole ones, a short one at the tail.
Called by the slice rules, the pieces, the decoding and the greedy start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cut:
    """``head`` and ``tail``: pods of the short first and last slice, 0 where there is none.

    head + whole x size + tail pods in all; 0 <= head, tail < size.
    """

    size: int
    head: int
    whole: int
    tail: int

    @property
    def shorts(self) -> tuple[int, ...]:
        """Pods of each short slice."""
        return tuple(short for short in (self.head, self.tail) if short)

    @property
    def sums(self) -> tuple[int, ...]:
        """What a place may hold beside whole slices: sums of short slices, ascending."""
        return tuple(sorted({0, self.head, self.tail, self.head + self.tail}))

    def fits(self, pods: int) -> bool:
        """Whether so many pods may be slices that are not torn apart."""
        return any(pods >= short and (pods - short) % self.size == 0 for short in self.sums)


def cut_of(first: int, count: int, size: int) -> Cut:
    """The slices of the pods first, first + 1, ..., ``count`` of them."""
    head = min(count, -first % size)
    whole, tail = divmod(count - head, size)
    return Cut(size, head, whole, tail)


def groups_of(indices: Iterable[int], size: int) -> list[list[int]]:
    """The indices by slice, ascending."""
    groups: dict[int, list[int]] = {}
    for index in indices:
        groups.setdefault(index // size, []).append(index)
    return [sorted(members) for _, members in sorted(groups.items())]
