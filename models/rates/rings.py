"""The most NVLink rings and chains that fit in a set of GPUs at the same time.

Links are a symmetric matrix of counts. A number is exact where counting links or a search to its end
proves it, as for every known server; elsewhere it is the best packing found, the same in every run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import Enum
from fractions import Fraction
from functools import cached_property

from models.rates.gpu_sets import Signature, mappings, signatures

Links = tuple[tuple[int, ...], ...]
"""links[a][b] = number of direct links between a and b; symmetric, zero diagonal."""

Tour = tuple[int, ...]
"""GPUs in the order of a ring or chain."""

CHAIN_EFFICIENCY = Fraction(92, 100)
"""Share of a chain's bandwidth that NCCL's protocol leaves."""

QUICK_TRIES = 16
QUICK_EFFORT = 3_000
"""Several short searches from different seeds come first: one alone often starts badly."""

FULL_EFFORT = 300_000
"""Steps of the long searches for one number; less than a second."""

MAX_SINGLE = 12
"""Up to this many tours are searched for one by one; of more, several equal ones are taken at once."""


class Kind(Enum):
    """What is packed."""

    RING = "directed Hamiltonian rings; a link is one edge each way"
    TWO_WAY_RING = "undirected Hamiltonian rings, each of them two directed ones"
    CHAIN = "undirected Hamiltonian paths"


class Shape:
    """The rings and chains of one link matrix, whatever the numbering of its GPUs."""

    def __init__(self, links: Links, own_signatures: list[Signature]) -> None:
        self.links = links
        self.signatures = own_signatures

    @cached_property
    def rings(self) -> int:
        """The most edge-disjoint directed Hamiltonian rings, a link being one edge each way."""
        links, size, each = self.links, len(self.links), _uniform(self.links)
        if size == 2:
            return links[0][1]
        if each and (size not in (4, 6) or each % 2 == 0):
            # The complete digraph splits into Hamiltonian rings except on 4 and 6 vertices
            # (Tillson 1980); two copies of it do on those too.
            return each * (size - 1)
        return _most(Kind.RING, links, min(*map(sum, links), _smallest_cut(links)))

    @cached_property
    def chains(self) -> int:
        """The most link-disjoint undirected Hamiltonian paths."""
        if each := _uniform(self.links):
            # Zigzag paths split a complete graph with an even number of vertices, and two copies
            # of one with an odd number.
            return each * len(self.links) // 2
        return _most(Kind.CHAIN, self.links, self._chain_bound)

    @cached_property
    def best(self) -> Fraction:
        """The bandwidth of the better of rings and chains, in links."""
        one = chain_in_links(len(self.links))
        if self._chain_bound * one <= self.rings:
            return Fraction(self.rings)
        return max(Fraction(self.rings), self.chains * one)

    @cached_property
    def _chain_bound(self) -> int:
        degrees = [sum(row) for row in self.links]
        return min(sum(degrees) // 2 // (len(degrees) - 1), *degrees, _smallest_cut(self.links))


def chain_in_links(size: int) -> Fraction:
    """The bandwidth of one chain of ``size`` GPUs, in links: up and back down, less the protocol."""
    return CHAIN_EFFICIENCY * Fraction(2 * (size - 1), size)


_BY_LINKS: dict[Links, Shape] = {}
_BY_SIGNATURES: dict[tuple[Signature, ...], list[Shape]] = {}


def shape(links: Links) -> Shape:
    """The shape of the links among two or more GPUs; one object for all numberings."""
    known = _BY_LINKS.get(links)
    if known is None:
        own = signatures(links)
        similar = _BY_SIGNATURES.setdefault(tuple(sorted(own)), [])
        for other in similar:
            if next(mappings(links, other.links, own, other.signatures), None) is not None:
                known = other
                break
        else:
            known = Shape(links, own)
            similar.append(known)
        _BY_LINKS[links] = known
    return known


def _uniform(links: Links) -> int:
    """The number of links between every pair if it is the same for all, else 0."""
    cells = {cell for a, row in enumerate(links) for b, cell in enumerate(row) if a != b}
    return cells.pop() if len(cells) == 1 else 0


def _smallest_cut(links: Links) -> int:
    """Fewest links between two parts of the set: every ring and chain crosses each such cut."""
    size = len(links)
    leaving = [0] * (1 << size - 1)
    degrees = [sum(row) for row in links]
    for mask in range(1, 1 << size - 1):
        low = (mask & -mask).bit_length() - 1
        rest = mask & (mask - 1)
        row = links[low]
        shared = sum(row[b] for b in range(low + 1, size) if rest >> b & 1)
        leaving[mask] = leaving[rest] + degrees[low] - 2 * shared
    return min(leaving[1:])


def _most(kind: Kind, links: Links, bound: int) -> int:
    """The most tours found; at most ``bound``, a proven upper bound."""
    if bound > MAX_SINGLE:
        return _most_by_halving(kind, links, bound)
    effort = FULL_EFFORT
    for wanted in range(bound, 0, -1):
        fits = _fits_quickly(kind, links, wanted)
        if fits is None and effort > 0:
            search = _Search(kind, links, effort, seed=0)
            fits = search.fits(wanted)
            effort = search.effort
        if fits:
            return wanted
    return 0


def _most_by_halving(kind: Kind, links: Links, bound: int) -> int:
    """The most tours that short searches find, several equal tours taken at once."""
    low, high = 0, bound
    middle = bound
    while low < high:
        if _fits_quickly(kind, links, middle):
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low


def _fits_quickly(kind: Kind, links: Links, wanted: int) -> bool | None:
    """Whether ``wanted`` tours fit; None if no short search finds out."""
    effort = QUICK_EFFORT * (1 + wanted.bit_length() // 6)
    for seed in range(QUICK_TRIES):
        left, remaining = links, wanted
        if kind is Kind.RING and seed % 2 == 0:
            # Of an odd number three are left for single rings: one seldom fits after the pairs.
            pairs = wanted // 2 if wanted % 2 == 0 else max(0, (wanted - 3) // 2)
            both_ways = _Search(Kind.TWO_WAY_RING, links, effort, seed)
            if not both_ways.fits(pairs):
                continue
            left, remaining = both_ways.links_left(), wanted - 2 * pairs
        fits = _Search(kind, left, effort, seed).fits(remaining)
        if fits:
            return True
        if fits is False and remaining == wanted and wanted <= MAX_SINGLE:
            return False
    return None


class _OutOfEffort(Exception):  # noqa: N818 - ends a search without a verdict
    pass


class _Search:
    """Exhaustive search for tours that share no edge.

    It picks the edge with the fewest alternatives: the next tour runs over it, or no tour does any
    more. So it meets every packing in some order. States that lead nowhere are remembered.
    """

    def __init__(self, kind: Kind, links: Links, effort: int, seed: int) -> None:
        self.effort = effort
        self._kind = kind
        self._size = len(links)
        self._left = [list(row) for row in links]
        self._out = [sum(row) for row in links]
        self._into = [sum(column) for column in zip(*links, strict=True)]
        self._chance = random.Random(seed).random  # noqa: S311 - it orders a search
        self._dead: set[tuple[int, Links]] = set()

    def links_left(self) -> Links:
        return tuple(map(tuple, self._left))

    def fits(self, wanted: int) -> bool | None:
        """Whether ``wanted`` tours fit in what is left, which are then taken; None: not found out.

        Above ``MAX_SINGLE`` tours the first ones found are kept, and False proves nothing.
        """
        try:
            while wanted > MAX_SINGLE:
                tour = next(self._tours(*self._tightest()), None) if self._room(wanted) else None
                if tour is None:
                    return False
                copies = self._copies(tour, min(wanted - MAX_SINGLE, wanted // self._size))
                self._take(tour, copies)
                wanted -= copies
            return self._fits(wanted)
        except _OutOfEffort:
            return None

    def _fits(self, wanted: int) -> bool:
        if wanted == 0:
            return True
        self._spend(self._size)
        if not self._room(wanted):
            return False
        state = (wanted, self.links_left())
        if state in self._dead:
            return False
        a, b = self._tightest()
        for tour in self._tours(a, b):
            self._take(tour, 1)
            if self._fits(wanted - 1):
                return True
            self._take(tour, -1)
        unused = self._left[a][b]
        self._use(a, b, unused)
        if self._fits(wanted):
            return True
        self._use(a, b, -unused)
        self._dead.add(state)
        return False

    def _spend(self, effort: int) -> None:
        self.effort -= effort
        if self.effort < 0:
            raise _OutOfEffort

    def _room(self, wanted: int) -> bool:
        """Whether every GPU has edges enough for ``wanted`` tours; a yes proves nothing."""
        if self._kind is Kind.CHAIN:
            # A chain uses one link of its ends and two of every other GPU.
            usable = sum(min(degree, 2 * wanted) for degree in self._out)
            return min(self._out) >= wanted and usable >= 2 * wanted * (self._size - 1)
        each = 2 * wanted if self._kind is Kind.TWO_WAY_RING else wanted
        return min(self._out) >= each and min(self._into) >= each

    def _tightest(self) -> tuple[int, int]:
        """The edge whose ends have the fewest edges left."""
        left, out, into = self._left, self._out, self._into
        edges = ((a, b) for a, row in enumerate(left) for b, count in enumerate(row) if count)
        return min(edges, key=lambda e: (*sorted((out[e[0]], into[e[1]])), left[e[0]][e[1]], e))

    def _tours(self, first: int, second: int) -> Iterator[Tour]:
        """Every ring over the edge, or every chain over the link."""
        everyone = (1 << self._size) - 1
        chains = self._kind is Kind.CHAIN

        def extend(path: list[int], seen: int) -> Iterator[Tour]:
            if seen == everyone and not chains:
                if self._left[path[-1]][first]:
                    yield tuple(path)
                return
            for b in self._following(path[-1], seen):
                yield from extend([*path, b], seen | 1 << b)
            if chains:
                yield from extend_back(path, seen)

        def extend_back(path: list[int], seen: int) -> Iterator[Tour]:
            if seen == everyone:
                yield tuple(path)
                return
            for b in self._following(path[0], seen):
                yield from extend_back([b, *path], seen | 1 << b)

        return extend([first, second], 1 << first | 1 << second)

    def _following(self, at: int, seen: int) -> list[int]:
        """GPUs that a tour may go on to, those with many links first, in a random order."""
        self._spend(1)
        chance = self._chance
        found = [
            (-count - 2 * chance(), b)
            for b, count in enumerate(self._left[at])
            if count and not seen >> b & 1
        ]
        return [b for _, b in sorted(found)]

    def _copies(self, tour: Tour, most: int) -> int:
        """How often to take the tour: up to half of its thinnest edge, at least once."""
        thinnest = min(self._left[a][b] for a, b in self._edges(tour))
        return max(1, min(most, thinnest // 2))

    def _edges(self, tour: Tour) -> Iterator[tuple[int, int]]:
        following = tour[1:] if self._kind is Kind.CHAIN else (*tour[1:], tour[0])
        return zip(tour, following, strict=False)

    def _take(self, tour: Tour, count: int) -> None:
        for a, b in self._edges(tour):
            self._use(a, b, count)

    def _use(self, a: int, b: int, count: int) -> None:
        self._left[a][b] -= count
        self._out[a] -= count
        self._into[b] -= count
        if self._kind is not Kind.RING:
            self._left[b][a] -= count
            self._out[b] -= count
            self._into[a] -= count
