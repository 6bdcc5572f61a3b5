"""The formulas of bandwidth and tiers on plans small enough to be worked out by hand."""

from __future__ import annotations

import pytest
from plan_documents import (
    Doc,
    cluster,
    decided,
    dgx,
    entry,
    gang,
    level,
    made,
    mesh,
    node,
    policy,
    restated,
    role,
    server,
    standing,
)

from models.verify.check import check, derive, figures

ALL = list(range(8))
LEVELS = ("block", "rack")


def stated(plan: Doc, name: str = "a") -> tuple[int | None, int | None]:
    """Bandwidth and share of a gang, once the plan is found to be good."""
    assert check(plan) == []
    found = figures(plan)["default", name]
    return found.bandwidth, found.share


def two_racks(rack_oversubscription: float, **model: object) -> Doc:
    """16 DGX H100 in two racks of one block, one gang on all of them."""
    names = [f"gpu-{i:02}" for i in range(1, 17)]
    nodes = [node(n, "DGX H100", f"b1/r{1 if i < 8 else 2}") for i, n in enumerate(names)]
    return made(
        cluster([dgx(**model)], nodes, [level("block"), level("rack", rack_oversubscription)]),
        [gang("a", role("worker", 16, 8))],
        [decided("a", "place", *((n, ALL) for n in names))],
    )


def test_sixteen_servers_in_two_racks_reach_their_nvlink() -> None:
    plan = two_racks(1)
    # min(18 x 20600, 8 x 400 x 125 / 1); ideal on this model is the same.
    assert stated(plan) == (370800, 1000)
    assert entry(plan, "a")["domains"] == {"block": 1, "rack": 2, "node": 16}


def test_an_oversubscription_of_two_on_the_rack_halves_the_network() -> None:
    # 400000 / 2; 1000 x 200000 / 370800 = 539.37
    assert stated(two_racks(2)) == (200000, 539)


def test_bandwidth_is_floored_once_and_the_share_is_taken_before() -> None:
    # 8 NICs of 1 Mbit/s are 1 MB/s, over 3: 1/3, floored 0; the ideal is 1, so the share is 333.
    assert stated(
        two_racks(3, nics=[{"name": f"n{g}", "gbps": 0.001, "gpus": [g]} for g in ALL])
    ) == (0, 333)


def test_without_nics_there_is_no_network_and_nothing_better_could_be_had() -> None:
    # ideal = min(370800, 0) = 0: share 1000
    assert stated(two_racks(1, nics=[])) == (0, 1000)


def test_oversubscription_counts_only_at_levels_that_are_crossed_by_pods_with_gpus() -> None:
    levels = [level("block", 4), level("rack", 2)]
    nodes = [
        node("c1", None, "b2/r1"),
        node("h1", "DGX H100", "b1/r1"),
        node("h2", "DGX H100", "b1/r1"),
        node("h3", "DGX H100", "b1/r2"),
        node("h4", "DGX H100", "b2/r1"),
    ]
    gangs = [gang("a", role("launcher", 1, 0), role("worker", 2, 8))]

    def on(*names: str) -> tuple[int | None, int | None]:
        workers = decided("a", "place", *((n, ALL) for n in names))
        launcher = decided("a", "place", ("c1", []), role="launcher")["pods"]
        workers["pods"] = launcher + workers["pods"]
        return stated(made(cluster([dgx()], nodes, levels), gangs, [workers]))

    # The launcher in another block costs no bandwidth.
    assert on("h1", "h2") == (370800, 1000)
    assert on("h1", "h3") == (200000, 539)  # 400000 / 2
    assert on("h1", "h4") == (100000, 269)  # 400000 / max(4, 2): 100000 / 370800 = 0.2697


@pytest.mark.parametrize(
    ("gpus", "bandwidth", "share"),
    [
        ([0, 3], 40000, 1000),  # two links
        ([0, 1], 20000, 500),  # one link
        ([0, 5], 8000, 200),  # SYS: min(10000, 0.8 x 10000), of 40000
        ([0, 2, 3], 49066, 1000),  # 2 chains: 2 x 20000 x 0.92 x 4/3
        ([0, 1, 2, 3], 82800, 1000),  # 3 chains: 3 x 20000 x 0.92 x 6/4; 4 rings: 80000
        ([1, 4, 6, 7], 8000, 96),  # no path through all four on NVLink: 8000 / 82800
        (ALL, 120000, 1000),  # 6 rings
    ],
)
def test_a_mesh_is_priced_by_the_gpus_chosen(gpus: list[int], bandwidth: int, share: int) -> None:
    plan = made(
        cluster([mesh()], [node("m", "DGX-1 V100")]),
        [gang("a", role("worker", 1, len(gpus)))],
        [decided("a", "place", ("m", gpus))],
    )
    assert stated(plan) == (bandwidth, share)


