"""Gangs start in the room of others: those that move, only start, or give way. Servers have 8 GPUs."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from threading import Event

import pytest
from building import build, gang, mask, node
from building_servers import switched
from by_steps import faults
from effort import examples
from tiny_busy import busy

from models.documents.policy import SolveLimits
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.policy import Moves
from models.instance.solution import GangDecision, PodPlacement
from models.program.base_state import base_decisions
from planner.search.budget import Budget
from planner.search.explain.reasons import with_reasons
from planner.search.improve.repair import moves_beyond
from planner.search.ledger import Ledger
from planner.search.start.clearing import clear
from planner.search.start.greedy import greedy

SEEDS = examples(300, 60)


def cleared(
    instance: Instance, *, budget: Budget | None = None, immovable: frozenset[int] = frozenset()
) -> dict[str, GangDecision]:
    """The decision about each gang, by name, after the greedy start and the last plan of ``clear``."""
    plan = greedy(instance, base_decisions(instance))
    for found in clear(
        instance, plan, budget=budget or Budget(instance.policy.solve), immovable=immovable
    ):
        plan = found
    return {gang.name: one for gang, one in zip(instance.gangs, plan, strict=True)}


def small(name: str, n: int, *gpus: int, movable: bool = False, preemptible: bool = False) -> Gang:
    """A gang of one pod that runs with these GPUs."""
    stands = [(0, 0, n, mask(*gpus))]
    return gang(name, 1, len(gpus), stands=stands, movable=movable, preemptible=preemptible)


def two_servers(*gangs: Gang) -> Instance:
    return build(nodes=[node(f"n{i}", switched(8)) for i in range(2)], gangs=gangs)


def test_a_gang_moves_to_a_gap_so_that_one_with_a_whole_server_starts() -> None:
    found = cleared(
        two_servers(small("fixed", 0, 0, 1), small("mover", 1, 0, movable=True), gang("big", 1, 8))
    )
    assert found["big"].decision == "place"
    assert [pod.node for pod in found["big"].pods] == [1]
    assert found["mover"].decision == "move"
    assert [pod.node for pod in found["mover"].pods] == [0]


def test_nobody_moves_where_that_makes_no_room() -> None:
    # both servers hold a gang that stays
    found = cleared(
        two_servers(
            small("fixed", 0, 0),
            small("held", 1, 7),
            small("mover", 1, 0, movable=True),
            gang("big", 1, 8),
        )
    )
    assert found["big"].decision == "wait"
    assert found["mover"].decision == "keep"


def rows(moves: Moves) -> Instance:
    """Three whole servers are wanted; on four of five servers one or two small gangs run that may move."""
    nodes = [node(f"n{i}", switched(8)) for i in range(5)]
    small_ones = [
        small("fixed", 0, 0),
        *(small(f"m{n}", n, 0, movable=True) for n in (1, 2)),
        *(small(f"m3-{gpu}", 3, gpu, movable=True) for gpu in (0, 1)),
        small("stays", 4, 0),
    ]
    wanted = [
        gang("first", 1, 8, priority=20),
        gang("second", 1, 8, priority=10),
        gang("third", 1, 8),
    ]
    instance = build(nodes=nodes, gangs=[*small_ones, *wanted])
    return replace(instance, policy=replace(instance.policy, moves=moves))


@pytest.mark.parametrize(
    ("moves", "starts"),
    [
        (Moves(), ["first", "second", "third"]),
        (Moves(max_gangs=4), ["first", "second", "third"]),
        (Moves(max_gangs=3), ["first", "second"]),  # the third takes two moves more
        (Moves(max_gangs=1), ["first"]),
        (Moves(max_gangs=0), []),
        (Moves(max_gpus=2), ["first", "second"]),
    ],
)
def test_no_more_move_than_the_policy_allows_and_the_highest_start(
    moves: Moves, starts: list[str]
) -> None:
    instance = rows(moves)
    found = cleared(instance)
    assert [name for name, one in found.items() if one.decision == "place"] == starts
    moved = sum(one.decision == "move" for one in found.values())
    assert moves.allow(moved, moved)  # of one GPU each


def test_of_a_plan_that_moves_too_many_the_ledger_takes_back_those_for_the_lowest() -> None:
    plan = list(cleared(rows(Moves())).values())
    for most, starts in ((3, ["first", "second"]), (1, ["first"]), (0, [])):
        instance = rows(Moves(max_gangs=most))
        ledger = Ledger(instance, base_decisions(instance))
        assert ledger.offer(plan) == bool(starts)
        kept = zip(instance.gangs, ledger.incumbent.decisions, strict=True)
        assert [one.name for one, now in kept if now.decision == "place"] == starts
        assert len(moves_beyond(instance, plan)) == 4 - most
        assert not moves_beyond(instance, ledger.incumbent.decisions)
        assert not ledger.keeps_rules(tuple(plan))


def test_a_gang_that_must_not_move_stays() -> None:
    instance = two_servers(
        small("fixed", 0, 0, 1), small("mover", 1, 0, movable=True), gang("big", 1, 8)
    )
    (mover,) = (i for i, one in enumerate(instance.gangs) if one.name == "mover")
    assert cleared(instance, immovable=frozenset({mover}))["big"].decision == "wait"


def test_of_two_servers_the_one_is_cleared_that_fewer_gpus_have_to_leave() -> None:
    nodes = [node(f"n{i}", switched(8)) for i in range(3)]
    gangs = [
        small("fixed", 0, 0, 1),
        small("four", 1, 0, 1, 2, 3, movable=True),
        small("one", 2, 0, movable=True),
        gang("big", 1, 8),
    ]
    found = cleared(build(nodes=nodes, gangs=gangs))
    assert found["big"].decision == "place"
    assert found["four"].decision == "keep"
    assert found["one"].decision == "move"


def test_a_gang_is_stopped_for_a_higher_one_only_if_it_may_be() -> None:
    higher = gang("higher", 1, 8, priority=1)
    other = small("other", 0, 0)
    stopped = cleared(two_servers(other, small("low", 1, 0, preemptible=True), higher))
    assert stopped["higher"].decision == "place"
    assert stopped["low"].decision == "preempt"
    kept = cleared(two_servers(other, small("low", 1, 0), higher))
    assert kept["higher"].decision == "wait"
    assert kept["low"].decision == "keep"


def test_what_may_move_moves_before_anything_is_stopped() -> None:
    # either server would do; on n1 a gang can go to the gap of n0, on n2 one would be stopped
    nodes = [node(f"n{i}", switched(8)) for i in range(3)]
    gangs = [
        small("fixed", 0, 0, 1),
        small("mover", 1, 0, 1, movable=True),
        small("low", 2, 0, preemptible=True),
        gang("higher", 1, 8, priority=1),
    ]
    found = cleared(build(nodes=nodes, gangs=gangs))
    assert found["higher"].decision == "place"
    assert found["low"].decision == "keep"
    assert found["mover"].decision == "move"


def test_a_stopped_gang_runs_on_if_who_came_finds_room_that_others_leave() -> None:
    # the plan stops low on n0 for higher; on n1 a gang could go to the gap of n2
    nodes = [node(f"n{i}", switched(8)) for i in range(3)]
    gangs = [
        small("fixed", 2, 0, 1),
        small("mover", 1, 0, 1, movable=True),
        small("low", 0, 0, preemptible=True),
        gang("higher", 1, 8, priority=1),
    ]
    instance = build(nodes=nodes, gangs=gangs)
    names = [one.name for one in instance.gangs]
    plan = list(base_decisions(instance))
    plan[names.index("low")] = GangDecision("preempt")
    whole = PodPlacement(0, 0, 0, mask(*range(8)))
    plan[names.index("higher")] = GangDecision("place", (whole,))
    *_, better = clear(instance, plan, budget=Budget(SolveLimits()))
    found = dict(zip(names, better, strict=True))
    assert found["low"].decision == "keep"
    assert found["mover"].decision == "move"
    assert [pod.node for pod in found["higher"].pods] == [1]


def test_nothing_changes_without_budget() -> None:
    instance = two_servers(
        small("fixed", 0, 0, 1), small("mover", 1, 0, movable=True), gang("big", 1, 8)
    )
    stopped = Event()
    stopped.set()
    found = cleared(instance, budget=Budget(SolveLimits(), stopped))
    assert found["big"].decision == "wait"


def test_the_ledger_takes_most_random_plans_and_the_checker_all_of_those() -> None:
    taken = 0
    for seed in range(SEEDS):
        r = Random(f"clearing/{seed}")
        names = ("priorities", "preemptible", "movable", "cells", "queues", "budgets", "elastic")
        instance = busy(seed, more=[name for name in names if r.random() < 0.3])
        ledger = Ledger(instance, greedy(instance, base_decisions(instance)))
        for plan in clear(instance, ledger.incumbent.decisions, budget=Budget(SolveLimits())):
            if ledger.offer(plan):
                taken += 1
                decisions = ledger.incumbent.decisions
                reasoned = with_reasons(instance, decisions, Budget(SolveLimits(), Event()))
                assert faults(instance, reasoned) == [], seed
    assert taken > SEEDS // 20
