"""Sets of GPUs as masks: bit i is GPU i.

Promises: pure and light. Used wherever a mask is taken apart.
"""

from __future__ import annotations


def bits(mask: int) -> tuple[int, ...]:
    """Indices of the set bits, ascending."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)
