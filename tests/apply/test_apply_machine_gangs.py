"""Gangs alone and side by side: order of requests, marks, records of members, foreign gates, undoing."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import apply_world as sim
import pytest
from effort import spread

from models.apply import records
from models.apply import requests as req
from models.apply import session as lanes
from models.apply.plan_actions import PlanActions
from models.apply.recovery import evict_partial
from models.apply.session import LANES, LOCK_CHECK_EVERY, ApplySession
from models.apply.state_machine import apply_plan
from planner.show.apply import undo_commands

BACKENDS = ("annotation", "dra")


def key(name: str) -> tuple[str, str]:
    return "default", name


# ---- the course of a start


@pytest.mark.parametrize(
    ("backend", "course"),
    [
        ("annotation", "CheckLock WriteRecord Ungate ReadCluster WriteRecord"),
        ("dra", "CheckLock WriteRecord AllocateDevices Ungate ReadCluster WriteRecord"),
    ],
)
def test_what_can_be_taken_back_comes_first(backend: str, course: str) -> None:
    """A word for each run of equal kinds."""
    kinds = [type(one).__name__ for one in sim.apply(*sim.gangs_of([4], backend)).requests]
    found = [one for one, before in zip(kinds, ["", *kinds], strict=False) if one != before]
    assert " ".join(found) == course


def test_the_scarcest_node_is_taken_first() -> None:
    world = sim.world_of(3)
    # After the gang n0 has 8 - 2 = 6 GPUs left, n1 8 - 5 - 2 = 1, n2 8 - 3 - 2 = 3.
    world.pod("r-0", 5, mode="none", node="n1")
    world.pod("r-1", 3, mode="none", node="n2")
    starts = [sim.order_for(world.pod(f"a-{i}", 2), f"n{i}") for i in range(3)]
    asked = sim.apply(world, sim.orders(world, sim.gang("a", starts))).of(req.Ungate)
    assert [one.pod.node for one in asked] == ["n1", "n2", "n0"]


def test_gangs_start_by_priority_then_by_age_then_by_name() -> None:
    world = sim.world_of(1)
    given: dict[str, dict[str, int]] = {
        "d": {"priority": 1}, "c": {"priority": 1, "submitted_at": 9},
        "b": {"priority": 1, "submitted_at": 5}, "a": {"priority": 0}, "e": {"priority": 1},
    }  # fmt: skip
    gangs = [
        sim.gang(name, [sim.order_for(world.pod(f"{name}-0"), "n0")], **more)
        for name, more in given.items()
    ]
    asked = sim.apply(world, sim.orders(world, *gangs)).of(req.Ungate)
    assert [one.pod.name[0] for one in asked] == list("bcdea")


def test_the_lock_is_looked_at_before_each_gang_and_every_few_writes() -> None:
    since, begun = 0, []
    for request in sim.apply(*sim.gangs_of([40], "dra", 1)).requests:
        since = 0 if isinstance(request, req.CheckLock) else since + isinstance(request, sim.WRITES)
        assert since <= LOCK_CHECK_EVERY
        if isinstance(request, req.CheckLock):
            begun.append(request.begun)
    # A record, 40 allocations, 40 starts, a record: a look at the start and after every 16.
    assert begun == [*[False] * 3, *[True] * 3]


# ---- gangs side by side


def many(backend: str, gangs: int = 20, size: int = 4) -> tuple[sim.World, PlanActions]:
    """So many gangs of pods of 2 GPUs, four pods a node."""
    return sim.gangs_of([size] * gangs, backend, 2)


def in_flight(
    world: sim.World, plan: PlanActions, kill: int | None = None, draw: random.Random | None = None
) -> Iterator[tuple[req.Request, ...]]:
    """Apply; every group of requests that are on their way together, once it was carried out.

    ``kill``: the number of the group at which the process dies: of that group the server carries out
    any part, in any order.
    """
    machine = apply_plan(plan, world.view(), replace(sim.LIMITS, backend=world.backend))
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
        most = max(most, len(sim.half_way(world, plan)))
        writes = 0 if isinstance(group[0], req.CheckLock) else writes + len(group)
        assert writes <= 2 * LOCK_CHECK_EVERY, "the lock is looked at"
    assert (most, len(sim.bound(world))) == (LANES, 80)
    assert list(in_flight(start.copy(), plan)) == asked, "the same plan and cluster"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_kill_with_any_part_of_a_group_carried_out_is_mended(backend: str) -> None:
    draw = random.Random(7)
    start, plan = many(backend, gangs=12, size=3)
    groups = sum(1 for _ in in_flight(start.copy(), plan))
    for kill in spread(range(groups), 7):
        world = start.copy()
        for _ in in_flight(world, plan, kill, draw):
            assert len(sim.half_way(world, plan)) <= LANES
        if kill % 2:
            sim.recover(world)
            assert sim.half_way(world, plan) == []
        assert set(sim.apply(world, plan).outcomes.values()) <= {"started", "unchanged"}
        assert (len(sim.bound(world)), sim.doubled(world)) == (36, [])
        assert sim.apply(world, plan).verdict.writes == 0
        assert sim.recover(world).requests == []


@pytest.mark.parametrize(("backend", "most"), [("annotation", 1), ("dra", 2)])
def test_a_pod_costs_few_requests(backend: str, most: int) -> None:
    """25 gangs of 8: a patch a pod; or its devices and a patch. And two records a gang."""
    groups = list(in_flight(*many(backend, gangs=25, size=8)))
    writes = [one for group in groups for one in group if isinstance(one, sim.WRITES)]
    records = [one for one in writes if isinstance(one, req.WriteRecord)]
    assert (len(records), len(writes) - len(records)) == (2 * 25, 200 * most)
    starts = [sum(isinstance(one, req.Ungate) for one in group) for group in groups]
    assert (sum(starts), max(starts)) == (200, LANES)
    assert sum(starts) / sum(one > 0 for one in starts) > LANES / 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_signal_lets_what_is_under_way_become_whole_and_begins_no_other(backend: str) -> None:
    """The twentieth start is the signal: from then on only gangs that have begun go on."""
    world, plan = many(backend)

    def signalled(world: sim.World, request: req.CheckLock) -> req.Event | None:
        starts = sum(isinstance(one, req.Ungate) for one in world.log)
        return req.Halt("interrupted") if starts >= 20 and not request.begun else None

    played = sim.apply(world, plan, sim.on(req.CheckLock, signalled))
    whole = {one.name for one in plan.gangs if all(world.pods[o.key].node for o in one.starts)}
    assert sim.half_way(world, plan) == []
    assert played.verdict.stop == "interrupted"
    assert LANES <= len(whole) <= 2 * LANES
    halted = {name for name, outcome in played.outcomes.items() if outcome == "halted"}
    assert halted == {*sim.NAMES[:20]} - whole
    assert set(sim.apply(world, plan).outcomes.values()) <= {"started", "unchanged"}


def test_a_lost_lock_stops_every_gang_at_once() -> None:
    world, plan = many("annotation", size=12)
    lost = req.Halt("the lock is lost", lock=True)
    played = sim.apply(
        world, plan, sim.on(req.CheckLock, lambda _, one: lost if one.begun else None)
    )
    assert played.verdict.stop == "the lock is lost"
    assert set(played.outcomes.values()) == {"halted"}
    assert isinstance(played.requests[-1], req.CheckLock)
    assert 0 < len(sim.half_way(world, plan)) <= LANES
    sim.apply(world, plan)
    assert sim.half_way(world, plan) == []


def test_gangs_that_share_a_node_are_weighed_together() -> None:
    """b alone fits n0 as it is now, but not beside a, of which nothing is bound yet."""
    world = sim.world_of(2)
    a = [sim.order_for(world.pod(f"a-{i}", 4), "n0") for i in range(2)]
    b = [sim.order_for(world.pod(f"b-{i}", 4), f"n{i}") for i in range(2)]
    played = sim.apply(world, sim.orders(world, sim.gang("a", a, priority=1), sim.gang("b", b)))
    assert played.outcomes == {"a": "started", "b": "skipped"}
    assert sim.doubled(world) == []


@pytest.mark.parametrize(("due", "last"), [(False, "partial"), (True, "skipped")])
def test_no_gang_is_begun_where_a_rival_came(
    monkeypatch: pytest.MonkeyPatch, *, due: bool, last: str
) -> None:
    """One at a time, a, b and c are started; two pods of c go to n3, the third to n4. ``due``: a look."""
    monkeypatch.setattr(lanes, "LANES", 1)
    world, plan = sim.gangs_of([3, 3, 3], "dra")

    def comes(count: int, request: req.Request, world: sim.World) -> req.Event | None:
        if "a-0" in sim.bound(world) and key("rival-0") not in world.pods:
            world.pod("rival-0", 8, mode="none", node="n4")
        return req.LockHeld(due) if isinstance(request, req.CheckLock) else None

    played = sim.apply(world, plan, comes)
    assert played.outcomes == {"a": "started", "b": "started", "c": last}
    if due:
        assert played.verdict.gangs[-1].why == "node n4 has 0 free GPUs, the plan needs 4"
        assert sim.doubled(world) == []
        assert (key("c"), sim.PLAN) not in world.records


# ---- whole, and what came after


def test_whole_gangs_are_marked_after_each_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed later, and with a pod lost meanwhile, they are known to have been whole."""
    monkeypatch.setattr(lanes, "LANES", 1)
    world, plan = sim.gangs_of([3, 3, 3], "dra")

    def killed(count: int, request: req.Request, world: sim.World) -> req.Event | None:
        if "b-0" in sim.bound(world):
            raise sim.Killed
        return req.LockHeld(reread=True) if isinstance(request, req.CheckLock) else None

    sim.cut(world, plan, killed)
    assert sim.whole(world) == {"a"}
    world.delete(key("a-1"))
    assert list(sim.recover(world).outcomes) == ["b"]


