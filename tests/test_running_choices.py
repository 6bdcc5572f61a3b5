"""The search on gangs that run, where it once proved too much or found too little.

Every plan is held against all plans; the values are worked out by hand besides. ``pairs4`` has bridges of
80,000 MB/s between GPUs 0-1 and 2-3 and 10,000 MB/s from pair to pair: 125 permille of the ideal of two.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from building import build, gang, node, role
from building_servers import pairs4, ring4, switched
from comparing import differences

from models.instance.gang import Gang, PlannedPod
from models.instance.instance import Instance
from models.instance.solution import Solution
from models.program.base_state import build_base_state
from models.program.formulation import formulate
from planner.read.inputs import read
from planner.search.solve import solve

BAND = ("admission", "bandwidth")
STICKY = ("admission", "stability")


def solved(instance: Instance) -> Solution:
    """The plan of the search, after it has been found to be the best there is, and proven so."""
    assert differences(instance) == []
    return solve(instance)


def values(solution: Solution) -> dict[str, int]:
    return {tier.name: tier.value for tier in solution.tiers}


def decided(instance: Instance, solution: Solution) -> dict[str, str]:
    return {g.name: d.decision for g, d in zip(instance.gangs, solution.decisions, strict=True)}


def fixed(name: str, at: int, gpus: int) -> Gang:
    """A gang of one pod that nothing can be done about, with GPUs of a mask; it talks to nobody."""
    return gang(name, gpus_per_pod=gpus.bit_count(), stands=[(0, 0, at, gpus)], pattern="none")


def planned(one: Gang, *where: tuple[int, int]) -> Gang:
    """The gang as an earlier plan had it: (index, node)."""
    return replace(one, planned=tuple(PlannedPod(0, index, n) for index, n in where))


def test_beside_unknown_gpus_that_may_leave_a_pair_is_the_worst_of_what_is_left() -> None:
    # ``low`` need not go: one of the four is held, one more nobody knows which, two can be given. They
    # may be any two of 1, 2, 3: at worst 10,000 of 80,000 MB/s. Keeping it comes before bandwidth.
    low = gang("low", gpus_per_pod=1, stands=[(0, 0, 0, None)], preemptible=True, pattern="none")
    new = gang("new", gpus_per_pod=2, priority=1)
    instance = build(model=pairs4(), gangs=[fixed("fixed", 0, 1), low, new], objectives=BAND)
    solution = solved(instance)
    assert decided(instance, solution) == {"fixed": "keep", "low": "keep", "new": "place"}
    assert values(solution)["bandwidth"] == 2 * 125


def test_where_unknown_gpus_leave_the_next_gang_gets_a_bridged_pair() -> None:
    # Three GPUs only fit if ``low`` goes; then nothing is unknown any more. Of 1, 2, 3 no set of three is
    # better than 10,000 MB/s, which is the ideal of three, too: 1000 permille of three GPUs.
    low = gang("low", gpus_per_pod=1, stands=[(0, 0, 0, None)], preemptible=True, pattern="none")
    new = gang("new", gpus_per_pod=3, priority=1)
    instance = build(model=pairs4(), gangs=[fixed("fixed", 0, 1), low, new], objectives=BAND)
    solution = solved(instance)
    assert decided(instance, solution)["low"] == "preempt"
    (placed,) = [
        d.pods for d, g in zip(solution.decisions, instance.gangs, strict=True) if g is new
    ]
    assert placed[0].gpus == 0b1110
    assert values(solution)["bandwidth"] == 3 * 1000


def test_unknown_gpus_that_stay_are_worth_less_when_those_known_leave() -> None:
    # Beside ``leaves`` on 0 and 1 the unknown GPUs of ``stays`` can only be 2 and 3: 1000 permille. When
    # it is stopped for ``new`` they may be any two, as those of ``new`` may: 125 permille each.
    stays = gang("stays", gpus_per_pod=2, stands=[(0, 0, 0, None)])
    leaves = gang(
        "leaves", gpus_per_pod=2, stands=[(0, 0, 0, 0b11)], preemptible=True, pattern="none"
    )
    alone = build(model=pairs4(), gangs=[stays, leaves], objectives=BAND)
    assert values(solved(alone))["bandwidth"] == 2 * 1000
    new = gang("new", gpus_per_pod=2, priority=1)
    instance = build(model=pairs4(), gangs=[stays, leaves, new], objectives=BAND)
    solution = solved(instance)
    assert decided(instance, solution) == {"leaves": "preempt", "new": "place", "stays": "keep"}
    assert values(solution)["bandwidth"] == 2 * 125 + 2 * 125


def test_a_standing_gang_is_priced_over_the_levels_it_crosses_although_it_must_not() -> None:
    # ``astray`` has to be on one node and stands on two, its half on n01 of unknown GPUs. Beside ``leaves``
    # these are 2 and 3. One NIC of 400 Gbit/s near every GPU: 50,000 MB/s a node, over 5 from rack to
    # rack. The ideal of four GPUs is min of the pairs' links: 10,000 MB/s, so that it gets all of it.
    astray = gang(
        "astray", 2, 2, same="node", stands=[(0, 0, 0, None), (0, 1, 1, 0b11)], preemptible=True
    )
    leaves = gang("leaves", gpus_per_pod=2, stands=[(0, 0, 0, 0b11)], preemptible=True)
    instance = build(
        racks=2,
        model=pairs4(),
        gangs=[astray, leaves],
        oversubscription=(1, 10),
        objectives=("bandwidth",),
    )
    # 50,000 / 10 = 5,000 of 10,000 MB/s: 500 permille of four GPUs, and all of two.
    assert values(solved(instance))["bandwidth"] == 4 * 500 + 2 * 1000


def test_gpus_nobody_knows_of_a_gang_to_be_completed_are_counted_where_the_number_is_all() -> None:
    # Of n01's four GPUs 0 and 3 are held, and two more by pods of ``half``: the missing two go to n02.
    half = gang("half", 4, 1, stands=[(0, 0, 0, None), (0, 1, 0, None)], preemptible=True)
    gangs = [fixed("first", 0, 0b0001), fixed("last", 0, 0b1000), half]
    instance = build(nodes_per_rack=2, gpus=4, gangs=gangs, objectives=BAND)
    solution = solved(instance)
    assert decided(instance, solution)["half"] == "complete"


def test_growing_is_not_bound_by_a_minimum_share() -> None:
    # One GPU has no bandwidth; a second one on the other node gives 50,000 of 370,800 MB/s: 134 permille
    # of the one GPU it requests for, far below the nine tenths that a start would need.
    grows = gang("grows", roles=[role(pods=1, most=2)], stands=[(0, 0, 0, 0b10)], min_share="9/10")
    gangs = [grows, fixed("here", 0, 0b01), fixed("there", 1, 0b01)]
    instance = build(
        nodes_per_rack=2, gpus=2, gangs=gangs, objectives=("admission", "bandwidth", "growth")
    )
    solution = solved(instance)
    assert decided(instance, solution)["grows"] == "resize"
    assert values(solution)["growth/0"] == 1
    assert values(solution)["bandwidth"] == 134


def test_a_pod_that_stands_alone_with_a_high_index_counts_as_moved_from_its_plan() -> None:
    # Only index 1 stands, planned on the other node; there is no room to complete the gang.
    half = planned(gang("half", 2, 1, stands=[(0, 1, 0, 1)]), (1, 1))
    gangs = [half, fixed("other", 1, 1)]
    instance = build(nodes_per_rack=2, gpus=1, gangs=gangs, objectives=STICKY)
    assert values(solved(instance))["stability"] == 1


@pytest.mark.parametrize("size", [1, 2])
def test_slices_go_where_an_earlier_plan_had_them(size: int) -> None:
    # Two slices, one a rack; the earlier plan had the first in the second rack. Of the rack with two nodes
    # of one GPU the pods of a slice of two had one each, in the order opposite to that of the nodes.
    where = {1: [(0, 1), (1, 0)], 2: [(0, 3), (1, 2), (2, 1), (3, 0)]}[size]
    new = planned(gang("new", 2 * size, 1, slices=(size, "rack")), *where)
    instance = build(racks=2, nodes_per_rack=size, gpus=1, gangs=[new], objectives=STICKY)
    solution = solved(instance)
    assert values(solution)["stability"] == 0
    assert [pod.node for pod in solution.decisions[0].pods] == [n for _, n in where]


def test_a_gang_that_moves_its_pods_together_comes_to_a_node_where_it_stands_already() -> None:
    # ``high`` on one node has all of its ideal, for which ``low`` must go: its second pod comes there.
    high = gang("high", 2, 1, stands=[(0, 0, 0, 1), (0, 1, 1, 1)], movable=True, priority=1)
    low = gang("low", stands=[(0, 0, 0, 2)], preemptible=True)
    gangs = [high, low, fixed("other", 1, 2)]
    instance = build(nodes_per_rack=2, gpus=2, gangs=gangs, objectives=("bandwidth",))
    solution = solved(instance)
    assert decided(instance, solution) == {"high": "move", "low": "preempt", "other": "keep"}
    assert values(solution)["bandwidth"] == 2 * 1000


def test_two_pods_may_change_places_where_one_of_them_has_to_come() -> None:
    # The contract (2.7) tells pods by index: ``high`` has room for one pod a node and nowhere else, and its
    # second pod coming to n01 is what lets ``low`` be stopped for its peer, which talks.
    high = gang("high", 2, 1, stands=[(0, 0, 0, 1), (0, 1, 1, 1)], movable=True, priority=1)
    low = gang("low", gpus_per_pod=2, stands=[(0, 0, 0, 6)], preemptible=True, pattern="none")
    peer = gang("peer", gpus_per_pod=2)
    gangs = [replace(high, pattern="none"), low, peer, fixed("other", 1, 6)]
    instance = build(nodes_per_rack=2, gpus=3, gangs=gangs, objectives=("bandwidth",))
    solution = solved(instance)
    assert decided(instance, solution) == {
        "high": "move",
        "low": "preempt",
        "other": "keep",
        "peer": "place",
    }
    assert [pod.node for pod in solution.decisions[0].pods] == [1, 0]


@pytest.mark.parametrize("slices", [None, (3, "block"), (2, "block")])
def test_launchers_that_gather_on_a_node_come_to_it(slices: tuple[int, str] | None) -> None:
    # Three launchers, one a node; gathered on n03, where one of them stands, they let ``low`` be stopped,
    # whose server is then whole. The others hold pods that nothing can be done about.
    spread = gang(
        "spread",
        roles=[role("launcher", 3, 0, slices=slices, selector={"pool": "a"})],
        stands=[(0, i, i, 0) for i in range(3)],
        movable=True,
        priority=1,
    )
    low = gang("low", gpus_per_pod=2, stands=[(0, 0, 2, 3)], preemptible=True)
    nodes = [node(f"n0{i}", switched(2), labels={"pool": "b" if i < 3 else "a"}) for i in (1, 2, 3)]
    gangs = [spread, low, fixed("first", 0, 3), fixed("second", 1, 3)]
    instance = build(nodes=nodes, gangs=gangs, objectives=("defragment",))
    solution = solved(instance)
    assert decided(instance, solution)["low"] == "preempt"
    assert values(solution)["defragment"] == 2


def test_a_launcher_may_be_all_that_comes_to_a_node() -> None:
    # The GPUs of ``new`` must be on n02; its launcher comes to n01, so that ``low`` may leave that whole.
    worker = role("worker", 1, 2, selector={"pool": "a"})
    new = gang("new", roles=[worker, role("launcher", 1, 0)], priority=1)
    low = gang("low", gpus_per_pod=2, stands=[(0, 0, 0, 3)], preemptible=True)
    nodes = [node("n01", switched(2)), node("n02", switched(2), labels={"pool": "a"})]
    instance = build(nodes=nodes, gangs=[low, new], objectives=("defragment", "admission"))
    solution = solved(instance)
    assert decided(instance, solution) == {"low": "preempt", "new": "place"}
    assert values(solution)["defragment"] == 2


def test_of_a_slice_that_moves_the_pod_planned_there_has_its_place_before_the_one_that_stood() -> (
    None
):
    # Both pods change places, as planned; what stood first on n01 does not hold it.
    both = gang(
        "both",
        2,
        1,
        slices=(1, "rack"),
        stands=[(0, 0, 0, 1), (0, 1, 1, 1)],
        movable=True,
    )
    instance = build(
        nodes_per_rack=2, gpus=1, gangs=[planned(both, (1, 0))], objectives=("stability",)
    )
    assert values(solved(instance))["stability"] == 0


@pytest.mark.parametrize(("first", "moved"), [("stability", 0), ("bandwidth", 2)])
def test_pods_change_places_at_the_cost_of_those_planned_for_them(first: str, moved: int) -> None:
    # As above, but each pod of ``high`` stands where it was planned: changing places takes both away.
    high = gang("high", 2, 1, stands=[(0, 0, 0, 1), (0, 1, 1, 1)], movable=True, priority=1)
    high = replace(planned(high, (0, 0), (1, 1)), pattern="none")
    low = gang("low", gpus_per_pod=2, stands=[(0, 0, 0, 6)], preemptible=True, pattern="none")
    gangs = [high, low, gang("peer", gpus_per_pod=2), fixed("other", 1, 6)]
    other = "bandwidth" if first == "stability" else "stability"
    instance = build(nodes_per_rack=2, gpus=3, gangs=gangs, objectives=(first, other))
    solution = solved(instance)
    assert values(solution)["stability"] == moved
    assert values(solution)["bandwidth"] == 1000 * moved


def test_a_pod_whose_gpus_are_known_may_stay_while_another_joins_it() -> None:
    # A ring of four, 20,000 MB/s along it. GPU 1 is held, 3 is ``pair``'s own, of 0 and 2 one is held by
    # nobody knows whom: whichever is left lies beside 3. Placed anew 3 would be unknown, too, and 0 and 2
    # the worst pair. Across the racks the two had 50,000 / 10 MB/s, a quarter.
    pair = gang("pair", 2, 1, stands=[(0, 0, 0, 8), (0, 1, 1, 8)], movable=True)
    hides = gang("hides", stands=[(0, 0, 0, None)], pattern="none")
    instance = build(
        racks=2,
        model=ring4(),
        gangs=[pair, hides, fixed("one", 0, 2), fixed("three", 1, 7)],
        oversubscription=(1, 10),
        objectives=("bandwidth",),
    )
    solution = solved(instance)
    assert decided(instance, solution)["pair"] == "move"
    assert values(solution)["bandwidth"] == 2 * 1000


def test_pods_on_cordoned_nodes_are_told_by_their_number() -> None:
    # Eight pods on eight nodes that take no more: so many of them may stay, 0 to 7, or all be kept.
    nodes = [node(f"n{i}", switched(2), unschedulable=i < 8) for i in range(10)]
    moves = gang("moves", 8, 1, stands=[(0, i, i, 1) for i in range(8)], movable=True)
    instance = build(nodes=nodes, gangs=[moves])
    (choice,) = build_base_state(instance).requests.choices
    assert sorted(len(option.demand.stays) for option in choice.options) == list(range(9))
    assert formulate(instance).complete


def test_a_role_that_breaks_its_rule_stays_whole_or_not_at_all() -> None:
    # Eight pods on two racks, although their role must be in one: kept, or all placed anew.
    moves = gang(
        "moves",
        roles=[role(pods=8, same="rack")],
        stands=[(0, i, i % 4, 1 << i // 4) for i in range(8)],
        movable=True,
    )
    instance = build(racks=2, nodes_per_rack=2, gpus=4, gangs=[moves])
    (choice,) = build_base_state(instance).requests.choices
    assert sorted(len(option.demand.stays) for option in choice.options) == [0, 8]
    assert formulate(instance).complete


def test_launchers_do_not_restart_their_gangs_for_span_alone() -> None:
    # three launchers stand alone on node1, their workers fill node0; the queue is at its limit
    instance = read([str(Path(__file__).parent / "data" / "launchers.json")])
    solution = solve(instance)
    decisions = [decision.decision for decision in solution.decisions]
    assert decisions == ["wait", "keep", "keep", "keep"]
    # each gang of 2 GPUs is on 2 nodes
    assert (values(solution)["disruption"], values(solution)["span"]) == (0, 6)


def test_a_gang_moves_with_its_launcher_where_that_lets_another_start() -> None:
    # ``wide`` asks for all cpu of n1, where only the launcher of ``old`` is: 4 of 8 cores
    roles = [role("launcher", 1, 0, requests={"cpu": 4000}), role("worker", 1, 2)]
    old = gang("old", roles=roles, stands=[(0, 0, 0, 0), (1, 0, 1, 0b11)], movable=True)
    wide = gang("wide", 1, 4, requests={"cpu": 8000})
    nodes = [node(f"n{i}", switched(4), allocatable={"cpu": 8000}) for i in (1, 2)]
    solution = solved(build(nodes=nodes, gangs=[old, wide]))
    assert [d.decision for d in solution.decisions] == ["move", "place"]
    assert values(solution)["disruption"] == 2


def test_a_gang_without_gpus_stays_where_no_tier_gains() -> None:
    roles = [role("web", 2, 0)]
    cpu = gang("cpu", roles=roles, stands=[(0, 0, 1, 0), (0, 1, 1, 0)], movable=True)
    instance = build(nodes_per_rack=3, gangs=[cpu, gang("new", 1, 8)])
    assert decided(instance, solved(instance)) == {"cpu": "keep", "new": "place"}
