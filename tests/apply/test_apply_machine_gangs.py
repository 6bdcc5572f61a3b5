"""Gangs alone and side by side: order of requests, marks, records of members, foreign gates, undoing."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from apply_world import (
    KILLS,
    LIMITS,
    NAMES,
    OTHER_PLAN,
    PLAN,
    WRITES,
    Killed,
    World,
    apply,
    at,
    bound,
    cut,
    dies_after,
    doubled,
    gang,
    gangs_of,
    half_way,
    killed_after,
    loses,
    loses_answer,
    marked,
    on,
    order_for,
    orders,
    recover,
    world_of,
)
from effort import examples, spread

from models.apply import requests as req
from models.apply import session as lanes
from models.apply.intents import MAX_RECORD_CHARS, Intent
from models.apply.plan_actions import PlanActions
from models.apply.recovery import evict_partial
from models.apply.session import LANES, LOCK_CHECK_EVERY, ApplySession
from models.apply.starts import RECORDS, REQUIRED
from models.apply.state_machine import apply_plan
from planner.show.apply import undo_commands

BACKENDS = ("annotation", "dra")


def key(name: str) -> tuple[str, str]:
    return "default", name


# ---- the course of a start


@pytest.mark.parametrize(
    ("backend", "course"),
    [
        ("annotation", "CheckLock Ungate ReadCluster WriteIntent"),
        ("dra", "CheckLock WriteIntent AllocateDevices Ungate ReadCluster WriteIntent"),
    ],
)
def test_intents_come_first_then_what_can_be_taken_back_then_the_start(
    backend: str, course: str
) -> None:
    """A word for each run of equal kinds."""
    kinds = [type(one).__name__ for one in apply(*gangs_of([4], backend)).requests]
    found = [one for one, before in zip(kinds, ["", *kinds], strict=False) if one != before]
    assert " ".join(found) == course


def test_the_scarcest_node_is_taken_first() -> None:
    world = world_of(3)
    # After the gang n0 has 8 - 2 = 6 GPUs left, n1 8 - 5 - 2 = 1, n2 8 - 3 - 2 = 3.
    world.pod("r-0", 5, mode="none", node="n1")
    world.pod("r-1", 3, mode="none", node="n2")
    starts = [order_for(world.pod(f"a-{i}", 2), f"n{i}") for i in range(3)]
    asked = apply(world, orders(world, gang("a", starts))).of(req.Ungate)
    assert [one.pod.node for one in asked] == ["n1", "n2", "n0"]


def test_gangs_start_by_priority_then_by_age_then_by_name() -> None:
    world = world_of(1)
    given: dict[str, dict[str, int]] = {
        "d": {"priority": 1}, "c": {"priority": 1, "submitted_at": 9},
        "b": {"priority": 1, "submitted_at": 5}, "a": {"priority": 0}, "e": {"priority": 1},
    }  # fmt: skip
    gangs = [
        gang(name, [order_for(world.pod(f"{name}-0"), "n0")], **more)
        for name, more in given.items()
    ]
    asked = apply(world, orders(world, *gangs)).of(req.Ungate)
    assert [one.pod.name[0] for one in asked] == list("bcdea")


def test_the_lock_is_looked_at_before_each_gang_and_every_few_writes() -> None:
    since, begun = 0, []
    for request in apply(*gangs_of([40], "dra", 1)).requests:
        since = 0 if isinstance(request, req.CheckLock) else since + isinstance(request, WRITES)
        assert since <= LOCK_CHECK_EVERY
        if isinstance(request, req.CheckLock):
            begun.append(request.begun)
    # 40 intents, 40 allocations, 40 starts: a look at the start and after every 16.
    assert begun == [*[False] * 6, True, True]


# ---- gangs side by side


def many(backend: str, gangs: int = 20, size: int = 4) -> tuple[World, PlanActions]:
    """So many gangs of pods of 2 GPUs, four pods a node."""
    return gangs_of([size] * gangs, backend, 2)


def in_flight(
    world: World, plan: PlanActions, kill: int | None = None, draw: random.Random | None = None
) -> Iterator[tuple[req.Request, ...]]:
    """Apply; every group of requests that are on their way together, once it was carried out.

    ``kill``: the number of the group at which the process dies: of that group the server carries out
    any part, in any order.
    """
    machine = apply_plan(plan, world.view(), replace(LIMITS, backend=world.backend))
    number = 0
    try:
        request = next(machine)
        while True:
            together = isinstance(request, req.RequestGroup)
            group = request.requests if isinstance(request, req.RequestGroup) else (request,)
            if number == kill:
                assert draw is not None
                for one in draw.sample(group, draw.randint(0, len(group))):
                    world.answer(one)
                yield group
                return
            events = tuple(world.answer(one) for one in group)
            yield group
            number += 1
            request = machine.send(req.EventGroup(events) if together else events[0])
    except StopIteration:
        return


@pytest.mark.parametrize("backend", BACKENDS)
def test_at_no_request_more_gangs_are_half_way_than_may_be_under_way(backend: str) -> None:
    start, plan = many(backend)
    world, asked, most, writes = start.copy(), [], 0, 0
    for group in in_flight(world, plan):
        asked.append(group)
        most = max(most, len(half_way(world, plan)))
        writes = 0 if isinstance(group[0], req.CheckLock) else writes + len(group)
        assert writes <= 2 * LOCK_CHECK_EVERY, "the lock is looked at"
    assert (most, len(bound(world))) == (LANES, 80)
    assert list(in_flight(start.copy(), plan)) == asked, "the same plan and cluster"


@pytest.mark.parametrize("backend", BACKENDS)
def test_after_a_kill_with_any_part_of_what_was_on_its_way_carried_out_every_gang_is_mended(
    backend: str,
) -> None:
    draw = random.Random(7)
    start, plan = many(backend, gangs=12, size=3)
    groups = sum(1 for _ in in_flight(start.copy(), plan))
    for kill in spread(range(groups), 7):
        world = start.copy()
        for _ in in_flight(world, plan, kill, draw):
            assert len(half_way(world, plan)) <= LANES
        if kill % 2:
            recover(world)
            assert half_way(world, plan) == []
        assert set(apply(world, plan).outcomes.values()) <= {"started", "unchanged"}
        assert (len(bound(world)), doubled(world)) == (36, [])
        assert apply(world, plan).verdict.writes == 0
        assert recover(world).requests == []


def test_what_random_kills_and_losses_leave_is_mended_or_reported() -> None:
    draw = random.Random(11)
    for _ in range(examples(60, 8)):
        world, plan = many(draw.choice(BACKENDS), gangs=12, size=3)
        for _ in range(draw.randint(1, 3)):
            for _ in in_flight(world, plan, draw.randint(0, 40), draw):
                pass
        for lost in draw.sample(sorted(world.pods), draw.randint(0, 2)):
            world.delete(lost)
        reported = {name for name, how in recover(world).outcomes.items() if how == "partial"}
        whole = {name[0] for name in marked(world)}
        bound_ = [name[0] for name in bound(world)]
        assert all(bound_.count(name) == 3 for name in {*bound_} - reported - whole)


@pytest.mark.parametrize(("backend", "most"), [("annotation", 1), ("dra", 3)])
def test_a_pod_costs_few_requests_and_those_of_eight_gangs_go_together(
    backend: str, most: int
) -> None:
    """25 gangs of 8: a patch a pod; or an intent, its devices and a patch. And three marks a gang."""
    groups = list(in_flight(*many(backend, gangs=25, size=8)))
    writes = [one for group in groups for one in group if isinstance(one, WRITES)]
    marks = [one for one in writes if isinstance(one, req.WriteIntent) and one.intent.whole]
    assert len(marks) == 3 * 25
    assert len(writes) - len(marks) <= 200 * most
    starts = [sum(isinstance(one, req.Ungate) for one in group) for group in groups]
    assert (sum(starts), max(starts)) == (200, LANES)
    assert sum(starts) / sum(one > 0 for one in starts) > LANES / 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_signal_lets_what_is_under_way_become_whole_and_begins_no_other(backend: str) -> None:
    """The twentieth start is the signal: from then on only gangs that have begun go on."""
    world, plan = many(backend)

    def signalled(world: World, request: req.CheckLock) -> req.Event | None:
        starts = sum(isinstance(one, req.Ungate) for one in world.log)
        return req.Halt("interrupted") if starts >= 20 and not request.begun else None

    played = apply(world, plan, on(req.CheckLock, signalled))
    whole = {one.name for one in plan.gangs if all(world.pods[o.key].node for o in one.starts)}
    assert half_way(world, plan) == []
    assert played.verdict.stop == "interrupted"
    assert LANES <= len(whole) <= 2 * LANES
    halted = {name for name, outcome in played.outcomes.items() if outcome == "halted"}
    assert halted == {*NAMES[:20]} - whole
    assert set(apply(world, plan).outcomes.values()) <= {"started", "unchanged"}


def test_a_lost_lock_stops_every_gang_at_once() -> None:
    world, plan = many("annotation", size=12)
    lost = req.Halt("the lock is lost", lock=True)
    played = apply(world, plan, on(req.CheckLock, lambda _, one: lost if one.begun else None))
    assert played.verdict.stop == "the lock is lost"
    assert set(played.outcomes.values()) == {"halted"}
    assert isinstance(played.requests[-1], req.CheckLock)
    assert 0 < len(half_way(world, plan)) <= LANES
    apply(world, plan)
    assert half_way(world, plan) == []


def test_gangs_that_share_a_node_are_weighed_together() -> None:
    """b alone fits n0 as it is now, but not beside a, of which nothing is bound yet."""
    world = world_of(2)
    a = [order_for(world.pod(f"a-{i}", 4), "n0") for i in range(2)]
    b = [order_for(world.pod(f"b-{i}", 4), f"n{i}") for i in range(2)]
    played = apply(world, orders(world, gang("a", a, priority=1), gang("b", b)))
    assert played.outcomes == {"a": "started", "b": "skipped"}
    assert doubled(world) == []


@pytest.mark.parametrize(("due", "last"), [(False, "partial"), (True, "skipped")])
def test_a_rival_that_comes_before_a_gang_is_begun_keeps_it_from_being_begun(
    monkeypatch: pytest.MonkeyPatch, *, due: bool, last: str
) -> None:
    """One at a time, a, b and c are started; two pods of c go to n3, the third to n4. ``due``: a look."""
    monkeypatch.setattr(lanes, "LANES", 1)
    world, plan = gangs_of([3, 3, 3], "dra")

    def comes(count: int, request: req.Request, world: World) -> req.Event | None:
        if "a-0" in bound(world) and key("rival-0") not in world.pods:
            world.pod("rival-0", 8, mode="none", node="n4")
        return req.LockHeld(due) if isinstance(request, req.CheckLock) else None

    played = apply(world, plan, comes)
    assert played.outcomes == {"a": "started", "b": "started", "c": last}
    if due:
        assert played.verdict.gangs[-1].why == "node n4 has 0 free GPUs, the plan needs 4"
        assert doubled(world) == []
        assert not any(pod.intent for pod in world.pods.values() if pod.name[0] == "c")


# ---- whole, and what came after


def test_gangs_that_are_whole_are_marked_as_soon_as_everything_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed later, and with a pod lost meanwhile, they are known to have been whole."""
    monkeypatch.setattr(lanes, "LANES", 1)
    world, plan = gangs_of([3, 3, 3], "dra")

    def killed(count: int, request: req.Request, world: World) -> req.Event | None:
        if "b-0" in bound(world):
            raise Killed
        return req.LockHeld(reread=True) if isinstance(request, req.CheckLock) else None

    cut(world, plan, killed)
    assert marked(world) == {"a-0", "a-1", "a-2"}
    world.delete(key("a-1"))
    assert list(recover(world).outcomes) == ["b"]


