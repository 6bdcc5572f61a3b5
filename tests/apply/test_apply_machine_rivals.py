"""Concurrent clients: every gang ends whole, untouched, or reported with the commands that undo it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from apply_world import (
    GATE,
    LIMITS,
    Fault,
    Killed,
    Played,
    World,
    apply,
    doubled,
    gang,
    order_for,
    orders,
    recover,
)
from effort import examples, spread

from models.apply import session as lanes
from models.apply.plan_actions import GangActions, Key, PlanActions
from models.apply.requests import (
    CheckLock,
    Event,
    Evict,
    GangVerdict,
    LockHeld,
    Outcome,
    ReadCluster,
    Request,
    Verdict,
)

Deed = Callable[[World, Key], None]


def three(backend: str) -> tuple[World, PlanActions]:
    """Three gangs of three pods with 4 GPUs, two a node; n5 stays free."""
    world = World(backend=backend)
    for number in range(6):
        world.node(f"n{number}")
    gangs, slot = [], 0
    for name in "abc":
        starts = []
        for j in range(3):
            pod = world.pod(f"{name}-{j}", 4)
            starts.append(order_for(pod, f"n{slot // 2}"))
            slot += 1
        gangs.append(gang(name, starts))
    return world, orders(world, *gangs)


def node_of(key: Key) -> str:
    """Where the plan wants the pod: a-0 a-1 on n0, a-2 b-0 on n1, and so on."""
    name, _, index = key[1].partition("-")
    return f"n{('abc'.index(name) * 3 + int(index)) // 2}"


def deleted(world: World, key: Key) -> None:
    world.pods.pop(key, None)


def recreated(world: World, key: Key) -> None:
    if key in world.pods:
        world.recreates.add(key)
        world.delete(key)
        world.recreates.discard(key)


def going(world: World, key: Key) -> None:
    if key in world.pods:
        world.change(key, terminating=True)


def finished(world: World, key: Key) -> None:
    if key in world.pods and world.pods[key].node is not None:
        world.change(key, finished=True)


def cordoned(world: World, key: Key) -> None:
    if node_of(key) in world.nodes:
        world.nodes[node_of(key)] = replace(world.nodes[node_of(key)], unschedulable=True)


def broken(world: World, key: Key) -> None:
    if node_of(key) in world.nodes:
        world.nodes[node_of(key)] = replace(world.nodes[node_of(key)], ready=False)


def removed(world: World, key: Key) -> None:
    """The node goes, and with it, as PodGC has it, what is bound there."""
    world.nodes.pop(node_of(key), None)
    for other in [k for k, pod in world.pods.items() if pod.node == node_of(key)]:
        world.pods.pop(other)


def crowded(world: World, key: Key) -> None:
    """A rival binds a pod of 8 GPUs there, whatever else is on the node."""
    if ("default", "rival") not in world.pods and node_of(key) in world.nodes:
        world.pod("rival", 8, mode="none", node=node_of(key))


def stolen(world: World, key: Key) -> None:
    """Another client binds our pod to another node."""
    pod = world.pods.get(key)
    if pod is not None and pod.node is None and not pod.gates and "n5" in world.nodes:
        world.change(key, node="n5")


def let_go(world: World, key: Key) -> None:
    """Another client removes the gate, without a pin."""
    if key in world.pods:
        world.change(key, gates=())


def stripped(world: World, key: Key) -> None:
    """Its owner takes our marks off."""
    if key in world.pods:
        world.change(key, intent=None, intent_is_ours=False)


DEEDS: tuple[Deed, ...] = (
    deleted, recreated, going, finished, cordoned, broken, removed, crowded, stolen, let_go, stripped,
)  # fmt: skip


def at(number: int, deed: Deed, key: Key, kill: int | None = None) -> Fault:
    """The deed is done just before the request of that number; ``kill``: we die before that one."""

    def fault(count: int, request: Request, world: World) -> Event | None:
        if count == number:
            deed(world, key)
            world.schedule()
        if count == kill:
            raise Killed
        return None

    return fault


def started(world: World, one: GangActions) -> set[str]:
    """Uids of the gang's own pods that were started and are there."""
    found = set()
    for order in one.starts:
        pod = world.pods.get(order.key)
        if pod is None or pod.uid != order.uid:
            continue
        opened = GATE not in pod.gates and pod.scheduler == "default-scheduler"
        if pod.node is not None or opened:
            found.add(pod.uid)
    return found


