"""How many NVLink rings and chains fit side by side through a set of GPUs.

Promises: no solver, no rounding; a shape is solved once, whatever its numbering; bounded effort.
Takes a symmetric matrix of link counts. Called by ``models.bandwidth.inside``.

Exact: each count is a packing that was found, and a proof that one more does not fit: from counting
links over cuts, from the packing in fractions, or from a search to its end. That is every server
there is. Where a made-up mesh with many uneven links defeats all three within the effort, the count
found stands; it is the same in every run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from operator import eq

from models.bandwidth.relaxing import MOST_RELAXED, fractional
from models.bandwidth.searching import (
    ChainSearch,
    Left,
    OutOfEffort,
    RingSearch,
    Search,
    TwoWayRingSearch,
)
from models.bandwidth.symmetry import Signature, mappings, signatures

Links = tuple[tuple[int, ...], ...]
"""links[a][b] = number of direct links between a and b; symmetric, zero diagonal."""

CHAIN_EFFICIENCY = Fraction(92, 100)
"""What NCCL's protocol leaves of a chain's bandwidth."""

QUICK_TRIES = 16
QUICK_EFFORT = 3_000
"""A search from another seed often succeeds where one has gone astray, so several short ones."""

FULL_EFFORT = 3_000_000
"""Steps of the searches that may end in a proof; about two seconds, of 16 GPUs ten."""

DEEPEST = 200
"""Most tours that the long search, a call a tour, is asked for."""

AT_ONCE = 12
"""So many tours are searched for one by one; before that, thick edges take several alike."""


@dataclass(slots=True)
class Shape:
    """One link matrix up to numbering, and what is known of it."""

    links: Links
    told_apart: list[Signature]
    _rings: int | None = None
    _chains: int | None = None
    _best: Fraction | None = field(default=None)

    @property
    def rings(self) -> int:
        """Most edge-disjoint directed Hamiltonian rings, a link being one edge each way."""
        if self._rings is None:
            self._rings = _rings(self.links)
        return self._rings

    @property
    def chains(self) -> int:
        """Most link-disjoint undirected Hamiltonian paths."""
        if self._chains is None:
            self._chains = _chains(self.links)
        return self._chains

    @property
    def best(self) -> Fraction:
        """Bandwidth of the better of rings and chains, in links."""
        if self._best is None:
            # Counting links often shows that chains cannot win; then none is packed.
            a_chain = chain_in_links(len(self.links))
            if self._chains is None and _chain_bound(self.links) * a_chain <= self.rings:
                self._best = Fraction(self.rings)
            else:
                self._best = max(Fraction(self.rings), self.chains * a_chain)
        return self._best

    def surely(self, least: Fraction) -> bool:
        """Whether ``best`` is plainly at least so much; a "no" means that nobody has looked closely."""
        if self._best is not None:
            return self._best >= least
        left = [list(row) for row in self.links]
        rings, chains = ceil(least), ceil(least / chain_in_links(len(self.links)))
        return (rings <= _ring_bound(self.links) and _quickly(RingSearch, left, rings)) or (
            chains <= _chain_bound(self.links) and _quickly(ChainSearch, left, chains)
        )


def chain_in_links(size: int) -> Fraction:
    """Bandwidth of one chain through so many GPUs, in links: up and back down, less the protocol."""
    return CHAIN_EFFICIENCY * Fraction(2 * (size - 1), size)


_BY_LINKS: dict[Links, Shape] = {}
_ALIKE: dict[tuple[Signature, ...], list[Shape]] = {}


def shape(links: Links) -> Shape:
    """The shape of the links among two or more GPUs; one object for all numberings."""
    known = _BY_LINKS.get(links)
    if known is None:
        own = signatures(links)
        alike = _ALIKE.setdefault(tuple(sorted(own)), [])
        for other in alike:
            if next(mappings(links, other.links, own, other.told_apart), None) is not None:
                known = other
                break
        else:
            known = Shape(links, own)
            alike.append(known)
        _BY_LINKS[links] = known
    return known


def _rings(links: Links) -> int:
    size, each = len(links), _uniform(links)
    if size == 2:
        return links[0][1]
    if each and (size not in (4, 6) or each % 2 == 0):
        # Every pair alike: the complete digraph splits into Hamiltonian rings except on 4 and 6
        # vertices (Tillson 1980); taken twice, it does on those too (a Hamiltonian decomposition
        # of the doubled complete graph, run both ways).
        return each * (size - 1)
    return _most(RingSearch, links, _ring_bound(links))


def _ring_bound(links: Links) -> int:
    if len(links) == 2:
        return links[0][1]
    return min(*(sum(row) for row in links), _smallest_cut(links))


def _chains(links: Links) -> int:
    size, each = len(links), _uniform(links)
    if each:
        # Zigzag paths split a complete graph on an even number of vertices, and twice one on an
        # odd number; one copy of that leaves half of the vertices' number, rounded down.
        return each * size // 2
    return _most(ChainSearch, links, _chain_bound(links))


def _uniform(links: Links) -> int:
    """Links between every pair if that is one number, else 0."""
    cells = {cell for a, row in enumerate(links) for b, cell in enumerate(row) if a != b}
    return cells.pop() if len(cells) == 1 else 0


def _chain_bound(links: Links) -> int:
    degrees = [sum(row) for row in links]
    return min(sum(degrees) // 2 // (len(links) - 1), *degrees, _smallest_cut(links))


def _smallest_cut(links: Links) -> int:
    """Fewest links between two halves of the set: every ring and chain crosses each such cut."""
    size = len(links)
    if not _connected(links):
        return 0
    leaving = [0] * (1 << size - 1)
    degrees = [sum(row) for row in links]
    for mask in range(1, 1 << size - 1):
        low = (mask & -mask).bit_length() - 1
        rest = mask & (mask - 1)
        row = links[low]
        shared = sum(row[b] for b in range(low + 1, size) if rest >> b & 1)
        leaving[mask] = leaving[rest] + degrees[low] - 2 * shared
    return min(leaving[1:])


def _connected(links: Links) -> bool:
    seen, stack = {0}, [0]
    while stack:
        for other, count in enumerate(links[stack.pop()]):
            if count and other not in seen:
                seen.add(other)
                stack.append(other)
    return len(seen) == len(links)


def _most(search: type[Search], links: Links, bound: int) -> int:
    """Most tours found; ``bound`` is proven to be no less than the most there can be."""
    left = [list(row) for row in links]
    if bound == 0 or _quickly(search, left, bound):
        return bound
    reached = 0
    thick = max(map(max, links)) // AT_ONCE
    if len(links) <= MOST_RELAXED:
        bound = min(bound, int(_relaxed(search, left)[0]))
        reached = _dive(search, left, bound)
    elif thick > 1:
        thin = tuple(tuple(count // thick for count in row) for row in links)
        reached = thick * _most(search, thin, bound // thick)
    high = bound
    while reached < high:
        middle = (reached + high + 1) // 2
        if _quickly(search, left, middle):
            reached = middle
        else:
            high = middle - 1
    return _climbed(search, left, reached, bound)


def _climbed(search: type[Search], left: Left, reached: int, bound: int) -> int:
    """One more at a time by long searches, until one ends without: then no more can fit."""
    effort = FULL_EFFORT
    while reached < min(bound, DEEPEST):
        longer = search(left, effort, seed=0)
        try:
            if not longer.fits(reached + 1):
                break
        except OutOfEffort:
            break
        reached += 1
        effort = longer.effort
    return reached


def _quickly(search: type[Search], left: Left, wanted: int) -> bool:
    """Whether one of a few short searches finds so many. A "no" proves nothing."""
    effort = QUICK_EFFORT * (1 + wanted.bit_length() // 6)  # thick edges take many at once
    symmetric = search is RingSearch and all(map(eq, left, map(list, zip(*left, strict=True))))
    for seed in range(QUICK_TRIES):
        rest, remaining = left, wanted
        try:
            if symmetric and seed % 2 == 0:
                # An odd number leaves three single rings: one would rarely fit beside the pairs.
                pairs = wanted // 2 if wanted % 2 == 0 else max(0, (wanted - 3) // 2)
                both_ways = TwoWayRingSearch(left, effort, seed)
                if not both_ways.greedily(pairs, at_once=AT_ONCE):
                    continue
                rest, remaining = both_ways.left, wanted - 2 * pairs
            if search(rest, effort, seed).greedily(remaining, at_once=AT_ONCE):
                return True
        except OutOfEffort:
            continue
    return False


def _relaxed(
    search: type[Search], left: Left
) -> tuple[Fraction, list[tuple[tuple[int, ...], Fraction]]]:
    """The packing in fractions: its value, and its tours (rings: undirected, half each way).

    A ring packing and its reverse, half of each, use every link alike both ways; so in fractions
    the most directed rings are twice the most undirected ones.
    """
    closed = search is RingSearch
    value, tours = fractional(left, closed=closed)
    return (2 * value if closed else value), tours


def _dive(search: type[Search], left: Left, wanted: int) -> int:
    """How many, up to ``wanted``, are found by following the packing in fractions.

    Its whole parts are taken; where there is none, its largest part once; then what is left anew.
    """
    taken = 0
    while taken < wanted:
        value, tours = _relaxed(search, left)
        if value < 1:
            break
        whole = [(tour, int(share)) for tour, share in tours if share >= 1]
        for tour, copies in whole or [(max(tours, key=lambda t: (t[1], t[0]))[0], 1)]:
            for way in (tour, tour[::-1]) if search is RingSearch else (tour,):
                taking = search(left, 0, 0)
                taking.take(way, min(copies, wanted - taken))
                left = taking.left
                taken += min(copies, wanted - taken)
        if _quickly(search, left, wanted - taken):
            return wanted
    return taken
