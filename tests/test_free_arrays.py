"""Free space as arrays agrees with the nodes after any change, and pods are spread as it is described."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from building import build, node
from building_servers import switched
from effort import examples
from tiny import tiny

from models.program.base_state import base_decisions
from planner.search.free_arrays import FreeArrays, as_array
from planner.search.free_space import FreeSpace
from planner.search.start.greedy import greedy, missing_demand
from planner.search.start.node_choice import Room, spread

SEEDS = examples(200, 40)


def test_tables_follow_every_change() -> None:
    for seed in range(SEEDS):
        instance = tiny(seed, more=["running", "movable", "elastic", "priorities"])
        start = greedy(instance, base_decisions(instance))
        space, r = FreeSpace(instance, base_decisions(instance)), Random(seed)
        demands = [missing_demand(space, gang) for gang in range(len(instance.gangs))]
        roles = [role for demand in demands for role in demand.roles]
        levels = range(-1, space.arrays.tree.levels + 1)
        for _ in range(10):
            gang = r.randrange(len(instance.gangs))
            space.set(gang, r.choice(((), space.original[gang], start[gang].pods)))
            fresh = FreeSpace(instance, [space.decision(g) for g in range(len(instance.gangs))])
            assert space.arrays.free.tolist() == [n.free for n in fresh.by_node]
            for role in roles:
                mine, theirs = space.arrays.of_role(role, None), fresh.arrays.of_role(role, None)
                for level in levels:
                    assert mine.at(level).tolist() == theirs.at(level).tolist(), seed


def arrays(racks: str) -> FreeArrays:
    """One server a letter, in the rack of that letter."""
    nodes = [node(f"n{i}", switched(8), "b1", rack) for i, rack in enumerate(racks)]
    return FreeSpace(build(nodes=nodes), ()).arrays


def pieces(racks: str, pods: list[int], count: int) -> dict[int, int]:
    """Pods a node, where a node has as many free GPUs as pods fit."""
    zeros = np.zeros(len(pods), dtype=np.int64)
    room = Room(np.arange(len(pods)), as_array(pods), as_array(pods), zeros)
    return dict(spread(arrays(racks), count, room, as_array(())))


@pytest.mark.parametrize(
    ("racks", "pods", "count", "expected"),
    [
        # one server suffices: the one with least room
        ("aaa", [8, 5, 6], 5, {1: 5}),
        # two are needed: 4 and 4 rather than 5 and 3
        ("aaa", [5, 4, 4], 8, {1: 4, 2: 4}),
        # one rack suffices, although other racks have larger servers
        ("abb", [3, 2, 2], 4, {1: 2, 2: 2}),
        # no rack suffices: two racks, not three
        ("abbc", [1, 1, 1, 1], 3, {1: 1, 2: 1, 0: 1}),
        # three servers are needed: 3, 3 and 2
        ("aaaa", [3, 3, 3, 3], 8, {0: 3, 1: 3, 2: 2}),
    ],
)
def test_pods_are_in_few_domains_and_equal_pieces(
    racks: str, pods: list[int], count: int, expected: dict[int, int]
) -> None:
    assert pieces(racks, pods, count) == expected


def test_every_pod_has_a_place_and_no_server_too_many() -> None:
    for seed in range(SEEDS):
        r = Random(f"pieces/{seed}")
        racks = "".join(sorted(r.choice("abcd") for _ in range(r.randrange(1, 9))))
        pods = [r.randrange(9) for _ in racks]
        for count in range(1, sum(pods) + 1):
            found = pieces(racks, pods, count)
            assert sum(found.values()) == count, seed
            assert all(0 < found[n] <= pods[n] for n in found), seed
