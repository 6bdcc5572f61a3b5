"""The state of every gang that a plan left incomplete, derived from the intents on live pods.

Gangs are judged as the apply machine judges them: what is partial here, ``run`` completes or reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from models.apply.live_state import STARTED, ClusterView, PodClassifier, PodState, forged
from models.apply.plan_actions import Key
from models.apply.recovery import CutGang, IntentGroup, cut_gangs, intent_groups, stuck_group_reason
from models.apply.request_steps import is_unsettled
from models.apply.requests import ApplyLimits, PodId, pod_ids
from models.apply.session import ApplySession


class GangPhase(StrEnum):
    """State of a gang, by the pods that carry the intent of one plan."""

    intended = "intended"
    """All its pods carry the intent and none is started: ``apply`` and ``run`` start it."""
    begun = "begun"
    """Some pods carry the intent and none is started: ``apply`` and ``run`` start it or remove it."""
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
    pods that still run. ``why``: reason for ``stuck``. ``unsure``: it is partial, or was whole and may be
    at work.
    """

    plan: str
    gang: Key
    size: int
    started: int
    bound: int
    state: GangPhase
    left: tuple[PodId, ...] = ()
    why: str = ""
    unsure: bool = False


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
    """Every gang with intents that a run wrote and that is incomplete, by (namespace, name), then plan.

    ``pending_limit_s``: of the Policy.
    """
    session = _session(view, classifier, pending_limit_s)
    cut = {one.gang: one for one in cut_gangs(view)}
    groups = intent_groups(session.view, classifier)
    found = [_gang_status(session, group) for group in groups if group.batch.gang not in cut]
    left = [one for one in found if one is not None] + [_cut_status(one) for one in cut.values()]
    return tuple(sorted(left, key=lambda one: (one.gang, one.plan)))


def pending_pods(view: ClusterView, classifier: PodClassifier) -> tuple[PendingPod, ...]:
    """Pods that wait for their scheduler to bind them, by (namespace, name)."""
    pods = view.pods
    found = [
        PendingPod(order.key, group.batch.plan, order.node, pods[order.key].unschedulable or "")
        for group in intent_groups(view, classifier)
        for order in group.in_state((PodState.ungated,))
    ]
    return tuple(sorted(found, key=lambda pending: pending.pod))


def forged_warning(view: ClusterView) -> str | None:
    """A warning about pods whose intents no run wrote; None without any."""
    found = forged(view.pods.values())
    if not found:
        return None
    what = "gangplan annotations that no run wrote"
    if len(found) == 1:
        return f"ignored: pod {found[0]} carries {what}"
    return f"ignored: {len(found):,} pods carry {what}; first: {found[0]}"


def has_requests_to_settle(
    view: ClusterView, classifier: PodClassifier, pending_limit_s: int | None = None
) -> bool:
    """Whether recovery has to answer requests for a placement, or to take labels off nodes."""
    return is_unsettled(_session(view, classifier, pending_limit_s))


def namespaces_to_recover(
    view: ClusterView, classifier: PodClassifier, pending_limit_s: int | None = None
) -> tuple[str, ...]:
    """Namespaces of gangs that recovery has to write to or report, sorted."""
    session = _session(view, classifier, pending_limit_s)
    found = {
        group.batch.gang[0]
        for group in intent_groups(session.view, classifier)
        if group.waiting or group.partial or group.to_mark or stuck_group_reason(session, group)
    }
    return tuple(sorted(found))


def _session(
    view: ClusterView, classifier: PodClassifier, pending_limit_s: int | None
) -> ApplySession:
    return ApplySession(view, ApplyLimits(gate=classifier.gate, pending_limit_s=pending_limit_s))


def _gang_status(session: ApplySession, group: IntentGroup) -> GangStatus | None:
    """None for a gang that is whole, over, or only waits to be bound."""
    why, waiting, size = stuck_group_reason(session, group), len(group.waiting), group.batch.size
    if why:
        state = GangPhase.stuck
    elif group.partial:
        state = GangPhase.partial
    elif waiting:
        state = GangPhase.intended if waiting >= size else GangPhase.begun
    else:
        return None
    started = len(group.in_state((*STARTED, PodState.misplaced)))
    bound = started - len(group.in_state((PodState.ungated,)))
    plan, gang, left = group.batch.plan, group.batch.gang, pod_ids(group.running)
    return GangStatus(plan, gang, size, started, bound, state, left, why, group.unsure)


def _cut_status(cut: CutGang) -> GangStatus:
    """A half stopped gang; what it was started by does not matter any more."""
    size, left = len(cut.note.pods), len(cut.left)
    return GangStatus(cut.note.plan, cut.gang, size, left, left, GangPhase.cut, cut.ids, cut.why)
