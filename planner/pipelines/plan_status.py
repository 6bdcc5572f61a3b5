"""Where plans stand, told from the pods that carry their intents alone.

Promises: pure; judged as the machine judges them, so that what is told as half there is what ``run``
would finish or report. Called by ``planner.cli.status`` and ``planner.pipelines.run_rounds``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from models.apply.live_state import forged
from models.apply.orders import Key
from models.apply.outcomes import ApplyLimits
from models.apply.pod_state import READY, STARTED, PodClassifier, PodState
from models.apply.recovery import Group, groups, spoiled
from models.apply.session import ApplySession

if TYPE_CHECKING:
    from models.apply.live_state import ClusterView


class State(StrEnum):
    """How far a gang is, by the pods that carry the intent of one plan."""

    intended = "intended"
    """All its pods carry the intent and none is started: ``apply`` and ``run`` start it."""
    begun = "begun"
    """Some pods carry the intent and none is started: ``apply`` and ``run`` take it off, or start it."""
    half = "half there"
    """Some pods are started, others are not or are gone, and it never was whole."""
    pending = "pending"
    """All are started, not all are bound yet."""
    stuck = "stuck"
    """All are started, and as their nodes are now they will not all run there."""
    whole = "whole"
    over = "over"
    """No pod of it is left that waits or runs."""


@dataclass(frozen=True, slots=True)
class GangStand:
    """One gang of one plan. ``size``: pods that start together; ``seen``: those with the intent.

    ``started``: those that run, have run, or are the scheduler's to bind. ``bound``: of these.
    ``left``: (namespace, name, uid) of started pods that still run, for commands that undo it.
    ``why``: it is stuck. ``unsure``: it is half there, or was whole and may be at work.
    """

    plan: str
    gang: Key
    size: int
    seen: int
    started: int
    bound: int
    state: State
    left: tuple[tuple[str, str, str], ...] = ()
    why: str = ""
    unsure: bool = False


@dataclass(frozen=True, slots=True)
class Pin:
    """A pod that is started and not bound. ``node``: where its plan wants it. ``why``: the scheduler's."""

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


def gangs_of(view: ClusterView, classifier: PodClassifier) -> tuple[GangStand, ...]:
    """Every gang with intents that our account wrote, by (namespace, name), then plan."""
    session = _session(view, classifier)
    return tuple(_stand(session, group) for group in groups(session.view, classifier))


def _session(view: ClusterView, classifier: PodClassifier) -> ApplySession:
    return ApplySession(view, ApplyLimits(gate=classifier.gate, scheduler=classifier.scheduler))


def pins_of(view: ClusterView, classifier: PodClassifier) -> tuple[Pin, ...]:
    """Pods that wait for their scheduler to bind them where they are wanted, by (namespace, name)."""
    found = []
    for group in groups(view, classifier):
        for order in group.among((PodState.ungated,)):
            why = view.pods[order.key].unschedulable or ""
            found.append(Pin(order.key, group.batch.plan, order.node, why))
    return tuple(sorted(found, key=lambda pin: pin.pod))


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


def unbelieved(view: ClusterView) -> str | None:
    """A line on pods whose marks no run of ours wrote; None if there are none."""
    found = forged(view.pods.values())
    if not found:
        return None
    name = "/".join(found[0].key)
    if len(found) == 1:
        return f"pod {name} carries marks of gangplan that no run wrote; they count for nothing"
    what = "pods carry marks of gangplan that no run wrote; they count for nothing: the first is"
    return f"{len(found):,} {what} {name}"


def to_recover(view: ClusterView, classifier: PodClassifier) -> tuple[str, ...]:
    """Namespaces of gangs that recovering has to write to, or to tell of, sorted."""
    session = _session(view, classifier)
    found = {
        group.batch.gang[0]
        for group in groups(session.view, classifier)
        if group.waiting or group.half or group.to_mark or spoiled(session, group)
    }
    return tuple(sorted(found))


def _stand(session: ApplySession, group: Group) -> GangStand:
    started = group.among((*STARTED, PodState.astray))
    unbound = group.among((PodState.ungated,))
    why = spoiled(session, group)
    return GangStand(
        plan=group.batch.plan,
        gang=group.batch.gang,
        size=group.batch.size,
        seen=len(group.states),
        started=len(started),
        bound=len(started) - len(unbound),
        state=State.stuck if why else _state(group),
        left=tuple((order.namespace, order.name, order.uid) for order in group.live),
        why=why,
        unsure=group.unsure,
    )


def _state(group: Group) -> State:
    if group.half:
        return State.half
    waiting = len(group.among(READY))
    if waiting:
        return State.intended if waiting >= group.batch.size else State.begun
    if not group.live:
        return State.over
    return State.pending if group.among((PodState.ungated,)) else State.whole
