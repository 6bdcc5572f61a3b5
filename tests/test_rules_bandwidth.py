"""Rule 10 and section 3: B of a placement, where its parts decide, and the least share.

Switched servers: inside 370,800 MB/s; a NIC of 400 Gbit/s: 50,000 MB/s; one of 100: 12,500 MB/s.
"""

from __future__ import annotations

import pytest
from building import build, gang, node, role
from building_servers import nvl, pairs4, pcie, ring4, switched, v100
from outcomes import planned

from models.hardware import Nic, ServerModel


@pytest.mark.parametrize(("least", "decision"), [("0.134", "place"), ("0.135", "wait")])
def test_least_share_rule_decides_on_the_exact_ratio(least: str, decision: str) -> None:
    # Two servers with five GPUs free each: 50,000 / 370,800 = 0.13484...
    nodes = [node(f"n{i}", switched(), unhealthy=(0, 1, 2)) for i in (1, 2)]
    gangs = [gang("a", pods=8, min_share=least)]
    outcome = planned(build(nodes=nodes, gangs=gangs))
    assert outcome.decision("a") == decision
    assert outcome.reason("a") == (None if decision == "place" else "Bandwidth")


@pytest.mark.parametrize(("least", "decision"), [("0.1348", "place"), ("0.1349", "wait")])
def test_least_share_rule_compares_before_rounding(least: str, decision: str) -> None:
    # Rounded down to permille, 0.134 would be less than 0.1348 already.
    nodes = [node(f"n{i}", switched(), unhealthy=(0, 1, 2)) for i in (1, 2)]
    instance = build(nodes=nodes, gangs=[gang("a", pods=8, min_share=least)])
    assert planned(instance).decision("a") == decision


@pytest.mark.parametrize(("least", "decision"), [("0.5", "place"), ("0.500000001", "wait")])
def test_least_share_rule_allows_equality(least: str, decision: str) -> None:
    # Two racks, oversubscription 2: 25,000 of the 50,000 that two whole servers could have.
    gangs = [gang("a", pods=2, gpus_per_pod=8, min_share=least)]
    instance = build(racks=2, oversubscription=(1, 2), gangs=gangs)
    assert planned(instance).decision("a") == decision


def test_least_share_of_the_policy_is_a_default_that_a_gang_may_lower() -> None:
    nodes = [node(f"n{i}", switched(), unhealthy=(0, 1, 2)) for i in (1, 2)]
    strict = build(nodes=nodes, gangs=[gang("a", pods=8)], min_share="0.5")
    assert planned(strict).decision("a") == "wait"
    lowered = build(nodes=nodes, gangs=[gang("a", pods=8, min_share="0")], min_share="0.5")
    assert planned(lowered).decision("a") == "place"


def test_least_share_makes_the_planner_take_the_better_gpus() -> None:
    # n1 is half used, n2 has what the gang needs in one server.
    runs = gang("r", gpus_per_pod=4, stands=[(0, 0, 0, 15)])
    nodes = [node("n1", switched()), node("n2", switched())]
    gangs = [runs, gang("a", pods=8, min_share="1")]
    assert set(planned(build(nodes=nodes, gangs=gangs)).nodes("a")) == {"n2"}


@pytest.mark.parametrize(
    ("model", "size"),
    [
        (ring4(), 2),
        (ring4(), 3),
        (pairs4(), 2),
        (pairs4(), 3),  # as good as it gets: over PCIe for any three
        (pcie(4), 3),
        (v100(), 4),
        (v100(), 6),
    ],
)
def test_an_empty_server_gives_every_size_its_ideal(model: ServerModel, size: int) -> None:
    outcome = planned(build(model=model, gangs=[gang("a", gpus_per_pod=size)]))
    assert outcome.value("bandwidth") == size * 1000


def test_a_bridged_pair_is_worth_more_than_two_halves() -> None:
    # GPU 0 is sick: 2-3 is the bridge that is left (80,000); 1-2 crosses the sockets.
    nodes = [node("n", pairs4(), unhealthy=(0,))]
    outcome = planned(build(nodes=nodes, gangs=[gang("a", gpus_per_pod=2), gang("b")]))
    assert outcome.gpus("a") == [(2, 3)]
    assert outcome.gpus("b") == [(1,)]


