"""Cases of gangs, buddies and GPU sets: half a gang, fragments, priorities, links inside a server.

Promises: data only. Called by the table of peer cases.
"""

from __future__ import annotations

from building import build, gang, mask, node, role
from building_servers import nvl, pairs4, pcie, switched, v100
from peer_clusters import Case, flat, mesh, tree

PLACED = {"a": "place"}
WAITS = {"a": "wait"}

GANGS = {
    "half a gang is never started": Case(
        "KAI", build(gangs=[gang("a", pods=2, gpus_per_pod=8)]), WAITS
    ),
    "the higher priority gets the GPUs, whatever it wastes": Case(
        "KAI",
        build(gpus=4, gangs=[gang("a", gpus_per_pod=4), gang("b", gpus_per_pod=2, priority=50)]),
        {"a": "wait", "b": "place"},
    ),
    "a later gang that fits is not held up by an earlier one that does not": Case(
        "KAI",
        build(
            gpus=4,
            gangs=[gang("a", gpus_per_pod=5, submitted=0), gang("b", gpus_per_pod=4, submitted=9)],
        ),
        {"a": "wait", "b": "place"},
    ),
    "small gangs fill the holes between running ones": Case(
        "KAI",
        build(
            nodes=flat(4, 4),
            gangs=[
                gang("r", pods=2, gpus_per_pod=3, stands=[(0, 0, 0, 7), (0, 1, 1, 7)]),
                *(gang(name, submitted=age) for age, name in enumerate("abc")),
            ],
        ),
        {"a": "place", "b": "place", "c": "wait", "r": "keep"},
    ),
    "an elastic gang starts at its least number of pods": Case(
        "KAI",
        build(gpus=4, gangs=[gang("a", roles=[role("w", 2, 1, most=4)]), gang("b", pods=2)]),
        {"a": "place", "b": "place"},
        per_node={"a": [2], "b": [2]},
    ),
    "a required rack that is full sends the gang to the other": Case(
        "KAI",
        build(
            nodes=tree({"b1": {"r1": [2, 2], "r2": [2, 2]}}),
            gangs=[
                gang("r", gpus_per_pod=2, stands=[(0, 0, 0, 3)]),
                gang("a", pods=4, same="rack"),
            ],
        ),
        {"a": "place", "r": "keep"},
        per_node={"a": [2, 2]},
        domains={"a": {"rack": 1}},
    ),
    "one GPU goes where a server is broken already": Case(
        "HiveD",
        build(
            nodes=flat(8, 8),
            gangs=[gang("r", gpus_per_pod=4, stands=[(0, 0, 0, 15)]), gang("a")],
            mix={8: 1000},
        ),
        {"a": "place", "r": "keep"},
        # 3 + 8 are left: 11 - 8
        tiers={"stranded": 3000},
    ),
    "8, 4, 2, 1, 1 split two servers without a rest": Case(
        "HiveD",
        build(
            nodes=flat(8, 8),
            gangs=[gang(n, gpus_per_pod=g) for n, g in zip("abcde", (8, 4, 2, 1, 1), strict=True)],
        ),
        dict.fromkeys("abcde", "place"),
        tiers={"admission/0": 16},
    ),
    "two halves of servers are no whole server": Case(
        "HiveD",
        build(
            nodes=[
                node("n1", switched(), unhealthy=(0, 1, 2, 3)),
                node("n2", switched(), unhealthy=(4, 5, 6, 7)),
            ],
            gangs=[gang("a", gpus_per_pod=8)],
        ),
        WAITS,
    ),
    "a bad GPU is left out": Case(
        "HiveD",
        build(nodes=mesh(1, 2, 3), gangs=[gang("a", gpus_per_pod=3), gang("b")]),
        {"a": "place", "b": "wait"},
        gpus={"a": [(1, 2, 3)]},
    ),
}

MESH = {
    "two links beat one in a socket": Case(
        "go-gpuallocator",
        build(nodes=mesh(0, 1, 3), gangs=[gang("a", gpus_per_pod=2)]),
        PLACED,
        gpus={"a": [(0, 3)]},
    ),
    "two links across the sockets beat one inside": Case(
        "go-gpuallocator",
        build(nodes=mesh(0, 1, 4), gangs=[gang("a", gpus_per_pod=2)]),
        PLACED,
        gpus={"a": [(0, 4)]},
    ),
    "four pairs on one server all get two links": Case(
        "go-gpuallocator",
        build(model=v100(), gangs=[gang(n, gpus_per_pod=2) for n in "abcd"]),
        dict.fromkeys("abcd", "place"),
        tiers={"bandwidth": 4 * 2 * 1000},
    ),
    "two fours on one server are the two quads": Case(
        "go-gpuallocator",
        build(model=v100(), gangs=[gang(n, gpus_per_pod=4) for n in "ab"]),
        dict.fromkeys("ab", "place"),
        # 83 GB/s is the best of any four: only a quad has it
        tiers={"bandwidth": 2 * 4 * 1000},
    ),
    "eight take all": Case(
        "go-gpuallocator",
        build(model=v100(), gangs=[gang("a", gpus_per_pod=8)]),
        PLACED,
        gpus={"a": [tuple(range(8))]},
        tiers={"bandwidth": 8000},
    ),
    "beside GPU 4 of the gang: its quad": Case(
        "go-gpuallocator",
        build(model=v100(), gangs=[gang("a", pods=4, stands=[(0, 0, 0, mask(4))])]),
        {"a": "complete"},
        gpus={"a": [(4,), (5,), (6,), (7,)]},
    ),
    "bridged pairs are not mixed": Case(
        "go-gpuallocator",
        build(model=pairs4(), gangs=[gang("a", gpus_per_pod=2), gang("b", gpus_per_pod=2)]),
        dict.fromkeys("ab", "place"),
        tiers={"bandwidth": 2 * 2 * 1000},
    ),
    "a third GPU of a pair is taken from the other only if it must": Case(
        "go-gpuallocator",
        build(model=pairs4(), gangs=[gang("a", gpus_per_pod=2), gang("b"), gang("c")]),
        dict.fromkeys("abc", "place"),
        tiers={"bandwidth": 2 * 1000},
    ),
    "without NVLink two GPUs share a PCIe switch": Case(
        "Koordinator",
        build(
            nodes=[node("n", pcie(4), unhealthy=(0,))], gangs=[gang("a", gpus_per_pod=2), gang("b")]
        ),
        dict.fromkeys("ab", "place"),
        gpus={"a": [(2, 3)], "b": [(1,)]},
    ),
    "a domain of trays holds what no tray does": Case(
        "Slurm block",
        build(
            racks=2,
            nodes_per_rack=2,
            model=nvl(4, 2),
            nvlink="rack",
            gangs=[gang(n, pods=2, gpus_per_pod=4) for n in "ab"],
        ),
        dict.fromkeys("ab", "place"),
        domains={"a": {"rack": 1}, "b": {"rack": 1}},
        tiers={"bandwidth": 2 * 8 * 1000},
    ),
}
