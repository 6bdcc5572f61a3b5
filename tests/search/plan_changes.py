"""A plan in which everything happens to running gangs, made by hand and composed as any plan is.

Promises: every rule holds, every figure is worked out here. Called by the tests of what is shown of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from building import build, gang, mask, node, role
from building_servers import switched
from moves_made import decide, solved

from models.instance.instance import Instance
from models.instance.policy import Moves
from models.instance.solution import GangDecision, MoveSet, PodPlacement, Reason, Solution
from models.results.plan import compose
from planner.show.reason_words import words

HOUR = 3600
NOON = 1_795_348_800
"""2026-11-22T12:00:00Z"""

ALL = mask(*range(8))
LOW, HIGH = mask(0, 1, 2, 3), mask(4, 5, 6, 7)


def instance() -> Instance:
    """Two racks of four servers of 8 GPUs; eight gangs, seven of which run.

    r1: n01 tune 0-3 (movable, checkpoint 90 minutes ago); n02 batch (preemptible, started 26 h ago);
    n03 serve (elastic, 1 to 4 pods of 4 GPUs, 2 run); n04 fixed 0-3, half 4-7 (pods missing).
    r2: n05 shrink (elastic, movable, 2 pods of 4 GPUs, of unknown start); n06 free; n07, n08 old.
    llama (2 servers of one rack, aged) and late (1 server) wait.
    """
    nodes = [
        node(f"n{i + 1:02}", switched(8), "b1", "r1" if i < 4 else "r2", labels={})
        for i in range(8)
    ]
    pods = {
        "tune": [(0, 0, 0, LOW)],
        "batch": [(0, 0, 1, ALL)],
        "serve": [(0, 0, 2, LOW), (0, 1, 2, HIGH)],
        "fixed": [(0, 0, 3, LOW)],
        "half": [(0, 0, 3, HIGH)],
        "shrink": [(0, 0, 4, LOW), (0, 1, 4, HIGH)],
        "old": [(0, 0, 6, ALL), (0, 1, 7, ALL)],
    }
    elastic = [role("worker", 1, 4, most=4)]
    gangs = [
        gang("tune", 1, 4, stands=pods["tune"], movable=True, submitted=NOON - 40 * HOUR),
        gang("batch", 1, 8, stands=pods["batch"], preemptible=True),
        gang("serve", roles=elastic, stands=pods["serve"], priority=5),
        gang("fixed", 1, 4, stands=pods["fixed"]),
        gang("half", 2, 4, stands=pods["half"], priority=5),
        gang("shrink", roles=elastic, stands=pods["shrink"], movable=True),
        gang("old", 2, 8, stands=pods["old"]),
        gang("llama", 2, 8, same="rack", priority=10, submitted=NOON - 30 * HOUR),
        gang("late", 1, 8, submitted=NOON),
    ]
    times: dict[str, dict[str, int]] = {
        "tune": {"started_at": NOON - 39 * HOUR, "last_checkpoint": NOON - 3 * HOUR // 2},
        "batch": {"started_at": NOON - 26 * HOUR},
    }
    timed = [replace(one, **times.get(one.name, {})) for one in gangs]  # type: ignore[arg-type]
    made = build(nodes=nodes, gangs=timed)
    policy = replace(made.policy, starvation_after_s=24 * HOUR, moves=Moves(max_gangs=2))
    return replace(made, policy=policy)


def solution(given: Instance) -> Solution:
    """llama takes n01 and n02: tune moves to n06, batch stops. shrink keeps n05:0-3, half gets n05:4-7,
    serve grows by two pods: n06:4-7 is taken by none; it takes nothing but those.
    """
    decisions = decide(
        given,
        tune=[(5, LOW)],
        batch=None,
        llama=[(0, ALL), (1, ALL)],
        serve=[(2, LOW), (2, HIGH), (5, HIGH)],
        half=[(3, HIGH), (4, HIGH)],
        shrink=[(4, LOW)],
    )
    names = [one.name for one in given.gangs]
    reasons = {
        "batch": Reason.of("Preempted", by=[{"gang": "default/llama", "priority": 10}]),
        "late": Reason.of("NoRoom", text="8 GPUs of one node are free nowhere"),
    }
    named = {
        name: replace(decisions[names.index(name)], reason=why) for name, why in reasons.items()
    }
    half = decisions[names.index("half")]
    named["half"] = GangDecision("complete", tuple(PodPlacement(*p) for p in _fields(half)))
    stated = tuple(named.get(name, d) for name, d in zip(names, decisions, strict=True))
    # Without tune's move llama does not come, batch stays: 16 GPUs more, 8 less; n06 is whole.
    # llama's bandwidth 16 x 1000 gained, batch's 8 x 1000 lost. (8 + 8 - 8) / 4 = 2
    move = MoveSet((names.index("tune"),), 4, (names.index("llama"),), 8, 8000, -1, 0, 2000)
    return replace(solved(given, stated), moves=(move,))


def _fields(decision: GangDecision) -> list[tuple[int, int, int, int | None]]:
    return [(p.role, p.index, p.node, p.gpus) for p in decision.pods]


def plan() -> dict[str, Any]:
    given = instance()
    return compose(
        given,
        solution(given),
        name="changes",
        words=words,
        created_at="2026-11-22T12:00:00Z",
        generator="gangplan 0.1.0",
    )
