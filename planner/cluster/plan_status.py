"""The state of every gang that a plan left incomplete, derived from the records of starts and live pods.

Gangs are judged as the apply machine judges them: what is partial here, ``run`` completes or reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from models.apply.live_state import STARTED, ClusterView, PodClassifier, PodState
from models.apply.plan_actions import Key
from models.apply.recovery import (
    CutGang,
    RecordedGang,
    cut_gangs,
    recorded_gangs,
    stuck_group_reason,
)
from models.apply.request_steps import is_unsettled
from models.apply.requests import ApplyLimits, PodId, pod_ids
from models.apply.session import ApplySession


class GangPhase(StrEnum):
    """State of a gang, by the record of one start."""

    intended = "intended"
    """Its start is recorded and no pod is started: ``apply`` and ``run`` start it or remove the record."""
    partial = "partial"
    """Some pods are started, others are not or are gone, and the gang never was whole."""
    stuck = "stuck"
    """All are started, but given the state of their nodes not all will run there."""
    cut = "half stopped"
    """A run stopped some of its pods and not the others: ``run`` finishes that, or completes it."""


@dataclass(frozen=True, slots=True)
class GangStatus:
    """One gang of one plan. ``size``: pods that start together.

    ``started``: pods that run, have run, or wait for the scheduler. ``bound``: of these. ``left``: started
    pods that still run. ``why``: reason for ``stuck``.
    """

    plan: str
    gang: Key
    size: int
    started: int
    bound: int
    state: GangPhase
    left: tuple[PodId, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod that is started and not bound. ``node``: planned. ``why``: message of the scheduler."""

    pod: Key
    plan: str
    node: str
    why: str


def gang_statuses(
    view: ClusterView, classifier: PodClassifier, pending_limit_s: int | None = None
) -> tuple[GangStatus, ...]:
    """Every recorded gang that is incomplete, by (namespace, name), then plan.

    ``pending_limit_s``: of the Policy.
    """
    session = _session(view, classifier, pending_limit_s)
    cut = {one.gang: one for one in cut_gangs(view)}
    groups = recorded_gangs(session.view, classifier)
    found = [_gang_status(session, group) for group in groups if group.batch.gang not in cut]
    left = [one for one in found if one is not None] + [_cut_status(one) for one in cut.values()]
    return tuple(sorted(left, key=lambda one: (one.gang, one.plan)))


def pending_pods(view: ClusterView, classifier: PodClassifier) -> tuple[PendingPod, ...]:
    """Pods that wait for their scheduler to bind them, by (namespace, name)."""
    pods = view.pods
    found = [
        PendingPod(order.key, group.batch.plan, order.node, pods[order.key].unschedulable or "")
        for group in recorded_gangs(view, classifier)
        for order in group.in_state((PodState.ungated,))
    ]
    return tuple(sorted(found, key=lambda pending: pending.pod))


def is_to_recover(
    view: ClusterView, classifier: PodClassifier, pending_limit_s: int | None, *, answers: bool
) -> bool:
    """Whether recovery has anything to write or to report.

    ``answers``: whether it may answer requests for a placement.
    """
    session = _session(view, classifier, pending_limit_s)
    return (answers and is_unsettled(session)) or any(
        group.waiting
        or group.partial
        or group.to_mark
        or group.over
        or stuck_group_reason(session, group)
        for group in recorded_gangs(session.view, classifier)
    )


def _session(
    view: ClusterView, classifier: PodClassifier, pending_limit_s: int | None
) -> ApplySession:
    return ApplySession(view, ApplyLimits(gate=classifier.gate, pending_limit_s=pending_limit_s))


def _gang_status(session: ApplySession, group: RecordedGang) -> GangStatus | None:
    """None for a gang that is whole, over, or only waits to be bound."""
    why, waiting, size = stuck_group_reason(session, group), len(group.waiting), group.batch.size
    if why:
        state = GangPhase.stuck
    elif group.partial:
        state = GangPhase.partial
    elif waiting:
        state = GangPhase.intended
    else:
        return None
    started = len(group.in_state((*STARTED, PodState.misplaced)))
    bound = started - len(group.in_state((PodState.ungated,)))
    plan, gang, left = group.batch.plan, group.batch.gang, pod_ids(group.running)
    return GangStatus(plan, gang, size, started, bound, state, left, why)


def _cut_status(cut: CutGang) -> GangStatus:
    """A half stopped gang; what it was started by does not matter any more."""
    size, left = len(cut.note.pods), len(cut.left)
    return GangStatus(cut.note.plan, cut.gang, size, left, left, GangPhase.cut, cut.ids, cut.why)
