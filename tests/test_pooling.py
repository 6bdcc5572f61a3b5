"""Nodes pooled into regions: as good as nodes told apart on switched servers, never too sure elsewhere."""

from __future__ import annotations

import pytest
from bounding import dishonest, faults, pooled, searched
from building import build, gang, mask, node, role
from building_servers import FAST_NICS, links, switched
from comparing import wrong
from effort import examples, first_fast
from test_exhaustive_comparison import MORE
from tiny import tiny
from tiny_busy import busy

from models.hardware import ServerModel
from models.instance.instance import Instance
from models.program import regions
from models.program.formulation import pairs
from models.program.packing import by_count
from planner.search.solve import solve

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


@pytest.mark.parametrize("size", [None, 300, 4000])
def test_servers_with_hidden_gpus_are_pooled_by_the_roomiest(size: int | None) -> None:
    # n01: six GPUs held and one more somewhere leave 1; n02: one somewhere leaves 7: one region,
    # where 4 of n01's two candidates could not even be priced
    nodes = [node(f"n{i:02}", switched(8)) for i in range(1, 19)]
    hidden = gang(
        "hidden",
        roles=[role("a", 1, 6), role("b", 2, 1)],
        stands=[(0, 0, 0, mask(*range(6))), (1, 0, 0, None), (1, 1, 1, None)],
    )
    instance = build(nodes=nodes, gangs=[hidden, gang("g", 3, 4), gang("h", 2, 7)])
    solution = solve(instance, size=size)
    assert dishonest(instance, solution) == []
    assert [decision.decision for decision in solution.decisions] == ["place", "place", "keep"]


@pytest.mark.parametrize("share", [None, "1/2"])
@pytest.mark.parametrize("size", first_fast([None, 300, 4000, 80000], 3))
@pytest.mark.usefixtures("brief_improvement")
def test_a_gang_that_stands_on_a_large_mesh_is_completed_there(
    size: int | None, share: str | None
) -> None:
    # 16 free GPUs a server are planned by count, the new pods priced beside GPUs 0 to 3; the ideal of
    # eight GPUs is a whole half, 7 links to each: 140,000 MB/s, and 4 to 7 of that half are free
    standing = gang(
        "a", 4, 2, min_share=share, stands=[(0, 0, 0, mask(0, 1)), (0, 1, 0, mask(2, 3))]
    )
    instance = build(model=mesh(16), nodes_per_rack=2, gangs=[standing, gang("b", 2, 4)])
    solution = solve(instance, size=size)
    assert dishonest(instance, solution) == []
    assert solution.decisions[0].decision == "complete"


@pytest.mark.parametrize("seed", range(examples(200, 40)))
def test_the_estimate_of_the_size_never_exceeds_it(seed: int) -> None:
    # a lower bound of 1 is enough if there is one, and then no other number is computed
    for instance in (tiny(seed), busy(seed)):
        assert pairs(instance, enough=1) <= pairs(instance)


def test_gangs_of_several_pods_and_racks_are_enough_to_tell_the_size() -> None:
    # three gangs of two pods, and two racks: 3 x 2; the gang of one pod is one piece
    several = [gang(name, 2) for name in "abc"]
    instance = build(racks=2, nodes_per_rack=3, gangs=[*several, gang("d")])
    assert pairs(instance, enough=6) == 6