def test_a_gang_that_lost_its_marks_and_may_be_at_work_is_reported_and_never_evicted() -> None:
    world, plan = gangs_of([7])
    apply(world, plan)
    for name in marked(world):
        world.delete(key(name))
    for limits in ({}, {"evict_partial": True}):
        found = recover(world, **limits).one
        assert (found.outcome, found.unsure, len(found.undo)) == (req.Outcome.partial, True, 4)
        assert found.why.startswith(f"plan {plan.plan} started it, 4 of its 7 pods are left")
    assert len(world.pods) == 4
    assert not any(isinstance(request, req.Evict) for request in world.log)


def test_marks_that_were_lost_are_written_on_others() -> None:
    world, plan = gangs_of([7])
    apply(world, plan)
    for left in (5, 3, 1):
        assert len(marked(world)) == 3
        for name in sorted(marked(world))[:2]:
            world.delete(key(name))
        found = recover(world)
        assert (found.outcomes, found.verdict.writes) == ({}, min(2, left - 1))
        assert recover(world).verdict.writes == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda world: world.delete(key("a-0")), "1 of its pods are gone since"),
        (lambda world: world.nodes.update(n0=replace(world.nodes["n0"], gpus=7)), ""),
    ],
)
def test_a_gang_that_lost_a_pod_or_a_gpu_after_it_was_whole_is_left_alone(
    change: Callable[[World], object], why: str
) -> None:
    world, plan = gangs_of([4])
    apply(world, plan)
    change(world)
    assert recover(world).verdict.gangs == ()
    again = apply(world, plan).one
    assert (again.outcome, again.why) == (req.Outcome.unchanged, why)


