"""Whether surplus edges can be left out so that every GPU keeps just so many in and out.

Promises: exact, a flow by augmenting paths; thick edges move at once.
Called by ``models.rates.rings``.

Search for so many rings or chains side by side: exhaustive, within a stated effort.

Promises: a packing found is one, a "no" is a proof, and running out of effort is said as such.
Called by ``models.rates.rings``. Deterministic: chance comes from a seed.

Rings and chains side by side with fractions allowed: the most, solved exactly.

Promises: rational arithmetic throughout, so rounding the value down is a proven bound.
Called by ``models.rates.rings`` where counting links does not settle the number.

How many NVLink rings and chains fit side by side through a set of GPUs.

Promises: no solver, no rounding; a shape is solved once, whatever its numbering; bounded effort.
Takes a symmetric matrix of link counts. Called by ``models.rates.server_bandwidth``.

Exact: each count is a packing that was found, and a proof that one more does not fit: from counting
links over cuts, from the packing in fractions, or from a search to its end. That is every server
there is. Where a made-up mesh with many uneven links defeats all three within the effort, the count
found stands; it is the same in every run.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, lcm
from operator import eq

from models.rates.gpu_sets import Signature, mappings, signatures


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


Left = list[list[int]]
"""Links that are left, from a to b; for rings each direction by itself, for chains symmetric."""

Tour = tuple[int, ...]
"""GPUs in the order of a ring or chain."""


MOST_DROPPED = 64
"""Most surplus edges whose leaving out is looked into: where there are more, it seldom fails."""


class OutOfEffort(Exception):  # noqa: N818 - not an error: the search has no verdict
    """The effort ended before the search did."""


class Search(ABC):
    """Decides on the edge at the tightest GPU: the next tour runs over it, or none does any more.

    So every packing is met in some order, and dead ends are remembered by what was left.
    """

    def __init__(self, left: Left, effort: int, seed: int) -> None:
        self.left = [list(row) for row in left]
        self.size = len(left)
        self.effort = effort
        self._chance = random.Random(seed)  # noqa: S311 - it orders a search
        self._dead: set[tuple[int, tuple[int, ...]]] = set()

    def fits(self, wanted: int) -> bool:
        """Whether ``wanted`` tours fit in what is left; if so, they are taken.

        Raises OutOfEffort.
        """
        if wanted == 0:
            return True
        self._spend_effort(self.size)
        if not self._room(wanted):
            return False
        state = (wanted, tuple(cell for row in self.left for cell in row))
        if state in self._dead:
            return False
        a, b = self._tightest()
        for tour in self._through(a, b):
            self.take(tour, 1)
            if self.fits(wanted - 1):
                return True
            self.take(tour, -1)
        unused = self.left[a][b]
        self._use(a, b, unused)
        if self.fits(wanted):
            return True
        self._use(a, b, -unused)
        self._dead.add(state)
        return False

    def greedily(self, wanted: int, *, at_once: int) -> bool:
        """Whether ``wanted`` tours fit when the first ones found are kept, up to so many alike.

        If so they are taken; a "no" proves nothing. Raises OutOfEffort.
        """
        while wanted > at_once:
            self._spend_effort(self.size)
            if not self._room(wanted):
                return False
            tour = next(self._through(*self._tightest()), None)
            if tour is None:
                return False
            copies = self._copies(tour, min(wanted - at_once, max(1, wanted // self.size)))
            self.take(tour, copies)
            wanted -= copies
        return self.fits(wanted)

    def _copies(self, tour: Tour, most: int) -> int:
        """How often the tour can be taken, up to half of the thinnest edge, at least once."""
        thinnest = min(self.left[a][b] for a, b in self._steps(tour))
        return max(1, min(most, thinnest // 2))

    def _spend_effort(self, effort: int) -> None:
        self.effort -= effort
        if self.effort < 0:
            raise OutOfEffort

    def take(self, tour: Tour, count: int) -> None:
        """Use up the tour's edges so many times."""
        for a, b in self._steps(tour):
            self._use(a, b, count)

    def _options(self, at: int, seen: int) -> list[int]:
        """GPUs to go on to, thick edges first, with some chance."""
        self._spend_effort(1)
        row, chance = self.left[at], self._chance.random
        found = [b for b in range(self.size) if row[b] and not seen >> b & 1]
        return sorted(found, key=lambda b: -row[b] - 2 * chance())

    @abstractmethod
    def _room(self, wanted: int) -> bool: ...

    @abstractmethod
    def _tightest(self) -> tuple[int, int]: ...

    @abstractmethod
    def _use(self, a: int, b: int, count: int) -> None: ...

    @abstractmethod
    def _steps(self, tour: Tour) -> Sequence[tuple[int, int]]: ...

    @abstractmethod
    def _through(self, first: int, second: int) -> Iterator[Tour]: ...