def test_pods_of_one_gang_in_one_server_are_one_set() -> None:
    plan = made(
        cluster([mesh()], [node("m", "DGX-1 V100")]),
        [gang("a", role("worker", 4, 1))],
        [decided("a", "place", *(("m", [g]) for g in range(4)))],
    )
    assert stated(plan) == (82800, 1000)


def test_one_gpu_a_server_is_bound_by_its_near_nic_alone() -> None:
    # One near NIC of 100 Gb/s: 12500 MB/s, at most 1 x max(10000, 12500). Ideal of two on the mesh: 40000.
    plan = made(
        cluster([mesh()], [node("m1", "DGX-1 V100"), node("m2", "DGX-1 V100")]),
        [gang("a", role("worker", 2, 1))],
        [decided("a", "place", ("m1", [0]), ("m2", [7]))],
    )
    assert stated(plan) == (12500, 312)  # 312.5


def test_far_nics_count_half_and_as_many_as_there_are_gpus() -> None:
    nics = [{"name": n, "gbps": 400, "gpus": [7]} for n in ("a", "b", "c")]
    plan = made(
        cluster([dgx()], [node("h1", "DGX H100", nics=nics), node("h2", "DGX H100")]),
        [gang("a", role("worker", 2, 2))],
        [decided("a", "place", ("h1", [0, 1]), ("h2", [0, 1]))],
    )
    # h1: two far NICs of min(25000, 62.5 x 400) = 50000; h2: two near ones 100000. Ideal of 4: 370800.
    assert stated(plan) == (50000, 134)


def test_the_ideal_takes_the_model_as_made_and_the_smallest_of_several() -> None:
    slow = dgx("slow", nics=[{"name": "eth", "gbps": 400}])
    nodes = [node("h1", "DGX H100"), node("h2", "slow", nics=[{"name": "eth", "gbps": 200}])]
    plan = made(
        cluster([dgx(), slow], nodes),
        [gang("a", role("worker", 2, 8))],
        [decided("a", "place", ("h1", ALL), ("h2", ALL))],
    )
    # B: h2's own NIC, 200 x 125 = 25000. Ideal: min(370800, 50000 of slow as made).
    assert stated(plan) == (25000, 500)


def nvl(trays: int, racks: str, **more: object) -> tuple[Doc, list[str]]:
    """GB200 trays of four GPUs: 18 x 40100 = 721800 inside a rack; NICs 4 x 50000."""
    model = dgx("tray", 4, gpu="GB200", linkMBps=40100, nvlinkDomainNodes=18)
    names = [f"t{i}" for i in range(trays)]
    nodes = [node(n, "tray", f"b1/{racks[i]}") for i, n in enumerate(names)]
    return cluster([model], nodes, [level("block"), level("rack", nvlink=True) | more]), names


def test_trays_of_one_nvlink_domain_are_one_server() -> None:
    whole, names = nvl(3, "aaa")
    plan = made(
        whole,
        [gang("a", role("worker", 3, 4))],
        [decided("a", "place", *((n, [0, 1, 2, 3]) for n in names))],
    )
    assert stated(plan) == (721800, 1000)


def test_two_nvlink_domains_share_the_network_and_sum_their_nics() -> None:
    whole, names = nvl(3, "aab", oversubscription=2)
    plan = made(
        whole,
        [gang("a", role("worker", 3, 4))],
        [decided("a", "place", *((n, [0, 1, 2, 3]) for n in names))],
    )
    # rack a: 2 x 200000 / 2, rack b: 200000 / 2 = 100000; ideal of 12 <= 72 GPUs: 721800. 138.5
    assert stated(plan) == (100000, 138)


def test_one_gpu_in_each_of_two_nvlink_domains_has_the_network_alone() -> None:
    whole, _ = nvl(2, "ab")
    plan = made(
        whole, [gang("a", role("worker", 2, 1))], [decided("a", "place", ("t0", [0]), ("t1", [0]))]
    )
    # One near NIC of 400 Gb/s each; ideal of two GPUs inside one tray.
    assert stated(plan) == (50000, 69)  # 69.27