def test_a_pod_that_changed_hands_after_it_was_reported_is_not_evicted() -> None:
    world, plan = sim.gangs_of([2])
    sim.apply(world, plan)
    world.records.clear()
    uids = tuple((pod.namespace, pod.name, pod.uid) for pod in world.pods.values())
    session = ApplySession(world.view(), replace(sim.LIMITS, evict_partial=True))
    session.record(req.GangVerdict(key("a"), req.Outcome.partial, sim.PLAN, undo=uids))
    assert list(evict_partial(session)) == []
    assert "is not recorded as started by this plan" in session.verdicts[sim.PLAN, key("a")].why


# ---- from the record of a start


def begun(size: int = 4, *, after: int = 1) -> tuple[sim.World, PlanActions]:
    """A gated gang whose run was killed after so many starts."""
    world, plan = sim.gangs_of([size], gpus=2)
    sim.cut(world, plan, sim.killed_after(after, req.Ungate))
    assert len(sim.bound(world)) == after
    return world, plan


@pytest.mark.parametrize("kind", sim.KILLS)
def test_undoing_that_was_cut_off_at_any_request_is_finished(kind: str) -> None:
    start, plan = begun(8, after=5)
    start.nodes["n1"] = replace(start.nodes["n1"], unschedulable=True)
    other = replace(plan, plan=sim.OTHER_PLAN, gangs=())
    for number in range(len(sim.recover(start.copy(), evict_partial=True).requests)):
        world = start.copy()
        with pytest.raises(sim.Killed):
            sim.recover(world, sim.at(number, sim.KILLS[kind]), evict_partial=True)
        for _ in range(3):
            world.wait()
            sim.apply(world, other, evict_partial=True)
        world.wait()
        assert (sim.bound(world), world.notes.stops) == ({}, ()), number


