"""Whether surplus edges can be left out so that every GPU keeps just so many in and out.

Promises: exact, a flow by augmenting paths; thick edges move at once.
Called by ``models.bandwidth.searching``.
"""

from __future__ import annotations

from collections.abc import Sequence


def droppable(
    edges: Sequence[Sequence[int]], surplus_out: Sequence[int], surplus_in: Sequence[int]
) -> bool:
    """Whether some of ``edges[a][b]`` can be dropped, just so many out of each a and into each b.

    The sums of both surpluses are equal.
    """
    drops = _Drops(edges, list(surplus_in))
    for a, surplus in enumerate(surplus_out):
        remaining = surplus
        while remaining:
            pushed = drops.push(a, remaining, set())
            if pushed == 0:
                return False
            remaining -= pushed
    return True


class _Drops:
    """Edges dropped so far, and how many more may be dropped into each GPU."""

    def __init__(self, edges: Sequence[Sequence[int]], spare: list[int]) -> None:
        self._edges = edges
        self._spare = spare
        self._dropped = [[0] * len(edges) for _ in edges]

    def push(self, a: int, amount: int, seen: set[int]) -> int:
        """Drop some more edges out of a, at most ``amount``; how many. ``seen``: tried before."""
        for b, count in enumerate(self._edges[a]):
            most = min(amount, count - self._dropped[a][b])
            if most == 0 or b in seen:
                continue
            seen.add(b)
            pushed = min(most, self._spare[b])
            self._spare[b] -= pushed
            pushed = pushed or self._make_way(b, most, seen)
            if pushed:
                self._dropped[a][b] += pushed
                return pushed
        return 0

    def _make_way(self, b: int, most: int, seen: set[int]) -> int:
        """Let edges dropped into b be dropped elsewhere instead, at most so many; how many."""
        for c, row in enumerate(self._dropped):
            if row[b] and (pushed := self.push(c, min(most, row[b]), seen)):
                row[b] -= pushed
                return pushed
        return 0
