"""What counts as proof that a required gang cannot be admitted, where others may give way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from building import build, gang, mask, node, role
from building_servers import switched

from models.documents.cluster import DisruptionBudget
from models.documents.policy import Objective
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.policy import Moves
from models.instance.solution import Reason, Solution
from planner.pipelines.required_gangs import Required, resolve, unmet
from planner.search.solve import solve

ALL8 = mask(*range(8))
HALF = mask(0, 1, 2, 3)


def left_out(instance: Instance, name: str) -> Required:
    """What is said of a gang that waits in the best plan."""
    found = unmet((resolve(name, instance),), instance, solve(instance), threading.Event())
    assert len(found) == 1, "the plan admits it"
    return found[0]


def unproven(instance: Instance, name: str) -> Required:
    """What is said of it where the plan leaves it out and proves nothing: what it has alone counts."""
    index = resolve(name, instance)
    waits = tuple(
        replace(decision, pods=(), decision="wait") if i == index else decision
        for i, decision in enumerate(solve(instance).decisions)
    )
    solution = Solution(waits, (), "budget", "made up")
    (found,) = unmet((index,), instance, solution, threading.Event())
    return found


def one_server(*gangs: Gang, **policy: object) -> Instance:
    made = build(gangs=gangs)
    return replace(made, policy=replace(made.policy, **policy))  # type: ignore[arg-type]


def blocker(**fields: object) -> Gang:
    """A gang that holds the whole of the first server."""
    made = gang("blocker", 1, 8, priority=5, stands=[(0, 0, 0, ALL8)])
    return replace(made, **fields)  # type: ignore[arg-type]


def test_a_gang_that_none_may_give_way_to_is_proven_to_have_no_room() -> None:
    for fixed in (
        blocker(),
        blocker(preemptible=True),  # but nobody is above it
        blocker(movable=True),  # but there is nowhere to go
    ):
        assert left_out(one_server(fixed, gang("g", 1, 8, priority=5)), "g").proven
        assert unproven(one_server(fixed, gang("g", 1, 8, priority=5)), "g").proven


@pytest.mark.parametrize(
    ("limits", "proven"),
    [
        (None, False),
        (Moves(max_gangs=0), True),
        (Moves(max_gpus=3), True),
        (Moves(max_gpus=4), False),
        # a set of moves that buys too little is left out of plans; that is no proof of no room
        (Moves(min_gain=Fraction(100)), False),
    ],
)
def test_the_limits_of_moves_hold_in_the_proof(limits: Moves | None, *, proven: bool) -> None:
    halves = [
        gang("fixed", 1, 4, stands=[(0, 0, 0, HALF)]),
        gang("moves", 1, 4, stands=[(0, 0, 1, HALF)], movable=True),
    ]
    instance = build(nodes_per_rack=2, gangs=[*halves, gang("z", 1, 8)])
    instance = replace(instance, policy=replace(instance.policy, moves=limits))
    assert unproven(instance, "z").proven is proven


def test_a_gang_that_only_a_move_would_admit_that_buys_too_little_is_not_called_impossible() -> (
    None
):
    # Of two servers each has one half held; big needs a whole one. The move of 4 GPUs buys 8 GPUs and
    # the bandwidth of 8, and no server is whole with or without it: a gain of 16 / 4.
    held = [
        gang("own", 1, 4, stands=[(0, 0, 0, HALF)], movable=True),
        gang("fixed", 1, 4, stands=[(0, 0, 1, HALF)]),
    ]
    for least, proven in (("4.001", False), ("4", None)):
        instance = build(
            racks=1,
            nodes_per_rack=2,
            gangs=[*held, gang("big", 1, 8)],
        )
        policy = replace(instance.policy, moves=Moves(min_gain=Fraction(least)))
        instance = replace(instance, policy=policy)
        solution = solve(instance)
        found = unmet((resolve("big", instance),), instance, solution, threading.Event())
        assert [one.proven for one in found] == ([] if proven is None else [proven])
    # Where no move would help, the limit changes nothing: a gang of two whole servers never fits.
    instance = replace(
        build(racks=1, nodes_per_rack=2, gangs=[*held, gang("big", 2, 8)]), policy=policy
    )
    assert left_out(instance, "big").proven


def three_racks(*gangs: Gang, first: int = 2) -> Instance:
    """So many servers in the first rack, one in each of two others; across racks share 250, speed 560."""
    racks = ["r1"] * first + ["r2", "r3"]
    nodes = [node(f"n{i + 1:02}", switched(8), "b1", rack) for i, rack in enumerate(racks)]
    return build(
        nodes=nodes, oversubscription=(1, 4), gangs=gangs, objectives=["goodput", "waiting"]
    )


def test_a_gang_for_which_another_would_be_slower_cannot_be_admitted() -> None:
    # n04 is held. big in one rack: 16,000. g on n01 leaves it n02 and n03: 16 x 560 and g's 4000. Alone
    # there is room, and g of 8 GPUs would be worth it: 16,960.
    held = gang("held", 1, 8, stands=[(0, 0, 3, ALL8)])
    first = role("w", 1, 4, selector={"kubernetes.io/hostname": "n01"})
    instance = three_racks(gang("big", 2, 8), gang("g", roles=[first]), held)
    assert left_out(instance, "g").proven
    assert not unproven(instance, "g").proven
    assert "it could start without default/big" in left_out(instance, "g").why
    larger = replace(first, gpus=8)
    instance = three_racks(gang("big", 2, 8), gang("g", roles=[larger]), held)
    assert solve(instance).decisions[1].decision == "place"
    by_number = replace(instance.policy, objectives=(Objective("admission"),))
    instance = three_racks(gang("big", 2, 8), gang("g", roles=[first]), held)
    assert solve(replace(instance, policy=by_number)).decisions[1].decision == "place"


def test_no_room_is_not_proven_by_a_speed_of_0() -> None:
    # Whatever its speed, g fits: across racks it would be at 1000 / (50 + 950 x 1000 / 1).
    slow = replace(gang("g", 2, 8), fraction=Fraction(95, 100))
    instance = build(racks=2, oversubscription=(1, 1000), gangs=[slow], objectives=["goodput"])
    solution = solve(instance)
    # Whether it starts counts nowhere: here it waits.
    reason = Reason.of("Outranked", gpus=16, proven=True)
    waits = replace(solution.decisions[0], pods=(), decision="wait", reason=reason)
    solution = replace(solution, decisions=(waits,))
    (found,) = unmet((0,), instance, solution, threading.Event())
    assert found == Required(
        "default/g",
        False,
        "it would fit, but no better plan starts it (proven)",
    )


@pytest.mark.parametrize(
    ("search", "allowed", "proven"),
    [(left_out, 0, True), (unproven, 0, True), (unproven, 1, False)],
)
def test_a_gang_whose_only_victim_is_guarded_is_proven_to_have_no_room(
    search: Callable[[Instance, str], Required], allowed: int, *, proven: bool
) -> None:
    (pod,) = blocker().pods
    guarded = blocker(preemptible=True, pods=(replace(pod, budgets=("b",)),))
    made = one_server(guarded, gang("g", 1, 8, priority=9))
    budgets = (DisruptionBudget("default", "b", allowed),)
    made = replace(made, cluster=replace(made.cluster, budgets=budgets))
    assert search(made, "g").proven is proven
