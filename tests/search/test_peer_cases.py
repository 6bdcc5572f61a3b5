"""Placement cases in the spirit of other schedulers' own tests, in our words and numbers.

Kueue (topology-aware scheduling), KAI, Volcano (network topology), HiveD, Koordinator, Slurm
(topology/tree, topology/block) and go-gpuallocator: whatever can be placed is placed, and never on
more domains than needed.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from building import build, gang, node
from building_servers import switched, v100
from effort import first_fast
from outcomes import planned
from peer_clusters import Case, flat
from peer_gangs import GANGS, MESH
from peer_topology import TOPOLOGY


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{case.source}: {text}")
        for text, case in {**TOPOLOGY, **GANGS, **MESH}.items()
    ],
)
def test_what_others_can_place_is_placed_on_no_more_domains(case: Case) -> None:
    outcome = planned(case.instance, small=len(case.instance.cluster.nodes) <= 8)
    assert outcome.decisions() == case.decisions
    for name, counts in case.per_node.items():
        assert outcome.per_node(name) == counts
    for name, levels in case.domains.items():
        assert {level: outcome.domains(name, level) for level in levels} == levels
    for name, sets in case.gpus.items():
        assert sorted(outcome.gpus(name), key=str) == sorted(sets, key=str)
    for tier, value in case.tiers.items():
        assert outcome.value(tier) == value


def test_six_gpus_of_a_mesh_get_four_rings_where_a_pair_score_sees_two() -> None:
    # go-gpuallocator adds up pair scores and so prefers six GPUs of 61 GB/s (1750 points) to six
    # of 80 GB/s (1710 points). Best of all sets of six: 4 rings x 20,000.
    outcome = planned(build(model=v100(), gangs=[gang("a", gpus_per_pod=6)]))
    assert outcome.value("bandwidth") == 6 * 1000


@pytest.mark.parametrize("seed", first_fast(range(12), 4))
def test_a_gang_uses_as_few_servers_as_filling_the_largest_first(seed: int) -> None:
    r = Random(seed)
    sizes = [r.randint(1, 4) for _ in range(r.randint(3, 5))]
    pods = r.randint(1, sum(sizes))
    outcome = planned(build(nodes=flat(*sizes), gangs=[gang("a", pods=pods)]))
    # Pods of one GPU on servers that are alike: the largest servers first need the fewest.
    fewest, left = 0, pods
    for size in sorted(sizes, reverse=True):
        if left > 0:
            fewest, left = fewest + 1, left - size
    assert outcome.domains("a", "node") == fewest


def test_a_gang_that_filling_by_age_would_leave_out_is_placed() -> None:
    # Greedy by age puts a (2 GPUs) on the first server; then b (two pods of 3 on one server) is out.
    nodes = [node("n1", switched(6)), node("n2", switched(2, name="small"))]
    gangs = [gang("a", gpus_per_pod=2), gang("b", pods=2, gpus_per_pod=3, same="node")]
    gangs = [replace(gangs[0], submitted_at=0), replace(gangs[1], submitted_at=100)]
    outcome = planned(build(nodes=nodes, gangs=gangs))
    assert outcome.decisions() == {"a": "place", "b": "place"}
    assert outcome.nodes("a") == ["n2"]
