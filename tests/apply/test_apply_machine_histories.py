"""Random histories of crashed runs, lost answers and concurrent clients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from apply_world import (
    ANSWERS,
    WRITES,
    Fault,
    Killed,
    World,
    apply,
    doubled,
    recover,
)
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from test_apply_machine_rivals import DEEDS, honest, three, undone

from models.apply.plan_actions import PlanActions
from models.apply.requests import CheckLock, Event, NoAnswer, Outcome, ReadCluster, ReadPod, Request

Happening = tuple[str, Any]
"""What comes before a request: (kind, what with)."""

KEYS = [("default", f"{name}-{index}") for name in "abc" for index in range(3)]

happenings = st.one_of(
    st.tuples(st.just("killed"), st.booleans()),
    st.tuples(st.just("lost"), st.booleans()),
    st.tuples(st.just("answered"), st.sampled_from(ANSWERS)),
    st.tuples(st.just("deed"), st.tuples(st.sampled_from(DEEDS), st.sampled_from(KEYS))),
    st.tuples(st.just("bumped"), st.sampled_from(KEYS)),
)
runs = st.lists(
    st.tuples(st.booleans(), st.dictionaries(st.integers(0, 45), happenings, max_size=3)),
    min_size=1,
    max_size=4,
)


def played(happens: dict[int, Happening]) -> Fault:
    """The fault in which these things come before the requests of these numbers."""

    def fault(count: int, request: Request, world: World) -> Event | None:
        kind, what = happens.get(count, ("", None))
        if kind == "killed":
            if what:
                world.answer(request)
            raise Killed
        if kind == "lost" and not isinstance(request, CheckLock):
            if what and isinstance(request, WRITES):
                world.answer(request)
            return NoAnswer("timeout")
        if kind == "answered" and not isinstance(request, CheckLock | ReadPod | ReadCluster):
            return what  # type: ignore[no-any-return]
        if kind == "deed":
            deed, key = what
            deed(world, key)
            world.schedule()
        if kind == "bumped" and what in world.pods:
            world.change(what)
        return None

    return fault


def end(world: World, plan: PlanActions, run: Callable[..., Any]) -> None:
    """Without further faults a run reports every partial gang; after undoing those, all are whole."""
    verdict = run().verdict
    honest(world, plan, verdict)
    undone(world, verdict)
    again = recover(world).verdict
    assert [one for one in again.gangs if one.outcome is Outcome.partial] == []
    assert recover(world).verdict.writes == 0


@settings(max_examples=examples(250, 50), deadline=None)
@given(st.sampled_from(["annotation", "dra"]), runs, st.booleans())
def test_after_any_history_every_gang_is_whole_untouched_or_reported(
    backend: str, history: list[tuple[bool, dict[int, Happening]]], by_recovering: bool
) -> None:
    world, plan = three(backend)
    for recovers, happens in history:
        with contextlib.suppress(Killed):
            if recovers:
                recover(world, played(happens))
            else:
                apply(world, plan, played(happens))
    if ("default", "rival") not in world.pods:
        assert doubled(world) == []
    end(world, plan, lambda: recover(world) if by_recovering else apply(world, plan))


@settings(max_examples=examples(100, 25), deadline=None)
@given(st.sampled_from(["annotation", "dra"]), runs)
def test_without_others_at_work_any_history_ends_with_every_gang_whole(
    backend: str, history: list[tuple[bool, dict[int, Happening]]]
) -> None:
    world, plan = three(backend)
    for recovers, happens in history:
        calm = {n: what for n, what in happens.items() if what[0] != "deed"}
        with contextlib.suppress(Killed):
            if recovers:
                recover(world, played(calm))
            else:
                apply(world, plan, played(calm))
        assert doubled(world) == []
    apply(world, plan)
    assert all(pod.node is not None for pod in world.pods.values())
    assert apply(world, plan).verdict.writes == 0
