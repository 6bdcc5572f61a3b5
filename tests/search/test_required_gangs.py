"""What counts as proof that a required gang cannot be admitted, where others may give way."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from stated_cases import Case, instance_of

from models.instance.instance import Instance
from models.instance.solution import Reason, Solution
from planner.pipelines.required_gangs import Required, resolve, unmet
from planner.search.solve import solve


def asked(instance: Instance, solution: Solution) -> Required | None:
    """What is said of gang ``g``; None where the plan admits it."""
    found = unmet((resolve("g", instance),), instance, solution, threading.Event())
    return found[0] if found else None


def best(instance: Instance) -> Required | None:
    return asked(instance, solve(instance))


def unproven(instance: Instance) -> Required | None:
    """Where the plan leaves it out and proves nothing: what it has alone counts."""
    index = resolve("g", instance)
    waits = tuple(
        replace(decision, pods=(), decision="wait") if i == index else decision
        for i, decision in enumerate(solve(instance).decisions)
    )
    return asked(instance, Solution(waits, (), "budget", "made up"))


HALVES = {"fixed": "1x4 on=n01:0-3", "moves": "1x4 on=n02:0-3 movable", "g": "1x8"}
HOLDS = "1x8 on=n01 priority=5"
RACKS = {f"n{i}": {"gpus": 8, "rack": f"r{max(i, 2)}"} for i in range(1, 5)}
SLOWER = {"oversubscription": [1, 4], "objectives": ["goodput", "waiting"]}
FIRST = "selector={kubernetes.io/hostname:n1}"
HELD = {"big": "2x8", "held": "1x8 on=n4"}

CASES: dict[str, tuple[Case, bool | None, bool | None]] = {
    "a firm gang holds the server": (
        {"gangs": {"blocker": HOLDS, "g": "1x8 priority=5"}},
        True,
        True,
    ),
    "who may be stopped, but by nobody above it": (
        {"gangs": {"blocker": f"{HOLDS} preemptible", "g": "1x8 priority=5"}},
        True,
        True,
    ),
    "who may move, but nowhere": (
        {"gangs": {"blocker": f"{HOLDS} movable", "g": "1x8 priority=5"}},
        True,
        True,
    ),
    "who may move": ({"nodes": 2, "gangs": HALVES}, None, False),
    "no gang may": (
        {"nodes": 2, "gangs": HALVES, "policy": {"moves": {"max_gangs": 0}}},
        True,
        True,
    ),
    "3 GPUs may": ({"nodes": 2, "gangs": HALVES, "policy": {"moves": {"max_gpus": 3}}}, True, True),
    "4 GPUs may": (
        {"nodes": 2, "gangs": HALVES, "policy": {"moves": {"max_gpus": 4}}},
        None,
        False,
    ),
    # the move of 4 GPUs buys 8 GPUs and their bandwidth, 16 / 4; to buy too little is no proof of no room
    "at the gain it has": (
        {"nodes": 2, "gangs": HALVES, "policy": {"moves": {"min_gain": 4}}},
        None,
        False,
    ),
    "at more than it has": (
        {"nodes": 2, "gangs": HALVES, "policy": {"moves": {"min_gain": "4.001"}}},
        False,
        False,
    ),
    "whatever moves": (
        {"nodes": 2, "gangs": HALVES | {"g": "2x8"}, "policy": {"moves": {"min_gain": "4.001"}}},
        True,
        True,
    ),
    # big in one rack: 16,000; g on n1 leaves it n2 and n3: 16 x 560 and g's 4000
    "another would be slower": (
        {"nodes": RACKS, "policy": SLOWER, "gangs": HELD | {"g": f"1x4 {FIRST}"}},
        True,
        False,
    ),
    "it is worth more": (
        {"nodes": RACKS, "policy": SLOWER, "gangs": HELD | {"g": f"1x8 {FIRST}"}},
        None,
        False,
    ),
    "speed does not count": (
        {
            "nodes": RACKS,
            "policy": SLOWER | {"objectives": ["admission"]},
            "gangs": HELD | {"g": f"1x4 {FIRST}"},
        },
        None,
        False,
    ),
    "its victim is guarded": (
        {
            "policy": {"budgets": {"b": 0}},
            "gangs": {"v": f"{HOLDS} preemptible budgets=[b]", "g": "1x8 priority=9"},
        },
        True,
        True,
    ),
    "its victim may go": (
        {
            "policy": {"budgets": {"b": 1}},
            "gangs": {"v": f"{HOLDS} preemptible budgets=[b]", "g": "1x8 priority=9"},
        },
        None,
        False,
    ),
    "it is held": ({"gangs": {"g": "1x1 held=Unsupported"}}, True, True),
}
"""Whether it is proven in the best plan, None where that admits it, and where nothing is proven."""


@pytest.mark.parametrize("name", CASES)
def test_a_gang_that_is_left_out_is_impossible_only_where_that_is_proven(name: str) -> None:
    case, of_best, alone = CASES[name]
    instance = instance_of({"nodes": 1, **case})
    found, made_up = best(instance), unproven(instance)
    assert (found and found.proven, made_up and made_up.proven) == (of_best, alone)
    if found and name == "another would be slower":
        assert "it could start without default/big" in found.why
    if found and name == "it is held":
        assert found.why == "it is held"


def test_no_room_is_not_proven_by_a_speed_of_0() -> None:
    """Whatever its speed, g fits: across racks it would be at 1000 / (50 + 950 x 1000 / 1)."""
    slow = {"oversubscription": [1, 1000], "objectives": ["goodput"]}
    instance = instance_of({"nodes": "2x1", "gangs": {"g": "2x8 fraction=0.95"}, "policy": slow})
    solution = solve(instance)
    reason = Reason.of("Outranked", gpus=16, proven=True)
    waits = replace(solution.decisions[0], pods=(), decision="wait", reason=reason)
    found = asked(instance, replace(solution, decisions=(waits,)))
    assert found is not None
    assert (found.proven, found.why) == (
        False,
        "it would fit, but no better plan starts it (proven)",
    )
