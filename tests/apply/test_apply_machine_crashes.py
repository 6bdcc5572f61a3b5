"""Kills, lost answers, refusals and other clients at any request of an apply: every gang ends whole,
untouched, or reported with the commands that undo it; the same command again leads to the same end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import apply_world as sim
import pytest
from effort import examples, spread
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from models.apply import requests as req
from models.apply.plan_actions import GangActions, Key, PlanActions
from models.apply.session import LANES, LOCK_CHECK_EVERY, READ_TRIES

BACKENDS = ("annotation", "dra")
"""Pods are started by one patch each, or get devices before."""

MORE_THAN_LANES = (1, 2, 3, 1, 2, 1, 1, 2, 3, 1)


@cache
def ten(backend: str) -> tuple[sim.World, PlanActions]:
    """More gangs than are started at once, of one to three pods: 17 pods on nine nodes."""
    return sim.gangs_of(MORE_THAN_LANES, backend)


@cache
def undisturbed(backend: str) -> tuple[dict[object, object], int]:
    """The end state, and how many requests lead there."""
    world, plan = ten(backend)
    world = world.copy()
    played = sim.apply(world, plan)
    assert played.outcomes == dict.fromkeys("abcdefghij", "started")
    assert (len(sim.bound(world)), sim.whole(world)) == (17, set("bcehi"))
    return dict(sim.shape(world)), len(played.requests)


def settled(world: sim.World, plan: PlanActions, backend: str) -> None:
    """After running again everything is as if nothing had happened, and a third run writes nothing."""
    assert set(sim.apply(world, plan).outcomes.values()) <= {"started", "unchanged"}
    assert sim.doubled(world) == []
    assert dict(sim.shape(world)) == undisturbed(backend)[0]
    assert sim.apply(world, plan).verdict.writes == 0
    assert sim.recover(world).requests == []


def silent_from(number: int) -> sim.Fault:
    """The server answers nothing any more."""
    return lambda count, request, world: (
        None if count < number or isinstance(request, req.CheckLock) else req.NoAnswer("timeout")
    )


def three_from(number: int, deed: Callable[[sim.World, req.Request], Any]) -> sim.Fault:
    """The connection breaks with three records on their way."""
    intent = sim.on(req.WriteRecord, deed)
    return lambda count, *asked: intent(count, *asked) if 0 <= count - number < 3 else None


AT_ONE: dict[str, Callable[[sim.World, req.Request], req.Event]] = {
    **sim.KILLS, "lost before": sim.loses, "lost after": sim.loses_answer,
    "409": lambda *_: sim.ANSWERS[0], "404": lambda *_: sim.ANSWERS[1],
    "422": lambda *_: sim.ANSWERS[2], "429": lambda *_: sim.ANSWERS[3],
    "stop": lambda *_: sim.ANSWERS[4],
}  # fmt: skip
FAULTS: dict[str, Callable[[int], sim.Fault]] = {
    **{name: partial(sim.at, deed=deed) for name, deed in AT_ONE.items()},
    "3 lost before": partial(three_from, deed=sim.loses),
    "3 lost after": partial(three_from, deed=sim.loses_answer),
    "silent": silent_from,
}


def some(length: int, begin: int, step: int) -> Any:  # noqa: ANN401
    """All numbers of requests, or a sample that begins elsewhere for each fault."""
    begin %= step
    return spread([*range(begin, length), *range(begin)], step)


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_after_a_fault_at_any_request_the_end_is_the_same(backend: str, kind: str) -> None:
    start, plan = ten(backend)
    for number in some(undisturbed(backend)[1], 3 * list(FAULTS).index(kind), 21):
        world, fault = start.copy(), FAULTS[kind](number)
        if kind.startswith("killed"):
            sim.cut(world, plan, fault)
            recovers_alone(world.copy(), plan, backend)
        else:
            played = sim.apply(world, plan, fault)
            spoilt = [one for one in played.outcomes.values() if one != "started"]
            if "lost" in kind:
                assert spoilt == []
            elif kind == "silent":
                assert played.verdict.stop is not None
                # A look at the lock for each gang under way, sixteen requests on their way together, and
                # three looks at the first pod.
                assert len(played.requests) <= number + LANES + LOCK_CHECK_EVERY + READ_TRIES
            elif kind != "stop":
                assert sum(one != "pending" for one in spoilt) <= 1
        assert sim.doubled(world) == []
        settled(world, plan, backend)


def recovers_alone(world: sim.World, plan: PlanActions, backend: str) -> None:
    """Whatever the next run is about, it first makes each gang whole or leaves nothing on it."""
    assert set(sim.recover(world).outcomes.values()) <= {"started", "skipped"}
    assert sim.half_way(world, plan) == []
    for one in plan.gangs:
        if one.starts[0].name not in sim.bound(world):
            assert (one.key, plan.plan) not in world.records
    assert sim.recover(world).verdict.writes == 0
    settled(world, plan, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_another_plan_finishes_what_the_killed_one_began_before_its_own_gangs(backend: str) -> None:
    start, plan = ten(backend)
    first = replace(plan, gangs=plan.gangs[:5])
    second = replace(plan, plan=sim.OTHER_PLAN, gangs=plan.gangs[5:])
    calm = start.copy()
    length = len(sim.apply(calm, first).requests)
    sim.apply(calm, second)
    for number in some(length, 2, 7):
        world = start.copy()
        sim.cut(world, first, sim.at(number, sim.dies_after))
        sim.apply(world, second)
        assert sim.half_way(world, first) == []
        sim.apply(world, first)
        assert sim.shape(world) == sim.shape(calm)


@pytest.mark.parametrize("backend", BACKENDS)
def test_whoever_writes_a_status_between_our_requests_costs_only_a_look(backend: str) -> None:
    world, plan = ten(backend)
    world = world.copy()

    def bumped(count: int, request: req.Request, world: sim.World) -> None:
        for key in sorted(world.pods)[count % 7 :: 7] if count % 3 == 0 else ():
            world.change(key)

    assert set(sim.apply(world, plan, bumped).outcomes.values()) == {"started"}
    settled(world, plan, backend)


# ---- concurrent clients

Deed = Callable[[sim.World, Key], object]


@cache
def three(backend: str) -> tuple[sim.World, PlanActions]:
    """Three gangs of three pods with 4 GPUs, two a node, that the node chooses; n5 stays free."""
    world, plan = sim.gangs_of((3, 3, 3), backend, spare=1)
    open_ = [
        structs.replace(
            one, starts=tuple(structs.replace(order, gpus=None) for order in one.starts)
        )
        for one in plan.gangs
    ]
    return world, replace(plan, gangs=tuple(open_))


def node_of(key: Key) -> str:
    """Where the plan wants the pod: a-0 a-1 on n0, a-2 b-0 on n1, and so on."""
    name, _, index = key[1].partition("-")
    return f"n{('abc'.index(name) * 3 + int(index)) // 2}"


def changed(ask: Callable[[Any], bool] = lambda _: True, **more: object) -> Deed:
    """A pod is changed, if it is there and ``ask`` says so."""
    return lambda world, key: (
        world.change(key, **more) if key in world.pods and ask(world.pods[key]) else None
    )


def node_changed(**more: object) -> Deed:
    def deed(world: sim.World, key: Key) -> None:
        if node_of(key) in world.nodes:
            world.nodes[node_of(key)] = replace(world.nodes[node_of(key)], **more)  # type: ignore[arg-type]

    return deed


def recreated(world: sim.World, key: Key) -> None:
    if key in world.pods:
        world.recreates.add(key)
        world.delete(key)
        world.recreates.discard(key)


def node_removed(world: sim.World, key: Key) -> None:
    """The node goes, and with it, as PodGC has it, what is bound there."""
    world.nodes.pop(node_of(key), None)
    for other in [k for k, pod in world.pods.items() if pod.node == node_of(key)]:
        world.pods.pop(other)


def crowded(world: sim.World, key: Key) -> None:
    """A rival binds a pod of 8 GPUs there, whatever else is on the node."""
    if ("default", "rival") not in world.pods and node_of(key) in world.nodes:
        world.pod("rival", 8, mode="none", node=node_of(key))


def stolen(world: sim.World, key: Key) -> None:
    """Another client binds our pod to another node."""
    pod = world.pods.get(key)
    if pod is not None and pod.node is None and not pod.gates and "n5" in world.nodes:
        world.change(key, node="n5")


DEEDS: dict[str, Deed] = {
    "deleted": lambda world, key: world.pods.pop(key, None),
    "recreated": recreated,
    "going": changed(terminating=True),
    "finished": changed(lambda pod: pod.node is not None, finished=True),
    "cordoned": node_changed(unschedulable=True),
    "broken": node_changed(ready=False),
    "node removed": node_removed,
    "crowded": crowded,
    "stolen": stolen,
    "ungated without a pin": changed(gates=()),
    "record removed": lambda world, key: world.records.pop(
        (("default", key[1][0]), sim.PLAN), None
    ),
}


def done(world: sim.World, name: str, key: Key) -> None:
    DEEDS[name](world, key)
    world.schedule()


def started(world: sim.World, one: GangActions) -> set[str]:
    """Uids of the gang's own pods that were started and are there."""
    found = set()
    for order in one.starts:
        pod = world.pods.get(order.key)
        if pod is not None and pod.uid == order.uid and (pod.node or sim.GATE not in pod.gates):
            found.add(pod.uid)
    return found


