"""Where plans stand, told from the pods that carry their intents alone.

Promises: pure; an intent that another wrote is told apart. Called by ``planner.verbs.status``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from models.applying.orders import Key
from models.applying.seen import PodSeen, View
from models.applying.states import Ways


class State(StrEnum):
    """How far a gang is, by the pods that carry the intent of one plan."""

    intended = "intended"
    """All its pods carry the intent and none is started: ``apply`` and ``run`` start it."""
    begun = "begun"
    """Some pods carry the intent and none is started: ``apply`` and ``run`` take it off, or start it."""
    half = "half there"
    """Some pods are started and others are not, or are gone."""
    pending = "pending"
    """All are started, not all are bound yet."""
    whole = "whole"


@dataclass(frozen=True, slots=True)
class GangStand:
    """One gang of one plan. ``size``: pods that start together; of these ``seen`` carry the intent.

    ``started``: bound, or the scheduler's to bind. ``left``: (namespace, name, uid) of started pods that
    still run, for commands that undo it. ``ours``: managedFields say that we wrote every intent.
    """

    plan: str
    gang: Key
    size: int
    seen: int
    started: int
    bound: int
    state: State
    left: tuple[tuple[str, str, str], ...] = ()
    ours: bool = True


@dataclass(frozen=True, slots=True)
class Pin:
    """A pod that is started and not bound. ``node``: where its plan wants it. ``why``: the scheduler."""

    pod: Key
    plan: str
    node: str
    why: str


@dataclass(frozen=True, slots=True)
class PlanStand:
    """A plan that pods carry the id of, and how many of its gangs are how far."""

    plan: str
    pods: int
    gangs: tuple[tuple[State, int], ...]


def gangs_of(view: View, ways: Ways) -> tuple[GangStand, ...]:
    """Every gang with intents, by (plan, namespace, name)."""
    members: dict[tuple[str, Key], list[PodSeen]] = defaultdict(list)
    for pod in view.pods.values():
        if pod.intent is not None:
            members[pod.intent.plan, (pod.namespace, pod.intent.gang)].append(pod)
    runs: dict[Key, int] = defaultdict(int)
    for (_, gang), pods in members.items():
        runs[gang] += sum(is_started(pod, ways) for pod in pods)
    return tuple(
        _stand(plan, gang, members[plan, gang], runs[gang], ways) for plan, gang in sorted(members)
    )


def pins_of(view: View, ways: Ways) -> tuple[Pin, ...]:
    """Pods that wait for the scheduler to bind them where they are pinned, by (namespace, name)."""
    return tuple(
        Pin(pod.key, pod.intent.plan, pod.intent.node, pod.unschedulable or "")
        for _, pod in sorted(view.pods.items())
        if pod.intent is not None
        and pod.node is None
        and not pod.terminating
        and is_started(pod, ways)
    )


def plans_of(gangs: Iterable[GangStand]) -> tuple[PlanStand, ...]:
    """By id of the plan."""
    pods: dict[str, int] = defaultdict(int)
    states: dict[str, dict[State, int]] = defaultdict(lambda: defaultdict(int))
    for gang in gangs:
        pods[gang.plan] += gang.seen
        states[gang.plan][gang.state] += 1
    return tuple(
        PlanStand(plan, pods[plan], tuple((s, states[plan][s]) for s in State if states[plan][s]))
        for plan in sorted(pods)
    )


def is_started(pod: PodSeen, ways: Ways) -> bool:
    """Whether it runs, has run, or will without us."""
    return pod.finished or ways.started(pod)


def _stand(plan: str, gang: Key, pods: list[PodSeen], running: int, ways: Ways) -> GangStand:
    """``running``: started pods of the gang whatever plan started them: a later one may complete it."""
    pods = sorted(pods, key=lambda pod: pod.key)
    size = max(pod.intent.size for pod in pods if pod.intent is not None)
    started = [pod for pod in pods if is_started(pod, ways)]
    unbound = sum(pod.node is None and not pod.finished for pod in started)
    if not started:
        state = State.intended if len(pods) >= size else State.begun
    elif len(started) < len(pods) or (running < size and not _was_whole(started)):
        state = State.half
    else:
        state = State.pending if unbound else State.whole
    return GangStand(
        plan=plan,
        gang=gang,
        size=size,
        seen=len(pods),
        started=len(started),
        bound=len(started) - unbound,
        state=state,
        left=tuple(
            (pod.namespace, pod.name, pod.uid)
            for pod in started
            if not pod.finished and not pod.terminating
        ),
        ours=all(pod.intent_is_ours for pod in pods),
    )


def _was_whole(pods: Iterable[PodSeen]) -> bool:
    """Whether all pods of the gang were once started: what it lost since is no work of ours."""
    return any(pod.intent is not None and pod.intent.whole for pod in pods)


def to_recover(view: View, ways: Ways) -> tuple[str, ...]:
    """Namespaces of gangs that recovering may have to write to, sorted."""
    from models.applying.recovering import groups

    return tuple(
        sorted(
            {
                group.squad.gang[0]
                for group in groups(view, ways)
                if group.waiting or group.half or not group.marked
            }
        )
    )
