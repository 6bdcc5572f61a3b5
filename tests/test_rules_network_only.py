"""Gangs that may not use NVLink between servers: every server of an NVLink domain counts by itself.

Trays of an NVLink domain: 721,800 MB/s over NVLink; the test NIC of 400 Gbit/s: 50,000 MB/s a tray.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from building import build, gang, instance_document, node
from building_servers import nvl, switched
from bundles import read_all
from outcomes import NOW, document_of, planned
from plan_documents import Doc, entry, restated, sealed, wanted

from models.hardware import Nic
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.results.plan import compose
from models.verify.check import check
from planner.errors import InputError
from planner.read.inputs import instance_from_document
from planner.search.solve import solve


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


def test_inside_one_server_nothing_changes() -> None:
    assert rates(racks(gang("a", 2, 2, joined=False))) == (721_800, 1000)


def test_a_crossing_inside_the_nvlink_domain_costs_its_oversubscription() -> None:
    # The domain is a block here, and its racks cost 4: 50,000 / 4, and the ideal stays 50,000.
    apart = [node(f"n{i}", nvl(4, 2), rack=f"r{i}") for i in (1, 2)]
    for joined, found in ((True, (721_800, 1000)), (False, (12_500, 250))):
        one = gang("a", 2, 4, joined=joined)
        instance = build(nodes=apart, nvlink="block", oversubscription=(1, 4), gangs=[one])
        assert rates(instance) == found


def test_a_slow_nic_of_one_tray_is_not_made_up_for_by_its_neighbour() -> None:
    # With a third tray in the next rack: joined, the domain has 50,000 + 1,250 to leave by; apart,
    # its second tray has 1,250 alone. The ideal, as the trays are made, is 50,000 both times.
    slow = (Nic("eth0", 10_000, (0, 1, 2, 3)),)
    trays = [
        node("n1", nvl(4, 2)),
        node("n2", nvl(4, 2), nics=slow),
        node("n3", nvl(4, 2), rack="r2"),
    ]
    for joined, found in ((True, (50_000, 1000)), (False, (1_250, 25))):
        one = gang("a", 3, 4, joined=joined)
        assert rates(build(nodes=trays, nvlink="rack", gangs=[one])) == found


def test_the_least_share_is_of_the_ideal_without_nvlink() -> None:
    # Of NVLink's 721,800 the network is 69 permille; of its own ideal it is all.
    one = gang("a", 2, 4, min_share="1", joined=False)
    assert planned(racks(one)).decision("a") == "place"


def test_the_least_share_rules_out_trays_that_the_network_slows() -> None:
    # 6 GPUs on trays with 3 free: 50,000 / 2 across racks of oversubscription 2, of an ideal 50,000.
    trays = [node(f"n{i}", nvl(4, 2), rack=f"r{i}", unhealthy=(0,)) for i in (1, 2)]
    for joined in (True, False):
        for least, decision in (("0.5", "place"), ("0.51", "wait")):
            one = gang("a", 2, 3, min_share=least, joined=joined)
            instance = build(nodes=trays, nvlink="block", oversubscription=(1, 2), gangs=[one])
            assert planned(instance).decision("a") == ("place" if joined else decision)


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


def test_gangs_alike_but_for_nvlink_are_not_exchanged() -> None:
    # Only a gang with NVLink may be placed: the other one has half of its ideal at most.
    trays = [node(f"n{i}", nvl(4, 2), rack=f"r{i}") for i in (1, 2)]
    gangs = [
        gang("a", 2, 4, min_share="0.9", submitted=0, joined=False),
        gang("b", 2, 4, min_share="0.9", submitted=60),
    ]
    outcome = planned(build(nodes=trays, nvlink="block", oversubscription=(1, 2), gangs=gangs))
    assert outcome.decisions() == {"a": "wait", "b": "place"}
    assert outcome.reason("a") == "Bandwidth"


def test_pods_are_placed_beside_standing_ones_by_the_same_reading() -> None:
    # One pod stands on n1; n2 shares its fabric and n3 does not.
    for joined, found in ((True, (721_800, 1000)), (False, (50_000, 1000))):
        one = gang("a", 2, 4, stands=[(0, 0, 0, 15)], joined=joined)
        assert rates(racks(one)) == found


def test_servers_outside_any_nvlink_domain_are_the_same_either_way() -> None:
    for joined in (True, False):
        one = gang("a", 2, 8, joined=joined)
        assert rates(build(nodes_per_rack=2, model=switched(), gangs=[one])) == (50_000, 1000)


@pytest.mark.usefixtures("brief_improvement")
@pytest.mark.parametrize("size", [10, 1_000, 100_000])
def test_every_method_of_the_search_counts_the_network(size: int) -> None:
    gangs = [gang(f"g{i:02}", 2, 4, joined=bool(i % 2)) for i in range(12)]
    instance = racks(*gangs, count=12, oversubscription=(1, 2))
    solution = solve(instance, size=size)
    plan = compose(instance, solution, name="p", created_at=NOW, generator="gangplan test")
    assert check(plan) == []
    # A rack for each of them: all reach their ideal, over NVLink or over the network.
    assert {tier.value for tier in solution.tiers if tier.name == "bandwidth"} == {12 * 8 * 1000}


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


@pytest.mark.parametrize("bad", ["false", 0, [], {}])
def test_the_judge_takes_true_or_false_only(bad: object) -> None:
    plan = document_of(racks(gang("a", 2, 4, joined=False)))
    wanted(plan, "a")["spec"]["communication"]["nvlinkAcrossNodes"] = bad
    assert {violation.rule for violation in check(sealed(plan))} >= {"form"}


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


def test_the_setting_is_read_and_written_only_where_it_says_something() -> None:
    instance = read_gang({"nvlinkAcrossNodes": False})
    assert not instance.gangs[0].nvlink_across_nodes
    written = instance_document(instance)
    assert written["gangs"][0]["spec"]["communication"]["nvlinkAcrossNodes"] is False
    assert instance_from_document(written) == instance
    for usual in ({}, {"nvlinkAcrossNodes": True}):
        document = instance_document(read_gang(usual))
        assert "nvlinkAcrossNodes" not in document["gangs"][0]["spec"]["communication"]


def test_a_nic_speed_that_is_not_known_matters_where_nvlink_does_not_join() -> None:
    # Held to one NVLink domain a gang never leaves it; without NVLink between servers it does.
    assert read_gang({}, held_to_its_rack=True).gangs[0].nvlink_across_nodes
    with pytest.raises(InputError) as caught:
        read_gang({"nvlinkAcrossNodes": False}, held_to_its_rack=True)
    (fault,) = caught.value.faults
    assert "a NIC speed of 'GB200 NVL72 compute tray' is not known" in fault.what
