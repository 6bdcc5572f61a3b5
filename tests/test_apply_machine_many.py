"""Many gangs one after the other, and one that a kill left half-way: completed, reported or undone."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import pytest
from apply_world import (
    LIMITS,
    OTHER_PLAN,
    Killed,
    World,
    apply,
    bound,
    doubled,
    gang,
    killed_after,
    killed_at,
    order_for,
    orders,
    recover,
)
from effort import examples

from models.apply.intents import Intent
from models.apply.outcomes import Outcome
from models.apply.plan_actions import PlanActions
from models.apply.requests import (
    Event,
    NoAnswer,
    Request,
    Ungate,
)

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


def one_gang(size: int = 4, *, after: int = 1) -> tuple[World, PlanActions]:
    """A gated gang whose run was killed after so many starts."""
    world, plan = many("annotation", gangs=1, size=size)
    with pytest.raises(Killed):
        apply(world, plan, killed_after(after, Ungate))
    assert len(bound(world)) == after
    return world, plan


def test_any_later_run_completes_a_gang() -> None:
    world, _ = one_gang()
    verdict = recover(world).verdict
    assert [one.outcome for one in verdict.gangs] == [Outcome.started]
    assert len(bound(world)) == 4


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
    """Although the others may be at work for all that is known."""
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


def test_another_plan_completes_the_gang_before_its_own() -> None:
    world, plan = one_gang()
    verdict = apply(world, replace(plan, plan=OTHER_PLAN, gangs=())).verdict
    assert [(one.plan, one.outcome) for one in verdict.gangs] == [(plan.plan, Outcome.started)]


def test_pods_that_stayed_are_not_partial_once_those_that_moved_are_started() -> None:
    """A run was cut off after it started one of three pods that moved; the fourth carries no mark."""
    world, _ = one_gang()
    for key in [("default", f"g00-{number}") for number in range(3)]:
        intent = world.pods[key].intent
        assert intent is not None
        moved = replace(intent, size=3)
        world.change(key, intent=moved)
    stayed = replace(moved, plan="gp-" + "0" * 20, size=4, node="n0", gpus=(6, 7))
    world.change(("default", "g00-3"), intent=stayed, intent_is_ours=True, gates=(), node="n0")
    found = recover(world, limits=replace(LIMITS, evict_partial=True)).verdict.gangs
    assert [(one.plan, one.outcome) for one in found] == [(moved.plan, Outcome.started)]
    assert len(bound(world)) == 4


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


@pytest.mark.parametrize("backend", BACKENDS)
def test_of_many_gangs_one_is_under_way_at_any_request(backend: str) -> None:
    world, plan = many(backend)

    def looked(count: int, request: Request, world: World) -> Event | None:
        assert len(half_way(world, plan)) <= 1
        return None

    first = apply(world.copy(), plan).requests
    assert apply(world, plan, looked).requests == first
    assert len(bound(world)) == 80


def test_what_random_kills_and_losses_leave_is_mended_or_reported() -> None:
    draw = random.Random(11)
    for _ in range(examples(60, 15)):
        world, plan = many(draw.choice(BACKENDS), gangs=12, size=3)
        for _ in range(draw.randint(1, 3)):
            with contextlib.suppress(Killed):
                apply(world, plan, killed_at(draw.randint(0, 100), after=draw.random() < 0.5))
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
