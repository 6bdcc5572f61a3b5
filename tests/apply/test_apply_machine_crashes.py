"""A crash or fault at every single request of an apply of ten gangs leads to the same end state."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from functools import cache

import pytest
from apply_world import (
    ANSWERS,
    OTHER_PLAN,
    WRITES,
    Fault,
    Killed,
    World,
    apply,
    bound,
    chaos,
    doubled,
    gang,
    killed_at,
    order_for,
    orders,
    recover,
    shape,
)
from effort import examples, spread

from models.apply.plan_actions import PlanActions
from models.apply.requests import CheckLock, Event, Halt, NoAnswer, Outcome, Request, WriteIntent
from models.apply.session import LANES, LOCK_CHECK_EVERY, READ_TRIES

BACKENDS = ("annotation", "dra")
"""Pods get their intents in the patches that start them, or before."""


@cache
def ten(backend: str) -> tuple[World, PlanActions]:
    """Gang i has 1 + i % 3 pods of 4 GPUs, two a node: 19 pods fill nine and a half of ten nodes."""
    world = World(backend=backend)
    for number in range(10):
        world.node(f"n{number}")
    gangs, slot = [], 0
    for i in range(10):
        starts = []
        for j in range(1 + i % 3):
            first = 4 * (slot % 2)
            pod = world.pod(f"g{i}-{j}", 4)
            starts.append(order_for(pod, f"n{slot // 2}", range(first, first + 4)))
            slot += 1
        gangs.append(gang(f"g{i}", starts, priority=i % 4))
    return world, orders(world, *gangs)


@cache
def undisturbed(backend: str) -> tuple[dict[object, object], int, list[str]]:
    """The end state, how many requests lead there, and the pods that are marked whole."""
    world, plan = ten(backend)
    world = world.copy()
    played = apply(world, plan)
    assert all(one.outcome is Outcome.started for one in played.verdict.gangs)
    assert len(bound(world)) == 19
    return dict(shape(world)), len(played.requests), marks(world)


def marks(world: World) -> list[str]:
    return sorted(pod.name for pod in world.pods.values() if pod.intent and pod.intent.whole)


def settled(world: World, plan: PlanActions, backend: str) -> None:
    """After running again everything is as if nothing had happened, and a third run writes nothing."""
    again = apply(world, plan)
    done = (Outcome.started, Outcome.unchanged)
    assert [one for one in again.verdict.gangs if one.outcome not in done] == []
    assert doubled(world) == []
    assert dict(shape(world)) == undisturbed(backend)[0]
    assert marks(world) == undisturbed(backend)[2]
    assert apply(world, plan).verdict.writes == 0
    assert recover(world).requests == []


def lost_at(number: int, *, after: bool) -> Fault:
    def fault(count: int, request: Request, world: World) -> Event | None:
        if count != number:
            return None
        if after and isinstance(request, WRITES):
            world.answer(request)
        return NoAnswer("timeout")

    return fault


def answered_at(number: int, event: Event) -> Fault:
    return lambda count, request, world: event if count == number else None


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_killed_at_any_request_the_same_command_gets_to_the_same_end(
    backend: str, after: bool
) -> None:
    start, plan = ten(backend)
    for number in spread(range(undisturbed(backend)[1])):
        world = start.copy()
        with pytest.raises(Killed):
            apply(world, plan, killed_at(number, after=after))
        settled(world, plan, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_after_a_kill_recovering_alone_leaves_every_gang_whole_or_untouched(backend: str) -> None:
    start, plan = ten(backend)
    for number in spread(range(undisturbed(backend)[1])):
        world = start.copy()
        with pytest.raises(Killed):
            apply(world, plan, killed_at(number, after=True))
        played = recover(world)
        assert {one.outcome for one in played.verdict.gangs} <= {Outcome.started, Outcome.skipped}
        for one in plan.gangs:
            names = {order.name for order in one.starts}
            there = names & bound(world).keys()
            assert there in (set(), names)
            if not there:
                assert all(world.pods[order.key].intent is None for order in one.starts)
        assert recover(world).verdict.writes == 0
        settled(world, plan, backend)


@pytest.mark.parametrize("after", [False, True], ids=["not-done", "done"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_answer_lost_at_any_request_changes_nothing_of_the_end(
    backend: str, after: bool
) -> None:
    start, plan = ten(backend)
    for number in spread(range(undisturbed(backend)[1])):
        world = start.copy()
        played = apply(world, plan, lost_at(number, after=after))
        assert {one.outcome for one in played.verdict.gangs} == {Outcome.started}
        assert doubled(world) == []
        settled(world, plan, backend)


@pytest.mark.parametrize("event", ANSWERS, ids=["409", "404", "422", "429", "stop"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_refusal_at_any_request_stops_at_most_one_gang_and_a_rerun_mends_it(
    backend: str, event: Event
) -> None:
    start, plan = ten(backend)
    for number in spread(range(undisturbed(backend)[1])):
        world = start.copy()
        played = apply(world, plan, answered_at(number, event))
        spoilt = [
            one for one in played.verdict.gangs
            if one.outcome not in (Outcome.started, Outcome.pending)
        ]  # fmt: skip
        assert isinstance(event, Halt) or len(spoilt) <= 1
        assert doubled(world) == []
        settled(world, plan, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_server_that_falls_silent_ends_the_run_and_a_rerun_mends_it(backend: str) -> None:
    start, plan = ten(backend)
    for number in spread(range(undisturbed(backend)[1])):
        world = start.copy()

        def silent(
            count: int, request: Request, world: World, number: int = number
        ) -> Event | None:
            if count < number or isinstance(request, CheckLock):
                return None
            return NoAnswer("timeout")

        played = apply(world, plan, silent)
        assert played.verdict.stop is not None
        # A look at the lock for each gang under way, sixteen requests on their way together, and three
        # looks at the first pod.
        assert len(played.requests) <= number + LANES + LOCK_CHECK_EVERY + READ_TRIES
        settled(world, plan, backend)


@pytest.mark.parametrize("carried", [True, False], ids=["carried-out", "not-carried-out"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_connection_that_breaks_with_a_whole_gang_on_its_way_costs_only_looks(
    backend: str, carried: bool
) -> None:
    start, plan = ten(backend)
    for number in spread(range(undisturbed(backend)[1])):
        world = start.copy()

        def broken(
            count: int, request: Request, world: World, number: int = number
        ) -> Event | None:
            # Gangs have at most three pods: that many requests go together.
            if not number <= count < number + 3 or not isinstance(request, WriteIntent):
                return None
            if carried:
                world.answer(request)
            return NoAnswer("the connection broke")

        played = apply(world, plan, broken)
        assert {one.outcome for one in played.verdict.gangs} == {Outcome.started}
        assert shape(world) == undisturbed(backend)[0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_whoever_writes_a_status_between_our_requests_costs_only_a_look(backend: str) -> None:
    start, plan = ten(backend)
    world = start.copy()

    def bumped(count: int, request: Request, world: World) -> Event | None:
        if count % 3 == 0:
            for key in sorted(world.pods)[count % 7 :: 7]:
                world.change(key)
        return None

    played = apply(world, plan, bumped)
    assert {one.outcome for one in played.verdict.gangs} == {Outcome.started}
    settled(world, plan, backend)


def test_many_cuts_and_faults_in_a_row_still_get_to_the_same_end() -> None:
    draw = random.Random(5)
    for _ in range(examples(150, 30)):
        backend = draw.choice(BACKENDS)
        start, plan = ten(backend)
        world = start.copy()
        for _ in range(draw.randint(1, 5)):
            fault = chaos(draw, draw.choice((0.02, 0.1, 0.4)))
            with contextlib.suppress(Killed):
                if draw.random() < 0.3:
                    recover(world, fault)
                else:
                    apply(world, plan, fault)
            assert doubled(world) == []
        settled(world, plan, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_another_plan_finishes_what_the_killed_one_began_before_its_own_gangs(backend: str) -> None:
    start, plan = ten(backend)
    first = replace(plan, gangs=plan.gangs[:5])
    second = replace(plan, plan=OTHER_PLAN, gangs=plan.gangs[5:])
    calm = start.copy()
    apply(calm, first)
    apply(calm, second)
    for number in spread(range(len(apply(start.copy(), first).requests))):
        world = start.copy()
        with pytest.raises(Killed):
            apply(world, first, killed_at(number, after=True))
        apply(world, second)
        for one in first.gangs:
            names = {order.name for order in one.starts}
            assert names & bound(world).keys() in (set(), names)
        apply(world, first)
        assert shape(world) == shape(calm)
