"""One small matrix inside another, up to the numbering: exact, with colours, bounded.

Promises: the first embedding in lexicographic order, or None; never more than MOST_STEPS steps.
Called by ``recognising``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

Colours = Sequence[Sequence[Hashable]]
"""``[a][b]``: what joins a and b; ``[a][a]``: what a is."""

MOST_STEPS = 20_000
"""Steps before the search gives up; a known server under any numbering takes a few hundred."""


def embedding(small: Colours, large: Colours) -> tuple[int, ...] | None:
    """p, one-to-one, with small[a][b] == large[p[a]][p[b]] for all a, b; None if none was found.

    Of two matrices of one size this is an isomorphism. The identity is preferred.
    """
    size = len(small)
    if size > len(large):
        return None
    if all(list(row) == list(large[a])[:size] for a, row in enumerate(small)):
        return tuple(range(size))
    candidates = _candidates(small, large)
    if candidates is None:
        return None
    # Few candidates first, so that a dead end shows early.
    order = sorted(range(size), key=lambda a: (len(candidates[a]), a))
    image = [-1] * size
    used: set[int] = set()
    steps = 0

    def extend(depth: int) -> bool:
        nonlocal steps
        if depth == size:
            return True
        a = order[depth]
        for x in candidates[a]:
            steps += 1
            if steps > MOST_STEPS:
                return False
            if x in used or any(
                small[a][b] != large[x][image[b]] or small[b][a] != large[image[b]][x]
                for b in order[:depth]
            ):
                continue
            image[a] = x
            used.add(x)
            if extend(depth + 1):
                return True
            used.discard(x)
        return False

    return tuple(image) if extend(0) else None


def _candidates(small: Colours, large: Colours) -> list[list[int]] | None:
    """Vertices of ``large`` that each of ``small`` may be; None if one may be nothing."""
    if len(small) == len(large):
        own, others = _refined(small, large)
        found = [[x for x, theirs in enumerate(others) if theirs == mine] for mine in own]
        if Counter(own) != Counter(others):
            return None
    else:
        joins = [Counter(row[x] for x in range(len(row)) if x != v) for v, row in enumerate(large)]
        found = []
        for a, row in enumerate(small):
            mine = Counter(row[b] for b in range(len(row)) if b != a)
            found.append(
                [x for x, theirs in enumerate(joins) if row[a] == large[x][x] and mine <= theirs]
            )
    return found if all(found) else None


def _refined(small: Colours, large: Colours) -> tuple[list[int], list[int]]:
    """Numbers of the vertices of both, equal where no count of neighbours tells two apart."""
    numbers: dict[Hashable, int] = {}
    own = [numbers.setdefault(row[a], len(numbers)) for a, row in enumerate(small)]
    others = [numbers.setdefault(row[x], len(numbers)) for x, row in enumerate(large)]
    distinct = len(numbers)
    while True:
        names: dict[Hashable, int] = {}

        def renamed(
            matrix: Colours, told: list[int], names: dict[Hashable, int] = names
        ) -> list[int]:
            return [
                names.setdefault(
                    (
                        told[v],
                        frozenset(
                            Counter((row[w], told[w]) for w in range(len(row)) if w != v).items()
                        ),
                    ),
                    len(names),
                )
                for v, row in enumerate(matrix)
            ]

        own, others = renamed(small, own), renamed(large, others)
        if len(names) == distinct:
            return own, others
        distinct = len(names)
