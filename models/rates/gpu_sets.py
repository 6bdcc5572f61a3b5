"""Symmetries of matrices over GPUs, and what can be wrong with a set of GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class UnknownRate(ValueError):  # noqa: N818 - a finding about the input, not a failure
    """A link rate, link matrix or NIC speed that is needed is not known."""


def check_choice(candidates: int, count: int) -> None:
    """Raise ValueError if ``count`` GPUs cannot be chosen from the mask ``candidates``."""
    if not 1 <= count <= candidates.bit_count():
        raise ValueError(f"cannot choose {count} of {candidates.bit_count()} GPUs")


Matrix = Sequence[Sequence[int]]
Signature = tuple[int, tuple[tuple[int, int], ...]]
"""Colour of a vertex and, sorted, the cell and colour of every other vertex."""


def signatures(matrix: Matrix) -> list[Signature]:
    """Colour refinement: vertices with different signatures cannot be exchanged.

    Matrices that are equal up to a permutation have the same signatures in another order.
    """
    size = len(matrix)
    colours, distinct = [0] * size, min(size, 1)
    while True:
        found: list[Signature] = [
            (colours[v], tuple(sorted((row[w], colours[w]) for w in range(size) if w != v)))
            for v, row in enumerate(matrix)
        ]
        rank = {signature: i for i, signature in enumerate(sorted(set(found)))}
        if len(rank) == distinct:
            return found
        colours = [rank[signature] for signature in found]
        distinct = len(rank)


def mappings(
    source: Matrix, target: Matrix, own: Sequence[Signature], others: Sequence[Signature]
) -> Iterator[tuple[int, ...]]:
    """Every p with source[a][b] == target[p[a]][p[b]] for a != b, in lexicographic order.

    ``own`` and ``others``: signatures of the two; vertices map to vertices with the same signature.
    """
    size = len(source)
    candidates = [[x for x in range(size) if others[x] == signature] for signature in own]
    image: list[int] = []
    used = [False] * size

    def extend() -> Iterator[tuple[int, ...]]:
        a = len(image)
        if a == size:
            yield tuple(image)
            return
        row = source[a]
        for x in candidates[a]:
            if used[x] or any(row[b] != target[x][image[b]] for b in range(a)):
                continue
            image.append(x)
            used[x] = True
            yield from extend()
            image.pop()
            used[x] = False

    return extend()
