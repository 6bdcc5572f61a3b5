"""Rules 2.19 to 2.21: equal shares over domains, domains of one gang, and nodes kept free for failures.

Servers of eight GPUs; every gang asks for whole servers unless it says otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from building import LEVELS, build, gang, mask, node
from building_servers import switched

from models.documents.reason import CODES
from models.instance.cluster import Node
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement
from models.program.base_state import base_decisions
from models.rules.shape import breaking
from planner.search.solve import solve
from planner.search.start.greedy import greedy
from planner.show.reason_words import words

ALL = mask(*range(8))


def shaped(one: Gang, **levels: str) -> Gang:
    """The gang with ``balance`` or ``exclusive`` at a level."""
    return replace(one, **{name: LEVELS.index(level) for name, level in levels.items()})


def spared(instance: Instance, **spares: int) -> Instance:
    """The instance with spares, by level."""
    return replace(instance, policy=replace(instance.policy, spares=tuple(sorted(spares.items()))))


def shares(instance: Instance, decisions: Sequence[GangDecision], name: str) -> list[int]:
    """Pods of the gang a rack, most first."""
    of = instance.cluster.domain_of[LEVELS.index("rack")]
    (own,) = (
        d for g, d in zip(instance.gangs, decisions, strict=True) if g.name == name and d.pods
    )
    return sorted(Counter(of[pod.node] for pod in own.pods).values(), reverse=True)


def started(instance: Instance, decisions: Sequence[GangDecision]) -> set[str]:
    """Names of the gangs that start or are completed."""
    pairs = zip(instance.gangs, decisions, strict=True)
    return {g.name for g, d in pairs if d.decision in ("place", "complete")}


def test_gangs_of_16_of_18_nodes_leave_the_spares() -> None:
    # 36 nodes in two racks of 18: two gangs of 16 leave two nodes each; nothing more may start there.
    gangs = [gang("a", 16, 8, same="rack"), gang("b", 16, 8, same="rack"), gang("c", 1, 8)]
    instance = build(racks=2, nodes_per_rack=18, gangs=gangs)
    assert started(instance, solve(instance).decisions) == {"a", "b", "c"}
    instance = spared(instance, rack=2)
    found = solve(instance)
    assert started(instance, found.decisions) == {"a", "b"}
    assert found.stopped_by == "proof"


PAIR = [gang("a", 1, 8, submitted=0), gang("b", 1, 8, submitted=5)]
NONE, ONE = {"higher": 0, "aged": 0, "peers": 0}, {"higher": 0, "aged": 0, "peers": 1}
"""Gangs that start before one that waits."""


@pytest.mark.parametrize(
    ("instance", "code", "gpus"),
    [
        (
            spared(build(nodes_per_rack=2, gangs=PAIR), rack=1),
            "Spares",
            8,
        ),
        (
            build(nodes_per_rack=2, gangs=[PAIR[0], shaped(PAIR[1], exclusive="rack")]),
            "Exclusive",
            8,
        ),
        (  # racks of three and of one: 2 + 2 do not fit
            build(
                nodes=[
                    node(f"n{i}", switched(8), rack=r) for i, r in enumerate(("a", "a", "a", "b"))
                ],
                gangs=[shaped(gang("b", 4, 8), balance="rack")],
            ),
            "Balance",
            32,
        ),
    ],
)
def test_a_reason_names_the_rule(instance: Instance, code: str, gpus: int) -> None:
    (waits,) = (d for d in solve(instance).decisions if not d.pods)
    assert waits.reason is not None
    assert waits.reason.code == code
    assert waits.reason.fields.gpus == gpus
    assert f"needs {gpus} GPUs; {CODES[code].meaning}" in words(waits.reason)


@pytest.mark.parametrize(
    "failed", [node("n1", switched(8), unhealthy=[0]), node("n1", switched(8), ready=False)]
)
def test_a_gang_with_a_failed_worker_is_completed_on_a_spare(failed: Node) -> None:
    # One worker is left on n2; n3 and n4 are the two spares, of which the failed node gives one back.
    torn = gang("torn", 2, 8, stands=[(0, 0, 0, ALL)])
    nodes = [node(f"n{i}", switched(8)) for i in range(2, 5)]
    whole = spared(build(nodes=nodes, gangs=[torn]), rack=2)
    assert started(whole, solve(whole).decisions) == set()
    torn = gang("torn", 2, 8, stands=[(0, 0, 1, ALL)])
    instance = spared(build(nodes=[failed, *nodes], gangs=[torn, gang("x", 1, 8)]), rack=2)
    assert started(instance, solve(instance).decisions) == {"torn"}


@pytest.mark.parametrize("racks", [8, 29, 228])
def test_128_nodes_over_racks_of_18_are_equal_shares_from_the_start(racks: int) -> None:
    # 7 racks hold 126: eight take 16 each, never 7 x 18 + 2.
    big = shaped(gang("big", 128, 8), balance="rack")
    instance = build(racks=racks, nodes_per_rack=18, gangs=[big])
    start = greedy(instance, base_decisions(instance))
    assert shares(instance, start, "big") == [16] * 8


def test_a_domain_of_one_gang_is_closed_to_others() -> None:
    # Two racks of two. alone takes one rack for one node; small shares the other with nobody it must not.
    alone = shaped(gang("alone", 1, 8, priority=1), exclusive="rack")
    gangs = [alone, *(gang(f"small{i}", 1, 8) for i in range(3))]
    instance = build(racks=2, nodes_per_rack=2, gangs=gangs)
    found = solve(instance)
    assert len(started(instance, found.decisions)) == 3
    assert "alone" in started(instance, found.decisions)
    assert breaking(instance, [one.pods for one in found.decisions]) == []


def test_who_runs_in_a_domain_may_stay_but_nobody_may_come() -> None:
    # alone stands beside other in rack 1: neither is completed there.
    alone = shaped(gang("alone", 2, 2, stands=[(0, 0, 0, 3)], same="rack"), exclusive="rack")
    other = gang("other", 2, 2, stands=[(0, 0, 0, 12)], same="rack")
    instance = build(racks=2, nodes_per_rack=2, gangs=[alone, other, gang("new", 1, 2)])
    found = solve(instance)
    assert started(instance, found.decisions) == {"new"}
    assert shares(instance, found.decisions, "new") == [1]
    assert breaking(instance, [one.pods for one in found.decisions]) == []


@pytest.mark.parametrize("size", [None, 5000])
def test_every_path_keeps_the_rules(size: int | None) -> None:
    gangs = [
        shaped(gang("even", 6, 8, priority=2), balance="rack"),
        shaped(gang("alone", 2, 8, priority=1), exclusive="rack"),
        shaped(gang("by-node", 3, 2), balance="node"),
        gang("low", 3, 8),
        gang("tiny", 1, 1),
    ]
    instance = spared(build(racks=5, nodes_per_rack=4, gangs=gangs), rack=1)
    limits = replace(instance.policy.solve, budget=5)
    instance = replace(instance, policy=replace(instance.policy, solve=limits))
    found = solve(instance, size=size)
    assert started(instance, found.decisions) == {g.name for g in gangs}
    assert breaking(instance, [one.pods for one in found.decisions]) == []


def place(name: str, nodes: Sequence[int]) -> tuple[str, GangDecision]:
    return name, GangDecision(
        "place", tuple(PodPlacement(0, i, n, ALL) for i, n in enumerate(nodes))
    )
