"""Starting the pods that controllers recreate for gangs that move or grow."""

from __future__ import annotations

from dataclasses import replace

from models.apply.evictions import Removals, remaining
from models.apply.live_state import LivePod, PodClassifier
from models.apply.outcomes import GangVerdict, Outcome
from models.apply.plan_actions import GangActions, PlanActions, PodStart
from models.apply.requests import Steps
from models.apply.session import ApplySession, PodBatch, label
from models.apply.staleness import gang_changes
from models.apply.starts import start


def start_recreated(
    session: ApplySession, orders: PlanActions, gang: GangActions, removals: Removals
) -> Steps[None]:
    """Start the new pods of a gang that moves or grows as planned, or leave them to the next plan.

    A new pod counts only under the planned name, with the same controller and GPU count.
    """
    if session.limits.dry or remaining(session, gang):
        return
    pods = _recreated(session, orders, gang, removals)
    for after_s in session.limits.waits():
        if len(pods) + _renamed(session, gang, removals) >= len(gang.starts):
            break
        yield from session.read_cluster(after_s)
        pods = _recreated(session, orders, gang, removals)
    why = ""
    if len(pods) < len(gang.starts):
        made = "created" if gang.grows else "recreated"
        why = f"its controller has {made} {len(pods)} of {len(gang.starts)} pods"
    elif found := gang_changes(orders, replace(gang, starts=tuple(pods), stops=()), session.view):
        why = str(found[0])
    if why:
        why = f"{why}; the next plan places its new pods"
        outcome = Outcome.resized if gang.grows else Outcome.stopped
        session.record(GangVerdict(gang.key, outcome, orders.plan, why, resizes=gang.resizes))
        return
    yield from session.check_lock(label(gang.key))
    yield from start(session, PodBatch(gang.key, orders.plan, len(pods), tuple(pods)))


def is_restarted(session: ApplySession, orders: PlanActions, gang: GangActions) -> bool:
    """Whether this plan has started all new pods of the gang."""
    pods = [pod for _, pod in _made(session, orders, gang)]
    return bool(pods) and all(
        pod is not None
        and pod.intent is not None
        and pod.intent_is_ours
        and pod.intent.plan == orders.plan
        and session.classifier.started(pod)
        for pod in pods
    )


def _renamed(session: ApplySession, gang: GangActions, removals: Removals) -> int:
    """New pods of the same controllers under names that the plan does not know."""
    owners = {removals.owners.get(stop.key) for stop in gang.stops} - {None}
    planned = {order.key for order in gang.starts} | {stop.key for stop in gang.stops}
    return sum(
        pod.owner in owners and key not in planned and not session.classifier.started(pod)
        for key, pod in session.view.pods.items()
    )


def _made(
    session: ApplySession, orders: PlanActions, gang: GangActions
) -> list[tuple[PodStart, LivePod | None]]:
    """Each order with its pod: that of the planned name, else a new one of the controller that grows."""
    pods = session.view.pods
    owners = {pods[key].owner for _, key in gang.members if key in pods} - {None}
    new = iter(
        sorted(
            (
                pod
                for pod in pods.values()
                if pod.owner in owners and pod.uid not in gang.known and _may_be(orders, pod)
            ),
            key=lambda pod: (len(pod.name), pod.name),
        )
    )
    return [
        (order, next(new, None) if not order.uid and order.key not in pods else pods.get(order.key))
        for order in gang.starts
    ]


def _may_be(orders: PlanActions, pod: LivePod) -> bool:
    """Whether a pod that the plan does not know can be one that it made a controller create."""
    if pod.terminating or pod.finished:
        return False
    classifier = PodClassifier(orders.gate, orders.scheduler)
    if pod.intent is None or not pod.intent_is_ours:
        return not classifier.started(pod)
    return pod.intent.plan == orders.plan


def _recreated(
    session: ApplySession, orders: PlanActions, gang: GangActions, removals: Removals
) -> list[PodStart]:
    """Orders whose new pod exists, with its name and uid."""
    old = {stop.uid for stop in gang.stops}
    found = []
    for order, pod in _made(session, orders, gang):
        if pod is None or pod.uid in old or session.classifier.started(pod):
            continue
        if pod.terminating or pod.finished or pod.gpus != order.gpu_count:
            continue
        if removals.owners.get(order.key, pod.owner) == pod.owner:
            found.append(replace(order, name=pod.name, uid=pod.uid, mode=None))
    return found
