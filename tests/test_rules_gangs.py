"""Rules 3, 6, 7 and 8: whole gangs or nothing, running ones stay, broken ones are completed.

Each rule: what just fits is placed, one more is not.
"""

from __future__ import annotations

import pytest
from building import build, gang, mask, node, role
from building_servers import switched
from outcomes import planned


def test_gang_rule_admits_every_pod_of_every_role() -> None:
    roles = [role("head", gpus_per_pod=0), role("worker", 2, 3), role("server", 1, 2)]
    outcome = planned(build(gangs=[gang("a", roles=roles)]))
    assert outcome.decision("a") == "place"
    assert [(p.role, p.index) for p in outcome.of("a").pods] == [(0, 0), (1, 0), (1, 1), (2, 0)]


def test_gang_rule_leaves_a_gang_out_for_one_pod_that_finds_no_room() -> None:
    roles = [role("worker", 2, 3), role("server", 1, 3)]
    outcome = planned(build(gangs=[gang("a", roles=roles)]))
    assert outcome.decision("a") == "wait"
    assert outcome.of("a").pods == ()


def test_gang_rule_leaves_a_gang_out_for_a_launcher_that_finds_no_room() -> None:
    nodes = [node("n", switched(), allocatable={"cpu": 7000})]
    roles = [
        role("head", gpus_per_pod=0, requests={"cpu": 4000}),
        role("worker", 2, 1, requests={"cpu": 2000}),
    ]
    assert planned(build(nodes=nodes, gangs=[gang("a", roles=roles)])).decision("a") == "wait"


def test_elastic_gang_that_waits_starts_as_large_as_there_is_room() -> None:
    roles = [role("worker", 2, 2, most=4)]
    outcome = planned(build(gangs=[gang("a", roles=roles)]))
    assert len(outcome.of("a").pods) == 4
    assert outcome.value("growth/0") == 4  # two pods of 2 GPUs above its smallest size
    short = planned(build(gpus=3, gangs=[gang("a", roles=roles)]))
    assert short.decision("a") == "wait"


def test_running_gang_stops_for_a_higher_priority_only_where_it_is_preemptible() -> None:
    runs = gang(
        "r", pods=2, gpus_per_pod=4, stands=[(0, 0, 0, 15), (0, 1, 0, 240)], preemptible=True
    )
    higher = planned(build(gangs=[runs, gang("a", gpus_per_pod=1, priority=9)]))
    assert higher.decisions() == {"a": "place", "r": "preempt"}
    equal = planned(build(gangs=[runs, gang("a", gpus_per_pod=1)]))
    assert equal.decisions() == {"a": "wait", "r": "keep"}