def honest(world: sim.World, plan: PlanActions, verdict: req.Verdict) -> None:
    """Each gang is whole, untouched, or reported with the pods to undo it.

    What another client started counts as ours only if it is recorded.
    """
    told = {one.gang: one for one in verdict.gangs}
    for one in plan.gangs:
        uids = started(world, one)
        running = {
            pod.uid
            for pod in world.pods.values()
            if pod.uid in uids and not pod.terminating and not pod.finished
            if (start := world.start(pod)) is not None and start.plan == plan.plan
        }
        if len(uids) < len(one.starts) and running:
            assert explained(world, one, told.get(one.key), running), told.get(one.key)


def explained(
    world: sim.World, one: GangActions, verdict: req.GangVerdict | None, running: set[str]
) -> bool:
    if verdict is None or verdict.outcome is req.Outcome.unchanged:
        # It was whole once, and lost pods later, as any running gang may.
        return one.name in sim.whole(world)
    return verdict.outcome is req.Outcome.partial and running <= {uid for *_, uid in verdict.undo}


def read_last(played: sim.Played) -> int:
    """The number of the last reading of everything: later changes cannot be reported."""
    return max(n for n, one in enumerate(played.requests) if isinstance(one, req.ReadCluster))


def undone(world: sim.World, verdict: req.Verdict) -> None:
    """A human runs the commands."""
    for one in verdict.gangs:
        for namespace, name, uid in one.undo:
            pod = world.pods.get((namespace, name))
            if pod is not None and pod.uid == uid:
                world.pods.pop((namespace, name))


