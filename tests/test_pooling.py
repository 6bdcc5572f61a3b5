"""Nodes pooled into regions: as good as nodes told apart on switched servers, never too sure elsewhere."""

from __future__ import annotations

import pytest
from bounding import faults, pooled, searched
from building_servers import FAST_NICS, links
from comparing import wrong
from effort import examples, first_fast
from test_exhaustive_comparison import MORE
from tiny import tiny
from tiny_busy import busy

from models.hardware import ServerModel
from models.instance.instance import Instance
from models.program import regions
from models.program.packing import by_count

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


def counted(instance: Instance) -> bool:
    """Whether on every server only the number of GPUs matters, so that pooling loses nothing."""
    return all(
        node.model is None or by_count(node.model, node.effective_nics)
        for node in instance.cluster.nodes
    )


def pooled_faults(instance: Instance) -> list[str]:
    met = ALL_TIERS if counted(instance) else ("admission", "waiting")
    return faults(instance, searched(instance, split=False), met=met)


@pytest.mark.parametrize("first", first_fast(range(0, 40, 20)))
def test_pooled_nodes_lose_no_plan_and_promise_none_that_is_not_there(first: int) -> None:
    assert wrong(range(first, first + 20), lambda seed: pooled_faults(tiny(seed))) == {}


@pytest.mark.parametrize("name", MORE)
def test_pooled_nodes_do_so_with_more_of_a_kind(name: str) -> None:
    # 350 of the networks pools servers that bind no GPU indices and have unequal GPUs sick
    seeds = range(352 - examples(6, 3), 352)
    assert wrong(seeds, lambda seed: pooled_faults(tiny(seed, more=MORE[name]))) == {}


@pytest.mark.parametrize("first", first_fast(range(0, 60, 20)))
def test_pooled_nodes_promise_nothing_that_is_not_there_where_most_things_run(first: int) -> None:
    assert wrong(range(first, first + 20), lambda seed: pooled(busy(seed))) == {}


@pytest.mark.parametrize("most", [1, 4])
def test_a_mesh_planned_by_count_has_bounds_that_no_plan_beats(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(regions, "LARGEST_MESH_STATE", most)

    def found(seed: int) -> list[str]:
        instance = tiny(seed, more=MORE["networks"])
        return faults(instance, searched(instance, split=False))

    assert wrong(range(500, 500 + examples(30, 6)), found) == {}