def honest(world: World, plan: PlanActions, verdict: Verdict) -> None:
    """Each gang is whole, untouched, or reported with the pods to undo it.

    What another client started counts as ours only if it carries our intent.
    """
    told = {one.gang: one for one in verdict.gangs}
    for one in plan.gangs:
        uids = started(world, one)
        verdict_ = told.get(one.key)
        ours = {
            pod.uid for pod in world.pods.values()
            if pod.uid in uids and pod.intent is not None and pod.intent.plan == plan.plan
        }  # fmt: skip
        if len(uids) == len(one.starts) or not ours:
            continue
        running = {
            pod.uid for pod in world.pods.values()
            if pod.uid in ours and not pod.terminating and not pod.finished
        }  # fmt: skip
        if not running:
            continue
        assert explained(world, one, verdict_, running), verdict_


def explained(
    world: World, one: GangActions, verdict: GangVerdict | None, running: set[str]
) -> bool:
    if verdict is None or verdict.outcome is Outcome.unchanged:
        # It was whole once, and lost pods later, as any running gang may.
        intents = (pod.intent for pod in world.pods.values())
        return any(one.name == intent.gang and intent.whole for intent in intents if intent)
    return verdict.outcome is Outcome.partial and running <= {uid for *_, uid in verdict.undo}


def read_last(played: Played) -> int:
    """The number of the last reading of everything: later changes cannot be reported."""
    return max(n for n, one in enumerate(played.requests) if isinstance(one, ReadCluster))


def undone(world: World, verdict: Verdict) -> None:
    """A human runs the commands."""
    for one in verdict.gangs:
        for namespace, name, uid in one.undo:
            pod = world.pods.get((namespace, name))
            if pod is not None and pod.uid == uid:
                world.pods.pop((namespace, name))


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
@pytest.mark.parametrize("backend", ["annotation", "dra"])
def test_whatever_is_done_at_any_request_no_gang_is_partial_and_unreported(
    backend: str, deed: Deed
) -> None:
    start, plan = three(backend)
    length = len(apply(start.copy(), plan).requests)
    for number in spread(range(length), 4):
        for key in [("default", "a-1"), ("default", "c-0")]:
            world = start.copy()
            first = apply(world, plan, at(number, deed, key))
            if number <= read_last(first):
                honest(world, plan, first.verdict)
            again = apply(world, plan)
            honest(world, plan, again.verdict)
            undone(world, again.verdict)
            last = apply(world, plan)
            assert {one.outcome for one in last.verdict.gangs} & {Outcome.partial} == set()
            if deed is not crowded:
                assert doubled(world) == []


@pytest.mark.parametrize("backend", ["annotation", "dra"])
def test_whatever_is_done_around_a_kill_the_next_run_tells_or_mends_it(backend: str) -> None:
    draw = random.Random(7)
    start, plan = three(backend)
    length = len(apply(start.copy(), plan).requests)
    for _ in range(examples(250, 50)):
        world = start.copy()
        key = draw.choice(sorted(start.pods))
        number, kill = draw.randrange(length), draw.randrange(length)
        try:
            apply(world, plan, at(number, draw.choice(DEEDS), key, kill))
        except Killed:
            draw.choice(DEEDS)(world, draw.choice(sorted(start.pods)))
            world.schedule()
        verdict = (apply(world, plan) if draw.random() < 0.5 else recover(world)).verdict
        honest(world, plan, verdict)
        undone(world, verdict)
        again = recover(world)
        assert [one for one in again.verdict.gangs if one.outcome is Outcome.partial] == []
        assert recover(world).verdict.writes == 0


@pytest.mark.parametrize("backend", ["annotation", "dra"])
def test_partial_gangs_are_evicted_where_that_is_allowed(backend: str) -> None:
    start, plan = three(backend)
    seen = 0
    length = len(apply(start.copy(), plan).requests)
    for number in range(length):
        world = start.copy()
        first = apply(world, plan, at(number, deleted, ("default", "b-0")))
        partial = [one for one in first.verdict.gangs if one.outcome is Outcome.partial]
        again = recover(world, limits=replace(LIMITS, allow_evictions=False, evict_partial=True))
        world.wait()
        for one in partial:
            seen += 1
            assert (one.gang, Outcome.undone) in [(g.gang, g.outcome) for g in again.verdict.gangs]
            left = [pod for pod in world.pods.values() if pod.uid in {u for *_, u in one.undo}]
            assert left == []
            assert all(
                pod.intent is None for k, pod in world.pods.items() if k[1][0] == one.gang[1]
            )
    assert seen > 0


