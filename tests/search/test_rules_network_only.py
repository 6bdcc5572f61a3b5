"""Gangs that may not use NVLink between servers: every server of an NVLink domain counts by itself.

Trays of an NVLink domain: 721,800 MB/s over NVLink; the test NIC of 400 Gbit/s: 50,000 MB/s a tray.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from building import build, gang, node
from building_servers import nvl
from bundles import read_all
from outcomes import document_of, planned
from plan_documents import Doc, entry, restated, sealed, wanted

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.verify.check import check


def racks(*gangs: Gang, count: int = 2, oversubscription: tuple[int, int] = (1, 1)) -> Instance:
    """Racks of two trays of 4 GPUs; a rack shares one NVLink fabric."""
    return build(
        racks=count,
        nodes_per_rack=2,
        model=nvl(4, 2),
        nvlink="rack",
        oversubscription=oversubscription,
        gangs=gangs,
    )


def rates(instance: Instance, name: str = "a") -> tuple[int, int]:
    """(bandwidthMBps, share) the plan states of a gang; the plan is checked."""
    planned(instance)
    stated = entry(document_of(instance), name)
    return stated["bandwidthMBps"], stated["share"]


def test_between_servers_such_a_gang_has_the_network_and_no_more() -> None:
    # 8 GPUs need both trays of a rack. Its ideal is the network as well: min(721,800, 50,000).
    assert rates(racks(gang("a", 2, 4))) == (721_800, 1000)
    assert rates(racks(gang("a", 2, 4, joined=False))) == (50_000, 1000)


def test_a_crossing_inside_the_nvlink_domain_costs_its_oversubscription() -> None:
    # The domain is a block here, and its racks cost 4: 50,000 / 4, and the ideal stays 50,000.
    apart = [node(f"n{i}", nvl(4, 2), rack=f"r{i}") for i in (1, 2)]
    for joined, found in ((True, (721_800, 1000)), (False, (12_500, 250))):
        one = gang("a", 2, 4, joined=joined)
        instance = build(nodes=apart, nvlink="block", oversubscription=(1, 4), gangs=[one])
        assert rates(instance) == found


def test_the_gang_with_nvlink_gets_the_trays_that_share_it() -> None:
    # One rack of two trays, and two trays in racks of their own that cost 2. The gang with NVLink
    # wins 1000 against 25,000 / 721,800 = 34 permille by the rack, the other one 1000 against 500.
    trays = [
        node("n1", nvl(4, 2), rack="r1"),
        node("n2", nvl(4, 2), rack="r1"),
        node("n3", nvl(4, 2), rack="r2"),
        node("n4", nvl(4, 2), rack="r3"),
    ]
    for first, second in ((True, False), (False, True)):
        gangs = [gang("a", 2, 4, joined=first), gang("b", 2, 4, joined=second)]
        instance = build(nodes=trays, nvlink="rack", oversubscription=(1, 2), gangs=gangs)
        outcome = planned(instance)
        assert outcome.nodes("a" if first else "b") == ["n1", "n2"]
        assert outcome.value("bandwidth") == 8 * 1000 + 8 * 500


def as_if_joined(plan: Doc) -> None:
    del wanted(plan, "a")["spec"]["communication"]["nvlinkAcrossNodes"]


def as_if_apart(plan: Doc) -> None:
    wanted(plan, "b")["spec"]["communication"]["nvlinkAcrossNodes"] = False


def stated_as_nvlink(plan: Doc) -> None:
    entry(plan, "a")["bandwidthMBps"] = 721_800


def stated_as_network(plan: Doc) -> None:
    entry(plan, "b")["bandwidthMBps"] = 50_000


@pytest.mark.parametrize(
    "sabotage", [as_if_joined, as_if_apart, stated_as_nvlink, stated_as_network]
)
def test_the_judge_prices_every_gang_by_its_own_reading(sabotage: Callable[[Doc], None]) -> None:
    plan = document_of(racks(gang("a", 2, 4, joined=False), gang("b", 2, 4)))
    assert check(plan) == []
    sabotage(plan)
    assert {violation.rule for violation in check(sealed(plan))} == {"bandwidth"}


def test_the_judge_takes_the_ideal_without_nvlink() -> None:
    # 50,000 / 2 across racks is half of the network's 50,000, and 34 permille of NVLink's 721,800.
    trays = [node(f"n{i}", nvl(4, 2), rack=f"r{i}") for i in (1, 2)]
    one = gang("a", 2, 4, joined=False, min_share="0.5")
    plan = document_of(build(nodes=trays, oversubscription=(1, 2), gangs=[one]))
    assert (entry(plan, "a")["share"], check(plan)) == (500, [])
    as_if_joined(plan)
    assert {violation.rule for violation in check(restated(plan))} == {"min-share"}


def read_gang(talk: dict[str, Any], *, held_to_its_rack: bool = False) -> Instance:
    """One gang on two trays of a rack; held to it, and then the speed of the NICs is not known."""
    nics = [{"name": "eth0", "gbps": None}]
    topology = {"required": "rack"} if held_to_its_rack else {}
    documents = [
        {
            "apiVersion": "gangplan.dev/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": "c"},
            "spec": {
                "levels": [{"name": "rack", "nvlink": True}],
                "nodes": [
                    {
                        "name": f"n{i}",
                        "model": "GB200 NVL72 compute tray",
                        "domains": {"rack": "r"},
                        **({"nics": nics} if held_to_its_rack else {}),
                    }
                    for i in (1, 2)
                ],
            },
        },
        {
            "apiVersion": "gangplan.dev/v1alpha1",
            "kind": "Gang",
            "metadata": {"name": "a"},
            "spec": {
                "roles": [{"name": "w", "replicas": 2, "gpus": 4}],
                "communication": talk,
                "topology": topology,
            },
        },
    ]
    return read_all(documents)
