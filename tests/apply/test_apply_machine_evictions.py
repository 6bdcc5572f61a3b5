"""Preemption, moves and resizes: within the limits, victims first, none without need. Victims cut
off half-way: any later plan finishes or reports them, and none forgets them.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from apply_world import (
    KILLS,
    OTHER_PLAN,
    Fault,
    Killed,
    Played,
    World,
    apply,
    at,
    bound,
    chaos,
    cut,
    dies,
    doubled,
    gang,
    killed_after,
    loses,
    loses_answer,
    marked,
    on,
    order_for,
    orders,
    recover,
    stop_for,
    world_of,
)
from effort import examples, spread

from models.apply import requests as req
from models.apply.plan_actions import KeptGang, Key, PlanActions, Resize
from models.apply.staleness import changes


def crowded() -> tuple[World, PlanActions]:
    """v fills n0; m has 4 GPUs on n1 and n2. The plan stops v for w, and moves m for x to n3.

    w: two pods of 4 on n0. x: two pods of 8 on n1 and n2. f: one pod of 4 on n4, where there is room.
    """
    world = world_of(5)
    v = [world.pod(f"v-{i}", 4, mode="none", node="n0", owner="job-v") for i in range(2)]
    m = [world.pod(f"m-{i}", 4, mode="none", node=f"n{i + 1}", owner="job-m") for i in range(2)]
    w = [world.pod(f"w-{i}", 4) for i in range(2)]
    x = [world.pod(f"x-{i}", 8) for i in range(2)]
    world.recreates = {pod.key for pod in m}
    plan = orders(
        world,
        gang("v", (), "preempt", stops=tuple(map(stop_for, v))),
        gang("m", [order_for(pod, "n3") for pod in m], "move", stops=tuple(map(stop_for, m))),
        gang("w", [order_for(pod, "n0") for pod in w], priority=5),
        gang("x", [order_for(pod, f"n{i + 1}") for i, pod in enumerate(x)]),
        gang("f", [order_for(world.pod("f-0", 4), "n4")]),
    )
    return world, plan


END = {
    "f-0": "n4", "m-0": "n3", "m-1": "n3", "w-0": "n0", "w-1": "n0", "x-0": "n1", "x-1": "n2",
}  # fmt: skip
ALL_WELL = {"v": "stopped", "m": "started", "w": "started", "x": "started", "f": "started"}


def finished(world: World) -> None:
    for i in range(2):
        world.change(("default", f"v-{i}"), finished=True)


def larger(world: World) -> None:
    world.nodes["n0"] = replace(world.nodes["n0"], gpus=16)


def impostor(world: World, _: req.Request) -> None:
    """The new m-0 is made by another controller."""
    pod = world.pods.get(("default", "m-0"))
    if pod is not None and pod.terminating and pod.owner == "job-m":
        world.change(pod.key, owner="job-z")


def stranger(world: World, _: req.Request) -> None:
    """Takes the room of v as it comes free."""
    going = [key for key, pod in world.pods.items() if pod.terminating and key[1][0] == "v"]
    if len(going) == 2:
        for key in going:
            world.delete(key)
        world.pod("r-0", 8, mode="none", node="n0")


@pytest.mark.parametrize(
    ("before", "fault", "expected", "there"),
    [
        (None, None, {}, END),
        (finished, None, {}, END),
        (larger, None, {"v": "unchanged"}, END | {"v-0": "n0", "v-1": "n0"}),
        # two times 4 GPUs are wanted on n0, of which a stranger holds 4 now
        (lambda world: world.pod("r-0", 4, mode="none", node="n0"), None,
         {"v": "unchanged", "w": "skipped"}, {"v-0": "n0", "m-0": "n3", "r-0": "n0"}),
        (lambda world: world.pod("r-0", 8, mode="none", node="n3"), None,
         {"m": "skipped", "x": "withheld"}, {"m-0": "n1", "m-1": "n2"}),
        (None, on(object, impostor), {"m": "stopped"}, {"m-0": None, "m-1": None}),
        (lambda world: world.recreates.clear(), None, {"m": "stopped"}, {"x-0": "n1", "m-0": None}),
        (None, on(req.ReadCluster, stranger), {"w": "withheld"}, {"r-0": "n0", "w-0": None}),
    ],
    ids=["calm", "victims finished", "no need any more", "no room even so", "no room to move to",
         "another's new pods", "not recreated", "a stranger"],
)  # fmt: skip
def test_gangs_are_stopped_and_moved_where_that_helps_and_only_there(
    before: Callable[[World], object] | None, fault: Fault | None,
    expected: dict[str, str], there: dict[str, str | None],
) -> None:  # fmt: skip
    world, plan = crowded()
    if before is not None:
        before(world)
    full = doubled(world)
    assert apply(world, plan, fault).outcomes == ALL_WELL | expected
    assert {name: bound(world).get(name) for name in there} == there
    assert doubled(world) == full
    assert all(
        (pod.intent is None) is (pod.node is None)
        for key, pod in world.pods.items() if key[1][0] == "w"
    )  # fmt: skip


def test_a_victim_that_went_by_itself_needs_no_leave() -> None:
    world, plan = crowded()
    finished(world)
    assert changes(plan, world.view()) == []
    found = apply(world, plan, allow_evictions=False).outcomes
    assert (found["w"], found["v"], found["x"]) == ("started", "stopped", "withheld")


@pytest.mark.parametrize(("most", "stopped"), [(1, ""), (2, "v"), (3, "v"), (4, "vm")])
def test_no_more_pods_are_evicted_than_allowed_and_no_gang_in_part(most: int, stopped: str) -> None:
    """Two pods of v, two of m: the gang of the higher priority comes first."""
    world, plan = crowded()
    played = apply(world, plan, max_evictions=most)
    assert "".join(dict.fromkeys(one.pod.name[0] for one in played.of(req.Evict))) == stopped
    assert played.verdict.evicted == 2 * len(stopped)


def test_new_pods_under_other_names_are_not_waited_for() -> None:
    world, plan = crowded()
    world.recreates = set()

    def renamed(world: World, request: req.Evict) -> None:
        if request.pod.name[0] == "m":
            world.pod(f"{request.pod.name}x-0", 4, owner="job-m")

    read = apply(world, plan, on(req.Evict, renamed)).of(req.ReadCluster)
    # One wait for v to go, one for m, one for the last pins to be bound.
    assert sum(request.after_s > 0 for request in read) == 3


DOUBTS = {
    **KILLS, "lost before": loses, "lost after": loses_answer, "409": lambda *_: req.Conflict("")
}  # fmt: skip


@pytest.mark.parametrize("kind", DOUBTS)
def test_whatever_happens_at_any_request_of_evictions_and_moves_the_end_is_the_same(
    kind: str,
) -> None:
    start, plan = crowded()
    length = len(apply(start.copy(), plan).requests)
    for number in spread([*range(list(DOUBTS).index(kind), length), 0], 3):
        world = start.copy()
        with contextlib.suppress(Killed):
            apply(world, plan, at(number, DOUBTS[kind]))
        if kind in KILLS and not any(pod.intent for pod in world.pods.values()):
            assert changes(plan, world.view()) == []
        assert doubled(world) == []
        apply(world, plan)
        assert (bound(world), doubled(world)) == (END, [])
        assert apply(world, plan).verdict.writes == 0


def test_many_cuts_and_faults_around_evictions_still_get_to_the_same_end() -> None:
    draw = random.Random(11)
    start, plan = crowded()
    for _ in range(examples(150, 15)):
        world = start.copy()
        for _ in range(draw.randint(1, 4)):
            with contextlib.suppress(Killed):
                apply(world, plan, chaos(draw, draw.choice((0.03, 0.15))))
            assert doubled(world) == []
        apply(world, plan)
        assert bound(world) == END
        assert apply(world, plan).verdict.writes == 0


# ---- resizes


def elastic() -> tuple[World, PlanActions]:
    """e runs with four pods of 4 on n0 and n1; the plan shrinks it to two for w on n1."""
    world = world_of(3)
    e = [
        world.pod(f"e-{i}", 4, mode="none", node=f"n{i // 2}", owner="set") for i in range(4)
    ]  # fmt: skip
    shrink = gang(
        "e", (), "resize", stops=tuple(map(stop_for, e[2:])),
        resizes=(Resize("worker", 4, 2),), members=(("worker", ("default", "e-0")),),
    )  # fmt: skip
    return world, orders(world, shrink, gang("w", [order_for(world.pod("w-0", 8), "n1")]))


@pytest.mark.parametrize("gone", [("e-2", "e-3"), ("e-1", "e-3")])
def test_a_gang_shrinks_through_its_controller_and_the_winner_waits_for_the_room(
    gone: tuple[str, str],
) -> None:
    """If e-1 goes in place of e-2, the winner has no room where it was planned; the next plan goes on."""
    world, plan = elastic()

    def scales(world: World, request: req.Scale) -> req.Event:
        assert (request.resize.before, request.resize.after) == (4, 2)
        for name in gone:
            world.change(("default", name), terminating=True)
        return req.Done()

    played = apply(world, plan, on(req.Scale, scales))
    right = "e-2" in gone
    assert played.outcomes == {"e": "resized", "w": "started" if right else "withheld"}
    (why,) = (one.why for one in played.verdict.gangs if one.gang[1] == "e")
    assert ("removed another pod than e-2" in why) is not right
    assert played.of(req.Evict) == []
    world.wait()
    left = {"e-1": "n0", "w-0": "n1"} if right else {"e-2": "n1"}
    assert bound(world) == {"e-0": "n0", **left}


def growing_set() -> tuple[World, PlanActions]:
    """The same gang of a ReplicaSet, from one pod to three: nobody knows the names of the new ones."""
    world = world_of(1)
    larger(world)
    e = world.pod("e-0", 4, mode="none", node="n0", owner="set")
    more = [replace(order_for(e, "n0"), name=f"e-{i}", uid="", index=i) for i in (1, 2)]
    grow = gang(
        "e", more, "resize", resizes=(Resize("worker", 1, 3),),
        members=(("worker", e.key),), known=frozenset({e.uid}),
    )  # fmt: skip
    return world, orders(world, grow)


def creates(count: int, request: req.Request, world: World) -> req.Event | None:
    """The set makes as many pods as it lacks, under names of its own."""
    if not isinstance(request, req.Scale):
        return None
    for _ in range(request.resize.after - len(world.pods)):
        world.pod(f"e-x{world.made}", 4, owner="set")
    return req.Done()


def test_new_pods_are_known_by_their_controller() -> None:
    world, plan = growing_set()
    assert apply(world, plan, creates).outcomes == {"e": "started"}
    assert len(bound(world)) == 3
    again = apply(world, plan, creates)
    assert (again.outcomes, again.verdict.writes) == ({"e": "unchanged"}, 0)


def test_a_pod_that_is_there_already_is_none_of_the_new_ones() -> None:
    """It waits, and the plan knows it: the new pods are others."""
    world, plan = growing_set()
    waits = world.pod("e-a", 4, owner="set")
    (grow,) = plan.gangs
    plan = replace(plan, gangs=(replace(grow, known=grow.known | {waits.uid}),))
    found = apply(world, plan, creates).one
    assert (found.outcome, set(bound(world))) == (req.Outcome.resized, {"e-0"})
    assert found.why.startswith("its controller has created 1 of 2 pods")


@pytest.mark.parametrize("kind", KILLS)
def test_growing_that_is_cut_off_at_any_request_is_continued(kind: str) -> None:
    world, plan = growing_set()
    for number in range(len(apply(world, plan, creates).requests)):
        world, plan = growing_set()

        def fault(
            count: int, request: req.Request, world: World, number: int = number
        ) -> req.Event | None:
            if count != number:
                return creates(count, request, world)
            if kind == "killed after" and creates(count, request, world) is None:
                world.answer(request)
            raise Killed

        cut(world, plan, fault)
        assert apply(world, plan, creates).outcomes["e"] in ("started", "unchanged")
        assert (len(bound(world)), doubled(world)) == (3, []), number


# ---- what is left of a gang that was evicted in part


def evicted_in_part() -> tuple[World, PlanActions]:
    """v, seven pods on n0 and n1, was started by an earlier plan and is whole; w wants their room.

    Marked are v-0 on n0 and v-4 on n1, the first of each node, and the next best: v-1.
    """
    world = world_of(2)
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


def evicted(world: World) -> list[str]:
    return [request.pod.name for request in world.log if isinstance(request, req.Evict)]


STOPPED = {"v": "stopped", "w": "started"}


def test_pods_that_tell_the_gang_was_whole_are_evicted_last() -> None:
    world, plan = evicted_in_part()
    assert apply(world, plan).outcomes == STOPPED
    assert evicted(world) == ["v-2", "v-3", "v-5", "v-6", "v-0", "v-1", "v-4"]


@pytest.mark.parametrize("count", range(7))
def test_a_gang_that_is_evicted_in_part_is_never_reported_as_partial(count: int) -> None:
    start, plan = evicted_in_part()
    cut(start, plan, killed_after(count, req.Evict))
    start.wait()
    world = start.copy()
    assert recover(world, evict_partial=True).verdict.gangs == ()
    assert evicted(world) == evicted(start)
    if count in (2, 4):
        # All marks are gone: others may have deleted those pods.
        for key, pod in list(start.pods.items()):
            start.change(key, intent=pod.intent and replace(pod.intent, whole=False))
    played = apply(start, plan)
    assert played.outcomes == STOPPED
    assert [one.undo for one in played.verdict.gangs] == [(), ()]


def test_marked_pods_stay_as_long_as_a_budget_keeps_others_of_their_gang() -> None:
    world, plan = evicted_in_part()
    world.budgets, world.reads_budgets = {"b": (1, frozenset({("default", "v-6")}))}, False
    assert apply(world, plan).outcomes == {"v": "halted", "w": "withheld"}
    assert evicted(world).count("v-6") > 1
    assert {pod.name for pod in world.pods.values() if pod.node} == {"v-0", "v-1", "v-4", "v-6"}


@pytest.mark.parametrize("count", range(8))
def test_a_gang_that_was_stopped_in_part_is_stopped_whole_though_its_room_is_free(
    count: int,
) -> None:
    """x has its room on n1 once v-5 and v-6 are gone; what is left of v is of no use to anybody."""
    world, _ = evicted_in_part()
    stops = tuple(stop_for(pod) for key, pod in world.pods.items() if key[1][0] == "v")
    x = order_for(world.pod("x-0", 4), "n1")
    plan = orders(world, gang("v", (), "preempt", stops=stops), gang("x", [x]))
    with contextlib.suppress(Killed):
        apply(world, plan, killed_after(count, req.Evict))
    world.wait()
    forbidden = apply(world.copy(), plan, allow_evictions=False).outcomes
    assert (forbidden["v"] in ("halted", "withheld")) is (count < 7), forbidden
    assert apply(world, plan).outcomes == {
        "v": "stopped",
        "x": "started" if count < 7 else "unchanged",
    }
    world.wait()
    assert bound(world) == {"x-0": "n1"}


def test_a_gang_that_lost_a_pod_by_itself_is_not_stopped_if_no_gang_takes_its_room() -> None:
    world, plan = evicted_in_part()
    for name in ("v-2", "w-0", "w-1"):
        world.delete(("default", name))
    assert apply(world, plan).outcomes["w"] == "skipped"
    assert evicted(world) == []


# ---- victims cut off half-way, and disruption budgets

CONTENT = {"started", "unchanged", "stopped", "undone", "pending"}
"""Outcomes with which a run ends well."""

V = frozenset(("default", f"v-{i}") for i in range(4))


def four() -> tuple[World, PlanActions]:
    """v runs with 4 pods of 8 GPUs on n0 to n3, its pods come back; w (3 x 8) gets n0 to n2."""
    world = world_of(7, recreates=set(V))
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


def of_v(played: Played) -> req.GangVerdict | None:
    return next((one for one in played.verdict.gangs if one.gang[1] == "v"), None)


def checked(world: World, played: Played) -> None:
    """No run is content with half of v, and each says which pods are left."""
    found = of_v(played)
    if half(world):
        assert found is not None
        assert found.outcome.value not in CONTENT
        assert {uid for _, _, uid in found.undo} == {world.pods[key].uid for key in running(world)}
    assert doubled(world) == []


def settles(world: World, plan: Callable[[World], PlanActions], rounds: int) -> None:
    """Without a budget v ends whole or gone, and nothing is left to remember."""
    world.budgets = {}
    for _ in range(rounds):
        world.wait()
        checked(world, apply(world, plan(world)))
    world.wait()
    assert not half(world), bound(world)
    assert world.notes.stops == ()


@pytest.mark.parametrize("kind", KILLS)
@pytest.mark.parametrize("least", [0, 2, 4])
@pytest.mark.parametrize("same", [True, False], ids=["same-plan", "other-plan"])
def test_killed_at_any_request_no_later_run_is_content_with_half_a_victim(
    *, same: bool, least: int, kind: str
) -> None:
    """After the kill a budget wants ``least`` pods of v; later it goes."""
    start, plan = four()

    def now(world: World) -> PlanActions:
        return plan if same else elsewhere(world, plan)

    for number in spread(range(len(apply(start.copy(), plan).requests)), 2):
        world = start.copy()
        cut(world, plan, at(number, KILLS[kind]))
        world.budgets = {"b": (least, V)}
        world.wait()
        for _ in range(2):
            checked(world, apply(world, now(world)))
        settles(world, now, 2)


def test_many_faults_in_a_row_leave_no_half_victim_unsaid() -> None:
    """Kills, lost answers, refusals and budgets that come and go, under two plans in turn."""
    draw = random.Random(7)
    start, plan = four()
    for _ in range(examples(400, 25)):
        world = start.copy()
        for _ in range(draw.randint(1, 6)):
            world.budgets = draw.choice([{}, {"b": (draw.randint(0, 4), V)}])
            now = draw.choice([plan, elsewhere(world, plan)])
            with contextlib.suppress(Killed):
                played = apply(world, now, chaos(draw, draw.choice((0.05, 0.3))))
                if played.verdict.stop is None:
                    checked(world, played)
            world.wait()
        settles(world, lambda world: elsewhere(world, plan), 3)


@pytest.mark.parametrize("least", [0, 1])
def test_what_may_not_all_go_is_not_begun(least: int) -> None:
    world, plan = four()
    world.budgets = {"b": (least, V)}
    played = apply(world, plan)
    if least == 0:
        assert played.outcomes == {"w": "started", "v": "stopped"}
    else:
        assert played.outcomes == {"w": "withheld", "v": "withheld"}
        why = "the disruption budget default/b allows 3 of 4 evictions"
        assert {one.why for one in played.verdict.gangs} == {why}
        assert played.of(req.Evict, req.Remember) == []


def test_budgets_add_up_over_all_victims_of_a_gang_and_over_those_before_it() -> None:
    """a and b give way to w, c and d to x; the budget lets three of their four pods go."""
    world = world_of(2)
    pods = [
        world.pod(f"{name}-0", 4, mode="none", node=node)
        for name, node in (("a", "n0"), ("b", "n0"), ("c", "n1"), ("d", "n1"))
    ]
    plan = orders(
        world,
        *(gang(pod.name[0], (), "preempt", stops=(stop_for(pod),)) for pod in pods),
        gang("w", [order_for(world.pod("w-0", 8), "n0")], priority=2),
        gang("x", [order_for(world.pod("x-0", 8), "n1")], priority=1),
    )
    world.budgets = {"b": (1, frozenset(pod.key for pod in pods))}
    for dry in (True, False):
        found = apply(world.copy() if dry else world, plan, dry=dry).outcomes
        assert (found["w"], found["x"]) == ("started", "withheld")
    assert bound(world) == {"c-0": "n1", "d-0": "n1", "w-0": "n0"}


def test_nothing_is_evicted_if_the_note_cannot_be_written() -> None:
    world, plan = four()
    played = apply(world, plan, on(req.Remember, loses))
    assert played.outcomes["w"] == "withheld"
    assert played.of(req.Evict) == []


@pytest.mark.parametrize("kind", KILLS)
def test_a_gang_of_which_one_pod_moves_is_half_there_until_that_pod_is_back(kind: str) -> None:
    """v-0 goes from n0 to n4 for w; v-1 to v-3 stay."""
    start, _ = four()
    v = [start.pods["default", f"v-{i}"] for i in range(4)]
    move = gang(
        "v", [order_for(v[0], "n4")], "move", stops=(stop_for(v[0]),),
        stays=tuple(pod.uid for pod in v[1:]),
    )  # fmt: skip
    w = gang("w", [order_for(start.pods["default", "w-0"], "n0")], priority=5)
    plan = orders(start, move, w)
    for number in range(len(apply(start.copy(), plan).requests)):
        world = start.copy()
        cut(world, plan, at(number, KILLS[kind]))
        once = world.copy()
        found = of_v(apply(once, orders(world, plan=OTHER_PLAN), allow_evictions=False))
        if half(once):
            assert found is not None
            assert found.outcome is req.Outcome.partial
            assert "needs 3 evictions: --allow-evictions" in found.why
        played = apply(world, plan)
        assert not half(world), bound(world)
        assert set(played.outcomes.values()) <= CONTENT
        assert (bound(world)["v-0"], world.notes.stops) == ("n4", ())


def test_a_cut_victim_whose_new_pods_wait_to_be_bound_is_not_stopped() -> None:
    """v-0 was evicted and came back; a plan completes v on n4, and later ones keep it."""
    world, plan = four()
    cut(world, plan, killed_after(1, req.Evict))
    world.wait()
    world.schedules = False
    again = order_for(world.pods["default", "v-0"], "n4")
    complete = orders(world, gang("v", [again], "complete"), plan=OTHER_PLAN)
    uids = tuple(world.pods[key].uid for key in sorted(V))
    kept = {("default", "v"): KeptGang(uids, elastic=False)}
    third = replace(complete, plan="gp-" + "c" * 20, gangs=(), kept=kept)
    for made in (complete, third):
        found = of_v(apply(world, made, evict_partial=True))
        assert found is not None
        assert (found.outcome, len(found.undo)) == (req.Outcome.halted, 3)
        assert "not bound yet" in found.why
    world.schedules = True
    world.schedule()
    assert of_v(apply(world, third)) is None
    assert (len(running(world)), world.notes.stops) == (4, ())


def test_a_pod_that_finished_by_itself_was_not_stopped() -> None:
    world, plan = four()
    cut(world, plan, on(req.Evict, dies))
    world.change(("default", "v-0"), finished=True)
    assert of_v(apply(world, elsewhere(world, plan))) is None
    assert world.notes.stops == ()
