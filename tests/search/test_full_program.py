"""The full program by itself: it finds the best plan, and promises none that is not there."""

from __future__ import annotations

import pytest
from bounding import alone
from building_servers import FAST_NICS, links
from comparing import wrong
from effort import examples, first_fast
from test_exhaustive_comparison import MORE
from tiny import tiny
from tiny_busy import busy

from models.hardware import ServerModel
from models.program import servers

ALL_TIERS = (
    "kept",
    "admission",
    "waiting",
    "disruption",
    "preference",
    "bandwidth",
    "growth",
    "span",
    "stranded",
)


def mesh(gpus: int) -> ServerModel:
    """Two halves, all linked once within and over PCIe between them: 16 GPUs are planned by count."""
    half = gpus // 2
    near = {
        (a, b): "NV1" for a in range(gpus) for b in range(a + 1, gpus) if (a < half) == (b < half)
    }
    return ServerModel(
        name=f"two halves of {half}",
        gpu="V100",
        gpus=gpus,
        fabric="direct",
        matrix=links(gpus, near, "SYS"),
        link_MBps=20000,
        links_per_gpu=half - 1,
        pcie_MBps=10000,
        nics=FAST_NICS,
    )


@pytest.mark.parametrize("first", first_fast(range(0, 40, 20)))
def test_it_finds_the_best_plan(first: int) -> None:
    found = wrong(range(first, first + 20), lambda seed: alone(tiny(seed), met=ALL_TIERS))
    assert found == {}


@pytest.mark.parametrize("name", MORE)
def test_it_does_so_with_more_of_a_kind(name: str) -> None:
    # 350 of the networks has servers that bind no GPU indices and have unequal GPUs sick
    seeds = range(352 - examples(6, 3), 352)
    assert wrong(seeds, lambda seed: alone(tiny(seed, more=MORE[name]), met=ALL_TIERS)) == {}


@pytest.mark.parametrize("first", first_fast(range(0, 60, 20)))
def test_it_does_so_where_most_things_run(first: int) -> None:
    found = wrong(range(first, first + 20), lambda seed: alone(busy(seed), met=ALL_TIERS))
    assert found == {}


@pytest.mark.parametrize("most", [1, 4])
def test_a_mesh_planned_by_count_has_bounds_that_no_plan_beats(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(servers, "LARGEST_MESH_STATE", most)

    seeds = range(500, 500 + examples(30, 6))
    assert wrong(seeds, lambda seed: alone(tiny(seed, more=MORE["networks"]))) == {}
