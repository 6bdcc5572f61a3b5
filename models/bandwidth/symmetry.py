"""Permutations of GPUs that leave a link matrix as it is, and matrices that are equal up to one.

Promises: exact and deterministic; matrices are square, their cells hashable.
Called by ``packing`` (to solve each shape once) and ``alike`` (automorphisms).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TypeVar

Cell = TypeVar("Cell", bound=Hashable)
Matrix = Sequence[Sequence[Cell]]
Colours = tuple[int, ...]


def colours(matrix: Matrix[Cell], start: Sequence[Hashable] | None = None) -> Colours:
    """Stable colouring: vertices of one colour have alike neighbourhoods, colour by colour.

    ``start`` gives vertices that must not be mixed different values. Colours are numbered by
    their (structural) signature, so equal matrices up to a permutation get equal colour counts.
    """
    size = len(matrix)
    current = _ranked([repr(start[v]) if start is not None else "" for v in range(size)])
    while True:
        signatures = [
            repr(
                (
                    current[v],
                    sorted((repr(matrix[v][w]), current[w]) for w in range(size) if w != v),
                )
            )
            for v in range(size)
        ]
        refined = _ranked(signatures)
        if len(set(refined)) == len(set(current)):
            return refined
        current = refined


def _ranked(signatures: Sequence[str]) -> Colours:
    rank = {signature: i for i, signature in enumerate(sorted(set(signatures)))}
    return tuple(rank[signature] for signature in signatures)


def mappings(
    source: Matrix[Cell],
    target: Matrix[Cell],
    source_colours: Sequence[int],
    target_colours: Sequence[int],
) -> Iterator[tuple[int, ...]]:
    """Every p with source[a][b] == target[p[a]][p[b]] and equal colours, in lexicographic order."""
    size = len(source)
    image: list[int] = []
    used = [False] * size

    def extend() -> Iterator[tuple[int, ...]]:
        a = len(image)
        if a == size:
            yield tuple(image)
            return
        row = source[a]
        for x in range(size):
            if used[x] or source_colours[a] != target_colours[x]:
                continue
            if any(row[b] != target[x][image[b]] for b in range(a)):
                continue
            image.append(x)
            used[x] = True
            yield from extend()
            image.pop()
            used[x] = False

    return extend()


def isomorphic(one: Matrix[Cell], other: Matrix[Cell]) -> bool:
    """Whether some renumbering turns one matrix into the other."""
    colours_one, colours_other = colours(one), colours(other)
    if sorted(colours_one) != sorted(colours_other):
        return False
    return next(mappings(one, other, colours_one, colours_other), None) is not None
