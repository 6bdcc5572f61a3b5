"""Rules about pods in the exhaustive planner: plans worked out by hand, and the checker as the only rule.

Two racks of two servers of four GPUs: n01 and n02 in b1/r1, n03 and n04 in b1/r2.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from building import LEVELS, build, gang, role
from effort import first_fast
from exhaustive import plan
from exhaustive_naive import Naive
from test_exhaustive import SMALL, unpruned
from tiny import tiny
from tiny_busy import busy
from tiny_pods import POD_RULES

from models.instance.cluster import Node
from models.instance.gang import Gang, NextTo, Role, Spread
from models.instance.instance import Instance

RACK, NODE = LEVELS.index("rack"), LEVELS.index("node")


def worker(
    pods: int = 1,
    gpus: int = 1,
    *sets: str,
    apart: NextTo | None = None,
    join: NextTo | None = None,
    even: Spread | None = None,
    most: int | None = None,
) -> Role:
    return replace(
        role("worker", pods, gpus, most=most),
        pod_sets=sets,
        anti_affinity=() if apart is None else (apart,),
        affinity=() if join is None else (join,),
        spread=() if even is None else (even,),
    )


def racks(*gangs: Gang, **sets: tuple[str, int]) -> Instance:
    """``sets``: by node, pods of a set that are in no gang."""
    instance = build(racks=2, nodes_per_rack=2, gpus=4, gangs=gangs)

    def settled(node: Node) -> Node:
        return replace(node, pod_sets=(sets[node.name],)) if node.name in sets else node

    nodes = tuple(map(settled, instance.cluster.nodes))
    return replace(instance, cluster=replace(instance.cluster, nodes=nodes))


def places(instance: Instance) -> dict[str, list[int]]:
    """Nodes of the pods of every gang that has any after the best plan."""
    decisions = plan(instance).decisions
    return {
        g.name: [pod.node for pod in d.pods]
        for g, d in zip(instance.gangs, decisions, strict=True)
        if d.pods
    }


TRAINERS = worker(1, 1, "trainers", apart=NextTo(RACK, "trainers"))


def test_of_three_trainers_one_a_rack_starts() -> None:
    found = places(racks(*(gang(name, roles=[TRAINERS]) for name in "abc")))
    assert sorted(n // 2 for nodes in found.values() for n in nodes) == [0, 1]


def test_a_trainer_that_stands_keeps_a_new_one_out_of_its_rack_whoever_has_the_rule() -> None:
    stands = gang("a", roles=[TRAINERS], stands=[(0, 0, 0, 1)])
    comes = gang("b", roles=[worker(2, 4, "trainers")])
    assert places(racks(stands, comes))["b"] == [2, 3]
    assert places(racks(stands, comes, n03=("trainers", 1)))["b"] == [2, 3]  # that one has no rule
    full = gang("c", gpus_per_pod=4, stands=[(0, 0, 2, 15)])
    assert "b" not in places(racks(stands, comes, full))


def test_one_pod_a_node_limits_growth() -> None:
    # Five pods of one GPU would fit twice over; there are four nodes.
    grows = gang("a", roles=[worker(1, 1, apart=NextTo(NODE), most=5)])
    assert sorted(places(racks(grows))["a"]) == [0, 1, 2, 3]


def test_pods_join_those_of_no_gang_and_wait_where_there_is_no_room_beside_them() -> None:
    joins = gang("a", roles=[worker(2, 4, join=NextTo(RACK, "cache"))])
    assert places(racks(joins, n03=("cache", 1))) == {"a": [2, 3]}
    assert places(racks(joins)) == {}
    full = gang("b", stands=[(0, 0, 3, 1)])
    assert "a" not in places(racks(joins, full, n03=("cache", 1)))
    # The cache itself may wait, and brings the others when it comes.
    cache = gang("c", roles=[worker(1, 4, "cache")])
    half = gang("a", roles=[worker(1, 4, join=NextTo(RACK, "cache"))])
    found = places(racks(half, cache))
    assert found["a"][0] // 2 == found["c"][0] // 2


def test_a_gang_that_attracts_itself_starts_in_one_rack() -> None:
    itself = worker(3, 4, "a", join=NextTo(RACK, "a"))
    assert places(racks(gang("a", roles=[itself]))) == {}  # 12 GPUs, a rack has 8
    assert len(places(racks(gang("a", roles=[replace(itself, min=2, max=2)])))["a"]) == 2


def test_four_pods_are_even_over_two_racks_one_of_which_is_full() -> None:
    full = gang("b", pods=2, gpus_per_pod=4, stands=[(0, 0, 2, 15), (0, 1, 3, 15)])
    four = gang("a", roles=[worker(4, 1, even=Spread(RACK, 3))])
    assert "a" not in places(racks(four, full))  # 4 above 0
    assert len(places(racks(gang("a", roles=[worker(4, 1, even=Spread(RACK, 4))]), full))["a"]) == 4
    assert sorted(n // 2 for n in places(racks(four))["a"]) != [0, 0, 0, 0]
    few = gang("a", roles=[worker(4, 1, even=Spread(RACK, 1, None, 3))])
    assert places(racks(few)) == {}  # two racks, three asked for: 2 above 0


@pytest.mark.parametrize("seed", first_fast([1, 9, 4, 12], 2))
def test_what_is_pruned_changes_no_value(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = tiny(seed, without=SMALL, more=POD_RULES)
    pruned = plan(instance)
    unpruned(monkeypatch)
    assert plan(instance).tiers == pruned.tiers


@pytest.mark.parametrize("seed", first_fast([9, 21, 33, 13, 18, 38], 3))
def test_no_plan_that_the_checker_lets_pass_is_better_and_one_is_as_good(seed: int) -> None:
    naive = Naive(busy(seed, more=POD_RULES))
    assert 20 < naive.size < 3000  # at about a millisecond each
    assert naive.best() == plan(naive.instance).tiers
