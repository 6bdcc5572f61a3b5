"""Bandwidth inside a server: the published tables of meshes, switches, bridges, PCIe, NVLink domains."""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import pytest

from models.hardware import ServerModel, mask_of
from models.rates.catalogue import find
from models.rates.gang_bandwidth import ideal_MBps
from models.rates.gpu_sets import UnknownRate
from models.rates.server_bandwidth import (
    best_inside_MBps,
    inside_MBps,
    table,
)

# (GPUs, inside MB/s, rings, chains, sets, one of them) of the DGX-1 V100, as published: inside is
# rings x 20,000 or chains x 20,000 x 0.92 x 2(k-1)/k, whichever is more; with neither, the slowest
# pair: SYS, min(10,000, 0.8 x 10,000).
DGX1_V100_ROWS = [
    (2, 40000, 2, 2, 8, (0, 3)),
    (2, 20000, 1, 1, 8, (0, 1)),
    (2, 8000, 0, 0, 12, (0, 5)),
    (3, Fraction(2 * 18400 * 4, 3), 2, 2, 8, (0, 2, 3)),
    (3, Fraction(2 * 18400 * 4, 3), 0, 2, 4, (0, 3, 4)),
    (3, Fraction(18400 * 4, 3), 0, 1, 20, (0, 1, 4)),
    (3, 8000, 0, 0, 24, (2, 3, 5)),
    (4, 3 * 18400 * 3 // 2, 4, 3, 2, (0, 1, 2, 3)),
    (4, 2 * 18400 * 3 // 2, 2, 2, 4, (0, 3, 4, 7)),
    (4, 2 * 18400 * 3 // 2, 0, 2, 8, (0, 2, 3, 4)),
    (4, 40000, 2, 1, 2, (0, 2, 4, 6)),
    (4, 18400 * 3 // 2, 0, 1, 40, (3, 5, 6, 7)),
    (4, 8000, 0, 0, 14, (1, 4, 6, 7)),
    (5, 2 * 18400 * 8 // 5, 2, 2, 24, (0, 2, 3, 4, 7)),
    (5, 2 * 18400 * 8 // 5, 0, 2, 8, (0, 1, 2, 3, 4)),
    (5, 18400 * 8 // 5, 0, 1, 24, (3, 4, 5, 6, 7)),
    (6, 80000, 4, 2, 4, (0, 2, 3, 4, 6, 7)),
    (6, Fraction(2 * 18400 * 10, 6), 2, 2, 24, (0, 1, 2, 3, 4, 5)),
    (7, Fraction(3 * 18400 * 12, 7), 4, 3, 8, (0, 1, 2, 3, 4, 5, 6)),
    (8, 120000, 6, 3, 1, (0, 1, 2, 3, 4, 5, 6, 7)),
]


def model(name: str) -> ServerModel:
    found = find(name)
    assert found is not None
    return found


def mesh(*rows: str, **fields: object) -> ServerModel:
    """A direct mesh from rows of link names, one link 10,000 MB/s."""
    matrix = tuple(tuple(row.split()) for row in rows)
    made = ServerModel("mesh", "G", len(rows), "direct", matrix=matrix, link_MBps=10000)
    return replace(made, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("row", DGX1_V100_ROWS, ids=str)
def test_the_dgx1_v100_table_is_reproduced(row: tuple[object, ...]) -> None:
    gpus, inside, rings, chains, sets, example = row
    found = [
        (r.gpus, r.inside, r.rings, r.chains, r.subsets)
        for r in table(model("DGX-1 V100"), [len(example)])  # type: ignore[arg-type]
    ]
    assert (gpus, inside, rings, chains, sets) in found
    assert inside_MBps(model("DGX-1 V100"), mask_of(example)) == inside  # type: ignore[arg-type]


def test_the_dgx1_v100_table_has_no_other_rows() -> None:
    rows = table(model("DGX-1 V100"))
    assert len(rows) == 1 + len(DGX1_V100_ROWS)  # one more: single GPUs
    assert sum(row.subsets for row in rows) == 255


def test_all_sets_of_a_mesh_never_seen_are_priced_in_well_under_two_seconds() -> None:
    # One link more than the DGX-1 V100 has, so that nothing is known of it.
    rows = [list(row) for row in model("DGX-1 V100").matrix or ()]
    rows[0][7] = rows[7][0] = "NV1"
    unseen = replace(model("DGX-1 V100"), matrix=tuple(map(tuple, rows)))
    start = time.process_time()
    for mask in range(1, 256):
        inside_MBps(unseen, mask)
    assert time.process_time() - start < 2


def test_p100_rings_are_two_in_a_quad_four_in_all_eight_and_two_in_any_seven() -> None:
    rows = {(row.gpus, row.example): (row.rings, row.subsets) for row in table(model("DGX-1 P100"))}
    assert rows[4, (0, 1, 2, 3)] == (2, 2)
    assert rows[7, (0, 1, 2, 3, 4, 5, 6)] == (2, 8)
    assert rows[8, (0, 1, 2, 3, 4, 5, 6, 7)] == (4, 1)


def test_a_full_mesh_serves_few_gpus_worse_than_all() -> None:
    # One link of 64,000 a pair: 2 GPUs have 1, 8 GPUs have 7 rings. On 4 and 6 vertices one ring
    # less than the degree fits, and chains do better: k/2 chains x 0.92 x 2(k-1)/k = 0.92 (k-1).
    inside = [best_inside_MBps(model("AMD MI300X 8-GPU"), k) for k in range(2, 9)]
    expected = [1, 2, Fraction(92 * 3, 100), 4, Fraction(92 * 5, 100), 6, 7]
    assert inside == [64000 * links for links in expected]


def test_a_bridged_pair_is_fast_and_a_third_gpu_falls_to_pcie() -> None:
    bridged = model("A100 PCIe 8-GPU with NVLink bridges")
    assert inside_MBps(bridged, mask_of((0, 1))) == 12 * 20000
    assert inside_MBps(bridged, mask_of((0, 2))) == 16000  # NODE: 0.8 x 20,000
    assert inside_MBps(bridged, mask_of((0, 1, 2))) == 16000
    assert inside_MBps(bridged, mask_of((0, 4))) == 10000  # SYS


def test_pcie_paths_have_their_shares_and_the_slowest_counts() -> None:
    server = mesh(
        "X PIX PXB PHB NODE SYS",
        "PIX X PXB PHB NODE SYS",
        "PXB PXB X PHB NODE SYS",
        "PHB PHB PHB X NODE SYS",
        "NODE NODE NODE NODE X SYS",
        "SYS SYS SYS SYS SYS X",
        fabric="pcie",
        pcie_MBps=40000,
        sys_MBps=33000,
    )
    to_gpu_0 = [inside_MBps(server, mask_of((0, b))) for b in range(1, 6)]
    # SYS is min(33,000, 0.8 x 40,000).
    assert to_gpu_0 == [40000, 40000, 36000, 32000, 32000]
    assert inside_MBps(replace(server, sys_MBps=9000), mask_of((0, 5))) == 9000
    assert inside_MBps(server, mask_of((0, 1, 3))) == 36000


def test_any_gpus_behind_a_switch_reach_all_their_links() -> None:
    h100 = model("dgx-h100")
    assert {inside_MBps(h100, mask) for mask in (0b11, 0b10101, 0xFF)} == {18 * 20600}


def test_one_gpu_is_unlimited_and_no_gpu_is_an_error() -> None:
    assert inside_MBps(model("dgx-h100"), 0b100) is None
    assert best_inside_MBps(model("DGX-1 V100"), 1) is None
    for mask in (0, 0b1_0000_0001):
        with pytest.raises(ValueError, match="empty or outside"):
            inside_MBps(model("DGX-1 V100"), mask)
    with pytest.raises(ValueError, match="choose 9 of 8"):
        best_inside_MBps(model("DGX-1 V100"), 9)


def test_an_unknown_link_rate_is_said_where_it_matters_and_only_there() -> None:
    bridged = model("AMD MI100 8-GPU, two XGMI islands of 4")
    assert inside_MBps(bridged, mask_of((0, 4))) == 10000  # SYS needs no link
    with pytest.raises(UnknownRate, match="AMD MI100 8-GPU, two XGMI islands of 4"):
        inside_MBps(bridged, mask_of((0, 1)))
    with pytest.raises(UnknownRate, match="one link"):
        best_inside_MBps(bridged, 4)


def test_an_unknown_matrix_is_said_where_it_matters() -> None:
    assert inside_MBps(model("Azure NDv2 (Standard_ND40rs_v2)"), 1) is None
    with pytest.raises(UnknownRate, match="link matrix"):
        inside_MBps(model("Azure NDv2 (Standard_ND40rs_v2)"), 0b11)


def test_the_best_set_of_a_large_mesh_agrees_with_pricing_every_set() -> None:
    # Two DGX-1 boards without NVLink between them, and one pair of links that joins them.
    board = model("DGX-1 V100").matrix or ()
    cells = [
        [board[a % 8][b % 8] if a // 8 == b // 8 else "SYS" for b in range(16)] for a in range(16)
    ]
    cells[0][8] = cells[8][0] = "NV2"
    sixteen = ServerModel(
        "two boards", "V100", 16, "direct", matrix=tuple(map(tuple, cells)), link_MBps=20000
    )
    values = [
        inside_MBps(sixteen, mask_of(gpus)) or Fraction(0) for gpus in combinations(range(16), 3)
    ]
    assert best_inside_MBps(sixteen, 3) == max(values)
    # One chain runs over the joint, and no ring: 0.92 x 20,000 x 2 x 15/16.
    assert best_inside_MBps(sixteen, 16) == 18400 * Fraction(30, 16) * 2


def test_two_chains_of_six_are_the_best_set_though_a_ring_is_looked_at_first() -> None:
    """A ring of links over GPUs 0 to 5; over 6 to 11 two links from each to the next, but for the last."""
    cells = [["SYS"] * 12 for _ in range(12)]
    for a in range(12):
        cells[a][a] = "X"
        b = (a + 1) % 6 + a // 6 * 6
        if a != 11:
            cells[a][b] = cells[b][a] = "NV2" if a > 5 else "NV1"
    twelve = mesh(*map(" ".join, cells))
    assert inside_MBps(twelve, 0b111111) == 20000
    # two chains: 2 x 0.92 x 10,000 x 2 x 5/6
    assert best_inside_MBps(twelve, 6) == 18400 * Fraction(10, 6)


def test_the_ideal_is_the_best_set_then_the_nvlink_domain_then_the_network() -> None:
    v100, gb200, h100 = model("DGX-1 V100"), model("GB200 NVL72"), model("DGX H100")
    assert ideal_MBps((v100,), 4) == 82800
    assert ideal_MBps((v100,), 9) == 50000  # 4 x 100 Gb/s, less than 120,000
    assert ideal_MBps((h100,), 9) == 370800  # NICs 400,000
    assert ideal_MBps((gb200,), 5) == ideal_MBps((gb200,), 72) == 18 * 40100
    assert ideal_MBps((gb200,), 73) == 200000  # 4 x 400 Gb/s out of a tray