def test_a_gang_that_its_owner_deletes_while_it_starts_is_let_go() -> None:
    world, plan = gangs_of([4])

    def gone(world: World, _: req.Ungate) -> None:
        for one in list(world.pods) if len(bound(world)) == 2 else ():
            world.change(one, terminating=True)

    found = apply(world, plan, on(req.Ungate, gone)).one
    assert (found.outcome, found.undo) == (req.Outcome.skipped, ())


def test_a_pod_that_another_plan_put_in_the_place_of_a_lost_one_makes_the_gang_whole() -> None:
    world, plan = gangs_of([4])
    cut(world, plan, killed_after(2, req.Ungate))
    # n0 and n1 go round: whichever waits, a-3 is made anew and placed by the next plan.
    world.recreates = {key("a-3")}
    world.delete(key("a-3"))
    assert recover(world).one.outcome is req.Outcome.partial
    anew = order_for(world.pods[key("a-3")], "n1")
    apply(world, orders(world, gang("a", [anew], "complete"), plan=OTHER_PLAN))
    assert len(bound(world)) == 4
    assert recover(world).verdict.writes == 0


def test_pods_of_the_gang_that_stood_before_do_not_make_up_for_one_it_was_to_grow_by() -> None:
    world, plan = gangs_of([4], gpus=1)
    apply(world, plan)
    more = [order_for(world.pod(f"a-{i}", 1), "n0") for i in (4, 5)]
    grow = orders(world, gang("a", more, "resize"), plan=OTHER_PLAN)
    cut(world, grow, killed_after(1, req.Ungate))
    left = next(pod for pod in world.pods.values() if pod.node is None)
    del world.pods[left.key]
    found = recover(world).one
    assert (found.plan, found.outcome, len(found.undo)) == (OTHER_PLAN, req.Outcome.partial, 1)


