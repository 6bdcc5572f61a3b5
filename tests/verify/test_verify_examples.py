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
    role,
    standing,
)

from models.verify.check import check, derive, figures

ALL = list(range(8))


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


def test_bandwidth_is_floored_once_and_the_share_is_taken_before() -> None:
    # 8 NICs of 1 Mbit/s are 1 MB/s, over 3: 1/3, floored 0; the ideal is 1, so the share is 333.
    assert stated(
        two_racks(3, nics=[{"name": f"n{g}", "gbps": 0.001, "gpus": [g]} for g in ALL])
    ) == (0, 333)


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


def test_unknown_gpus_are_priced_at_their_worst() -> None:
    plan = made(
        cluster([mesh()], [node("m", "DGX-1 V100", unhealthyGpus=[5, 6, 7], unknownUnhealthy=1)]),
        [gang("a", role("worker", 1, 2)), gang("b", pods=(standing("b", "m", [1]),))],
        [decided("a", "place", ("m", None)), decided("b", "keep", ("m", [1]))],
    )
    # Any two of 0, 2, 3, 4: the pairs 2-4 and 3-4 have no link, SYS 8000. Of 40000: 200.
    assert stated(plan) == (8000, 200)


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