@pytest.mark.parametrize("flags", [{}, {"movable": True}])
def test_running_gang_stays_even_where_a_higher_priority_waits_for_it(
    flags: dict[str, bool],
) -> None:
    runs = gang("r", pods=2, gpus_per_pod=4, stands=[(0, 0, 0, 15), (0, 1, 0, 240)], **flags)  # type: ignore[arg-type]  # flags only
    outcome = planned(build(gangs=[runs, gang("a", gpus_per_pod=1, priority=9)]))
    assert outcome.decisions() == {"a": "wait", "r": "keep"}
    assert outcome.gpus("r") == [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_running_gang_that_breaks_every_rule_of_placing_stays() -> None:
    # Cordoned node, sick GPU, wrong selector, split over racks in spite of `required`.
    nodes = [
        node("n1", switched(4), rack="r1", unschedulable=True, unhealthy=(0,)),
        node("n2", switched(4), rack="r2"),
    ]
    roles = [role("worker", 2, 1, selector={"pool": "none"})]
    runs = gang("r", roles=roles, same="rack", stands=[(0, 0, 0, 1), (0, 1, 1, 1)], min_share="1")
    outcome = planned(build(nodes=nodes, gangs=[runs]))
    assert outcome.decision("r") == "keep"
    assert outcome.value("admission/0") == 2
    # It is priced all the same: two servers, 50,000 of 370,800 = 134 permille.
    assert outcome.value("bandwidth") == 2 * 134


def test_completion_rule_places_all_missing_pods_beside_the_standing_ones() -> None:
    broken = gang("a", pods=4, gpus_per_pod=2, stands=[(0, 1, 0, mask(2, 5))])
    outcome = planned(build(gangs=[broken]))
    assert outcome.decision("a") == "complete"
    assert outcome.of("a").pods[1].gpus == mask(2, 5)
    assert len(outcome.of("a").pods) == 4
    assert outcome.value("admission/0") == 8
    assert outcome.value("waiting/0") == 0  # it ran before


def test_completion_rule_forbids_placing_only_some_of_the_missing_pods() -> None:
    broken = gang("a", pods=4, gpus_per_pod=2, stands=[(0, 1, 0, mask(2, 5))])
    outcome = planned(build(gpus=7, gangs=[broken]))
    assert outcome.decision("a") == "keep"
    assert outcome.reason("a") == "Incomplete"
    assert len(outcome.of("a").pods) == 1
    assert outcome.value("admission/0") == 0
    assert outcome.value("bandwidth") == 0


def test_completion_rule_holds_required_over_old_and_new_pods() -> None:
    nodes = [node("n1", switched(2), rack="r1"), node("n2", switched(8), rack="r2")]
    broken = gang("a", pods=3, gpus_per_pod=1, same="rack", stands=[(0, 0, 0, 1)])
    assert planned(build(nodes=nodes, gangs=[broken])).decision("a") == "keep"
    fits = gang("a", pods=2, gpus_per_pod=1, same="rack", stands=[(0, 0, 0, 1)])
    assert planned(build(nodes=nodes, gangs=[fits])).nodes("a") == ["n1", "n1"]


def test_completion_rule_binds_only_the_slices_that_get_a_pod() -> None:
    # Slice 0 (pods 0, 1) stands split over two nodes and is whole; slice 1 has one pod to come.
    nodes = [node("n1", switched(2)), node("n2", switched(2))]
    stands = [(0, 0, 0, 1), (0, 1, 1, 1), (0, 2, 0, 2)]
    broken = gang("a", pods=4, gpus_per_pod=1, slices=(2, "node"), stands=stands)
    # Pod 3 must join pod 2 on n1, which is full.
    assert planned(build(nodes=nodes, gangs=[broken])).decision("a") == "keep"
    moved = [(0, 0, 0, 1), (0, 1, 1, 1), (0, 2, 1, 2)]
    room = [node("n1", switched(2)), node("n2", switched(3))]
    joined = gang("a", pods=4, gpus_per_pod=1, slices=(2, "node"), stands=moved)
    assert planned(build(nodes=room, gangs=[joined])).nodes("a") == ["n1", "n2", "n2", "n2"]


def test_completion_fills_the_holes_of_an_elastic_gang_up_to_its_highest_index() -> None:
    roles = [role("worker", 1, 1, most=6, step=2)]  # 1, 3 or 5 pods
    broken = gang("a", roles=roles, stands=[(0, 0, 0, 1), (0, 3, 0, 2)])
    outcome = planned(build(gangs=[broken]))
    assert outcome.decision("a") == "complete"
    assert [p.index for p in outcome.of("a").pods] == [0, 1, 2, 3, 4]
    # w at min is 1; four pods of one GPU above it
    assert outcome.value("admission/0") == 1
    assert outcome.value("growth/0") == 4


def test_completion_gives_way_to_a_higher_priority() -> None:
    broken = gang("a", pods=2, gpus_per_pod=4, stands=[(0, 0, 0, 15)])
    outcome = planned(build(gangs=[broken, gang("b", gpus_per_pod=1, priority=1)]))
    assert outcome.decisions() == {"a": "keep", "b": "place"}