def test_room_that_a_leaving_pod_holds_is_only_waited_for() -> None:
    world, plan = gangs_of([2])
    world.pod("r-0", 4, mode="none", node="n0", terminating=True)
    assert apply(world, plan).outcomes == {"a": "skipped"}, "nothing is begun"
    world.wait()
    assert apply(world, plan).outcomes == {"a": "started"}


# ---- what others do to pods that are to start

FOREIGN = "kueue.x-k8s.io/admission"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"selector": (("kubernetes.io/hostname", "n9"),)},
         "pod a-3 cannot be pinned to n1: its node selector requires"),
        ({"node_affinity": json.dumps({REQUIRED: {"nodeSelectorTerms": [{}]}})},
         "pod a-3 cannot be pinned to n1: its required node affinity matches no node"),
        ({"gates": ("gangplan.dev/placement", FOREIGN)}, f"pod a-3 has the scheduling gate {FOREIGN}"),
    ],
)  # fmt: skip
def test_nothing_of_a_gang_is_written_where_one_of_its_pods_cannot_be_started(
    more: dict[str, Any], why: str
) -> None:
    world, plan = gangs_of([4])
    world.nodes["n1"] = replace(world.nodes["n1"], hostname=None)  # pinned by name
    world.change(key("a-3"), **more)  # the last of all to be started
    played = apply(world, plan)
    assert (played.one.outcome, played.one.undo) == (req.Outcome.skipped, ())
    assert played.one.why.startswith(why), played.one.why
    assert played.of(*WRITES) == []