def test_gpus_near_the_nic_are_taken_for_a_gang_that_leaves_the_server() -> None:
    # Each server has one NIC of 100 Gbit/s near GPUs 2 and 3: 12,500 near, min(25,000, 6,250) far.
    model = switched(4, nics=(Nic("ib0", 100_000, (2, 3)),))
    nodes = [node("n1", model), node("n2", model)]
    gangs = [
        gang("a", pods=2, gpus_per_pod=2),
        gang("r1", stands=[(0, 0, 0, 1)]),
        gang("r2", stands=[(0, 0, 1, 1)]),
    ]
    outcome = planned(build(nodes=nodes, gangs=gangs))
    # Three GPUs are free on each: the gang of 4 needs both. ideal(4 on a server of 4) = 370,800.
    assert all(set(g or ()) & {2, 3} for g in outcome.gpus("a"))
    # 12,500 of 370,800 = 33.7 permille
    assert outcome.value("bandwidth") == 4 * 33


def test_a_gang_without_communication_does_not_keep_the_good_gpus() -> None:
    # Left are 0, 1, 6: the one link is 0-1 (20,000 of 40,000). a says nothing and takes GPU 6.
    nodes = [node("n", v100(), unhealthy=(2, 3, 4, 5, 7))]
    quiet = [gang("a", pattern="none"), gang("b", gpus_per_pod=2)]
    outcome = planned(build(nodes=nodes, gangs=quiet))
    assert outcome.gpus("a") == [(6,)]
    assert outcome.value("bandwidth") == 2 * 500
    # Two quiet GPUs: nothing is counted for them, and nothing is kept from b.
    nodes = [node("n", v100(), unhealthy=(2, 3, 4, 7))]
    quiet = [gang("a", gpus_per_pod=2, pattern="none"), gang("b", gpus_per_pod=2)]
    assert planned(build(nodes=nodes, gangs=quiet)).value("bandwidth") == 2 * 1000


def test_weight_says_who_gets_the_better_links() -> None:
    # Left are 0, 1, 5, 6: double links 1-5 and 5-6, a single one 0-1.
    nodes = [node("n", v100(), unhealthy=(2, 3, 4, 7))]
    gangs = [gang("a", gpus_per_pod=2, weight=1), gang("b", gpus_per_pod=2, weight=3)]
    outcome = planned(build(nodes=nodes, gangs=gangs))
    # 5-6 to b leaves 0-1 (500) to a; 1-5 would leave it 0-6, across the sockets (200).
    assert outcome.gpus("b") == [(5, 6)]
    assert outcome.gpus("a") == [(0, 1)]
    assert outcome.value("bandwidth") == 2 * 500 + 3 * 2 * 1000


def test_a_shared_nvlink_domain_needs_no_network() -> None:
    nodes = [node(f"n{i}", nvl(2, 2, nics=()), rack=f"r{(i + 1) // 2}") for i in (1, 2, 3, 4)]
    outcome = planned(build(nodes=nodes, nvlink="rack", gangs=[gang("a", pods=4)]))
    assert outcome.domains("a", "rack") == 1
    assert outcome.value("bandwidth") == 4 * 1000


def test_a_gang_spread_over_racks_of_unlike_cost_takes_the_cheap_crossing() -> None:
    # Two racks of b1 cost 1.5, crossing blocks 4: 16 GPUs find 8 + 8 in b1 or one rack of each.
    nodes = [
        node("n1", switched(), "b1", "r1"),
        node("n2", switched(), "b1", "r2"),
        node("n3", switched(), "b2", "r1"),
    ]
    gangs = [gang("a", pods=2, gpus_per_pod=8)]
    outcome = planned(build(nodes=nodes, gangs=gangs, oversubscription=(4, "1.5")))
    assert outcome.nodes("a") == ["n1", "n2"]
    # (50,000 / 1.5) / 50,000 = 2/3
    assert outcome.value("bandwidth") == 16 * 666


def test_a_head_without_gpus_crosses_no_network() -> None:
    nodes = [node("n1", switched(2), rack="r1"), node("n2", None, rack="r2")]
    roles = [role("head", gpus_per_pod=0, selector={"kubernetes.io/hostname": "n2"})]
    roles += [role("worker", 2, 1)]
    outcome = planned(build(nodes=nodes, gangs=[gang("a", roles=roles)]))
    assert outcome.value("bandwidth") == 2 * 1000
    # But it counts for the span: one node and one rack more, w = 2.
    assert outcome.value("span") == 2 * (1 + 4)