def test_of_nested_nvlink_levels_the_widest_counts() -> None:
    whole, names = nvl(2, "ab")
    whole["spec"]["levels"][0]["nvlink"] = True
    plan = made(
        whole,
        [gang("a", role("worker", 2, 4))],
        [decided("a", "place", *((n, [0, 1, 2, 3]) for n in names))],
    )
    assert stated(plan) == (721800, 1000)


def test_unknown_gpus_are_priced_at_their_worst() -> None:
    plan = made(
        cluster([mesh()], [node("m", "DGX-1 V100", unhealthyGpus=[5, 6, 7], unknownUnhealthy=1)]),
        [gang("a", role("worker", 1, 2)), gang("b", pods=(standing("b", "m", [1]),))],
        [decided("a", "place", ("m", None)), decided("b", "keep", ("m", [1]))],
    )
    # Any two of 0, 2, 3, 4: the pairs 2-4 and 3-4 have no link, SYS 8000. Of 40000: 200.
    assert stated(plan) == (8000, 200)


def test_known_gpus_of_the_gang_belong_to_its_set() -> None:
    sick = node("m", "DGX-1 V100", unhealthyGpus=[4, 5, 6, 7], unknownUnhealthy=1)
    plan = made(
        cluster([mesh()], [sick]),
        [gang("a", role("worker", 2, 1), pods=(standing("a", "m", [3]),))],
        [decided("a", "complete", ("m", [3]), ("m", None))],
    )
    # 3 with 0, 1 or 2: one link at worst.
    assert stated(plan) == (20000, 500)


def test_known_and_unknown_gpus_behind_a_switch_reach_it_all() -> None:
    plan = made(
        cluster([dgx()], [node("h", "DGX H100", unknownUnhealthy=1)]),
        [gang("a", role("worker", 2, 1), pods=(standing("a", "h", [3]),))],
        [decided("a", "complete", ("h", [3]), ("h", None))],
    )
    assert stated(plan) == (370800, 1000)


def test_more_gpus_held_than_there_are_is_priced_and_nothing_can_be_added() -> None:
    held = [gang("b", role("worker", 1, 6), pods=(standing("b", "m", [0, 1, 2, 3, 4, 5]),))]
    plan = made(
        cluster([mesh()], [node("m", "DGX-1 V100")]),
        [gang("a", role("worker", 1, 4), pods=(standing("a", "m", None),)), *held],
        [decided("a", "keep", ("m", None)), decided("b", "keep", ("m", [0, 1, 2, 3, 4, 5]))],
    )
    # Pods that stay are exempt. 6 are known, so two are left for four: any four of the eight, at worst 8000.
    assert stated(plan) == (8000, 96)
    assert derive(plan)["stranded"] == 0


def test_an_nvlink_fabric_of_unknown_rate_has_no_bandwidth_while_it_is_kept() -> None:
    whole, names = nvl(2, "aa")
    whole["spec"]["serverModels"][0]["linkMBps"] = None
    running = tuple(standing("a", n, [0, 1, 2, 3], i) for i, n in enumerate(names))
    plan = made(
        whole,
        [gang("a", role("worker", 2, 4), pods=running)],
        [decided("a", "keep", *((n, [0, 1, 2, 3]) for n in names))],
    )
    assert stated(plan) == (None, None)


def test_far_nics_are_the_worst_for_unknown_gpus() -> None:
    one_nic = [{"name": "eth", "gbps": 400, "gpus": [0]}]
    nodes = [node(n, "DGX H100", nics=one_nic, unknownUnhealthy=1) for n in ("h1", "h2")]
    gangs, places = [gang("a", role("worker", 2, 7))], (("h1", None), ("h2", None))
    # GPU 0 may be the one that is left out: the NIC is far, min(25000, 62.5 x 400) = 25000.
    # Ideal of 14 on this model, as made: min(370800, 400000).
    plan = made(cluster([dgx()], nodes), gangs, [decided("a", "place", *places)])
    assert stated(plan) == (25000, 67)
    # With GPU 1 known to be sick, GPU 0 is among the seven in any case: near, 50000.
    for name in ("h1", "h2"):
        server(plan, name).update(unhealthyGpus=[1])
    assert {v.rule for v in check(restated(plan))} == {"unknown-gpus"}
    for name in ("h1", "h2"):
        server(plan, name).update(unknownUnhealthy=0)
        entry(plan, "a")["pods"][0 if name == "h1" else 1]["gpus"] = [0, 2, 3, 4, 5, 6, 7]
    assert stated(restated(plan)) == (50000, 134)


