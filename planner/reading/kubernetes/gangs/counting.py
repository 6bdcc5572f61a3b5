"""How many: counts that objects state, told apart from those they leave out or spoil.

Promises: never negative. Called by the controller dialects.
"""

from __future__ import annotations

from planner.reading.kubernetes.looking import at


def counted(tree: object, *path: str, absent: int | None) -> int | None:
    """The count below the path, however large; ``absent`` where none is stated, None if it is none."""
    value = at(tree, *path)
    if value is None:
        return absent
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value


def times(one: int | None, other: int | None) -> int | None:
    """The product; None if a factor is not known."""
    return None if one is None or other is None else one * other
