"""Where a pod stands on its way from gated to bound, and how far its gang has come.

Promises: pure; judged from what is seen alone. A pod of our scheduler is started when it is bound, any
other when our gate is gone. Called by the machine in this package and by ``planner.cli``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from models.apply.intents import Intent
from models.apply.live_state import LivePod
from models.apply.orders import PodOrder


class PodState(StrEnum):
    """Of one pod, against the node it is wanted on."""

    waiting = "waiting"
    """Not started, and nothing is intended."""
    intended = "intended"
    """Not started; the intent is on it."""
    ungated = "ungated"
    """Started: the scheduler has not bound it yet."""
    bound = "bound"
    """Started, where it is wanted."""
    astray = "astray"
    """Bound to another node."""
    ended = "ended"
    """It was bound and has finished."""
    leaving = "leaving"
    """It was started and is being deleted."""
    gone = "gone"
    """Not there, replaced by another pod, or dead before it was started."""


STARTED = (PodState.ungated, PodState.bound, PodState.ended)
LIVE = (PodState.ungated, PodState.bound)
READY = (PodState.waiting, PodState.intended)


@dataclass(frozen=True, slots=True)
class PodClassifier:
    """How pods of ours are told: by the gate, by the name of the scheduler."""

    gate: str
    scheduler: str

    def gated(self, pod: LivePod) -> bool:
        return self.gate in pod.gates

    def binds(self, pod: LivePod) -> bool:
        """Whether we bind it, and nobody else does."""
        return pod.scheduler == self.scheduler

    def started(self, pod: LivePod) -> bool:
        return pod.node is not None or not (self.gated(pod) or self.binds(pod))

    def foreign(self, pod: LivePod) -> tuple[str, ...]:
        """Gates of others, which hold the pod back whatever we do."""
        return tuple(gate for gate in pod.gates if gate != self.gate)

    def state(self, pod: LivePod | None, uid: str, node: str) -> PodState:  # noqa: PLR0911
        """How far the pod with this uid has come on its way to the node."""
        if pod is None or pod.uid != uid:
            return PodState.gone
        if not self.started(pod):
            if pod.terminating or pod.finished:
                return PodState.gone
            return PodState.waiting if pod.intent is None else PodState.intended
        if pod.node is not None and pod.node != node:
            return PodState.astray
        if pod.finished:
            return PodState.ended if pod.node is not None else PodState.gone
        if pod.terminating:
            return PodState.leaving
        return PodState.ungated if pod.node is None else PodState.bound


class GangState(StrEnum):
    """Of the pods that were to start together."""

    untouched = "untouched"
    """None is started."""
    partial = "partial"
    """Some are started, others are not, or are not there any more."""
    whole = "whole"
    """All are started; some may have finished."""


def gang_state(states: Iterable[PodState], size: int) -> GangState:
    """``size``: how many pods were to start together; those not among ``states`` are gone."""
    count = Counter(states)
    started = sum(count[one] for one in STARTED)
    if started >= size:
        return GangState.whole
    if started or count[PodState.astray]:
        return GangState.partial
    return GangState.untouched


def intent_for(order: PodOrder, *, plan: str, gang: str, size: int) -> Intent:
    """What is written on the pod of an order."""
    return Intent(plan=plan, gang=gang, size=size, node=order.node, gpus=order.gpus or None)


def same(intent: Intent | None, other: Intent) -> bool:
    """Whether both want the same, whether or not the gang was whole since."""
    return intent is not None and replace(intent, whole=False) == replace(other, whole=False)
