"""Gangs that start side by side: how many are half-way at any request, and what a gang costs in requests."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from apply_world import (
    LIMITS,
    OTHER_PLAN,
    WRITES,
    Killed,
    World,
    apply,
    bound,
    doubled,
    gang,
    killed_after,
    order_for,
    orders,
    play,
    recover,
)
from effort import examples, spread

from models.apply.intents import MAX_RECORD_CHARS, Intent
from models.apply.plan_actions import PlanActions
from models.apply.requests import (
    CheckLock,
    Event,
    EventGroup,
    Halt,
    NoAnswer,
    Outcome,
    Request,
    RequestGroup,
    Ungate,
    WriteIntent,
)
from models.apply.session import LANES, LOCK_CHECK_EVERY
from models.apply.starts import RECORDS
from models.apply.state_machine import apply_plan

BACKENDS = ("annotation", "dra")


def many(backend: str, gangs: int = 20, size: int = 4) -> tuple[World, PlanActions]:
    """So many gangs of pods of 2 GPUs, four pods a node."""
    world = World(backend=backend)
    starts = []
    for slot in range(gangs * size):
        if slot % 4 == 0:
            world.node(f"n{slot // 4}")
        pod = world.pod(f"g{slot // size:02}-{slot % size}", 2)
        starts.append(order_for(pod, f"n{slot // 4}", (2 * (slot % 4), 2 * (slot % 4) + 1)))
    made = [gang(f"g{n:02}", starts[n * size : (n + 1) * size]) for n in range(gangs)]
    return world, orders(world, *made)


def half_way(world: World, plan: PlanActions) -> list[str]:
    """Gangs of which some pods are started and others are not."""
    found = []
    for one in plan.gangs:
        pods = [world.pods[order.key] for order in one.starts]
        started = sum(pod.node is not None or not pod.gates for pod in pods)
        found += [one.name] if 0 < started < len(pods) else []
    return found


def in_flight(
    world: World, plan: PlanActions, kill: int | None = None, draw: random.Random | None = None
) -> Iterator[tuple[Request, ...]]:
    """Apply; every group of requests that are on their way together, once it was carried out.

    ``kill``: the number of the group at which the process dies: of that group the server carries out
    any part, in any order.
    """
    machine = apply_plan(plan, world.view(), replace(LIMITS, backend=world.backend))
    number = 0
    try:
        request = next(machine)
        while True:
            group = request.requests if isinstance(request, RequestGroup) else (request,)
            if number == kill:
                assert draw is not None
                for one in draw.sample(group, draw.randint(0, len(group))):
                    world.answer(one)
                yield group
                return
            events = tuple(world.answer(one) for one in group)
            yield group
            number += 1
            request = machine.send(
                EventGroup(events) if isinstance(request, RequestGroup) else events[0]
            )
    except StopIteration:
        return


@pytest.mark.parametrize("backend", BACKENDS)
def test_at_no_request_more_gangs_are_half_way_than_may_be_under_way(backend: str) -> None:
    world, plan = many(backend)
    most = 0
    for _ in in_flight(world, plan):
        most = max(most, len(half_way(world, plan)))
    assert most == LANES
    assert len(bound(world)) == 80


@pytest.mark.parametrize("backend", BACKENDS)
def test_after_a_kill_with_any_part_of_what_was_on_its_way_carried_out_every_gang_is_mended(
    backend: str,
) -> None:
    draw = random.Random(7)
    start, plan = many(backend, gangs=12, size=3)
    groups = sum(1 for _ in in_flight(start.copy(), plan))
    for kill in spread(range(groups)):
        world = start.copy()
        for _ in in_flight(world, plan, kill, draw):
            assert len(half_way(world, plan)) <= LANES
        if kill % 2:
            recover(world)
            assert half_way(world, plan) == []
        again = apply(world, plan)
        assert {one.outcome for one in again.verdict.gangs} <= {Outcome.started, Outcome.unchanged}
        assert (len(bound(world)), doubled(world)) == (36, [])
        assert apply(world, plan).verdict.writes == 0
        assert recover(world).requests == []


@pytest.mark.parametrize(("backend", "most"), [("annotation", 1), ("dra", 3)])
def test_a_pod_costs_few_requests(backend: str, most: float) -> None:
    """125 gangs of 8: a patch a pod; or an intent, its devices and a patch. And three marks."""
    world, plan = many(backend, gangs=125, size=8)
    sent = [one for group in in_flight(world, plan) for one in group]
    starting = [
        one
        for one in sent
        if isinstance(one, WRITES) and not (isinstance(one, WriteIntent) and one.intent.whole)
    ]
    assert len(starting) <= 1000 * most
    marks = [one for one in sent if isinstance(one, WriteIntent) and one.intent.whole]
    assert len(marks) == 3 * 125
    assert sum(isinstance(one, Ungate) for one in sent) == 1000


@pytest.mark.parametrize("backend", BACKENDS)
def test_requests_of_eight_gangs_are_on_their_way_together(backend: str) -> None:
    world, plan = many(backend, gangs=40, size=8)
    starts = [
        sum(isinstance(one, Ungate) for one in group)
        for group in in_flight(world, plan)
        if any(isinstance(one, Ungate) for one in group)
    ]
    assert max(starts) == LANES
    assert sum(starts) / len(starts) > LANES / 2


def test_the_lock_is_looked_at_at_least_every_other_group() -> None:
    world, plan = many("dra")
    writes = 0
    for group in in_flight(world, plan):
        writes = 0 if isinstance(group[0], CheckLock) else writes + len(group)
        assert writes <= 2 * LOCK_CHECK_EVERY


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_plan_and_cluster_give_the_same_requests(backend: str) -> None:
    start, plan = many(backend)
    first = list(in_flight(start.copy(), plan))
    assert list(in_flight(start.copy(), plan)) == first


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_signal_lets_what_is_under_way_become_whole_and_begins_no_other(backend: str) -> None:
    """The twentieth start is the signal: from then on only gangs that have begun go on."""
    world, plan = many(backend)
    starts = 0

    def signalled(count: int, request: Request, world: World) -> Event | None:
        nonlocal starts
        starts += isinstance(request, Ungate)
        if isinstance(request, CheckLock) and starts >= 20 and not request.begun:
            return Halt("interrupted")
        return None

    verdict = apply(world, plan, signalled).verdict
    whole = [one for one in plan.gangs if all(world.pods[o.key].node for o in one.starts)]
    assert half_way(world, plan) == []
    assert verdict.stop == "interrupted"
    assert LANES <= len(whole) <= 2 * LANES
    halted = {one.gang[1] for one in verdict.gangs if one.outcome is Outcome.halted}
    assert halted == {one.name for one in plan.gangs} - {one.name for one in whole}
    assert {one.outcome for one in apply(world, plan).verdict.gangs} <= {
        Outcome.started, Outcome.unchanged,
    }  # fmt: skip


def test_a_lost_lock_stops_every_gang_at_once() -> None:
    world, plan = many("annotation", size=12)

    def lost(count: int, request: Request, world: World) -> Event | None:
        begun = isinstance(request, CheckLock) and request.begun
        return Halt("the lock is lost", lock=True) if begun else None

    played = apply(world, plan, lost)
    assert played.verdict.stop == "the lock is lost"
    assert {one.outcome for one in played.verdict.gangs} == {Outcome.halted}
    assert isinstance(played.requests[-1], CheckLock)
    assert 0 < len(half_way(world, plan)) <= LANES
    apply(world, plan)
    assert half_way(world, plan) == []


def test_gangs_that_share_a_node_are_weighed_together() -> None:
    """b alone fits n0 as it is now, but not beside a, of which nothing is bound yet."""
    world = World()
    world.node("n0", 8)
    world.node("n1", 8)
    a = [order_for(world.pod(f"a-{i}", 4), "n0") for i in range(2)]
    b = [order_for(world.pod("b-0", 4), "n0"), order_for(world.pod("b-1", 4), "n1")]
    plan = orders(world, gang("a", a, priority=1), gang("b", b))
    verdict = apply(world, plan).verdict
    assert [(one.gang[1], one.outcome) for one in verdict.gangs] == [
        ("a", Outcome.started), ("b", Outcome.skipped),
    ]  # fmt: skip
    assert doubled(world) == []


# ---- the record of members


def one_gang(size: int = 4, *, after: int = 1) -> tuple[World, PlanActions]:
    """A gated gang whose run was killed after so many starts."""
    world, plan = many("annotation", gangs=1, size=size)
    with pytest.raises(Killed):
        apply(world, plan, killed_after(after, Ungate))
    assert len(bound(world)) == after
    return world, plan


def test_the_first_pods_that_start_name_the_others() -> None:
    world, plan = one_gang(6, after=4)
    starts = plan.gangs[0].starts
    for order in starts[:4]:
        intent = world.pods[order.key].intent
        assert intent is not None
        assert [(one.name, one.uid, one.node, one.gpus) for one in intent.members] == [
            (other.name, other.uid, other.node, other.gpus)
            for other in starts
            if other is not order and order in starts[:RECORDS]
        ]


def test_any_later_run_completes_a_gang_from_its_record() -> None:
    world, _ = one_gang()
    verdict = recover(world).verdict
    assert [one.outcome for one in verdict.gangs] == [Outcome.started]
    assert len(bound(world)) == 4


def test_the_run_that_completes_a_gang_may_be_killed_and_a_pod_with_the_record_deleted() -> None:
    world, _ = one_gang()
    with pytest.raises(Killed):
        recover(world, killed_after(1, Ungate))
    world.delete(("default", "g00-0"))
    (found,) = recover(world).verdict.gangs
    assert (found.outcome, found.why) == (Outcome.partial, "started 1 of its 4 pods; gone: 1")


@pytest.mark.parametrize("lost", [0, 2])
def test_a_gang_that_cannot_be_completed_is_reported_and_undone_where_that_is_allowed(
    lost: int,
) -> None:
    world, plan = one_gang(after=2)
    world.delete(("default", f"g00-{lost}"))
    for _ in range(2):
        (found,) = recover(world).verdict.gangs
        assert found.outcome is Outcome.partial
        assert len(found.undo) == (1 if lost == 0 else 2)
    (found,) = recover(world, limits=replace(LIMITS, evict_partial=True)).verdict.gangs
    assert found.outcome is Outcome.undone
    world.wait()
    assert bound(world) == {}
    assert apply(world, plan).verdict.gangs[0].outcome is Outcome.skipped


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_undoing_that_was_cut_off_at_any_request_is_finished(*, after: bool) -> None:
    """Although the records went with the first pods, and the others may be at work for all that is known."""
    start, plan = one_gang(8, after=5)
    start.nodes["n1"] = replace(start.nodes["n1"], unschedulable=True)
    undoing = replace(LIMITS, evict_partial=True)
    other = replace(plan, plan=OTHER_PLAN, gangs=())
    for number in range(len(recover(start.copy(), limits=undoing).requests)):
        world = start.copy()

        def dies(count: int, request: Request, world: World, number: int = number) -> Event | None:
            if count != number:
                return None
            if after:
                world.answer(request)
            raise Killed

        with pytest.raises(Killed):
            recover(world, dies, undoing)
        for _ in range(3):
            world.wait()
            apply(world, other, limits=undoing)
        world.wait()
        assert (bound(world), world.notes.stops) == ({}, ()), number


def test_a_member_that_was_recreated_is_not_the_one_that_was_recorded() -> None:
    world, _ = one_gang()
    world.recreates = {("default", "g00-3")}
    world.delete(("default", "g00-3"))
    (found,) = recover(world).verdict.gangs
    assert (found.outcome, found.why) == (Outcome.partial, "started 1 of its 4 pods; gone: 1")


def test_another_plan_completes_the_gang_before_its_own() -> None:
    world, plan = one_gang()
    verdict = apply(world, replace(plan, plan=OTHER_PLAN, gangs=())).verdict
    assert [(one.plan, one.outcome) for one in verdict.gangs] == [(plan.plan, Outcome.started)]


def test_pods_that_stayed_are_not_partial_once_those_that_moved_are_started() -> None:
    """A run was cut off after it started one of three pods that moved; the fourth carries no mark."""
    world, _ = one_gang()
    (first,) = [pod for pod in world.pods.values() if pod.intent is not None]
    assert first.intent is not None
    moved = replace(first.intent, size=3, members=first.intent.members[:2])
    world.change(first.key, intent=moved)
    stayed = replace(moved, plan="gp-" + "0" * 20, size=4, node="n0", gpus=(6, 7), members=())
    world.change(("default", "g00-3"), intent=stayed, intent_is_ours=True, gates=(), node="n0")
    found = recover(world, limits=replace(LIMITS, evict_partial=True)).verdict.gangs
    assert [(one.plan, one.outcome) for one in found] == [(moved.plan, Outcome.started)]
    assert len(bound(world)) == 4


def test_a_record_that_we_did_not_write_counts_for_nothing() -> None:
    world, _ = one_gang()
    (first,) = [pod for pod in world.pods.values() if pod.intent is not None]
    world.change(first.key, intent_is_ours=False)
    assert recover(world).requests == []


def test_a_gang_whose_record_would_be_too_long_is_intended_pod_by_pod_first() -> None:
    size = MAX_RECORD_CHARS // 20
    world, plan = many("annotation", gangs=1, size=size)
    sent = [one for group in in_flight(world, plan) for one in group]
    first = next(n for n, one in enumerate(sent) if isinstance(one, Ungate))
    assert sum(isinstance(one, WriteIntent) for one in sent[:first]) == size
    assert all(one.intent is None for one in sent if isinstance(one, Ungate))


def test_where_the_pod_that_was_started_has_finished_the_same_plan_starts_the_others() -> None:
    world, plan = many("annotation", gangs=1)

    def dies(count: int, request: Request, world: World) -> Event | None:
        if isinstance(request, Ungate):
            world.answer(request)
            raise Killed
        return None

    with pytest.raises(Killed):
        apply(world, plan, dies)
    (first,) = [pod for pod in world.pods.values() if pod.node is not None]
    world.change(first.key, finished=True)
    again = apply(world, plan)
    assert [one.outcome for one in again.verdict.gangs] == [Outcome.started]
    assert len(bound(world)) == 4


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_start_whose_answer_is_lost_is_looked_up_with_its_intent(carried_out: bool) -> None:
    for number in range(4):
        world, plan = many("annotation", gangs=1)
        seen = 0

        def lost(count: int, request: Request, world: World, number: int = number) -> Event | None:
            nonlocal seen
            seen += isinstance(request, Ungate)
            if not isinstance(request, Ungate) or seen != number + 1:
                return None
            if carried_out:
                world.answer(request)
            return NoAnswer("timeout")

        assert [one.outcome for one in apply(world, plan, lost).verdict.gangs] == [Outcome.started]
        intents = [pod.intent for pod in world.pods.values()]
        assert all(isinstance(one, Intent) for one in intents)


def test_a_pod_that_another_client_ungates_meanwhile_is_not_taken_for_started() -> None:
    world, plan = many("annotation", gangs=1)

    def ungates(count: int, request: Request, world: World) -> Event | None:
        if isinstance(request, Ungate) and request.pod.name == "g00-2":
            world.change(request.pod.key, gates=())
        return None

    (found,) = apply(world, plan, ungates).verdict.gangs
    assert (found.outcome, found.why) == (Outcome.partial, "pod g00-2 lost its gate")


def test_what_random_kills_and_losses_leave_is_mended_or_reported() -> None:
    draw = random.Random(11)
    for _ in range(examples(60, 15)):
        world, plan = many(draw.choice(BACKENDS), gangs=12, size=3)
        for _ in range(draw.randint(1, 3)):
            for _ in in_flight(world, plan, draw.randint(0, 40), draw):
                pass
        for key in draw.sample(sorted(world.pods), draw.randint(0, 2)):
            world.delete(key)
        reported = {
            one.gang[1] for one in recover(world).verdict.gangs if one.outcome is Outcome.partial
        }
        for one in plan.gangs:
            pods = [world.pods[o.key] for o in one.starts if o.key in world.pods]
            started = sum(pod.node is not None for pod in pods)
            assert (
                started in (0, len(one.starts))
                or one.name in reported
                or any(pod.intent is not None and pod.intent.whole for pod in pods)
            )


def test_play_is_needed_for_groups() -> None:
    """The recorded requests are those of the machine, whoever answers them."""
    start, plan = many("annotation", gangs=3)
    world = start.copy()
    played = play(apply_plan(plan, world.view(), replace(LIMITS, backend=world.backend)), world)
    assert played.requests == [one for group in in_flight(start.copy(), plan) for one in group]
