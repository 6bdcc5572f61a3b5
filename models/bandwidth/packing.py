"""How many NVLink rings and chains fit side by side through a set of GPUs, exactly.

Takes a symmetric matrix of link counts. Promises: exact, no solver; a shape is solved once.
Called by ``models.bandwidth.inside`` alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from models.bandwidth.symmetry import isomorphic

Links = tuple[tuple[int, ...], ...]
"""links[a][b] = number of direct links between a and b; symmetric, zero diagonal."""


@dataclass(frozen=True, slots=True)
class Packing:
    """``rings``: most edge-disjoint directed Hamiltonian rings, a link being one edge each way.

    ``chains``: most link-disjoint undirected Hamiltonian paths.
    """

    rings: int
    chains: int


_SHAPES: dict[tuple[tuple[int, ...], ...], list[tuple[Links, Packing]]] = {}


@lru_cache(maxsize=1 << 17)
def packing(links: Links) -> Packing:
    """Rings and chains through all of the given GPUs (two or more)."""
    if not _connected(links):
        return Packing(0, 0)
    shapes = _SHAPES.setdefault(tuple(sorted(tuple(sorted(row)) for row in links)), [])
    for known, result in shapes:
        if isomorphic(known, links):
            return result
    result = Packing(_rings(links), _chains(links))
    shapes.append((links, result))
    return result


def _connected(links: Links) -> bool:
    seen, stack = {0}, [0]
    while stack:
        for other, count in enumerate(links[stack.pop()]):
            if count and other not in seen:
                seen.add(other)
                stack.append(other)
    return len(seen) == len(links)


def _uniform(links: Links) -> int:
    """Links between every pair if that is one number, else 0."""
    cells = {cell for a, row in enumerate(links) for b, cell in enumerate(row) if a != b}
    return cells.pop() if len(cells) == 1 else 0


# ---------------------------------------------------------------- rings


def _rings(links: Links) -> int:
    size = len(links)
    if size == 2:
        return links[0][1]
    each = _uniform(links)
    if each and (size not in (4, 6) or each % 2 == 0):
        # Every pair alike: the complete digraph splits into Hamiltonian rings except on 4 and 6
        # vertices (Tillson 1980); doubled, it does on those too (two directions of the rings of
        # a Hamiltonian decomposition of the doubled complete graph).
        return each * (size - 1)
    bound = min(*(sum(row) for row in links), _smallest_cut(links))
    for wanted in range(bound, 0, -1):
        if _RingSearch([list(row) for row in links]).fits(wanted):
            return wanted
    return 0


def _smallest_cut(links: Links) -> int:
    """Fewest links between two halves of the set: every ring and chain crosses each such cut."""
    size = len(links)
    inside = [0] * (1 << size)
    smallest = sum(map(sum, links))
    degrees = [sum(row) for row in links]
    for mask in range(1, 1 << (size - 1)):
        low = (mask & -mask).bit_length() - 1
        rest = mask & (mask - 1)
        row = links[low]
        shared = sum(row[b] for b in range(low + 1, size) if rest >> b & 1)
        # links leaving mask = links leaving rest + degree of low - 2 x links between them
        inside[mask] = inside[rest] + degrees[low] - 2 * shared
        smallest = min(smallest, inside[mask])
    return smallest


class _RingSearch:
    """Exhaustive search for so many edge-disjoint directed Hamiltonian rings.

    It takes the edge at the tightest vertex and decides: the next ring runs over it, or no ring
    does any more. Dead ends are remembered by what was left, so none is searched twice.
    """

    def __init__(self, left: list[list[int]]) -> None:
        self.left = left
        self.size = len(left)
        self.out = [sum(row) for row in left]
        self.into = [sum(column) for column in zip(*left, strict=True)]
        self.dead: set[tuple[int, tuple[int, ...]]] = set()

    def fits(self, wanted: int) -> bool:
        if wanted == 0:
            return True
        if min(self.out) < wanted or min(self.into) < wanted:
            return False
        state = (wanted, tuple(cell for row in self.left for cell in row))
        if state in self.dead:
            return False
        a, b = self._tightest()
        for ring in self._through(a, b):
            self._take(ring, 1)
            found = self.fits(wanted - 1)
            self._take(ring, -1)
            if found:
                return True
        unused = self.left[a][b]
        self._spend(a, b, unused)
        found = self.fits(wanted)
        self._spend(a, b, -unused)
        if not found:
            self.dead.add(state)
        return found

    def _tightest(self) -> tuple[int, int]:
        """The edge with least slack: at its ends, then in itself."""
        left, out, into = self.left, self.out, self.into
        return min(
            ((a, b) for a in range(self.size) for b in range(self.size) if left[a][b]),
            key=lambda e: (
                min(out[e[0]], into[e[1]]),
                max(out[e[0]], into[e[1]]),
                left[e[0]][e[1]],
                e,
            ),
        )

    def _spend(self, a: int, b: int, count: int) -> None:
        self.left[a][b] -= count
        self.out[a] -= count
        self.into[b] -= count

    def _take(self, ring: tuple[int, ...], count: int) -> None:
        for a, b in zip(ring, ring[1:] + ring[:1], strict=True):
            self._spend(a, b, count)

    def _through(self, first: int, second: int) -> Iterator[tuple[int, ...]]:
        """Every directed Hamiltonian ring over the edge first -> second, fullest edges first."""
        left, everyone = self.left, (1 << self.size) - 1

        def extend(path: list[int], seen: int) -> Iterator[tuple[int, ...]]:
            row = left[path[-1]]
            if seen == everyone:
                if row[first]:
                    yield tuple(path)
                return
            options = [b for b in range(self.size) if row[b] and not seen >> b & 1]
            for b in sorted(options, key=lambda b: -row[b]):
                path.append(b)
                yield from extend(path, seen | 1 << b)
                path.pop()

        return extend([first, second], 1 << first | 1 << second)


# ---------------------------------------------------------------- chains


def _chains(links: Links) -> int:
    size = len(links)
    each = _uniform(links)
    if each:
        # Zigzag paths split a complete graph on an even number of vertices, and twice that graph
        # on an odd number; one chain less than half of what is left never fits.
        return each * size // 2
    bound = _chain_bound(links)
    for wanted in range(bound, 0, -1):
        if _ChainSearch([list(row) for row in links]).fits(wanted):
            return wanted
    return 0


def _chain_bound(links: Links) -> int:
    degrees = [sum(row) for row in links]
    return min(sum(degrees) // 2 // (len(links) - 1), *degrees, _smallest_cut(links))


class _ChainSearch:
    """As the search for rings, with undirected Hamiltonian paths."""

    def __init__(self, left: list[list[int]]) -> None:
        self.left = left
        self.size = len(left)
        self.degree = [sum(row) for row in left]
        self.dead: set[tuple[int, tuple[int, ...]]] = set()

    def fits(self, wanted: int) -> bool:
        if wanted == 0:
            return True
        if not self._room(wanted):
            return False
        state = (wanted, tuple(cell for row in self.left for cell in row))
        if state in self.dead:
            return False
        a, b = self._tightest()
        for chain in self._through(a, b):
            self._take(chain, 1)
            found = self.fits(wanted - 1)
            self._take(chain, -1)
            if found:
                return True
        unused = self.left[a][b]
        self._spend(a, b, unused)
        found = self.fits(wanted)
        self._spend(a, b, -unused)
        if not found:
            self.dead.add(state)
        return found

    def _room(self, wanted: int) -> bool:
        """Enough links in all, one a chain at every GPU, and no more than two ends a chain."""
        if min(self.degree) < wanted or sum(self.degree) < 2 * wanted * (self.size - 1):
            return False
        return sum(max(0, 2 * wanted - degree) for degree in self.degree) <= 2 * wanted

    def _tightest(self) -> tuple[int, int]:
        left, degree = self.left, self.degree
        return min(
            ((a, b) for a in range(self.size) for b in range(a) if left[a][b]),
            key=lambda e: (
                min(degree[e[0]], degree[e[1]]),
                max(degree[e[0]], degree[e[1]]),
                left[e[0]][e[1]],
                e,
            ),
        )

    def _spend(self, a: int, b: int, count: int) -> None:
        self.left[a][b] -= count
        self.left[b][a] -= count
        self.degree[a] -= count
        self.degree[b] -= count

    def _take(self, chain: tuple[int, ...], count: int) -> None:
        for a, b in pairwise(chain):
            self._spend(a, b, count)

    def _through(self, first: int, second: int) -> Iterator[tuple[int, ...]]:
        """Every Hamiltonian path over the link: on from ``second``, then back from ``first``."""
        left, everyone = self.left, (1 << self.size) - 1

        def options(at: int, seen: int) -> list[int]:
            row = left[at]
            found = [b for b in range(self.size) if row[b] and not seen >> b & 1]
            return sorted(found, key=lambda b: -row[b])

        def ahead(path: list[int], seen: int) -> Iterator[tuple[int, ...]]:
            for b in options(path[-1], seen):
                path.append(b)
                yield from ahead(path, seen | 1 << b)
                path.pop()
            yield from behind(path, seen)

        def behind(path: list[int], seen: int) -> Iterator[tuple[int, ...]]:
            if seen == everyone:
                yield tuple(path)
                return
            for b in options(path[0], seen):
                path.insert(0, b)
                yield from behind(path, seen | 1 << b)
                path.pop(0)

        return ahead([first, second], 1 << first | 1 << second)