def ends_well(world: sim.World, plan: PlanActions, verdict: req.Verdict) -> None:
    """After undoing what is reported no gang is partial, and there is nothing left to write."""
    honest(world, plan, verdict)
    undone(world, verdict)
    assert "partial" not in sim.recover(world).outcomes.values()
    assert sim.recover(world).verdict.writes == 0


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_gang_is_partial_and_unreported_whatever_others_do(backend: str, deed: str) -> None:
    start, plan = three(backend)
    length = len(sim.apply(start.copy(), plan).requests)
    for number in some(length, 2 * list(DEEDS).index(deed), 13):
        key = ("default", "a-1" if number % 2 else "c-0")
        world = start.copy()
        first = sim.apply(
            world, plan, sim.at(number, lambda world, _, key=key: done(world, deed, key))
        )  # type: ignore[misc]
        if number <= read_last(first):
            honest(world, plan, first.verdict)
        again = sim.apply(world, plan)
        honest(world, plan, again.verdict)
        undone(world, again.verdict)
        assert "partial" not in sim.apply(world, plan).outcomes.values()
        if deed != "crowded":
            assert sim.doubled(world) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_partial_gangs_are_evicted_where_that_is_allowed(backend: str) -> None:
    """b-0 is deleted before any request: wherever that leaves b partial, its pods are evicted."""
    start, plan = three(backend)
    seen = 0
    for number in spread(range(len(sim.apply(start.copy(), plan).requests)), 2):
        world = start.copy()
        first = sim.apply(
            world, plan, sim.at(number, lambda world, _: done(world, "deleted", ("default", "b-0")))
        )
        again = sim.recover(world, allow_evictions=False, evict_partial=True)
        world.wait()
        for one in first.verdict.gangs:
            if one.outcome is req.Outcome.partial:
                seen += 1
                assert again.outcomes[one.gang[1]] == "undone"
                assert not {pod.uid for pod in world.pods.values()} & {uid for *_, uid in one.undo}
                assert (one.gang, plan.plan) not in world.records
    assert seen > 0