def test_pods_that_stayed_are_not_partial_once_those_that_moved_are_started() -> None:
    """A run was cut off after it started one of three pods that moved; the fourth stayed."""
    world, _ = begun()
    ((gang, plan), record) = next(iter(world.records.items()))
    stayed = record.pods[3]._replace(node="n0", gpus=(6, 7))
    earlier = replace(record, plan="gp-" + "0" * 20, pods=(*record.pods[:3], stayed))
    gone = (one._replace(uid=f"old-{one.uid}") for one in earlier.pods[:3])
    world.records[gang, earlier.plan] = replace(earlier, pods=(*gone, stayed))
    world.records[gang, plan] = replace(record, pods=record.pods[:3])
    world.change(key("a-3"), gates=(), node="n0")
    found = sim.recover(world, evict_partial=True).one
    assert (found.plan, found.outcome) == (plan, req.Outcome.started)
    assert len(sim.bound(world)) == 4


def test_a_gang_with_more_pods_than_a_record_has_room_for_is_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records, "MAX_RECORD", 60)
    played = sim.apply(*sim.gangs_of([4]))
    assert played.one.why == "its 4 pods are too many to record"
    assert played.of(*sim.WRITES) == []


# ---- words


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_commands_delete_pods_by_uid_quoted(tmp_path: Path, shell: str) -> None:
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