def test_a_kept_gang_on_nics_of_unknown_speed_has_no_bandwidth() -> None:
    eth = [{"name": "eth", "gbps": None}]
    plan = made(
        cluster([dgx(nics=eth)], [node("h1", "DGX H100"), node("h2", "DGX H100")]),
        [
            gang(
                "a",
                role("worker", 2, 8),
                pods=tuple(standing("a", f"h{i + 1}", ALL, i) for i in (0, 1)),
            )
        ],
        [decided("a", "keep", ("h1", ALL), ("h2", ALL))],
    )
    assert stated(plan) == (None, None)
    assert derive(plan)["bandwidth"] == 0


@pytest.mark.parametrize(
    ("size", "free", "stranded"),
    [
        (1, (3, 2), 0),
        (2, (3, 2), 1000 * (5 - 2 * 2)),  # floor(3/2) + floor(2/2)
        (8, (8, 7), 1000 * (15 - 8)),
        (16, (8, 8), 0),  # two whole nodes of one rack
        (12, (8, 8), 1000 * (16 - 12)),  # ceil(12/8) = 2 nodes: one request of 12
        (16, (8, 7), 1000 * 15),
        (24, (8, 8), 1000 * 16),  # no domain has 24: the whole cluster, 2 < 3 whole nodes
    ],
)
def test_stranded_counts_what_the_next_request_cannot_use(
    size: int, free: tuple[int, int], stranded: int
) -> None:
    held = [
        (name, list(range(left, 8)))
        for name, left in zip(("h1", "h2"), free, strict=True)
        if left < 8
    ]
    plan = made(
        cluster([dgx()], [node(n, "DGX H100", "b1/r1") for n in ("h1", "h2")]),
        [gang(n, role("worker", 1, len(g)), pods=(standing(n, n, g),)) for n, g in held],
        [decided(n, "keep", (n, g)) for n, g in held],
        policy(mix={str(size): 1000}),
    )
    assert check(plan) == []
    assert derive(plan)["stranded"] == stranded


def test_stranded_large_requests_stay_in_the_innermost_level_that_could_hold_them() -> None:
    def value(*racks: str) -> int:
        nodes = [node(f"h{i}", "DGX H100", f"b1/{rack}") for i, rack in enumerate(racks)]
        plan = made(cluster([dgx()], nodes), [], [], policy(mix={"16": 1000}))
        assert check(plan) == []
        return derive(plan)["stranded"]

    assert value("r1", "r1", "r1", "r1") == 0
    # rack r1 could hold 16, so racks are what counts: r2 and r3 hold one node each, useless.
    assert value("r1", "r1", "r2", "r3") == 16000
    # No rack can hold 16: the block can.
    assert value("r1", "r2", "r3", "r4") == 0


@pytest.mark.parametrize("unusable", [{"unschedulable": True}, {"ready": False}])
def test_stranded_leaves_out_nodes_that_are_not_to_be_used(unusable: Doc) -> None:
    nodes = [node("h1", "DGX H100"), node("h2", "DGX H100", **unusable)]
    plan = made(cluster([dgx()], nodes), [], [], policy(mix={"16": 1000}))
    # h2 is installed, so 16 fit the whole cluster by size; free are only the 8 of h1.
    assert derive(plan)["stranded"] == 8000


def test_stranded_is_counted_for_every_gpu_model() -> None:
    plan = made(
        cluster([dgx(), mesh()], [node("h", "DGX H100"), node("m", "DGX-1 V100")]),
        [],
        [],
        policy(mix={"3": 500, "16": 500}),
    )
    # Each model: 8 free; two of size 3 leave 2; 16 need two nodes: 8 left. 500 x 2 + 500 x 8.
    assert derive(plan) == {
        "disruption": 0,
        "preference": 0,
        "bandwidth": 0,
        "span": 0,
        "stranded": 10000,
    }