# ---- random histories

KEYS = [("default", f"{name}-{index}") for name in "abc" for index in range(3)]
MISHAPS = (
    st.tuples(st.just("killed"), st.booleans()),
    st.tuples(st.just("lost"), st.booleans()),
    st.tuples(st.just("answered"), st.sampled_from(sim.ANSWERS)),
    st.tuples(st.just("bumped"), st.sampled_from(KEYS)),
)
OTHERS = st.tuples(st.just("deed"), st.tuples(st.sampled_from(list(DEEDS)), st.sampled_from(KEYS)))


def runs(happenings: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Runs that apply or, if True, only recover."""
    happens = st.dictionaries(st.integers(0, 45), happenings, max_size=3)
    return st.lists(st.tuples(st.booleans(), happens), min_size=1, max_size=4)


def history_of(world: sim.World, plan: PlanActions, history: list[tuple[bool, Any]]) -> None:
    for recovers, happens in history:

        def fault(
            count: int,
            request: req.Request,
            world: sim.World,
            happens: Any = happens,  # noqa: ANN401
        ) -> Any:  # noqa: ANN401
            kind, what = happens.get(count, ("", None))
            if kind == "killed":
                return (sim.dies_after if what else sim.dies)(world, request)
            if kind == "lost" and not isinstance(request, req.CheckLock):
                return (sim.loses_answer if what else sim.loses)(world, request)
            if kind == "answered" and isinstance(request, (*sim.WRITES, req.Remember)):
                return what
            if kind == "deed":
                done(world, *what)
            if kind == "bumped" and what in world.pods:
                world.change(what)
            return None

        with contextlib.suppress(sim.Killed):
            if recovers:
                sim.recover(world, fault)
            else:
                sim.apply(world, plan, fault)
        if ("default", "rival") not in world.pods:
            assert sim.doubled(world) == []


@settings(max_examples=examples(250, 25), deadline=None)
@given(st.sampled_from(BACKENDS), runs(st.one_of(*MISHAPS, OTHERS)), st.booleans())
def test_any_history_ends_honestly(
    backend: str, history: list[tuple[bool, Any]], by_recovering: bool
) -> None:
    start, plan = three(backend)
    world = start.copy()
    history_of(world, plan, history)
    ends_well(
        world, plan, (sim.recover(world) if by_recovering else sim.apply(world, plan)).verdict
    )


@settings(max_examples=examples(100, 15), deadline=None)
@given(st.sampled_from(BACKENDS), runs(st.one_of(*MISHAPS)))
def test_any_history_without_others_ends_whole(
    backend: str, history: list[tuple[bool, Any]]
) -> None:
    start, plan = three(backend)
    world = start.copy()
    history_of(world, plan, history)
    sim.apply(world, plan)
    assert all(pod.node is not None for pod in world.pods.values())
    assert sim.apply(world, plan).verdict.writes == 0
