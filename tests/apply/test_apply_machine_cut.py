"""Victims cut off half-way: any later plan finishes or reports them, and none forgets them."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import pytest
from apply_world import (
    LIMITS,
    OTHER_PLAN,
    Killed,
    Played,
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
    stop_for,
)
from effort import examples

from models.apply.plan_actions import KeptGang, Key, PlanActions
from models.apply.requests import Event, Evict, GangVerdict, NoAnswer, Outcome, Remember, Request

CONTENT = (Outcome.started, Outcome.unchanged, Outcome.stopped, Outcome.undone, Outcome.pending)
"""Outcomes with which a run ends well."""

V = frozenset(("default", f"v-{i}") for i in range(4))


def four() -> tuple[World, PlanActions]:
    """v runs with 4 pods of 8 GPUs on n0 to n3, its pods come back; w (3 x 8) gets n0 to n2."""
    world = World(recreates=set(V))
    for number in range(7):
        world.node(f"n{number}")
    v = [world.pod(f"v-{i}", 8, mode="none", node=f"n{i}", owner="job-v") for i in range(4)]
    w = [world.pod(f"w-{i}", 8) for i in range(3)]
    plan = orders(
        world,
        gang("v", (), "preempt", stops=tuple(map(stop_for, v))),
        gang("w", [order_for(pod, f"n{i}") for i, pod in enumerate(w)], priority=5),
    )
    return world, plan


def elsewhere(world: World, plan: PlanActions) -> PlanActions:
    """Another plan: w starts on n4 to n6, and v stays as it is."""
    w = [order_for(world.pods["default", f"w-{i}"], f"n{4 + i}") for i in range(3)]
    v = [pod for _, pod in sorted(world.pods.items()) if pod.key in V and pod.node]
    kept = {("default", "v"): KeptGang(tuple(pod.uid for pod in v), elastic=False)}
    made = orders(world, gang("w", w, priority=5), plan=OTHER_PLAN)
    return replace(made, kept=kept if len(v) == 4 else {})


def running(world: World) -> list[Key]:
    return [key for key in V if (pod := world.pods.get(key)) and pod.node and not pod.terminating]


def half(world: World) -> bool:
    """Whether some pods of v run and others do not."""
    return 0 < len(running(world)) < 4


def of_v(played: Played) -> GangVerdict | None:
    return next((one for one in played.verdict.gangs if one.gang[1] == "v"), None)


def checked(world: World, played: Played) -> None:
    """No run is content with half of v, and each says which pods are left."""
    found = of_v(played)
    if half(world):
        assert found is not None
        assert found.outcome not in CONTENT
        left = {world.pods[key].uid for key in running(world)}
        assert {uid for _, _, uid in found.undo} == left
    assert doubled(world) == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("least", [0, 2, 4])
@pytest.mark.parametrize("same", [True, False], ids=["same-plan", "other-plan"])
def test_killed_at_any_request_no_later_run_is_content_with_half_a_victim(
    *, same: bool, least: int, after: bool
) -> None:
    """After the kill a budget wants ``least`` pods of v; later it goes, and v ends whole or gone."""
    start, plan = four()
    for number in range(len(apply(start.copy(), plan).requests)):
        world = start.copy()
        with contextlib.suppress(Killed):
            apply(world, plan, killed_at(number, after=after))
        world.budgets = {"b": (least, V)}
        world.wait()
        for _ in range(3):
            checked(world, apply(world, plan if same else elsewhere(world, plan)))
        world.budgets = {}
        for _ in range(2):
            world.wait()
            played = apply(world, plan if same else elsewhere(world, plan))
            checked(world, played)
        world.wait()
        assert not half(world), bound(world)
        assert world.notes.stops == ()


def test_many_faults_in_a_row_leave_no_half_victim_unsaid() -> None:
    """Kills, lost answers, refusals and budgets that come and go, under two plans in turn."""
    draw = random.Random(7)
    for _ in range(examples(400, 60)):
        world, plan = four()
        for _ in range(draw.randint(1, 6)):
            world.budgets = draw.choice([{}, {"b": (draw.randint(0, 4), V)}])
            orders_now = draw.choice([plan, elsewhere(world, plan)])
            played = None
            with contextlib.suppress(Killed):
                played = apply(world, orders_now, chaos(draw, draw.choice((0.05, 0.3))))
            if played is not None and played.verdict.stop is None:
                checked(world, played)
            world.wait()
        world.budgets = {}
        for _ in range(3):
            world.wait()
            checked(world, apply(world, elsewhere(world, plan)))
        world.wait()
        assert not half(world), bound(world)
        assert world.notes.stops == ()


def test_what_may_not_all_go_is_not_begun() -> None:
    world, plan = four()
    world.budgets = {"b": (1, V)}
    found = {one.gang[1]: one for one in apply(world, plan).verdict.gangs}
    assert (found["w"].outcome, found["v"].outcome) == (Outcome.withheld, Outcome.withheld)
    assert found["w"].why == "the disruption budget default/b allows 3 of 4 evictions"
    assert not any(isinstance(request, Evict | Remember) for request in world.log)


def test_budgets_add_up_over_all_victims_of_a_gang_and_over_those_before_it() -> None:
    """a and b give way to w, c and d to x; the budget lets three of their four pods go."""
    world = World()
    for number in range(2):
        world.node(f"n{number}")
    pods = {
        name: world.pod(f"{name}-0", 4, mode="none", node=node)
        for name, node in (("a", "n0"), ("b", "n0"), ("c", "n1"), ("d", "n1"))
    }
    stops = [gang(name, (), "preempt", stops=(stop_for(pod),)) for name, pod in pods.items()]
    w, x = world.pod("w-0", 8), world.pod("x-0", 8)
    plan = orders(
        world,
        *stops,
        gang("w", [order_for(w, "n0")], priority=2),
        gang("x", [order_for(x, "n1")], priority=1),
    )
    world.budgets = {"b": (1, frozenset(pod.key for pod in pods.values()))}
    for dry in (True, False):
        played = apply(world.copy() if dry else world, plan, limits=replace(LIMITS, dry=dry))
        found = {one.gang[1]: one.outcome for one in played.verdict.gangs}
        assert found["x"] is Outcome.withheld
        assert found["w"] is Outcome.started
    assert bound(world) == {"c-0": "n1", "d-0": "n1", "w-0": "n0"}


def test_nothing_is_evicted_if_the_note_cannot_be_written() -> None:
    world, plan = four()

    def fault(count: int, request: Request, world: World) -> Event | None:
        return NoAnswer("no answer") if isinstance(request, Remember) else None

    found = {one.gang[1]: one for one in apply(world, plan, fault).verdict.gangs}
    assert found["w"].outcome is Outcome.withheld
    assert not any(isinstance(request, Evict) for request in world.log)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_gang_of_which_one_pod_moves_is_half_there_until_that_pod_is_back(after: bool) -> None:
    """v-0 goes from n0 to n4 for w; v-1 to v-3 stay."""
    start, _ = four()
    v = [start.pods["default", f"v-{i}"] for i in range(4)]
    w = start.pods["default", "w-0"]
    move = gang(
        "v",
        [order_for(v[0], "n4")],
        "move",
        stops=(stop_for(v[0]),),
        stays=tuple(pod.uid for pod in v[1:]),
    )
    plan = orders(start, move, gang("w", [order_for(w, "n0")], priority=5))
    for number in range(len(apply(start.copy(), plan).requests)):
        world = start.copy()
        with contextlib.suppress(Killed):
            apply(world, plan, killed_at(number, after=after))
        other = orders(world, plan=OTHER_PLAN)
        once = world.copy()
        found = of_v(apply(once, other, limits=replace(LIMITS, allow_evictions=False)))
        if half(once):
            assert found is not None
            assert found.outcome is Outcome.partial
            assert "needs 3 evictions: --allow-evictions" in found.why
        played = apply(world, plan)
        assert not half(world), bound(world)
        assert all(one.outcome in CONTENT for one in played.verdict.gangs)
        assert bound(world)["v-0"] == "n4"
        assert world.notes.stops == ()


def test_a_cut_victim_whose_new_pods_wait_to_be_bound_is_not_stopped() -> None:
    """v-0 was evicted and came back; a plan completes v on n4, and later ones keep it."""
    world, plan = four()
    with pytest.raises(Killed):
        apply(world, plan, killed_after(1, Evict))
    world.wait()
    world.schedules = False
    again = order_for(world.pods["default", "v-0"], "n4")
    complete = orders(world, gang("v", [again], "complete"), plan=OTHER_PLAN)
    third = "gp-" + "c" * 20
    uids = tuple(world.pods[key].uid for key in sorted(V))
    kept = replace(complete, plan=third, gangs=())
    kept = replace(kept, kept={("default", "v"): KeptGang(uids, elastic=False)})
    for made in (complete, kept):
        found = of_v(apply(world, made, limits=replace(LIMITS, evict_partial=True)))
        assert found is not None
        assert (found.outcome, len(found.undo)) == (Outcome.halted, 3)
        assert "not bound yet" in found.why
    world.schedules = True
    world.schedule()
    assert of_v(apply(world, kept)) is None
    assert (len(running(world)), world.notes.stops) == (4, ())


def test_a_pod_that_finished_by_itself_was_not_stopped() -> None:
    world, plan = four()
    with pytest.raises(Killed):
        apply(world, plan, killed_after(0, Evict))
    world.change(("default", "v-0"), finished=True)
    assert of_v(apply(world, elsewhere(world, plan))) is None
    assert world.notes.stops == ()