class RingSearch(Search):
    """Directed Hamiltonian rings; ``left[a][b]`` are the edges from a to b."""

    def __init__(self, left: Left, effort: int, seed: int) -> None:
        super().__init__(left, effort, seed)
        self._out = [sum(row) for row in left]
        self._into = [sum(column) for column in zip(*left, strict=True)]

    def _room(self, wanted: int) -> bool:
        """So many edges out of and into every GPU, and a way to leave out all the others.

        Of the searches that degrees alone would let begin in vain, this ends nine in ten.
        """
        if min(self._out) < wanted or min(self._into) < wanted:
            return False
        surplus_out = [out - wanted for out in self._out]
        if not 0 < sum(surplus_out) <= MOST_DROPPED:
            return True
        self._spend_effort(self.size**3 // 8)  # a flow takes longer than the rest of a step
        return droppable(self.left, surplus_out, [into - wanted for into in self._into])

    def _tightest(self) -> tuple[int, int]:
        left, out, into = self.left, self._out, self._into
        edges = ((a, b) for a in range(self.size) for b in range(self.size) if left[a][b])
        return min(edges, key=lambda e: (*sorted((out[e[0]], into[e[1]])), left[e[0]][e[1]], e))

    def _use(self, a: int, b: int, count: int) -> None:
        self.left[a][b] -= count
        self._out[a] -= count
        self._into[b] -= count

    def _steps(self, tour: Tour) -> Sequence[tuple[int, int]]:
        return list(zip(tour, tour[1:] + tour[:1], strict=True))

    def _through(self, first: int, second: int) -> Iterator[Tour]:
        """Every ring over the edge first -> second."""
        everyone = (1 << self.size) - 1

        def extend(path: list[int], seen: int) -> Iterator[Tour]:
            if seen == everyone:
                if self.left[path[-1]][first]:
                    yield tuple(path)
                return
            for b in self._options(path[-1], seen):
                path.append(b)
                yield from extend(path, seen | 1 << b)
                path.pop()

        return extend([first, second], 1 << first | 1 << second)


class TwoWayRingSearch(RingSearch):
    """Undirected Hamiltonian rings, each run both ways: two directed ones. ``left`` is symmetric.

    Far quicker than single directed rings where it works, for it keeps what is left symmetric.
    """

    def _room(self, wanted: int) -> bool:
        return min(self._out) >= 2 * wanted

    def _use(self, a: int, b: int, count: int) -> None:
        super()._use(a, b, count)
        super()._use(b, a, count)


class ChainSearch(Search):
    """Undirected Hamiltonian paths; ``left`` is symmetric."""

    def __init__(self, left: Left, effort: int, seed: int) -> None:
        super().__init__(left, effort, seed)
        self._degree = [sum(row) for row in left]

    def _room(self, wanted: int) -> bool:
        """A link at every GPU for each chain, and enough when no GPU uses more than two a chain."""
        usable = sum(min(degree, 2 * wanted) for degree in self._degree)
        return min(self._degree) >= wanted and usable >= 2 * wanted * (self.size - 1)

    def _tightest(self) -> tuple[int, int]:
        left, degree = self.left, self._degree
        edges = ((a, b) for a in range(self.size) for b in range(a) if left[a][b])
        return min(
            edges, key=lambda e: (*sorted((degree[e[0]], degree[e[1]])), left[e[0]][e[1]], e)
        )

    def _use(self, a: int, b: int, count: int) -> None:
        self.left[a][b] -= count
        self.left[b][a] -= count
        self._degree[a] -= count
        self._degree[b] -= count

    def _steps(self, tour: Tour) -> Sequence[tuple[int, int]]:
        return list(zip(tour[:-1], tour[1:], strict=True))

    def _through(self, first: int, second: int) -> Iterator[Tour]:
        """Every chain over the link: on from ``second``, then back from ``first``."""
        everyone = (1 << self.size) - 1

        def ahead(path: list[int], seen: int) -> Iterator[Tour]:
            for b in self._options(path[-1], seen):
                path.append(b)
                yield from ahead(path, seen | 1 << b)
                path.pop()
            yield from behind(path, seen)

        def behind(path: list[int], seen: int) -> Iterator[Tour]:
            if seen == everyone:
                yield tuple(path)
                return
            for b in self._options(path[0], seen):
                path.insert(0, b)
                yield from behind(path, seen | 1 << b)
                path.pop(0)

        return ahead([first, second], 1 << first | 1 << second)


MOST_RELAXED = 9
"""Most GPUs: finding a lightest tour takes time that doubles with each."""

Edge = tuple[int, int]
TourRelaxing = tuple[int, ...]

_Row = list[Fraction]
"""What a basic column holds, then its row of the basis inverse."""


def fractional(
    links: Sequence[Sequence[int]], *, closed: bool
) -> tuple[Fraction, list[tuple[TourRelaxing, Fraction]]]:
    """Most undirected Hamiltonian rings (closed) or chains in fractions, and how much of each.

    ``links[a][b] + links[b][a]``, halved, may be shared out between a and b. Simplex with a row a
    linked pair; columns are made when needed: the lightest tour under the prices of the links,
    until none is lighter than one.
    """
    size = len(links)
    shared = {(a, b): links[a][b] + links[b][a] for a in range(size) for b in range(a)}
    edges = [edge for edge, count in shared.items() if count]
    row_of = {edge: i for i, edge in enumerate(edges)}
    rows: list[_Row] = [
        [Fraction(shared[edge], 2), *(Fraction(i == j) for j in range(len(edges)))]
        for i, edge in enumerate(edges)
    ]
    basic: list[TourRelaxing | None] = [None] * len(edges)
    while edges:
        prices = [Fraction(0)] * len(edges)
        for row, tour in zip(rows, basic, strict=True):
            if tour is not None:
                prices = [price + cell for price, cell in zip(prices, row[1:], strict=True)]
        below = next((j for j, price in enumerate(prices) if price < 0), None)
        if below is not None:
            _pivot(rows, basic, [below], None)
            continue
        weight, tour = lightest(size, dict(zip(edges, prices, strict=True)), closed=closed)
        if not tour or weight >= 1:
            break
        steps = zip(tour, tour[1:] + tour[:1] if closed else tour[1:], strict=False)
        _pivot(rows, basic, [row_of[max(step), min(step)] for step in steps], tour)
    shares = [(tour, row[0]) for row, tour in zip(rows, basic, strict=True) if tour and row[0]]
    return sum((share for _, share in shares), Fraction(0)), shares


def _pivot(
    rows: list[_Row],
    basic: list[TourRelaxing | None],
    entering: list[int],
    tour: TourRelaxing | None,
) -> None:
    """Bring a column (a tour's rows, or the slack of one row) into the basis.

    Ties go to the lexicographically least row, so that the simplex cannot circle.
    """
    column = [sum((row[j + 1] for j in entering), Fraction(0)) for row in rows]
    leaving = min(
        (i for i, value in enumerate(column) if value > 0),
        key=lambda i: [cell / column[i] for cell in rows[i]],
    )
    pivot = rows[leaving] = [cell / column[leaving] for cell in rows[leaving]]
    for i, value in enumerate(column):
        if i != leaving and value:
            rows[i] = [
                cell - value * other if other else cell
                for cell, other in zip(rows[i], pivot, strict=True)
            ]
    basic[leaving] = tour


def lightest(
    size: int, prices: dict[Edge, Fraction], *, closed: bool
) -> tuple[Fraction, TourRelaxing]:
    """The lightest Hamiltonian ring (closed) or chain over the priced pairs; () if there is none."""
    scale = lcm(*(price.denominator for price in prices.values()))
    weights = [[-1] * size for _ in range(size)]
    for (a, b), price in prices.items():
        weights[a][b] = weights[b][a] = int(price * scale)
    everyone = (1 << size) - 1
    # reached[mask][last]: the lightest path through the GPUs of mask ending in last, and the one before
    reached: list[dict[int, tuple[int, int]]] = [{} for _ in range(everyone + 1)]
    for start in (0,) if closed else range(size):
        reached[1 << start][start] = (0, -1)
    for mask in range(1, everyone):
        for last, (weight, _) in reached[mask].items():
            for following, step in enumerate(weights[last]):
                if step < 0 or mask >> following & 1:
                    continue
                ends = reached[mask | 1 << following]
                if following not in ends or weight + step < ends[following][0]:
                    ends[following] = (weight + step, last)
    finals = [
        (weight + (weights[last][0] if closed else 0), last)
        for last, (weight, _) in reached[everyone].items()
        if not closed or weights[last][0] >= 0
    ]
    if not finals:
        return Fraction(0), ()
    weight, last = min(finals)
    tour, mask = [], everyone
    while last >= 0:
        tour.append(last)
        before = reached[mask][last][1]
        mask, last = mask & ~(1 << last), before
    return Fraction(weight, scale), tuple(tour)


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
