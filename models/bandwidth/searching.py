"""Search for so many rings or chains side by side: exhaustive, within a stated effort.

Promises: a packing found is one, a "no" is a proof, and running out of effort is said as such.
Called by ``models.bandwidth.packing``. Deterministic: chance comes from a seed.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from models.bandwidth.dropping import droppable

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