@pytest.mark.parametrize(
    ("backend", "more", "why", "undo"),
    [
        ("dra", {"intent": None, "intent_is_ours": False}, "pod a-3 lost its intent", 3),
        ("annotation", {"gates": ()}, "pod a-3 lost its gate", 4),
    ],
)
def test_a_pod_that_another_client_changes_meanwhile_is_not_started(
    backend: str, more: dict[str, Any], why: str, undo: int
) -> None:
    world, plan = gangs_of([4], backend)

    def change(world: World, request: req.Ungate) -> None:
        if request.pod.name == "a-3":
            world.change(request.pod.key, **more)

    found = apply(world, plan, on(req.Ungate, change)).one
    assert (found.outcome, found.why) == (req.Outcome.partial, why)
    assert sorted(bound(world)) == ["a-0", "a-1", "a-2"]
    assert [name for _, name, _ in found.undo] == [f"a-{n}" for n in range(undo)]


def test_undoing_takes_no_more_evictions_than_allowed() -> None:
    world, plan = gangs_of([3])
    apply(
        world, plan, on(req.ReadCluster, lambda world, _: world.pods.pop(key("a-0"), None) and None)
    )
    found = recover(world, evict_partial=True, max_evictions=1).one
    assert found.outcome is req.Outcome.partial
    assert "--max-evictions" in found.why
    assert recover(world, evict_partial=True, max_evictions=2).outcomes == {"a": "undone"}


def test_a_pod_that_changed_hands_after_it_was_reported_is_not_evicted() -> None:
    world, plan = gangs_of([2])
    apply(world, plan)
    world.change(key("a-0"), intent_is_ours=False)
    uids = tuple((pod.namespace, pod.name, pod.uid) for pod in world.pods.values())
    session = ApplySession(world.view(), replace(LIMITS, evict_partial=True))
    session.record(req.GangVerdict(key("a"), req.Outcome.partial, PLAN, undo=uids))
    assert list(evict_partial(session)) == []
    assert "does not carry an intent of this plan" in session.verdicts[PLAN, key("a")].why


# ---- the record of members


def begun(size: int = 4, *, after: int = 1) -> tuple[World, PlanActions]:
    """A gated gang whose run was killed after so many starts."""
    world, plan = gangs_of([size], gpus=2)
    cut(world, plan, killed_after(after, req.Ungate))
    assert len(bound(world)) == after
    return world, plan


def test_the_first_pods_that_start_name_the_others() -> None:
    world, plan = begun(6, after=4)
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
    world, plan = begun()
    alone = world.copy()
    assert recover(alone).outcomes == {"a": "started"}
    assert len(bound(alone)) == 4
    found = apply(world, replace(plan, plan=OTHER_PLAN, gangs=())).one
    assert (found.plan, found.outcome) == (plan.plan, req.Outcome.started)


@pytest.mark.parametrize("how", ["recreated", "the record gone"])
def test_a_member_that_is_another_now_or_a_record_that_went_leaves_the_gang_partial(
    how: str,
) -> None:
    world, _ = begun()
    if how == "recreated":
        world.recreates = {key("a-3")}
        world.delete(key("a-3"))
    else:
        with pytest.raises(Killed):
            recover(world, killed_after(1, req.Ungate))
        world.delete(key("a-0"))
    found = recover(world).one
    assert (found.outcome, found.why) == (
        req.Outcome.partial, "started 1 of its 4 pods; gone: 1",
    )  # fmt: skip


@pytest.mark.parametrize(("lost", "undo"), [(0, 1), (2, 2)])
def test_a_gang_that_cannot_be_completed_is_reported_and_undone_where_that_is_allowed(
    lost: int, undo: int
) -> None:
    world, plan = begun(after=2)
    world.delete(key(f"a-{lost}"))
    for _ in range(2):
        found = recover(world).one
        assert (found.outcome, len(found.undo)) == (req.Outcome.partial, undo)
    assert recover(world, evict_partial=True).outcomes == {"a": "undone"}
    world.wait()
    assert bound(world) == {}
    assert apply(world, plan).outcomes == {"a": "skipped"}


@pytest.mark.parametrize("kind", KILLS)
def test_undoing_that_was_cut_off_at_any_request_is_finished(kind: str) -> None:
    """Although the records went with the first pods, and the others may be at work for all that is known."""
    start, plan = begun(8, after=5)
    start.nodes["n1"] = replace(start.nodes["n1"], unschedulable=True)
    other = replace(plan, plan=OTHER_PLAN, gangs=())
    for number in range(len(recover(start.copy(), evict_partial=True).requests)):
        world = start.copy()
        with pytest.raises(Killed):
            recover(world, at(number, KILLS[kind]), evict_partial=True)
        for _ in range(3):
            world.wait()
            apply(world, other, evict_partial=True)
        world.wait()
        assert (bound(world), world.notes.stops) == ({}, ()), number


