"""Preemption, moves and resizes: within the limits, victims first, no unnecessary evictions."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import pytest
from apply_world import (
    LIMITS,
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
    killed_after,
    killed_at,
    order_for,
    orders,
    recover,
    stop_for,
)
from effort import examples

from models.apply.plan_actions import PlanActions, Resize
from models.apply.requests import (
    Conflict,
    Done,
    Event,
    Evict,
    NoAnswer,
    Outcome,
    ReadCluster,
    Request,
    Scale,
)
from models.apply.staleness import changes


def crowded() -> tuple[World, PlanActions]:
    """v fills n0; m has 4 GPUs on n1 and n2. The plan stops v for w, and moves m for x to n3.

    w: two pods of 4 on n0. x: two pods of 8 on n1 and n2. f: one pod of 4 on n4, where there is room.
    """
    world = World()
    for number in range(5):
        world.node(f"n{number}")
    v = [world.pod(f"v-{i}", 4, mode="none", node="n0", owner="job-v") for i in range(2)]
    m = [world.pod(f"m-{i}", 4, mode="none", node=f"n{i + 1}", owner="job-m") for i in range(2)]
    w = [world.pod(f"w-{i}", 4) for i in range(2)]
    x = [world.pod(f"x-{i}", 8, mode="gate") for i in range(2)]
    f = world.pod("f-0", 4)
    world.recreates = {("default", f"m-{i}") for i in range(2)}
    plan = orders(
        world,
        gang("v", (), "preempt", stops=tuple(map(stop_for, v))),
        gang(
            "m",
            [order_for(pod, "n3") for pod in m],
            "move",
            stops=tuple(map(stop_for, m)),
        ),
        gang("w", [order_for(pod, "n0") for pod in w], priority=5),
        gang("x", [order_for(pod, f"n{i + 1}") for i, pod in enumerate(x)]),
        gang("f", [order_for(f, "n4")]),
    )
    return world, plan


END = {
    "f-0": "n4", "m-0": "n3", "m-1": "n3", "w-0": "n0", "w-1": "n0", "x-0": "n1", "x-1": "n2",
}  # fmt: skip


def outcomes(world: World, plan: PlanActions, **more: object) -> dict[str, Outcome]:
    fault = more.pop("fault", None)
    played = apply(world, plan, fault, replace(LIMITS, **more))  # type: ignore[arg-type]
    return {one.gang[1]: one.outcome for one in played.verdict.gangs}


def test_a_victim_that_went_by_itself_needs_no_leave() -> None:
    world, plan = crowded()
    for i in range(2):
        world.change(("default", f"v-{i}"), finished=True)
    assert changes(plan, world.view()) == []
    found = outcomes(world, plan, allow_evictions=False)
    assert (found["w"], found["v"]) == (Outcome.started, Outcome.stopped)


def test_a_victim_no_gang_needs_any_more_is_left_alone() -> None:
    world, plan = crowded()
    world.nodes["n0"] = replace(world.nodes["n0"], gpus=16)
    found = outcomes(world, plan)
    assert (found["w"], found["v"]) == (Outcome.started, Outcome.unchanged)
    assert bound(world)["v-0"] == "n0"


def test_no_gang_is_stopped_for_a_gang_that_could_not_start_even_so() -> None:
    world, plan = crowded()
    world.pod("rival-0", 4, mode="none", node="n0")
    # Two times 4 GPUs are wanted on n0, of which a stranger holds 4 now.
    found = outcomes(world, plan)
    assert (found["w"], found["v"]) == (Outcome.skipped, Outcome.unchanged)
    assert bound(world)["v-0"] == "n0"


def test_no_gang_is_moved_to_where_there_is_no_room_for_it() -> None:
    world, plan = crowded()
    world.pod("rival-0", 8, mode="none", node="n3")
    found = outcomes(world, plan)
    assert (found["m"], found["x"]) == (Outcome.skipped, Outcome.withheld)
    assert bound(world)["m-0"] == "n1"


def test_new_pods_of_another_controller_are_not_taken_for_those_that_moved() -> None:
    world, plan = crowded()

    def impostor(count: int, request: Request, world: World) -> Event | None:
        pod = world.pods.get(("default", "m-0"))
        if pod is not None and pod.terminating and pod.owner == "job-m":
            world.change(pod.key, owner="job-z")
        return None

    found = outcomes(world, plan, fault=impostor)
    assert found["m"] is Outcome.stopped
    assert "m-0" not in bound(world)
    assert "m-1" not in bound(world)


def test_moved_pods_that_do_not_come_back_are_left_to_the_next_plan() -> None:
    world, plan = crowded()
    world.recreates = set()
    found = outcomes(world, plan)
    assert (found["m"], found["x"]) == (Outcome.stopped, Outcome.started)


def test_a_winner_whose_room_a_stranger_took_as_it_came_free_is_withheld() -> None:
    world, plan = crowded()

    def stranger(count: int, request: Request, world: World) -> Event | None:
        going = [key for key, pod in world.pods.items() if pod.terminating and key[1][0] == "v"]
        if isinstance(request, ReadCluster) and len(going) == 2:
            for key in going:
                world.delete(key)
            world.pod("r-0", 8, mode="none", node="n0")
        return None

    found = outcomes(world, plan, fault=stranger)
    assert (found["w"], found["v"], found["x"]) == (
        Outcome.withheld, Outcome.stopped, Outcome.started,
    )  # fmt: skip
    assert all(pod.intent is None for key, pod in world.pods.items() if key[1].startswith("w-"))


def test_new_pods_under_other_names_are_not_waited_for() -> None:
    world, plan = crowded()
    world.recreates = set()

    def renamed(count: int, request: Request, world: World) -> Event | None:
        if isinstance(request, Evict) and request.pod.name[0] == "m":
            world.pod(f"{request.pod.name}x-0", 4, owner="job-m")
        return None

    rounds = sum(
        isinstance(request, ReadCluster) and request.after_s > 0
        for request in apply(world, plan, renamed).requests
    )
    # One for v to go, one for m, one for the last pins to be bound.
    assert rounds == 3


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_request_of_evictions_and_moves_the_end_is_the_same(after: bool) -> None:
    start, plan = crowded()
    for number in range(len(apply(start.copy(), plan).requests)):
        world = start.copy()
        with pytest.raises(Killed):
            apply(world, plan, killed_at(number, after=after))
        if not any(pod.intent for pod in world.pods.values()):
            assert changes(plan, world.view()) == []
        apply(world, plan)
        assert bound(world) == END
        assert doubled(world) == []
        assert apply(world, plan).verdict.writes == 0


@pytest.mark.parametrize("event", [NoAnswer("timeout"), Conflict("409"), None], ids=str)
def test_any_doubt_at_any_request_of_evictions_and_moves_ends_the_same(event: Event | None) -> None:
    start, plan = crowded()
    for number in range(len(apply(start.copy(), plan).requests)):
        world = start.copy()

        def doubt(count: int, request: Request, world: World, number: int = number) -> Event | None:
            if count != number:
                return None
            if event is None and isinstance(request, WRITES):
                world.answer(request)
            return event or NoAnswer("timeout")

        apply(world, plan, doubt)
        assert doubled(world) == []
        apply(world, plan)
        assert bound(world) == END


# ---- resizes


def elastic() -> tuple[World, PlanActions]:
    """e runs with four pods of 4 on n0 and n1; the plan shrinks it to two for w on n1."""
    world = World()
    for number in range(3):
        world.node(f"n{number}")
    e = [world.pod(f"e-{i}", 4, mode="none", node=f"n{i // 2}") for i in range(4)]
    w = world.pod("w-0", 8)
    shrink = gang(
        "e", (), "resize", stops=tuple(map(stop_for, e[2:])),
        resizes=(Resize("worker", 4, 2),), members=(("worker", ("default", "e-0")),),
    )  # fmt: skip
    return world, orders(world, shrink, gang("w", [order_for(w, "n1")]))


def scales(world: World) -> Fault:
    """A controller with a scale field: shrinking deletes the last pods."""

    def fault(count: int, request: Request, world: World) -> Event | None:
        if isinstance(request, Scale):
            for i in range(request.resize.after, request.resize.before):
                if ("default", f"e-{i}") in world.pods:
                    world.change(("default", f"e-{i}"), terminating=True)
            return Done()
        return None

    return fault


def test_a_gang_shrinks_through_its_controller_and_the_winner_waits_for_the_room() -> None:
    world, plan = elastic()
    found = outcomes(world, plan, fault=scales(world))
    assert found == {"e": Outcome.resized, "w": Outcome.started}
    assert bound(world) == {"e-0": "n0", "e-1": "n0", "w-0": "n1"}
    assert not any(isinstance(request, Evict) for request in world.log)


def growing_set() -> tuple[World, PlanActions]:
    """The same gang of a ReplicaSet, from one pod to three: nobody knows the names of the new ones."""
    world = World()
    world.node("n0", 16)
    e = world.pod("e-0", 4, mode="none", node="n0", owner="set")
    more = [replace(order_for(e, "n0"), name=f"e-{i}", uid="", index=i) for i in (1, 2)]
    grow = gang(
        "e", more, "resize", resizes=(Resize("worker", 1, 3),),
        members=(("worker", e.key),), known=frozenset({e.uid}),
    )  # fmt: skip
    return world, orders(world, grow)


def creates(count: int, request: Request, world: World) -> Event | None:
    """The set makes as many pods as it lacks, under names of its own."""
    if not isinstance(request, Scale):
        return None
    for _ in range(request.resize.after - len(world.pods)):
        world.pod(f"e-x{world.made}", 4, owner="set")
    return Done()


def test_new_pods_are_known_by_their_controller() -> None:
    world, plan = growing_set()
    assert outcomes(world, plan, fault=creates) == {"e": Outcome.started}
    assert len(bound(world)) == 3
    again = apply(world, plan, creates)
    assert (again.verdict.gangs[0].outcome, again.verdict.writes) == (Outcome.unchanged, 0)


def test_a_pod_that_is_there_already_is_none_of_the_new_ones() -> None:
    """It waits, and the plan knows it: the new pods are others."""
    world, plan = growing_set()
    waits = world.pod("e-a", 4, owner="set")
    (grow,) = plan.gangs
    plan = replace(plan, gangs=(replace(grow, known=grow.known | {waits.uid}),))
    played = apply(world, plan, creates)
    (verdict,) = played.verdict.gangs
    assert (verdict.outcome, set(bound(world))) == (Outcome.resized, {"e-0"})
    assert verdict.why.startswith("its controller has created 1 of 2 pods")


@pytest.mark.parametrize("carried_out", [False, True])
def test_growing_that_is_cut_off_at_any_request_is_continued(*, carried_out: bool) -> None:
    world, plan = growing_set()
    for at in range(len(apply(world, plan, creates).requests)):
        world, plan = growing_set()

        def cut(count: int, request: Request, world: World, at: int = at) -> Event | None:
            if count != at:
                return creates(count, request, world)
            if carried_out and creates(count, request, world) is None:
                world.answer(request)
            raise Killed

        with contextlib.suppress(Killed):
            apply(world, plan, cut)
        assert outcomes(world, plan, fault=creates)["e"] in {Outcome.started, Outcome.unchanged}
        assert len(bound(world)) == 3, at
        assert doubled(world) == []


def test_other_pods_than_planned_that_go_are_reported_and_the_next_plan_goes_on() -> None:
    """Two of four stay: e-1 went in place of e-2, so the winner has no room where it was planned."""
    world, plan = elastic()
    for key, pod in list(world.pods.items()):
        if pod.name.startswith("e-"):
            world.change(key, owner="set")

    def others(count: int, request: Request, world: World) -> Event | None:
        if not isinstance(request, Scale):
            return None
        for name in ("e-1", "e-3"):
            world.change(("default", name), terminating=True)
        return Done()

    played = apply(world, plan, others)
    found = {one.gang[1]: one for one in played.verdict.gangs}
    assert found["e"].outcome is Outcome.resized
    assert "removed another pod than e-2" in found["e"].why
    assert found["w"].outcome is Outcome.withheld
    world.wait()
    assert bound(world) == {"e-0": "n0", "e-2": "n1"}


# ---- dry runs, and everything at once


def test_many_cuts_and_faults_around_evictions_still_get_to_the_same_end() -> None:
    draw = random.Random(11)
    start, plan = crowded()
    for _ in range(examples(150, 50)):
        world = start.copy()
        for _ in range(draw.randint(1, 4)):
            with contextlib.suppress(Killed):
                apply(world, plan, chaos(draw, draw.choice((0.03, 0.15))))
            assert doubled(world) == []
        apply(world, plan)
        assert bound(world) == END
        assert apply(world, plan).verdict.writes == 0


# ---- what is left of a gang that was evicted in part


def evicted_in_part() -> tuple[World, PlanActions]:
    """v, seven pods on n0 and n1, was started by an earlier plan and is whole; w wants their room.

    Marked are v-0 on n0 and v-4 on n1, the first of each node, and the next best: v-1.
    """
    world = World()
    for name in ("n0", "n1"):
        world.node(name)
    v = [world.pod(f"v-{i}", 2, owner="job-v") for i in range(7)]
    earlier = gang("v", [order_for(pod, f"n{i // 4}") for i, pod in enumerate(v)])
    apply(world, orders(world, earlier, plan=OTHER_PLAN))
    assert marked(world) == {"v-0", "v-1", "v-4"}
    w = [world.pod(f"w-{i}", 8) for i in range(2)]
    stops = tuple(stop_for(world.pods[pod.key]) for pod in v)
    plan = orders(
        world,
        gang("v", (), "preempt", stops=stops),
        gang("w", [order_for(pod, f"n{i}") for i, pod in enumerate(w)]),
    )
    world.log.clear()
    return world, plan


def marked(world: World) -> set[str]:
    return {pod.name for pod in world.pods.values() if pod.intent and pod.intent.whole}


def evicted(world: World) -> list[str]:
    return [request.pod.name for request in world.log if isinstance(request, Evict)]


def test_pods_that_tell_the_gang_was_whole_are_evicted_last() -> None:
    world, plan = evicted_in_part()
    assert outcomes(world, plan) == {"v": Outcome.stopped, "w": Outcome.started}
    assert evicted(world) == ["v-2", "v-3", "v-5", "v-6", "v-0", "v-1", "v-4"]


@pytest.mark.parametrize("count", range(7))
def test_a_gang_that_is_evicted_in_part_is_never_reported_as_partial(count: int) -> None:
    start, plan = evicted_in_part()
    with pytest.raises(Killed):
        apply(start, plan, killed_after(count, Evict))
    start.wait()
    world = start.copy()
    assert recover(world, limits=replace(LIMITS, evict_partial=True)).verdict.gangs == ()
    assert evicted(world) == evicted(start)
    played = apply(start, plan)
    assert [(one.gang[1], one.outcome, one.undo) for one in played.verdict.gangs] == [
        ("v", Outcome.stopped, ()), ("w", Outcome.started, ()),
    ]  # fmt: skip


def test_marked_pods_stay_as_long_as_a_budget_keeps_others_of_their_gang() -> None:
    world, plan = evicted_in_part()
    world.budget = {("default", "v-6"): 1000}
    assert outcomes(world, plan) == {"v": Outcome.halted, "w": Outcome.withheld}
    assert evicted(world).count("v-6") > 1
    assert {pod.name for pod in world.pods.values() if pod.node} == {"v-0", "v-1", "v-4", "v-6"}


@pytest.mark.parametrize("count", [2, 4])
def test_a_gang_the_plan_stops_is_not_reported_as_partial_though_no_mark_is_left(
    count: int,
) -> None:
    """Two or four of seven are gone, and so are all marks: others may have deleted those pods."""
    world, plan = evicted_in_part()
    with pytest.raises(Killed):
        apply(world, plan, killed_after(count, Evict))
    world.wait()
    for key, pod in list(world.pods.items()):
        if pod.intent is not None:
            world.change(key, intent=replace(pod.intent, whole=False))
    played = apply(world, plan)
    assert [(one.gang[1], one.outcome) for one in played.verdict.gangs] == [
        ("v", Outcome.stopped), ("w", Outcome.started),
    ]  # fmt: skip


@pytest.mark.parametrize("count", range(8))
def test_a_gang_that_was_stopped_in_part_is_stopped_whole_though_its_room_is_free(
    count: int,
) -> None:
    """w has its room on n1 once v-5 and v-6 are gone; what is left of v is of no use to anybody."""
    world, _ = evicted_in_part()
    stops = tuple(stop_for(pod) for key, pod in world.pods.items() if key[1][0] == "v")
    w = world.pod("x-0", 4)
    plan = orders(world, gang("v", (), "preempt", stops=stops), gang("x", [order_for(w, "n1")]))
    with contextlib.suppress(Killed):
        apply(world, plan, killed_after(count, Evict))
    world.wait()
    forbidden = outcomes(world.copy(), plan, allow_evictions=False)
    assert (forbidden["v"] in (Outcome.halted, Outcome.withheld)) is (count < 7), forbidden
    assert outcomes(world, plan) == {
        "v": Outcome.stopped,
        "x": Outcome.started if count < 7 else Outcome.unchanged,
    }
    world.wait()
    assert bound(world) == {"x-0": "n1"}


def test_a_gang_that_lost_a_pod_by_itself_is_not_stopped_if_no_gang_takes_its_room() -> None:
    world, plan = evicted_in_part()
    world.delete(("default", "v-2"))
    for name in ("w-0", "w-1"):
        world.delete(("default", name))
    found = outcomes(world, plan)
    assert (found["w"], evicted(world)) == (Outcome.skipped, [])