def comes(before: str, node: str, *, due: bool) -> Fault:
    """A rival takes 8 GPUs of the node once a pod so named was started. ``due``: a look is due at once."""

    def fault(count: int, request: Request, world: World) -> Event | None:
        begun = world.pods["default", before].node is not None
        if begun and ("default", "rival") not in world.pods:
            world.pod("rival", 8, mode="none", node=node)
        return LockHeld(due) if isinstance(request, CheckLock) else None

    return fault


def test_a_rival_that_comes_before_a_gang_is_begun_keeps_it_from_being_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One at a time, a, b and c are started in this order; two pods of c go to n3, the third to n4."""
    monkeypatch.setattr(lanes, "LANES", 1)
    start, plan = three("dra")
    world = start.copy()
    late = apply(world, plan, comes("a-0", "n4", due=False)).verdict
    assert [one.outcome for one in late.gangs] == [
        Outcome.started, Outcome.started, Outcome.partial,
    ]  # fmt: skip
    world = start.copy()
    played = apply(world, plan, comes("a-0", "n4", due=True))
    last = played.verdict.gangs[-1]
    assert (last.outcome, last.why) == (
        Outcome.skipped, "node n4 has 0 free GPUs, the plan needs 4",
    )  # fmt: skip
    assert doubled(world) == []
    assert not any(pod.intent for key, pod in world.pods.items() if key[1].startswith("c"))


def test_gangs_that_are_whole_are_marked_as_soon_as_everything_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed later, and with a pod lost meanwhile, they are known to have been whole."""
    monkeypatch.setattr(lanes, "LANES", 1)
    world, plan = three("dra")

    def killed(count: int, request: Request, world: World) -> Event | None:
        if world.pods["default", "b-0"].node is not None:
            raise Killed
        return LockHeld(reread=True) if isinstance(request, CheckLock) else None

    with pytest.raises(Killed):
        apply(world, plan, killed)
    assert {p.name for p in world.pods.values() if p.intent and p.intent.whole} == {
        "a-0", "a-1", "a-2",
    }  # fmt: skip
    world.delete(("default", "a-1"))
    assert [one.gang[1] for one in recover(world).verdict.gangs] == ["b"]


def test_a_gang_that_lost_its_marks_and_may_be_at_work_is_reported_and_never_evicted() -> None:
    world = World()
    for number in range(4):
        world.node(f"n{number}")
    pods = [world.pod(f"a-{i}", 4) for i in range(7)]
    plan = orders(world, gang("a", [order_for(p, f"n{i // 2}") for i, p in enumerate(pods)]))
    apply(world, plan)
    for pod in [pod for pod in world.pods.values() if pod.intent and pod.intent.whole]:
        world.delete(pod.key)
    for limits in (LIMITS, replace(LIMITS, evict_partial=True)):
        (found,) = recover(world, limits=limits).verdict.gangs
        assert (found.outcome, found.unsure, len(found.undo)) == (Outcome.partial, True, 4)
        assert found.why.startswith(f"plan {plan.plan} started it, 4 of its 7 pods are left")
    assert len(world.pods) == 4
    assert not any(isinstance(request, Evict) for request in world.log)


def test_marks_that_were_lost_are_written_on_others() -> None:
    world = World()
    for number in range(4):
        world.node(f"n{number}")
    pods = [world.pod(f"a-{i}", 4) for i in range(7)]
    plan = orders(world, gang("a", [order_for(p, f"n{i // 2}") for i, p in enumerate(pods)]))
    apply(world, plan)
    left = 7
    for _ in range(3):
        marked = {pod.key for pod in world.pods.values() if pod.intent and pod.intent.whole}
        assert len(marked) == 3
        for key in sorted(marked)[:2]:
            world.delete(key)
        left -= 2
        found = recover(world)
        assert (found.verdict.gangs, found.verdict.writes) == ((), min(2, left - 1))
        assert recover(world).verdict.writes == 0
