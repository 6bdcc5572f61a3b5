"""The judge's own rates of GPU sets: the published tables, and agreement with ``models.rates``."""

from __future__ import annotations

from fractions import Fraction

import pytest
import strategies
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from models.hardware import ServerModel, mask_of
from models.instance.speed import speed_permille
from models.rates.catalogue import find, server_models
from models.rates.gpu_sets import UnknownRate
from models.rates.nic_bandwidth import nics_MBps
from models.rates.server_bandwidth import best_inside_MBps, inside_MBps
from models.verify.rates import gpu_rates
from models.verify.rates.gpu_rates import Range, RateNotKnownError, exactly
from models.verify.standing import speed_of


def model(name: str) -> ServerModel:
    found = find(name)
    assert found is not None
    return found


def mesh(counts: list[list[int]]) -> ServerModel:
    """Direct links of 20,000 MB/s by count; PCIe between sockets where there are none."""
    cells = [
        ["X" if a == b else f"NV{n}" if n else "SYS" for b, n in enumerate(row)]
        for a, row in enumerate(counts)
    ]
    matrix = tuple(map(tuple, cells))
    return ServerModel("m", "G", len(counts), "direct", matrix=matrix, link_MBps=20000)


def meshes(most_gpus: int, most_links: int) -> st.SearchStrategy[ServerModel]:
    return strategies.links(st.integers(2, most_gpus), most_links).map(mesh)


@pytest.mark.parametrize(
    ("gpus", "rate"),
    [
        # 20,000 a ring, 20,000 x 0.92 x 2(k-1)/k a chain; 8,000 over PCIe between the sockets.
        ((0, 3), 40000), ((0, 1), 20000), ((0, 5), 8000), ((0, 2, 3), Fraction(147200, 3)),
        ((0, 1, 4), Fraction(73600, 3)), ((0, 1, 2, 3), 82800), ((0, 3, 4, 7), 55200),
        ((0, 2, 4, 6), 40000), ((3, 5, 6, 7), 27600), ((1, 4, 6, 7), 8000),
        ((0, 2, 3, 4, 7), 58880), ((3, 4, 5, 6, 7), 29440), ((0, 2, 3, 4, 6, 7), 80000),
        ((0, 1, 2, 3, 4, 5), Fraction(184000, 3)), (range(7), Fraction(662400, 7)),
        (range(8), 120000),
    ],
)  # fmt: skip
def test_sets_of_a_dgx1_v100_have_their_published_rates(
    gpus: tuple[int, ...], rate: Fraction
) -> None:
    assert gpu_rates.inside(model("DGX-1 V100"), mask_of(gpus)) == exactly(Fraction(rate))


def test_every_set_of_a_catalogue_server_has_one_rate_and_the_planners() -> None:
    meshes = (m for m in server_models() if m.matrix is not None and not m.switched)
    for server, mask in ((one, mask) for one in meshes for mask in range(1, 1 << one.gpus)):
        try:
            wanted = inside_MBps(server, mask)
        except UnknownRate:
            with pytest.raises(RateNotKnownError):
                gpu_rates.inside(server, mask)
            continue
        found = gpu_rates.inside(server, mask)
        assert found == (None if wanted is None else exactly(wanted)), server.name


def test_the_best_sets_of_a_catalogue_server_are_the_planners() -> None:
    for server, count in ((m, n) for m in server_models() for n in range(2, m.gpus + 1)):
        try:
            wanted = best_inside_MBps(server, count)
        except UnknownRate:
            with pytest.raises(RateNotKnownError):
                gpu_rates.best_inside(server, count)
            continue
        found = gpu_rates.best_inside(server, count)
        assert found == exactly(wanted or Fraction(0)), server.name


@settings(max_examples=examples(60, 20), deadline=None)
@given(meshes(most_gpus=6, most_links=2))
def test_small_meshes_have_one_rate_and_the_planners(server: ServerModel) -> None:
    wanted = inside_MBps(server, server.all_gpus)
    assert gpu_rates.inside(server, server.all_gpus) == exactly(wanted or Fraction(0))


@settings(max_examples=examples(15, 5), deadline=None)
@given(meshes(most_gpus=9, most_links=3))
def test_the_range_of_any_mesh_holds_the_planners_rate(server: ServerModel) -> None:
    wanted = inside_MBps(server, server.all_gpus)
    found = gpu_rates.inside(server, server.all_gpus)
    assert wanted is not None
    assert found is not None
    assert 0 < found.low <= wanted <= found.high


def test_links_of_more_than_eight_gpus_are_only_counted() -> None:
    ring = mesh([[int((a - b) % 9 in (1, 8)) for b in range(9)] for a in range(9)])
    # Two links a GPU: at most two rings. Without links between its parts, PCIe decides.
    assert gpu_rates.inside(ring, ring.all_gpus) == Range(Fraction(10000), Fraction(40000))
    parts = mesh([[int(a // 5 == b // 5 and a != b) for b in range(10)] for a in range(10)])
    assert gpu_rates.inside(parts, parts.all_gpus) == exactly(Fraction(10000))


def test_hundreds_of_links_are_only_counted() -> None:
    uneven = mesh([[0, 999, 998], [999, 0, 997], [998, 997, 0]])
    found = gpu_rates.inside(uneven, 0b111)
    assert found is not None
    assert found.low <= (inside_MBps(uneven, 0b111) or 0) <= found.high


def test_the_worst_and_best_of_many_sets_are_bounded_without_listing_them() -> None:
    cube = mesh([[int((a ^ b).bit_count() == 1) for b in range(16)] for a in range(16)])
    if examples(1, 0):
        assert gpu_rates.best_inside(cube, 8) == exactly(Fraction(best_inside_MBps(cube, 8) or 0))
    # Eight corners of one parity have no link among them.
    assert gpu_rates.worst_inside(cube, 0, cube.all_gpus, 8) == exactly(Fraction(10000))


@settings(max_examples=examples(100, 30), deadline=None)
@given(st.data())
def test_network_rates_are_the_planners_and_the_worst_is_the_least_of_all_sets(
    data: st.DataObject,
) -> None:
    nics = data.draw(strategies.nics(6))
    server = ServerModel("s", "G", 6, "nvswitch", link_MBps=1, links_per_gpu=1, pcie_MBps=20000)
    known, candidates = data.draw(st.integers(0, 63)), data.draw(st.integers(1, 63))
    rest = candidates & ~known
    for unknown in range(rest.bit_count() + 1):
        masks = [m | known for m in range(64) if not m & ~rest and m.bit_count() == unknown]
        if not known | unknown:
            continue
        values = [nics_MBps(server, nics, mask) for mask in masks]
        assert [gpu_rates.network(server, nics, mask) for mask in masks] == values
        found = gpu_rates.worst_network(server, nics, known, candidates, unknown)
        assert found == min(values)


@settings(max_examples=examples(300, 60), deadline=None)
@given(st.none() | st.integers(0, 1000), st.integers(0, 95), st.integers(0, 1000))
def test_speeds_are_the_planners(share: int | None, percent: int, relative: int) -> None:
    fraction = Fraction(percent, 100)
    assert speed_of(share, fraction, relative) == speed_permille(share, fraction, relative)
