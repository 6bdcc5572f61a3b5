"""Rings and chains: against a packing written differently, and known theory."""

from __future__ import annotations

import time
from functools import cache
from itertools import combinations, permutations

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import links

from models.hardware import ServerModel
from models.rates.rings import Links, shape
from models.rates.server_bandwidth import TableRow, table


def symmetric(size: int, cells: list[int]) -> Links:
    """Matrix of link counts from the cells below the diagonal."""
    below = {pair: cells[i] for i, pair in enumerate(combinations(range(size), 2))}
    return tuple(
        tuple(0 if a == b else below[min(a, b), max(a, b)] for b in range(size))
        for a in range(size)
    )


def regular(size: int, links_of: dict[int, int]) -> Links:
    """A circulant: ``links_of[d]`` links between GPUs d apart on a circle."""
    return tuple(
        tuple(
            links_of.get(min((a - b) % size, (b - a) % size), 0) if a != b else 0
            for b in range(size)
        )
        for a in range(size)
    )


def most_by_force(links: Links, *, directed: bool) -> int:
    """Most tours: every tour is listed, and each is taken any number of times, in turn.

    Directed: rings over one-way edges, two ways a link. Otherwise chains over links.
    """
    size = len(links)
    if directed:
        tours = [(0, *rest, 0) for rest in permutations(range(1, size))]
    else:
        tours = [path for path in permutations(range(size)) if path[0] < path[-1]]
    pairs = [(a, b) for a in range(size) for b in range(size) if (a < b or directed) and a != b]
    number = {pair: i for i, pair in enumerate(pairs)}
    steps = [
        [
            number[step if directed or step[0] < step[1] else step[::-1]]
            for step in zip(t, t[1:], strict=False)
        ]
        for t in tours
    ]

    @cache
    def most(tour: int, left: tuple[int, ...]) -> int:
        if tour == len(steps):
            return 0
        best = most(tour + 1, left)
        taken, after = 0, list(left)
        while all(after[step] for step in steps[tour]):
            for step in steps[tour]:
                after[step] -= 1
            taken += 1
            best = max(best, taken + most(tour + 1, tuple(after)))
        return best

    return most(0, tuple(links[a][b] for a, b in pairs))


def small_links(sizes: st.SearchStrategy[int], most: int) -> st.SearchStrategy[Links]:
    return links(sizes, most).map(lambda counts: tuple(map(tuple, counts)))


@settings(max_examples=examples(150, 40), deadline=None)
@given(small_links(st.integers(3, 4), most=3))
def test_rings_and_chains_of_up_to_four_gpus_equal_brute_force(links: Links) -> None:
    assert shape(links).rings == most_by_force(links, directed=True)
    assert shape(links).chains == most_by_force(links, directed=False)


@settings(max_examples=examples(60, 20), deadline=None)
@given(small_links(st.just(5), most=1))
def test_rings_and_chains_of_five_gpus_equal_brute_force(links: Links) -> None:
    assert shape(links).rings == most_by_force(links, directed=True)
    assert shape(links).chains == most_by_force(links, directed=False)


@settings(max_examples=examples(40, 10), deadline=None)
@given(small_links(st.just(6), most=2), st.permutations(range(6)))
def test_renumbering_the_gpus_renumbers_the_table_and_nothing_else(
    links: Links, image: list[int]
) -> None:
    back = {new: old for old, new in enumerate(image)}
    renumbered = tuple(tuple(links[back[a]][back[b]] for b in range(6)) for a in range(6))

    def rows(of: Links) -> list[tuple[object, ...]]:
        cells = tuple(
            tuple("X" if a == b else f"NV{n}" if n else "PHB" for b, n in enumerate(row))
            for a, row in enumerate(of)
        )
        server = ServerModel("m", "G", 6, "direct", matrix=cells, link_MBps=20000)
        return [_without_example(row) for row in table(server)]

    assert rows(links) == rows(renumbered)


def _without_example(row: TableRow) -> tuple[object, ...]:
    return row.gpus, row.inside, row.rings, row.chains, row.subsets


@pytest.mark.parametrize(
    ("size", "each", "rings"),
    [
        # Every pair alike splits into each x (size - 1) rings, but for one link on 4 or 6 GPUs
        # (Tillson); three or five on 4 GPUs are likewise one short, by search.
        (3, 1, 2), (4, 1, 2), (4, 2, 6), (4, 3, 8), (4, 4, 12), (5, 1, 4), (6, 1, 4), (6, 2, 10),
        (6, 3, 15), (7, 1, 6), (8, 1, 7), (8, 3, 21), (16, 1, 15), (16, 2, 30),
    ],
)  # fmt: skip
def test_full_meshes_split_into_rings(size: int, each: int, rings: int) -> None:
    links = symmetric(size, [each] * (size * (size - 1) // 2))
    assert shape(links).rings == rings
    assert shape(links).chains == each * size // 2


@pytest.mark.parametrize(
    ("links", "rings", "chains"),
    [
        # Four-dimensional cube: 4 links a GPU, two undirected rings use all 32; chains 32 // 15.
        (tuple(tuple(int((a ^ b).bit_count() == 1) for b in range(16)) for a in range(16)), 4, 2),
        # A ring of 16: once each way, or once along.
        (regular(16, {1: 1}), 2, 1),
        # All but the opposite GPU: 14 links each, 112 // 15 chains.
        (regular(16, dict.fromkeys(range(1, 8), 1)), 14, 7),
        # Two full boards of eight, joined GPU by GPU: 8 links each, 64 // 15 chains.
        (
            tuple(
                tuple(int(a != b and (a // 8 == b // 8 or (a - b) % 8 == 0)) for b in range(16))
                for a in range(16)
            ),
            8,
            4,
        ),
        # Two full boards of eight with nothing between them.
        (
            tuple(tuple(int(a != b and a // 8 == b // 8) for b in range(16)) for a in range(16)),
            0,
            0,
        ),
    ],
    ids=["cube", "ring", "all but one", "two boards joined", "two boards apart"],
)
def test_meshes_of_16_gpus_are_packed_to_what_their_links_allow(
    links: Links, rings: int, chains: int
) -> None:
    start = time.process_time()
    assert (shape(links).rings, shape(links).chains) == (rings, chains)
    assert time.process_time() - start < 5


def test_uneven_fat_links_are_packed_in_bounded_time() -> None:
    # A linear program shows that no more than 45 rings and 31 chains fit.
    links = symmetric(8, [(7 * i * i + 3 * i) % 19 for i in range(28)])
    start = time.process_time()
    assert shape(links).rings == 45
    assert 25 <= shape(links).chains <= 31
    assert time.process_time() - start < 20


def test_a_mesh_whose_links_would_allow_one_ring_more_is_proven_not_to_have_it() -> None:
    # 22 links, at least 5 at every GPU, and in fractions 5 rings fit exactly; whole, only 4 do.
    linked = (
        "01111001", "10001111", "10011111", "10101111", "11110001", "01110011", "01110101", "11111110",
    )  # fmt: skip
    links = tuple(tuple(int(cell) for cell in row) for row in linked)
    assert shape(links).rings == 4
