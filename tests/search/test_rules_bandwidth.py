"""Rule 10 and section 3: B of a placement, where its parts decide, and the least share.

Switched servers: inside 370,800 MB/s; a NIC of 400 Gbit/s: 50,000 MB/s; one of 100: 12,500 MB/s.
"""

from __future__ import annotations

import pytest
from building import build, gang, node
from building_servers import nvl, pairs4, pcie, ring4, switched, v100
from outcomes import planned

from models.hardware import ServerModel


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


def test_least_share_of_the_policy_is_a_default_that_a_gang_may_lower() -> None:
    nodes = [node(f"n{i}", switched(), unhealthy=(0, 1, 2)) for i in (1, 2)]
    strict = build(nodes=nodes, gangs=[gang("a", pods=8)], min_share="0.5")
    assert planned(strict).decision("a") == "wait"
    lowered = build(nodes=nodes, gangs=[gang("a", pods=8, min_share="0")], min_share="0.5")
    assert planned(lowered).decision("a") == "place"


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
