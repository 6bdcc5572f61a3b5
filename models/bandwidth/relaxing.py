"""Rings and chains side by side with fractions allowed: the most, solved exactly.

Promises: rational arithmetic throughout, so rounding the value down is a proven bound.
Called by ``models.bandwidth.packing`` where counting links does not settle the number.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm

MOST_RELAXED = 9
"""Most GPUs: finding a lightest tour takes time that doubles with each."""

Edge = tuple[int, int]
Tour = tuple[int, ...]

_Row = list[Fraction]
"""What a basic column holds, then its row of the basis inverse."""


def fractional(
    links: Sequence[Sequence[int]], *, closed: bool
) -> tuple[Fraction, list[tuple[Tour, Fraction]]]:
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
    basic: list[Tour | None] = [None] * len(edges)
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
    rows: list[_Row], basic: list[Tour | None], entering: list[int], tour: Tour | None
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


def lightest(size: int, prices: dict[Edge, Fraction], *, closed: bool) -> tuple[Fraction, Tour]:
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
