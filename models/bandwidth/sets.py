"""Sets of GPUs as bit masks, and what can go wrong when one is priced.

Promises: bit i is GPU i; tuples of indices ascend.
Called by the other rooms of ``models.bandwidth`` and, through it, by planning and checking.
"""

from __future__ import annotations

from collections.abc import Iterable


class UnknownRate(ValueError):  # noqa: N818 - it names what is wrong, as StopIteration does
    """A link rate, link matrix or NIC speed that is needed is not known."""


def members(mask: int) -> tuple[int, ...]:
    """Indices of the GPUs in a mask, ascending."""
    return tuple(g for g in range(mask.bit_length()) if mask >> g & 1)


def mask_of(gpus: Iterable[int]) -> int:
    """Bit mask of GPU indices."""
    mask = 0
    for gpu in gpus:
        mask |= 1 << gpu
    return mask


def check_choice(candidates: int, count: int) -> None:
    """Raise ValueError if ``count`` GPUs cannot be chosen within the mask ``candidates``."""
    if not 1 <= count <= candidates.bit_count():
        raise ValueError(f"cannot choose {count} of {candidates.bit_count()} GPUs")
