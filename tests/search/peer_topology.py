"""Cases of topology-aware placing: racks, blocks, slices, segments, leaves; free numbers in each name.

Promises: data only. Called by the table of peer cases.
"""

from __future__ import annotations

from building import build, gang, role
from peer_clusters import PAIRS, SCATTERED, UNEVEN, Case, cpu_tree, flat, tree

PLACED = {"a": "place"}
WAITS = {"a": "wait"}

TOPOLOGY = {
    "rack required: two pods share the one server that holds both": Case(
        "Kueue",
        build(nodes=tree(UNEVEN), gangs=[gang("a", pods=2, same="rack")]),
        PLACED,
        per_node={"a": [2]},
    ),
    "rack required: three pods fill the only rack of three": Case(
        "Kueue",
        build(nodes=tree(UNEVEN), gangs=[gang("a", pods=3, same="rack")]),
        PLACED,
        domains={"a": {"rack": 1, "node": 3}},
    ),
    "rack required: no rack holds four, though seven are free": Case(
        "Kueue", build(nodes=tree(UNEVEN), gangs=[gang("a", pods=4, same="rack")]), WAITS
    ),
    "block required: four pods fill a block to the last server": Case(
        "Kueue",
        build(nodes=tree(UNEVEN), gangs=[gang("a", pods=4, same="block")]),
        PLACED,
        domains={"a": {"block": 1, "rack": 2, "node": 4}},
    ),
    "block required: no block holds five": Case(
        "Kueue", build(nodes=tree(UNEVEN), gangs=[gang("a", pods=5, same="block")]), WAITS
    ),
    "block preferred: six pods need both blocks and get them": Case(
        "Kueue",
        build(nodes=tree(UNEVEN), gangs=[gang("a", pods=6, prefer="block")]),
        PLACED,
        domains={"a": {"block": 2}},
        tiers={"preference": 0},
    ),
    "rack preferred: three pods are kept in one rack": Case(
        "Kueue",
        build(nodes=tree(UNEVEN), gangs=[gang("a", pods=3, prefer="rack")]),
        PLACED,
        domains={"a": {"rack": 1}},
        tiers={"preference": 3},
    ),
    "pods without GPUs follow the same rules": Case(
        "Kueue",
        build(
            nodes=cpu_tree(UNEVEN),
            gangs=[gang("a", roles=[role("w", 2, 0, requests={"cpu": 1000})], same="rack")],
        ),
        PLACED,
        per_node={"a": [2]},
    ),
    "rack required: three pods share a large server rather than fill a small rack": Case(
        "Kueue",
        build(nodes=tree(SCATTERED), gangs=[gang("a", pods=3, same="rack")]),
        PLACED,
        per_node={"a": [3]},
    ),
    "rack required: six pods fill the large rack": Case(
        "Kueue",
        build(nodes=tree(SCATTERED), gangs=[gang("a", pods=6, same="rack")]),
        PLACED,
        per_node={"a": [4, 1, 1]},
    ),
    "slices: two of two need two racks, and no block has two such racks": Case(
        "Kueue",
        build(nodes=tree(UNEVEN), gangs=[gang("a", pods=4, slices=(2, "rack"), same="block")]),
        WAITS,
    ),
    "slices: the same two find a rack in each block": Case(
        "Kueue",
        build(nodes=tree(UNEVEN), gangs=[gang("a", pods=4, slices=(2, "rack"))]),
        PLACED,
        domains={"a": {"block": 2, "rack": 2}},
    ),
    "slices: pairs fill a binary tree": Case(
        "Kueue",
        build(nodes=tree(PAIRS), gangs=[gang("a", pods=8, slices=(2, "rack"))]),
        PLACED,
        domains={"a": {"rack": 4, "node": 8}},
    ),
    "two gangs of a block each, not mixed": Case(
        "Kueue",
        build(nodes=tree(PAIRS), gangs=[gang(n, pods=4, same="block") for n in "ab"]),
        {"a": "place", "b": "place"},
        domains={"a": {"block": 1}, "b": {"block": 1}},
    ),
    "leader and workers in one rack": Case(
        "Kueue",
        build(
            nodes=tree(UNEVEN),
            gangs=[gang("a", roles=[role("leader"), role("worker", 2)], same="rack")],
        ),
        PLACED,
        domains={"a": {"rack": 1}},
    ),
    "hosts with 3, 3, 2, 1 free: seven pods take three hosts": Case(
        "Kueue",
        build(nodes=flat(3, 3, 2, 1), gangs=[gang("a", pods=7)]),
        PLACED,
        domains={"a": {"node": 3}},
    ),
    "hosts with 3, 3, 2, 1 free: nine pods take them all, ten wait": Case(
        "Kueue",
        build(nodes=flat(3, 3, 2, 1), gangs=[gang("a", pods=9), gang("b", pods=10)]),
        {"a": "place", "b": "wait"},
        per_node={"a": [3, 3, 2, 1]},
    ),
    "a hard limit of tier one picks the switch that holds all four": Case(
        "Volcano",
        build(
            nodes=tree({"b1": {"s0": [1, 1], "s1": [1, 1, 1, 1]}}),
            gangs=[gang("a", pods=4, same="rack")],
        ),
        PLACED,
        domains={"a": {"rack": 1}},
    ),
    "a soft limit spreads over the fewest switches": Case(
        "Volcano",
        build(
            nodes=tree({"b1": {"s0": [1, 1], "s1": [1, 1], "s2": [1, 1]}}),
            gangs=[gang("a", pods=4, prefer="rack")],
        ),
        PLACED,
        domains={"a": {"rack": 2}},
    ),
    "a used switch is filled up before a fresh one is broken": Case(
        "Volcano",
        build(
            nodes=tree({"b1": {"s0": [2, 2], "s1": [2, 2]}}),
            gangs=[
                gang("a", gpus_per_pod=2, same="rack"),
                gang("r", gpus_per_pod=2, stands=[(0, 0, 3, 3)]),
            ],
            mix={4: 1000},
        ),
        {"a": "place", "r": "keep"},
        # s0 stays whole: one request of 4 fits in 4 free
        tiers={"stranded": 0},
    ),
    "partitions of four, each under one switch": Case(
        "Volcano",
        build(
            nodes=tree({"b1": {"s0": [3, 3], "s1": [3, 1]}}),
            gangs=[gang("a", pods=8, slices=(4, "rack"))],
        ),
        PLACED,
        domains={"a": {"rack": 2}},
    ),
    "19 free, 19 wanted, split over two spines: still unfit": Case(
        "Koordinator",
        build(
            nodes=tree({"b1": {"r1": [8], "r2": [3]}, "b2": {"r1": [8]}}),
            gangs=[gang("a", pods=19, same="block")],
        ),
        WAITS,
    ),
    "19 free, 19 wanted, anywhere: fits exactly": Case(
        "Koordinator",
        build(
            nodes=tree({"b1": {"r1": [8], "r2": [3]}, "b2": {"r1": [8]}}),
            gangs=[gang("a", pods=19)],
        ),
        PLACED,
        per_node={"a": [8, 8, 3]},
    ),
    "19 free, 19 wanted, in pods that fragments cannot hold: unfit": Case(
        "Koordinator",
        build(
            nodes=flat(7, 7, 5),
            gangs=[gang("a", roles=[role("big", 2, 6), role("rest", 7, 1, same="node")])],
        ),
        WAITS,
    ),
    "pods come in twos: 3 + 1 free hold one pair only": Case(
        "Koordinator",
        build(nodes=flat(3, 1), gangs=[gang("a", pods=4, slices=(2, "node"))]),
        WAITS,
    ),
    "pods come in twos: 3 + 2 free hold two pairs": Case(
        "Koordinator",
        build(nodes=flat(3, 2), gangs=[gang("a", pods=4, slices=(2, "node"))]),
        PLACED,
        per_node={"a": [2, 2]},
    ),
    "the smallest leaf that holds the job": Case(
        "Slurm tree",
        build(
            nodes=tree({"b1": {"s0": [1, 1, 1], "s1": [1, 1, 1, 1], "s2": [1] * 6}}),
            gangs=[gang("a", pods=4)],
            # a later job of 6 still finds a leaf; breaking s2 would strand it
            mix={6: 1000},
        ),
        PLACED,
        domains={"a": {"rack": 1}},
        # 3 + 6 servers are left; one job of 6 fits under one leaf: 9 - 6 = 3
        tiers={"stranded": 3000},
    ),
    "two leaves where one is not enough": Case(
        "Slurm tree",
        build(
            nodes=tree({"b1": {"s0": [1, 1, 1], "s1": [1, 1, 1, 1], "s2": [1] * 6}}),
            gangs=[gang("a", pods=8)],
        ),
        PLACED,
        domains={"a": {"rack": 2}},
    ),
    "switches without a common root never share a job that requires one": Case(
        "Slurm tree",
        build(
            nodes=tree({"t1": {"s0": [1, 1]}, "t2": {"s0": [1, 1]}}),
            gangs=[gang("a", pods=3, same="block")],
        ),
        WAITS,
    ),
    "segments of two stay inside a block": Case(
        "Slurm block",
        build(
            nodes=tree({"b1": {"r1": [4, 4, 4]}, "b2": {"r1": [4, 4, 4]}}),
            gangs=[gang("a", pods=4, gpus_per_pod=4, slices=(2, "block"))],
        ),
        PLACED,
        # both segments do not fit three servers
        domains={"a": {"block": 2, "node": 4}},
    ),
    "segments of three: two blocks with five servers hold one": Case(
        "Slurm block",
        build(
            nodes=tree({"b1": {"r1": [4, 4, 4]}, "b2": {"r1": [4, 4]}}),
            gangs=[gang("a", pods=6, gpus_per_pod=4, slices=(3, "block"))],
        ),
        WAITS,
    ),
}
