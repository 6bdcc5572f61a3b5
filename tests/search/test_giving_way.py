"""Gangs that give way: who does for whom, how little of it, and where the winner goes.

Servers have 8 GPUs unless said otherwise; every plan is judged by the checker.
"""

from __future__ import annotations

from dataclasses import replace

from building import build, gang, mask, role
from by_steps import Steps, by_search

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.policy import Moves
from models.instance.solution import Reason
from planner.search.solve import solve

FULL = mask(*range(8))


def runs(name: str, *places: tuple[int, int], **how: object) -> Gang:
    """A running gang with one pod at each (node, mask of GPUs), as many GPUs a pod as the first mask has."""
    gpus = places[0][1].bit_count()
    stands = [(0, index, n, gpu) for index, (n, gpu) in enumerate(places)]
    return gang(name, len(places), gpus, stands=stands, **how)  # type: ignore[arg-type]  # as given


def elastic(name: str, least: int, *places: tuple[int, int], **how: object) -> Gang:
    """The same with any number of pods from ``least`` to what stands, twice that at most."""
    found = runs(name, *places, **how)
    gpus = found.roles[0].gpus
    return replace(found, roles=(role("worker", least, gpus, most=2 * len(places)),))


def limited(instance: Instance, moves: Moves) -> Steps:
    return by_search(replace(instance, policy=replace(instance.policy, moves=moves)))


def test_a_lower_preemptible_gang_stops_for_one_that_waits() -> None:
    low = runs("low", (0, FULL), preemptible=True)
    plan = by_search(build(gangs=[low, gang("high", 1, 8, priority=10)]))
    assert plan.all() == {"high": "place", "low": "preempt"}
    by = [{"gang": "default/high", "priority": 10}]
    assert plan.of("low").reason == Reason.of("Preempted", by=by)


def test_no_gang_stops_for_a_peer() -> None:
    low = runs("low", (0, FULL), preemptible=True, priority=10)
    plan = by_search(build(gangs=[low, gang("peer", 1, 8, priority=10)]))
    assert plan.all() == {"low": "keep", "peer": "wait"}


def test_the_smaller_of_two_victims_stops_where_either_would_do() -> None:
    # high needs 4 GPUs: small gives 4, large 8.
    large = runs("large", (0, FULL), preemptible=True)
    small = runs("small", (1, mask(0, 1, 2, 3)), preemptible=True)
    other = runs("other", (1, mask(4, 5, 6, 7)))
    waits = gang("high", 1, 4, priority=10)
    plan = by_search(build(nodes_per_rack=2, gangs=[large, small, other, waits]))
    assert plan.all() == {"high": "place", "large": "keep", "other": "keep", "small": "preempt"}


def test_nobody_stops_where_the_winner_would_not_fit_all_the_same() -> None:
    # One server of each rack is held for good: whoever stops, no rack has two servers.
    gangs = [
        runs("a", (0, FULL)),
        runs("b", (1, FULL), preemptible=True),
        runs("c", (2, FULL)),
        runs("d", (3, FULL), preemptible=True),
        gang("high", 2, 8, same="rack", priority=10),
    ]
    plan = by_search(build(racks=2, nodes_per_rack=2, gangs=gangs))
    assert plan.all() == {"a": "keep", "b": "keep", "c": "keep", "d": "keep", "high": "wait"}
    assert plan.of("high").reason == Reason.of(
        "RequiredTopology",
        pods=2,
        gpus=16,
        level="rack",
        domain="b1/r1",
        room_pods=0,
        room_gpus=0,
        by=[{"gang": "default/a", "priority": 0, "gpus": 8}],  # b may be stopped
        proven=True,
    )


def test_an_elastic_gang_shrinks_from_the_top_by_no_more_than_is_needed() -> None:
    # Four pods of 2 GPUs on one server; high needs 4 GPUs: pods 2 and 3 go.
    places = [(0, mask(2 * i, 2 * i + 1)) for i in range(4)]
    plan = by_search(
        build(gangs=[elastic("low", 1, *places, preemptible=True), gang("high", 1, 4, priority=10)])
    )
    assert plan.all() == {"high": "place", "low": "resize"}
    assert [pod.index for pod in plan.of("low").pods] == [0, 1]
    assert plan.value("disruption") == 4


def test_a_held_size_stays_and_the_gang_stops_instead() -> None:
    places = [(0, mask(0, 1, 2, 3)), (0, mask(4, 5, 6, 7))]
    low = replace(elastic("low", 1, *places, preemptible=True), resize_after=100)
    instance = build(gangs=[low, gang("high", 1, 4, priority=10)])
    instance = replace(instance, policy=replace(instance.policy, now=50))
    assert by_search(instance).all() == {"high": "place", "low": "preempt"}
    later = replace(instance, policy=replace(instance.policy, now=100))
    assert by_search(later).all() == {"high": "place", "low": "resize"}


def scattered() -> Instance:
    """Two one-GPU gangs on a server each, and a waiting gang of two whole servers; a third has room."""
    gangs = [
        runs("one", (0, mask(0)), movable=True),
        runs("two", (1, mask(0)), movable=True),
        runs("third", (2, mask(0))),
        gang("wide", 2, 8),
    ]
    return build(nodes_per_rack=3, gangs=gangs)


def test_no_more_gangs_move_than_the_policy_allows() -> None:
    waits = {"one": "keep", "third": "keep", "two": "keep", "wide": "wait"}
    assert limited(scattered(), Moves(max_gangs=1)).all() == waits
    assert limited(scattered(), Moves(max_gpus=1)).all() == waits
    assert limited(scattered(), Moves(max_gangs=2, max_gpus=2)).of("wide").decision == "place"


def test_a_note_says_that_as_many_gangs_move_as_may_while_others_wait() -> None:
    # With room for wide, big waits; scattered alone nobody waits once wide starts.
    used_up = "2 gangs move, as many as maxGangs of the Policy's moves allows; "
    used_up += "with more, gangs that wait might start"
    instance = scattered()
    more = build(nodes_per_rack=3, gangs=[*instance.gangs, gang("big", 9, 8, priority=-1)])
    for built, moves, noted in (
        (more, Moves(max_gangs=2), True),
        (more, Moves(max_gangs=3), False),
        (more, Moves(), False),
        (instance, Moves(max_gangs=2), False),
    ):
        limits = replace(built.policy, moves=moves)
        found = solve(replace(built, policy=limits))
        assert (used_up in found.notes) is noted
