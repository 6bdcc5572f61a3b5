"""Preemption, moves and resizes: within the limits, victims first, none without need. Victims cut
off half-way: any later plan finishes or reports them, and none forgets them.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import replace

import apply_world as sim
import pytest
from effort import examples, spread
from msgspec import structs

from models.apply import requests as req
from models.apply.evictions import withheld_by_budgets
from models.apply.plan_actions import KeptGang, Key, PlanActions, Resize
from models.apply.staleness import changes

END = {
    "f-0": "n4", "m-0": "n3", "m-1": "n3", "w-0": "n0", "w-1": "n0", "x-0": "n1", "x-1": "n2",
}  # fmt: skip


DOUBTS = {
    **sim.KILLS, "lost before": sim.loses, "lost after": sim.loses_answer, "409": lambda *_: req.Conflict("")
}  # fmt: skip


@pytest.mark.parametrize("kind", DOUBTS)
def test_a_fault_at_any_request_of_evictions_changes_no_end(kind: str) -> None:
    start, plan = sim.crowded()
    length = len(sim.apply(start.copy(), plan).requests)
    for number in spread([*range(list(DOUBTS).index(kind), length), 0], 3):
        world = start.copy()
        with contextlib.suppress(sim.Killed):
            sim.apply(world, plan, sim.at(number, DOUBTS[kind]))
        if kind in sim.KILLS and not world.records:
            assert changes(plan, world.view()) == []
        assert sim.doubled(world) == []
        sim.apply(world, plan)
        assert (sim.bound(world), sim.doubled(world)) == (END, [])
        assert sim.apply(world, plan).verdict.writes == 0


def test_many_cuts_and_faults_around_evictions_still_get_to_the_same_end() -> None:
    draw = random.Random(11)
    start, plan = sim.crowded()
    for _ in range(examples(150, 15)):
        world = start.copy()
        for _ in range(draw.randint(1, 4)):
            with contextlib.suppress(sim.Killed):
                sim.apply(world, plan, sim.chaos(draw, draw.choice((0.03, 0.15))))
            assert sim.doubled(world) == []
        sim.apply(world, plan)
        assert sim.bound(world) == END
        assert sim.apply(world, plan).verdict.writes == 0


# ---- resizes


def elastic() -> tuple[sim.World, PlanActions]:
    """e runs with four pods of 4 on n0 and n1; the plan shrinks it to two for w on n1."""
    world = sim.world_of(3)
    e = sim.running(world, "e", 4, "n0", "n0", "n1", "n1")
    shrink = sim.gang(
        "e", (), "resize", stops=tuple(map(sim.stop_for, e[2:])),
        resizes=(Resize("worker", 4, 2),), members=(("worker", ("default", "e-0")),),
    )  # fmt: skip
    return world, sim.orders(world, shrink, sim.waiting(world, "w", 8, "n1"))


@pytest.mark.parametrize("gone", [("e-2", "e-3"), ("e-1", "e-3")])
def test_a_gang_shrinks_and_the_winner_waits_for_the_room(gone: tuple[str, str]) -> None:
    """If e-1 goes in place of e-2, the winner has no room where it was planned; the next plan goes on."""
    world, plan = elastic()

    def scales(world: sim.World, request: req.Scale) -> req.Event:
        assert (request.resize.before, request.resize.after) == (4, 2)
        for name in gone:
            world.change(("default", name), terminating=True)
        return req.Done()

    world.controller = lambda _world, _request: req.Done()
    tried = sim.apply(world.copy(), plan, dry=True).outcomes
    assert tried == {"e": "resized", "w": "started"}
    world.controller = scales
    played = sim.apply(world, plan)
    right = "e-2" in gone
    assert played.outcomes == {"e": "resized", "w": "started" if right else "withheld"}
    (why,) = (one.why for one in played.verdict.gangs if one.gang[1] == "e")
    assert ("removed another pod than e-2" in why) is not right
    assert played.of(req.Evict) == []
    world.wait()
    left = {"e-1": "n0", "w-0": "n1"} if right else {"e-2": "n1"}
    assert sim.bound(world) == {"e-0": "n0", **left}


def growing_set() -> tuple[sim.World, PlanActions]:
    """The same gang of a ReplicaSet, from one pod to three: nobody knows the names of the new ones."""
    world = sim.world_of(1, controller=creates)
    world.nodes["n0"] = replace(world.nodes["n0"], gpus=16)
    e = world.pod("e-0", 4, mode="none", node="n0", owner="set")
    more = [structs.replace(sim.order_for(e, "n0"), name=f"e-{i}", uid="", index=i) for i in (1, 2)]
    grow = sim.gang(
        "e", more, "resize", resizes=(Resize("worker", 1, 3),),
        members=(("worker", e.key),), known=frozenset({e.uid}),
    )  # fmt: skip
    return world, sim.orders(world, grow)


def creates(world: sim.World, request: req.Scale) -> req.Event:
    """The set makes as many pods as it lacks, under names of its own."""
    for _ in range(request.resize.after - len(world.pods)):
        world.pod(f"e-x{world.made}", 4, owner="set")
    return req.Done()


def test_new_pods_are_known_by_their_controller() -> None:
    world, plan = growing_set()
    held = sim.apply(world, plan, allow_evictions=False)
    assert (held.one.why, held.of(req.Scale)) == ("resizing needs --allow-evictions", [])
    assert sim.apply(world, plan).outcomes == {"e": "started"}
    assert len(sim.bound(world)) == 3
    again = sim.apply(world, plan)
    assert (again.outcomes, again.verdict.writes) == ({"e": "unchanged"}, 0)


def test_a_pod_that_is_there_already_is_none_of_the_new_ones() -> None:
    """It waits, and the plan knows it: the new pods are others."""
    world, plan = growing_set()
    waits = world.pod("e-a", 4, owner="set")
    (grow,) = plan.gangs
    plan = replace(plan, gangs=(structs.replace(grow, known=grow.known | {waits.uid}),))
    found = sim.apply(world, plan).one
    assert (found.outcome, set(sim.bound(world))) == (req.Outcome.resized, {"e-0"})
    assert found.why.startswith("its controller has created 1 of 2 pods")


@pytest.mark.parametrize("kind", sim.KILLS)
def test_growing_that_is_cut_off_at_any_request_is_continued(kind: str) -> None:
    start, plan = growing_set()
    for number in range(len(sim.apply(start.copy(), plan).requests)):
        world = start.copy()
        sim.cut(world, plan, sim.at(number, sim.KILLS[kind]))
        assert sim.apply(world, plan).outcomes["e"] in ("started", "unchanged")
        assert (len(sim.bound(world)), sim.doubled(world)) == (3, []), number


# ---- what is left of a gang that was evicted in part


def evicted(world: sim.World) -> list[str]:
    return [request.pod.name for request in world.log if isinstance(request, req.Evict)]


STOPPED = {"v": "stopped", "w": "started"}


@pytest.mark.parametrize("count", range(7))
def test_a_gang_that_is_evicted_in_part_is_never_reported_as_partial(count: int) -> None:
    start, plan = sim.evicted_in_part()
    sim.cut(start, plan, sim.killed_after(count, req.Evict))
    start.wait()
    world = start.copy()
    assert sim.recover(world, evict_partial=True).verdict.gangs == ()
    assert evicted(world) == evicted(start)
    played = sim.apply(start, plan)
    assert played.outcomes == STOPPED
    assert [one.undo for one in played.verdict.gangs] == [(), ()]


@pytest.mark.parametrize("count", range(8))
def test_what_is_left_of_a_stopped_gang_is_stopped(count: int) -> None:
    """x has its room on n1 once v-5 and v-6 are gone; what is left of v is of no use to anybody."""
    world, _ = sim.evicted_in_part()
    stops = tuple(sim.stop_for(pod) for key, pod in world.pods.items() if key[1][0] == "v")
    plan = sim.orders(
        world, sim.gang("v", (), "preempt", stops=stops), sim.waiting(world, "x", 4, "n1")
    )  # fmt: skip
    with contextlib.suppress(sim.Killed):
        sim.apply(world, plan, sim.killed_after(count, req.Evict))
    world.wait()
    forbidden = sim.apply(world.copy(), plan, allow_evictions=False).outcomes
    assert (forbidden["v"] in ("halted", "withheld")) is (count < 7), forbidden
    assert sim.apply(world, plan).outcomes == {
        "v": "stopped",
        "x": "started" if count < 7 else "unchanged",
    }
    world.wait()
    assert sim.bound(world) == {"x-0": "n1"}


# ---- victims cut off half-way, and disruption budgets

CONTENT = {"started", "unchanged", "stopped", "undone", "pending"}
"""Outcomes with which a run ends well."""


def at_work(world: sim.World) -> list[Key]:
    return [
        key for key in sim.V if (pod := world.pods.get(key)) and pod.node and not pod.terminating
    ]


def half(world: sim.World) -> bool:
    """Whether some pods of v run and others do not."""
    return 0 < len(at_work(world)) < 4


def of_v(played: sim.Played) -> req.GangVerdict | None:
    return next((one for one in played.verdict.gangs if one.gang[1] == "v"), None)


def checked(world: sim.World, played: sim.Played) -> None:
    """No run is content with half of v, and each says which pods are left."""
    found = of_v(played)
    if half(world):
        assert found is not None
        assert found.outcome.value not in CONTENT
        assert {uid for _, _, uid in found.undo} == {world.pods[key].uid for key in at_work(world)}
    assert sim.doubled(world) == []


def settles(world: sim.World, plan: Callable[[sim.World], PlanActions], rounds: int) -> None:
    """Without a budget v ends whole or gone, and nothing is left to remember."""
    world.budgets = {}
    for _ in range(rounds):
        world.wait()
        checked(world, sim.apply(world, plan(world)))
    world.wait()
    assert not half(world), sim.bound(world)
    assert world.notes.stops == ()


@pytest.mark.parametrize("kind", sim.KILLS)
@pytest.mark.parametrize("least", [0, 2, 4])
@pytest.mark.parametrize("same", [True, False], ids=["same-plan", "other-plan"])
def test_no_run_is_content_with_half_a_victim(*, same: bool, least: int, kind: str) -> None:
    """After the kill a budget wants ``least`` pods of v; later it goes."""
    start, plan = sim.four()

    def now(world: sim.World) -> PlanActions:
        return plan if same else sim.elsewhere(world, plan)

    for number in spread(range(len(sim.apply(start.copy(), plan).requests)), 2):
        world = start.copy()
        sim.cut(world, plan, sim.at(number, sim.KILLS[kind]))
        world.budgets = {"b": (least, sim.V)}
        world.wait()
        for _ in range(2):
            checked(world, sim.apply(world, now(world)))
        settles(world, now, 2)


def test_many_faults_in_a_row_leave_no_half_victim_unsaid() -> None:
    """Kills, lost answers, refusals and budgets that come and go, under two plans in turn."""
    draw = random.Random(7)
    start, plan = sim.four()
    for _ in range(examples(400, 25)):
        world = start.copy()
        for _ in range(draw.randint(1, 6)):
            world.budgets = draw.choice([{}, {"b": (draw.randint(0, 4), sim.V)}])
            now = draw.choice([plan, sim.elsewhere(world, plan)])
            with contextlib.suppress(sim.Killed):
                played = sim.apply(world, now, sim.chaos(draw, draw.choice((0.05, 0.3))))
                if played.verdict.stop is None:
                    checked(world, played)
            world.wait()
        settles(world, lambda world: sim.elsewhere(world, plan), 3)


def test_budgets_add_up_over_all_victims_of_a_gang_and_over_those_before_it() -> None:
    """a and b give way to w, c and d to x; the budget lets three of their four pods go."""
    world = sim.world_of(2)
    pods = [
        pod
        for name, node in (("a", "n0"), ("b", "n0"), ("c", "n1"), ("d", "n1"))
        for pod in sim.running(world, name, 4, node)
    ]
    plan = sim.orders(
        world,
        *(sim.stopped(pod.name[0], [pod]) for pod in pods),
        sim.waiting(world, "w", 8, "n0", priority=2),
        sim.waiting(world, "x", 8, "n1", priority=1),
    )
    world.budgets = {"b": (1, frozenset(pod.key for pod in pods))}
    why = "the disruption budget default/b allows 3 of 4 evictions"
    assert withheld_by_budgets(plan, world.view()) == {("default", "x"): why}
    for dry in (True, False):
        found = sim.apply(world.copy() if dry else world, plan, dry=dry).outcomes
        assert (found["w"], found["x"]) == ("started", "withheld")
    assert sim.bound(world) == {"c-0": "n1", "d-0": "n1", "w-0": "n0"}


@pytest.mark.parametrize("kind", sim.KILLS)
def test_a_gang_of_which_one_pod_moves_is_half_there_until_that_pod_is_back(kind: str) -> None:
    """v-0 goes from n0 to n4 for w; v-1 to v-3 stay."""
    start, _ = sim.four()
    v = [start.pods["default", f"v-{i}"] for i in range(4)]
    move = sim.gang(
        "v", [sim.order_for(v[0], "n4")], "move", stops=(sim.stop_for(v[0]),),
        stays=tuple(pod.uid for pod in v[1:]),
    )  # fmt: skip
    w = sim.gang("w", [sim.order_for(start.pods["default", "w-0"], "n0")], priority=5)
    plan = sim.orders(start, move, w)
    for number in range(len(sim.apply(start.copy(), plan).requests)):
        world = start.copy()
        sim.cut(world, plan, sim.at(number, sim.KILLS[kind]))
        once = world.copy()
        found = of_v(sim.apply(once, sim.orders(world, plan=sim.OTHER_PLAN), allow_evictions=False))
        if half(once):
            assert found is not None
            assert found.outcome is req.Outcome.partial
            assert "needs 3 evictions: --allow-evictions" in found.why
        played = sim.apply(world, plan)
        assert not half(world), sim.bound(world)
        assert set(played.outcomes.values()) <= CONTENT
        assert (sim.bound(world)["v-0"], world.notes.stops) == ("n4", ())


def test_a_cut_victim_whose_new_pods_wait_to_be_bound_is_not_stopped() -> None:
    """v-0 was evicted and came back; a plan completes v on n4, and later ones keep it."""
    world, plan = sim.four()
    sim.cut(world, plan, sim.killed_after(1, req.Evict))
    world.wait()
    world.schedules = False
    again = sim.order_for(world.pods["default", "v-0"], "n4")
    complete = sim.orders(world, sim.gang("v", [again], "complete"), plan=sim.OTHER_PLAN)
    uids = tuple(world.pods[key].uid for key in sorted(sim.V))
    kept = {("default", "v"): KeptGang(uids, elastic=False)}
    third = replace(complete, plan="gp-" + "c" * 20, gangs=(), kept=kept)
    for made in (complete, third):
        found = of_v(sim.apply(world, made, evict_partial=True))
        assert found is not None
        assert (found.outcome, len(found.undo)) == (req.Outcome.halted, 3)
        assert "not bound yet" in found.why
    world.schedules = True
    world.schedule()
    assert of_v(sim.apply(world, third)) is None
    assert (len(at_work(world)), world.notes.stops) == (4, ())