def test_pods_that_stayed_are_not_partial_once_those_that_moved_are_started() -> None:
    """A run was cut off after it started one of three pods that moved; the fourth carries no mark."""
    world, _ = begun()
    (first,) = [pod for pod in world.pods.values() if pod.intent is not None]
    assert first.intent is not None
    moved = replace(first.intent, size=3, members=first.intent.members[:2])
    world.change(first.key, intent=moved)
    stayed = replace(moved, plan="gp-" + "0" * 20, size=4, node="n0", gpus=(6, 7), members=())
    world.change(key("a-3"), intent=stayed, intent_is_ours=True, gates=(), node="n0")
    found = recover(world, evict_partial=True).one
    assert (found.plan, found.outcome) == (moved.plan, req.Outcome.started)
    assert len(bound(world)) == 4


def test_a_record_that_we_did_not_write_counts_for_nothing() -> None:
    world, _ = begun()
    (first,) = [pod for pod in world.pods.values() if pod.intent is not None]
    world.change(first.key, intent_is_ours=False)
    assert recover(world).requests == []


def test_a_gang_whose_record_would_be_too_long_is_intended_pod_by_pod_first() -> None:
    size = MAX_RECORD_CHARS // 28
    sent = [one for group in in_flight(*gangs_of([size], gpus=2)) for one in group]
    first = next(n for n, one in enumerate(sent) if isinstance(one, req.Ungate))
    assert sum(isinstance(one, req.WriteIntent) for one in sent[:first]) == size
    assert all(one.intent is None for one in sent if isinstance(one, req.Ungate))


def test_where_the_pod_that_was_started_has_finished_the_same_plan_starts_the_others() -> None:
    world, plan = gangs_of([4], gpus=2)
    cut(world, plan, on(req.Ungate, dies_after))
    (first,) = bound(world)
    world.change(key(first), finished=True)
    assert apply(world, plan).outcomes == {"a": "started"}
    assert len(bound(world)) == 4


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("lose", [loses, loses_answer])
def test_a_start_whose_answer_is_lost_is_looked_up_with_its_intent(
    number: int, lose: Callable[[World, req.Request], req.Event]
) -> None:
    world, plan = gangs_of([4], gpus=2)
    turns = iter(range(100))
    fault = on(req.Ungate, lambda world, one: lose(world, one) if next(turns) == number else None)
    assert apply(world, plan, fault).outcomes == {"a": "started"}
    assert all(isinstance(pod.intent, Intent) for pod in world.pods.values())


# ---- words


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_commands_delete_each_started_pod_by_its_uid_and_quote_every_name(
    tmp_path: Path, shell: str
) -> None:
    undo = (("ns", "a-0", "u-0"), ("n s", "$(touch x)", "u'1\\n"), ("ns", "..", "u-2"))
    first, second = undo_commands(undo, "my ctx", "/k c")  # no line for a step in a path
    kubectl = "kubectl '--kubeconfig=/k c' '--context=my ctx'"
    options = '{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"u-0"}}'
    assert first == (
        f"printf %s '{options}' | {kubectl} delete --raw /api/v1/namespaces/ns/pods/a-0 -f - "
        ">/dev/null"
    )
    # A kubectl that prints its arguments one per line, and its stdin.
    told = "kubectl() { printf '%s\\n' \"$@\" >&2; cat >&2; }"
    words = [shell, "-c", f"{told}\n{second}"]
    run = subprocess.run(words, capture_output=True, text=True, check=True, cwd=tmp_path)
    *words, given = run.stderr.splitlines()
    assert words == [
        "--kubeconfig=/k c", "--context=my ctx", "delete", "--raw",
        "/api/v1/namespaces/n%20s/pods/%24%28touch%20x%29", "-f", "-",
    ]  # fmt: skip
    assert json.loads(given)["preconditions"] == {"uid": "u'1\\n"}
    assert (run.stdout, list(tmp_path.iterdir())) == ("", [])
