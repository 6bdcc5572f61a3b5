"""Reservations: who holds one, when and where, who may come there meanwhile, and when others start.

Servers of eight GPUs in one rack; ``full`` holds n01 for another hour, ``big`` needs n01 and n02.
"""

from __future__ import annotations

from dataclasses import replace
from threading import Event
from typing import Any

import pytest
from building import build, gang
from plan_documents import Doc

from models.documents.policy import Reservations
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.queue import Amount, Queue
from models.instance.solution import Solution
from models.program.base_state import base_decisions
from models.program.formulation import formulate
from models.queues.reservations import left_waiting, trespassing
from models.results.plan import compose, dumps
from models.rules.registry import eligible_nodes
from models.verify.check import check
from models.verify.violation import Violation
from planner.pipelines.previous_plan import with_previous
from planner.read.plan_files import read_plan
from planner.search.budget import Budget
from planner.search.ledger import Ledger
from planner.search.promises import forecast, reservations
from planner.search.promises.holding_nodes import hold_nodes
from planner.search.solve import WHOLE_BELOW, Search, solve
from planner.show.reason_words import words

NOW, HOUR = 1_800_000_000, 3600
ALL = 0b11111111
EVERY, HIGH = Reservations(), Reservations(priorities=((">=", 5),))


def lasting(one: Gang, hours: float | None, **fields: Any) -> Gang:  # noqa: ANN401
    """The gang with an expected duration, submitted half an hour ago unless said."""
    seconds = None if hours is None else int(hours * HOUR)
    return replace(one, expected_duration_s=seconds, **{"submitted_at": NOW - HOUR // 2, **fields})


def runs(name: str, node: int, hours: float | None, ago: float = 1, **fields: Any) -> Gang:  # noqa: ANN401
    """A gang that holds a server, for so long since so many hours."""
    one = gang(name, 1, 8, stands=[(0, 0, node, ALL)])
    return lasting(one, hours, started_at=NOW - int(ago * HOUR), **fields)


def waits(name: str, nodes: int, hours: float | None, priority: int = 0, **fields: Any) -> Gang:  # noqa: ANN401
    return lasting(gang(name, nodes, 8, priority=priority), hours, **fields)


FULL, BIG = runs("full", 0, 2), waits("big", 2, 5, 5)


def cluster(*gangs: Gang, nodes: int = 2, rules: Reservations | None = EVERY) -> Instance:
    instance = build(nodes_per_rack=nodes, gangs=gangs)
    return replace(instance, policy=replace(instance.policy, now=NOW, reservations=rules))


def held(instance: Instance, found: Solution) -> dict[str, tuple[float, tuple[int, ...]]]:
    """Hours until the start, and the nodes, of every reservation; not of gangs whose turn has come."""
    pairs = zip(instance.gangs, found.decisions, strict=True)
    reserved = {one.name: d.reserved for one, d in pairs if d.reserved is not None}
    return {n: ((r.start - NOW) / HOUR, r.nodes) for n, r in reserved.items() if r.nodes}


def in_turn(instance: Instance, found: Solution) -> set[str]:
    """Gangs that had to start."""
    pairs = zip(instance.gangs, found.decisions, strict=True)
    return {one.name for one, d in pairs if d.reserved is not None and not d.reserved.nodes}


def decided(instance: Instance, found: Solution) -> dict[str, str]:
    pairs = zip(instance.gangs, found.decisions, strict=True)
    return {one.name: decision.decision for one, decision in pairs}


def document(instance: Instance, found: Solution) -> Doc:
    return compose(instance, found, name="p", created_at="2026-11-23T12:00:00Z", generator="test")


def faults(instance: Instance, found: Solution) -> list[Violation]:
    return check(document(instance, found))


@pytest.mark.parametrize(
    ("other", "comes"),
    [
        (waits("other", 1, 1), True),
        (waits("other", 1, 1.1), False),
        (waits("other", 1, None), False),
        (waits("other", 1, None, preemptible=True), True),
        (waits("other", 1, None, 5, preemptible=True), False),
        (waits("other", 1, 9, 6), True),
        (runs("other", 2, 9, movable=True), False),
    ],
    ids=["in time", "late", "unknown", "lower", "equal", "higher", "moving"],
)
def test_others_come_to_reserved_nodes_in_time_or_where_they_may_be_stopped(
    other: Gang, *, comes: bool
) -> None:
    # a third server for the gang that moves, or is cordoned
    instance = cluster(FULL, BIG, other, nodes=3, rules=HIGH)
    nodes = tuple(
        replace(node, unschedulable=i == 2) for i, node in enumerate(instance.cluster.nodes)
    )
    instance = replace(instance, cluster=replace(instance.cluster, nodes=nodes))
    found = solve(instance)
    index = next(i for i, one in enumerate(instance.gangs) if one.name == "other")
    decision = found.decisions[index]
    assert (1 in {pod.node for pod in decision.pods}) == comes
    ahead = other.priority > BIG.priority
    assert held(instance, found) == {"big": (9, (0, 1)) if ahead else (1, (0, 1))}
    if not comes and not other.running:
        assert decision.reason is not None
        assert decision.reason.code == "Reserved"
        assert "default/big (priority 5, from 2027-01-15T09:00:00Z)" in words(decision.reason)
    assert faults(instance, found) == []


@pytest.mark.parametrize(
    ("full", "start"),
    [
        (runs("full", 0, 2, 1), 1),
        (runs("full", 0, None), None),
        (replace(FULL, started_at=None), None),
        (runs("full", 0, 1, 1.5), 0.5),  # half an hour late
        (replace(FULL, started_at=NOW - 2 * HOUR - 10), 60 / HOUR),
        (runs("full", 0, 30), None),  # beyond the horizon
        (runs("full", 0, None, preemptible=True), 0),
    ],
    ids=["on time", "unknown", "no start", "overdue", "just overdue", "far", "may be stopped"],
)
def test_it_starts_when_the_gangs_in_its_way_are_expected_to_have_ended(
    full: Gang, start: float | None
) -> None:
    instance = cluster(full, BIG, waits("later", 1, 9))
    found = solve(instance)
    reserved = held(instance, found)
    if start:
        assert reserved["big"] == (start, (0, 1))
    else:
        assert "big" not in reserved
    assert decided(instance, found)["big"] == ("place" if start == 0 else "wait")
    # nobody keeps a place free for a start that nobody knows
    assert (decided(instance, found)["later"] == "place") == (start is None)


@pytest.mark.parametrize(
    ("rules", "holders"),
    [
        (EVERY, {"big", "low"}),
        (Reservations(2), {"big", "next", "low"}),
        (HIGH, {"big"}),
        (Reservations(horizon_s=HOUR - 1), set()),
        (None, set()),
    ],
    ids=["one each", "two each", "high ones", "soon", "none"],
)
def test_the_policy_says_who_holds_one(rules: Reservations | None, holders: set[str]) -> None:
    young = waits("next", 2, 5, 5, submitted_at=NOW)
    instance = cluster(FULL, BIG, young, waits("low", 2, 5, 1), rules=rules)
    found = held(instance, solve(instance))
    assert set(found) == holders
    # who holds none has its turn all the same
    assert [found[name][0] for name in ("big", "next", "low") if name in found] == [
        start for name, start in (("big", 1), ("next", 6), ("low", 11)) if name in found
    ]


def test_a_holder_that_may_start_now_does_though_another_would_fill_more() -> None:
    # three servers are free: the older gang asks for two of them, the younger for all
    instance = cluster(waits("old", 2, 5), waits("wide", 3, 5, submitted_at=NOW), nodes=3)
    free = replace(instance, policy=replace(instance.policy, reservations=None))
    assert decided(free, solve(free)) == {"old": "wait", "wide": "place"}
    found = solve(instance)
    assert decided(instance, found) == {"old": "place", "wide": "wait"}
    assert in_turn(instance, found) == {"old"}
    assert faults(instance, found) == []


def test_large_inputs_keep_nodes_too() -> None:
    instance = cluster(FULL, BIG, waits("later", 1, 9), waits("soon", 1, 1), rules=HIGH)
    found = solve(instance, size=WHOLE_BELOW)
    assert decided(instance, found)["later"] == "wait"
    assert decided(instance, found)["soon"] == "place"
    assert held(instance, found) == {"big": (1, (0, 1))}


def test_what_a_stopped_search_returns_keeps_nodes_too() -> None:
    instance = cluster(FULL, BIG, waits("later", 1, 9))
    stop = Event()
    search = Search(instance, stop=stop)
    stop.set()
    found = search.run()
    assert found.stopped_by == "signal"
    assert held(instance, found)["big"] == (1, (0, 1))
    assert decided(instance, found)["later"] == "wait"


def test_nodes_are_kept_and_who_comes_there_is_found() -> None:
    instance = cluster(FULL, BIG, waits("later", 1, 9), runs("half", 2, 2), nodes=3, rules=HIGH)
    found, plan = hold_nodes(instance, base_decisions(instance), Budget(instance.policy.solve))
    big, full, half, later = range(4)
    assert [one.nodes for one in found.reserved] == [(0, 1)]
    assert eligible_nodes(found, instance.gangs[big], instance.gangs[big].roles[0]) == {0, 1, 2}
    pods = found.reserved[0].pods[1:]
    assert trespassing(found, [(), plan[full].pods, plan[half].pods, pods]) == [later]


def test_a_gang_whose_turn_has_come_starts_wherever_it_fits() -> None:
    instance = cluster(FULL, BIG, waits("later", 1, 9), nodes=4)
    found, plan = hold_nodes(instance, base_decisions(instance), Budget(instance.policy.solve))
    big, full, later = range(3)
    assert [one.gang[1] for one in found.reserved] == ["big", "later"]
    assert left_waiting(found, [(), plan[full].pods, plan[later].pods]) == [big]
    ledger = Ledger(found, plan)
    assert ledger.keeps_rules(plan)
    without = [
        replace(one, decision="wait", pods=()) if i == later else one for i, one in enumerate(plan)
    ]
    assert not ledger.keeps_rules(tuple(without))
    program = formulate(found)
    must = {choice.gang for choice in program.model.state.choices if choice.must}
    assert must == {big, later}


@pytest.mark.parametrize(("nodes", "start"), [((1, 2), 2), ((0, 1), 1)])
def test_what_is_reserved_is_possible_if_a_better_plan_lets_everyone_run(
    nodes: tuple[int, ...], start: int
) -> None:
    # `first` may stop `stays`, of which nobody knows the end, and `big` may not
    others = [runs("soon", 1, 2), *([runs("later", 2, 3)] if 2 in nodes else [])]
    stays = runs("stays", 0, None, preemptible=True)
    stays, big = replace(stays, priority=2), replace(BIG, priority=1)
    instance = cluster(stays, *others, waits("first", 1, 1, 9), big, nodes=len(others) + 1)
    base = base_decisions(instance)
    found, _ = reservations.in_turn(instance, base, Budget(instance.policy.solve))
    first, one = found
    assert (first.gang[1], first.start, first.nodes) == ("first", NOW, ())
    assert (one.nodes, one.start) == (nodes, NOW + start * HOUR)


def test_a_later_plan_takes_the_nodes_that_an_earlier_one_reserved() -> None:
    instance = cluster(runs("a", 0, 2), runs("b", 2, 2), replace(BIG, required=1))
    instance = replace(instance, cluster=build(racks=2, nodes_per_rack=2).cluster)
    chosen = solve(instance)
    assert held(instance, chosen)["big"] == (1, (0, 1))
    nodes = {0: 2, 1: 3}
    reserved = chosen.decisions[2].reserved
    assert reserved is not None
    other = replace(
        reserved, nodes=(2, 3), pods=tuple(replace(p, node=nodes[p.node]) for p in reserved.pods)
    )
    decisions = (*chosen.decisions[:2], replace(chosen.decisions[2], reserved=other))
    earlier = read_plan(
        dumps(document(instance, replace(chosen, decisions=decisions))).encode(), "p"
    )
    again, _ = with_previous(instance, earlier, "p")
    assert held(again, solve(again))["big"] == (1, (2, 3))


@pytest.mark.parametrize(
    ("gangs", "starts"),
    [
        ((waits("one", 2, 1), waits("two", 2, 3, submitted_at=NOW)), {"one": 1, "two": 2}),
        ((waits("one", 2, None), waits("two", 2, 3, submitted_at=NOW)), {"one": 1}),
        ((waits("one", 3, 1),), {}),
    ],
    ids=["one after another", "never ends", "never fits"],
)
def test_others_are_expected_to_start_when_there_is_room(
    gangs: tuple[Gang, ...], starts: dict[str, int]
) -> None:
    none_holds = Reservations(priorities=((">", 9),))
    instance = cluster(FULL, runs("half", 1, 1.5), *gangs, rules=none_holds)
    found = solve(instance)
    pairs = zip(instance.gangs, found.decisions, strict=True)
    expected = {one.name: d.expected_start for one, d in pairs if d.expected_start is not None}
    assert expected == {name: NOW + hours * HOUR for name, hours in starts.items()}
    assert faults(instance, found) == []


def test_gangs_of_a_queue_hold_no_more_reservations_than_its_limit_allows() -> None:
    wants = (waits(name, 2, 5, priority, queue="q") for name, priority in (("big", 5), ("next", 4)))
    instance = cluster(
        FULL, runs("half", 1, 1.5), runs("late", 2, 3), runs("last", 3, 3), *wants, nodes=4
    )
    assert held(instance, solve(instance)) == {"big": (1, (0, 1)), "next": (2, (2, 3))}
    limited = replace(instance, queues=(Queue("q", limit=Amount(24)),))
    assert held(limited, solve(limited)) == {"big": (1, (0, 1)), "next": (6, (0, 1))}


def test_a_gang_that_wants_a_rack_of_its_own_is_expected_when_others_have_ended() -> None:
    alone = waits("alone", 1, 5, exclusive=0)
    instance = cluster(FULL, alone, rules=Reservations(priorities=((">", 9),)))
    found = solve(instance)
    assert [one.expected_start for one in found.decisions] == [NOW + HOUR, None]


def test_tries_for_reservations_and_estimates_end(monkeypatch: pytest.MonkeyPatch) -> None:
    low = [waits(f"low{i}", 1, 1, submitted_at=NOW - 9 + i) for i in range(3)]
    instance = cluster(FULL, runs("half", 1, 1.5), BIG, waits("next", 2, 5, 4), *low)

    def known() -> tuple[set[str], set[str]]:
        found = solve(instance)
        pairs = list(zip(instance.gangs, found.decisions, strict=True))
        expected = {one.name for one, d in pairs if d.expected_start is not None}
        return set(held(instance, found)), expected

    assert known() == ({"big", "next", "low0"}, {"low1", "low2"})
    monkeypatch.setattr(forecast, "MAX_GANGS", 1)
    assert known() == ({"big", "next", "low0"}, {"low1"})
    monkeypatch.setattr(forecast, "MAX_TRIES", 0)
    monkeypatch.setattr(reservations, "MAX_TRIES", 0)
    assert known() == (set(), set())
