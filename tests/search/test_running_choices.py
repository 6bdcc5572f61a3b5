"""The search on gangs that run, where it once proved too much or found too little.

Every plan is held against all plans; the values are worked out by hand besides. ``pairs4`` has bridges of
80,000 MB/s between GPUs 0-1 and 2-3 and 10,000 MB/s from pair to pair: 125 permille of the ideal of two.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from building import build, gang, node, role
from building_servers import pairs4, switched
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


def test_pods_on_cordoned_nodes_are_told_by_their_number() -> None:
    # Eight pods on eight nodes that take no more: so many of them may stay, 0 to 7, or all be kept.
    nodes = [node(f"n{i}", switched(2), unschedulable=i < 8) for i in range(10)]
    moves = gang("moves", 8, 1, stands=[(0, i, i, 1) for i in range(8)], movable=True)
    instance = build(nodes=nodes, gangs=[moves])
    (choice,) = build_base_state(instance).choices
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
    (choice,) = build_base_state(instance).choices
    assert sorted(len(option.demand.stays) for option in choice.options) == [0, 8]
    assert formulate(instance).complete


def test_launchers_do_not_restart_their_gangs_for_span_alone() -> None:
    # three launchers stand alone on node1, their workers fill node0; the queue is at its limit
    instance = read([str(Path(__file__).parents[1] / "data" / "launchers.json")])
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