def test_preference_and_span_of_a_gang_over_two_blocks() -> None:
    nodes = [
        node("h1", "DGX H100", "b1/r1"),
        node("h2", "DGX H100", "b2/r1"),
        node("h3", "DGX H100", "b2/r1"),
    ]
    plan = made(
        cluster([dgx()], nodes),
        [
            gang(
                "a",
                role("left", 1, 8, topology={"preferred": "node"}),
                role("none", 1, 0, topology={"preferred": "rack"}),
                role("right", 2, 4, topology={"preferred": "rack"}),
                topology={"preferred": "block"},
            )
        ],
        [
            {
                **decided("a", "place"),
                "pods": [
                    {"name": "a-left-0", "role": "left", "index": 0, "node": "h1", "gpus": ALL},
                    {"name": "a-none-0", "role": "none", "index": 0, "node": "h3", "gpus": []},
                    {
                        "name": "a-right-0",
                        "role": "right",
                        "index": 0,
                        "node": "h2",
                        "gpus": [0, 1, 2, 3],
                    },
                    {
                        "name": "a-right-1",
                        "role": "right",
                        "index": 1,
                        "node": "h2",
                        "gpus": [4, 5, 6, 7],
                    },
                ],
            }
        ],
    )
    assert check(plan) == []
    values = derive(plan)
    assert values["preference"] == 8 + 1 + 8  # every role, but not the gang in one block
    # w 16: nodes (3-1) x 1, racks b1/r1 and b2/r1 (2-1) x 4, blocks (2-1) x 16
    assert values["span"] == 16 * (2 + 4 + 16)


def rules_only(*names: str) -> list[Doc]:
    """The levels of the cluster, of which these count in no tier."""
    return [level(name) | ({"counted": False} if name in names else {}) for name in LEVELS]


def test_levels_that_only_rules_name_count_in_no_tier() -> None:
    nodes = [node(f"h{i}", "DGX H100", f"b1/r{i}") for i in (1, 2)]
    pods = [(f"h{i}", ALL) for i in (1, 2)]

    def values(*uncounted: str) -> dict[str, int]:
        levels = rules_only(*uncounted)
        plan = made(
            cluster([dgx()], nodes, levels),
            [gang("a", role("worker", 2, 8))],
            [decided("a", "place", *pods)],
        )
        assert check(plan) == []
        return derive(plan)

    # w 16: nodes (2-1) x 1, racks (2-1) x 4, blocks (1-1) x 16
    assert values()["span"] == 16 * (1 + 4)
    assert values("block")["span"] == 16 * (1 + 4)
    assert values("rack")["span"] == 16 * 1
    # ... and the next wider level that counts takes the place of those that do not
    nodes = [node(f"h{i}", "DGX H100", f"b{i}/r1") for i in (1, 2)]
    assert values()["span"] == 16 * (1 + 4 + 16)
    assert values("rack")["span"] == 16 * (1 + 4)


def test_requests_of_the_mix_stay_in_levels_that_count() -> None:
    def values(*uncounted: str) -> dict[str, int]:
        nodes = [node(f"h{i}", "DGX H100", f"b1/r{rack}") for i, rack in enumerate((1, 1, 2, 3))]
        levels = rules_only(*uncounted)
        rules = policy(mix={"16": 1000})
        rules["spec"]["objectives"].append({"name": "defragment"})
        plan = made(cluster([dgx()], nodes, levels), [], [], rules)
        assert check(plan) == []
        return derive(plan)

    # two nodes of a rack, and two that are each alone in theirs
    assert values()["stranded"] == 16000
    assert values("rack")["stranded"] == 0
    assert values("block", "rack")["stranded"] == 0
    # nodes 32; those of r1 again, or of the block, or of none
    found = [values(*names)["defragment"] for names in ((), ("rack",), ("block", "rack"))]
    assert found == [32 + 16, 32 + 32, 32]


@pytest.mark.parametrize("wrong", [{"nvlink": True}, {"oversubscription": 2}])
def test_a_level_that_is_not_counted_has_no_links_of_its_own(wrong: Doc) -> None:
    plan = made(cluster([dgx()], [node("h1", "DGX H100", "b1/r1")]), [], [])
    plan["instance"]["cluster"]["spec"]["levels"][0] |= {"counted": False} | wrong
    where = "instance.cluster.spec.levels[0].counted"
    [found] = [one for one in check(plan) if one.rule == "form"]
    assert found.message == f"{where}: a level that is not counted, with links of its own"


def test_a_node_without_a_domain_is_one_of_its_own_there_and_below() -> None:
    nodes = [
        node("h1", "DGX H100", "b1"),
        node("h2", "DGX H100", "b1"),
        node("h3", "DGX H100", domains={"rack": "r1"}),
    ]
    plan = made(
        cluster([dgx()], nodes),
        [gang("a", role("worker", 3, 8))],
        [decided("a", "place", *((f"h{i}", ALL) for i in (1, 2, 3)))],
    )
    assert check(plan) == []
    assert entry(plan, "a")["domains"] == {"block": 2, "rack": 3, "node": 3}
