"""Bandwidth out of a server, and which sets of GPUs are alike."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pytest
import strategies
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from models.hardware import Nic, ServerModel, bits, mask_of
from models.program.packing import count_only
from models.rates.catalogue import find
from models.rates.gpu_sets import UnknownRate
from models.rates.nic_bandwidth import extreme_nics_MBps, nics_MBps


def model(name: str) -> ServerModel:
    found = find(name)
    assert found is not None
    return found


def server(gpus: int = 8, pcie_MBps: int = 40000) -> ServerModel:
    return ServerModel(
        "s", "G", gpus, "nvswitch", link_MBps=20000, links_per_gpu=6, pcie_MBps=pcie_MBps
    )


def test_nics_near_a_chosen_gpu_count_whole_and_others_not_at_all() -> None:
    v100 = model("DGX-1 V100")  # four NICs of 100 Gb/s, one for two GPUs
    assert nics_MBps(v100, v100.nics, mask_of((0,))) == 12500
    assert nics_MBps(v100, v100.nics, mask_of((0, 1))) == 12500
    assert nics_MBps(v100, v100.nics, mask_of((0, 2))) == 25000
    assert nics_MBps(v100, v100.nics, 0xFF) == 50000


def test_near_nics_are_capped_by_pcie_or_by_the_fastest_of_them() -> None:
    four = tuple(Nic(f"n{i}", 200_000) for i in range(4))  # near all: 4 x 25,000
    assert nics_MBps(server(), four, 0b1) == 40000
    assert nics_MBps(server(), four, 0b11) == 80000
    assert nics_MBps(server(), four, 0b111) == 100000
    assert nics_MBps(server(pcie_MBps=10000), four, 0b1) == 25000


def test_without_a_near_nic_the_fastest_far_ones_count_half_and_at_most_25_gb_a_second() -> None:
    nics = (
        Nic("a", 100_000, (7,)),
        Nic("b", 800_000, (7,)),
        Nic("c", 200_000, ()),
        Nic("d", 25_000, (6,)),
    )
    # One GPU: min(25,000, 62.5 x 800). Two: and 62.5 x 200. Five: and 62.5 x (100 + 25), no fifth.
    assert nics_MBps(server(), nics, 0b1) == 25000
    assert nics_MBps(server(), nics, 0b11) == 25000 + 12500
    assert nics_MBps(server(), nics, 0b11111) == 25000 + 12500 + 6250 + Fraction(125 * 25, 2)
    assert nics_MBps(server(), nics, 0b1_000001) == Fraction(25_000, 8)  # d is near GPU 6


def test_a_server_without_nics_reaches_nothing_outside() -> None:
    assert nics_MBps(server(), (), 0b11) == 0
    with pytest.raises(ValueError, match="empty set"):
        nics_MBps(server(), (), 0)


def test_an_unknown_speed_is_said_where_it_matters_and_only_there() -> None:
    nics = (Nic("slow", 100_000, (0,)), Nic("mystery", None, (1,)))
    assert nics_MBps(server(), nics, 0b1) == 12500
    with pytest.raises(UnknownRate, match="mystery"):
        nics_MBps(server(), nics, 0b11)
    with pytest.raises(UnknownRate, match="mystery"):
        nics_MBps(server(), nics, 0b100)  # far from both: it may be the fastest
    with pytest.raises(UnknownRate, match="mystery"):
        extreme_nics_MBps(server(), nics, 0b11, 1)
    assert extreme_nics_MBps(server(), nics, 0b01, 1) == (12500, 12500)


@settings(max_examples=examples(200, 40), deadline=None)
@given(st.integers(1, 6), st.sampled_from([10000, 20000, 40000]), st.data())
def test_extremes_and_count_only_agree_with_every_set(
    gpus: int, pcie_MBps: int, data: st.DataObject
) -> None:
    nics = data.draw(strategies.nics(gpus))
    made = server(gpus, pcie_MBps)
    candidates = data.draw(st.integers(1, (1 << gpus) - 1))
    for count in range(1, candidates.bit_count() + 1):
        values = [nics_MBps(made, nics, mask_of(s)) for s in combinations(bits(candidates), count)]
        assert extreme_nics_MBps(made, nics, candidates, count) == (min(values), max(values))
    alike = all(
        len({nics_MBps(made, nics, mask_of(s)) for s in combinations(range(gpus), count)}) == 1
        for count in range(1, gpus + 1)
    )
    assert count_only(made, nics) == alike


@pytest.mark.parametrize(
    ("name", "alike"),
    [
        ("DGX H100", True),  # a NIC each
        ("GCP a3-ultragpu-8g", True),  # two GPUs share two NICs, but no GPU can use more than one
        ("DGX A100", True),
        ("AWS p4d.24xlarge", False),  # two GPUs share one NIC
        ("AMD MI300X 8-GPU", True),  # a full mesh
        ("DGX-1 V100", False),
        ("L40S 8-GPU", False),
        ("GB200 NVL72", True),
    ],
)
def test_models_where_the_number_of_gpus_alone_decides(name: str, alike: bool) -> None:
    assert count_only(model(name), model(name).nics) is alike
