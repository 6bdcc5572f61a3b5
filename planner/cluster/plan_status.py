"""The state of every gang that a plan left incomplete, derived from the records of starts and live pods.

Gangs are judged as the apply machine judges them: what is partial here, ``run`` completes or reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from models.apply.live_state import STARTED, PodState
from models.apply.placement_requests import LiveRequest
from models.apply.plan_actions import Key
from models.apply.recovery import (
    CutGang,
    RecordedGang,
    cut_gangs,
    recorded_gangs,
    stuck_group_reason,
)
from models.apply.request_steps import is_unsettled, overdue
from models.apply.requests import PodId, pod_ids
from models.apply.session import ApplySession
from models.units import first_of


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
    late = "not bound"
    """Kueue started it on the nodes of its request, and a pod is not bound: only Kueue can stop it."""


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
    """A pod that is started and not bound. ``node``: planned, or those planned. ``why``: the scheduler's."""

    pod: Key
    plan: str
    node: str
    why: str


def gang_statuses(session: ApplySession) -> tuple[GangStatus, ...]:
    """Every gang that is incomplete, by (namespace, name), then plan."""
    cut = {one.gang: one for one in cut_gangs(session.view)}
    groups = recorded_gangs(session.view, session.classifier)
    found = [_gang_status(session, group) for group in groups if group.batch.gang not in cut]
    left = [one for one in found if one is not None] + [_cut_status(one) for one in cut.values()]
    left += [_late_status(one, why) for one, why in overdue(session)]
    return tuple(sorted(left, key=lambda one: (one.gang, one.plan)))


def pending_pods(session: ApplySession) -> tuple[PendingPod, ...]:
    """Pods that wait for their scheduler to bind them, by (namespace, name)."""
    view, found = session.view, list[tuple[Key, str, str]]()
    for group in recorded_gangs(view, session.classifier):
        pods = group.in_state((PodState.ungated,))
        found += [(order.key, group.batch.plan, order.node) for order in pods]
    for one in (one for one in view.requests.values() if one.state == "placed"):
        plan, nodes = one.plan or "", first_of(one.nodes, 3)
        keys = [(one.namespace, name) for name in one.pending]
        found += [(key, plan, nodes) for key in keys if key in view.pods]
    return tuple(PendingPod(*one, view.pods[one[0]].unschedulable or "") for one in sorted(found))


def is_to_recover(session: ApplySession, *, answers: bool) -> bool:
    """Whether recovery has anything to write or to report.

    ``answers``: whether it may answer requests for a placement.
    """
    return (answers and is_unsettled(session)) or any(
        group.waiting
        or group.partial
        or group.to_mark
        or group.over
        or stuck_group_reason(session, group)
        for group in recorded_gangs(session.view, session.classifier)
    )


def _gang_status(session: ApplySession, group: RecordedGang) -> GangStatus | None:
    """None for a gang that is whole, over, or only waits to be bound."""
    why, size = stuck_group_reason(session, group), group.batch.size
    if not (why or group.partial or group.waiting):
        return None
    begun = GangPhase.partial if group.partial else GangPhase.intended
    state = GangPhase.stuck if why else begun
    started = len(group.in_state((*STARTED, PodState.misplaced)))
    bound = started - len(group.in_state((PodState.ungated,)))
    plan, gang, left = group.batch.plan, group.batch.gang, pod_ids(group.running)
    return GangStatus(plan, gang, size, started, bound, state, left, why)


def _late_status(request: LiveRequest, why: str) -> GangStatus:
    plan, bound = request.plan or "", request.pods - len(request.pending)
    size, late = bound + request.missing, GangPhase.late
    return GangStatus(plan, request.gang, size, request.pods, bound, late, why=why)


def _cut_status(cut: CutGang) -> GangStatus:
    """A half stopped gang; what it was started by does not matter any more."""
    size, left = len(cut.note.pods), len(cut.left)
    return GangStatus(cut.note.plan, cut.gang, size, left, left, GangPhase.cut, cut.ids, cut.why)
