"""Starting one gang: write every intent, dry-run a binding, then start pod after pod, scarcest node first.

Gated pods that another scheduler binds get their intent in the patch that starts them; the first one then
carries a record of the others, from which a later run completes the gang. If a step fails before the first
pod starts, all intents are withdrawn; afterwards the gang is completed or reported as partial.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from models.apply.gang_state import (
    incomplete_verdict,
    running_pods,
    started_verdict,
    verdict_for,
)
from models.apply.intents import MAX_RECORD_CHARS, Intent, Member, record_of
from models.apply.live_state import READY, STARTED, ClusterView, LivePod, usage
from models.apply.outcomes import GangVerdict, Outcome
from models.apply.plan_actions import Key, PodStart
from models.apply.preparation import (
    check_claims,
    failure_of,
    foreseen,
    lost,
    prepare,
    remove_intent,
    unintended,
    without_gate,
)
from models.apply.requests import Bind, Steps, Ungate
from models.apply.session import ApplySession, Failure, Halted, PodBatch

PLAIN_BACKENDS = ("annotation", "none")
"""GPU back ends for which no pod of a gang can turn out to be impossible after others have started."""

RECORDS = 3
"""Pods of a gang with the record of the others, so that it is lost only with all of these."""

RECORD_REFUSED = "gangplan may change no annotation"
"""In the words of an admission policy ``gangplan-pods`` older than the records of members and pins."""


def start(session: ApplySession, batch: PodBatch) -> Steps[GangVerdict]:
    """Start all pods of the batch, or withdraw the intents. Raises Halted after recording a verdict."""
    try:
        failure = yield from _try_to_start(session, batch)
        if failure is None:
            session.started.append(batch)
            return session.record(started_verdict(session, batch))
        if running_pods(session, batch) and not session.limits.dry:
            yield from session.read_cluster()  # the verdict depends on what became of them
        if running_pods(session, batch):
            return session.record(incomplete_verdict(session, batch, failure))
        return (yield from withdraw(session, batch, failure.why))
    except Halted as halted:
        session.record(verdict_for(session, batch, Outcome.halted, halted.halt.why))
        raise


def withdraw(session: ApplySession, batch: PodBatch, why: str) -> Steps[GangVerdict]:
    """Remove the intents of a batch that has not started."""
    failure = None
    for order in batch.pods:
        if session.state(order) in READY:
            failed = yield from remove_intent(session, batch, order)
            failure = failure or failed
    if failure is None:
        return session.record(verdict_for(session, batch, Outcome.skipped, why))
    why = f"{why}; not all of its intents could be removed: {failure.why}"
    return session.record(verdict_for(session, batch, Outcome.halted, why))


def _try_to_start(session: ApplySession, batch: PodBatch) -> Steps[Failure | None]:
    """In one step a pod where that is possible and accepted, else with all intents written first."""
    waiting = [order for order in batch.pods if session.state(order) in READY]
    failure = foreseen(session, batch, waiting)
    failure = failure or (yield from check_claims(session, batch, waiting))
    if failure is not None:
        return failure
    carried = _carried_intents(session, batch, waiting)
    failure = yield from _intend_and_start(session, batch, waiting, carried)
    if failure is None or not (failure.rejected and RECORD_REFUSED in failure.why):
        return failure
    session.records = False
    bare = replace(batch, pods=tuple(replace(order, terms=None) for order in batch.pods))
    return (yield from _intend_and_start(session, bare, waiting, {}))


def _intend_and_start(
    session: ApplySession,
    batch: PodBatch,
    waiting: Collection[PodStart],
    carried: Mapping[Key, Intent],
) -> Steps[Failure | None]:
    failure = None if carried else (yield from prepare(session, batch, waiting))
    return failure or (yield from _start_pods(session, batch, carried))


def _carried_intents(
    session: ApplySession, batch: PodBatch, waiting: Collection[PodStart]
) -> dict[Key, Intent]:
    """Intents to write in the same patches that start the pods; empty if they have to be written before.

    That is for pods that one patch starts: gated, bound by another scheduler, with a plain back end.
    The first RECORDS to start carry the record of the others.
    """
    pods = [session.pod(order) for order in waiting]
    if session.limits.backend not in PLAIN_BACKENDS or not session.records:
        return {}
    if not all(
        pod is not None
        and pod.intent is None
        and session.classifier.gated(pod)
        and not session.classifier.binds(pod)
        for pod in pods
    ):
        return {}
    carried = {order.key: batch.intent(order) for order in waiting}
    members = {
        order.key: Member(order.name, order.uid, order.node, order.gpus or None, order.rank)
        for order in waiting
    }
    if len(record_of(members.values())) > MAX_RECORD_CHARS:
        return {}
    for order in scarcest_first(session.view, waiting)[:RECORDS]:
        others = tuple(member for key, member in members.items() if key != order.key)
        carried[order.key] = replace(carried[order.key], members=others)
    return carried


def _start_pods(
    session: ApplySession, batch: PodBatch, carried: Mapping[Key, Intent]
) -> Steps[Failure | None]:
    """Start the pods that wait, those on the scarcest node first. ``carried``: intents still to write."""
    waiting = [order for order in batch.pods if session.state(order) in READY]
    begun = bool(running_pods(session, batch))
    for order in scarcest_first(session.view, waiting):
        yield from session.check_lock_sometimes(batch.label, begun=begun)
        result = yield from _start_pod(session, batch, order, carried.get(order.key))
        if isinstance(result, Failure):
            return failure_of(order, result)
        begun = True
    for order in batch.pods:
        if session.state(order) not in STARTED:
            return lost(session, order)
    return None


def scarcest_first(view: ClusterView, orders: Iterable[PodStart]) -> list[PodStart]:
    """Pods on the node with the fewest GPUs left after them first, since a rival could fill it."""
    pods = list(orders)
    requested: dict[str, int] = {}
    for order in pods:
        requested[order.node] = requested.get(order.node, 0) + order.gpu_count
    used = usage(view, requested, without={order.uid for order in pods})
    left = {
        name: (view.nodes[name].gpus if name in view.nodes else 0) - used[name].gpus - gpus
        for name, gpus in requested.items()
    }
    return sorted(pods, key=lambda order: (left[order.node], order.node, order.key))


def _start_pod(
    session: ApplySession, batch: PodBatch, order: PodStart, carried: Intent | None
) -> Steps[LivePod | Failure]:
    """Bind the pod if gangplan is its scheduler, else remove its gate and pin it."""
    classifier, pod = session.classifier, session.pod(order)
    if pod is not None and classifier.binds(pod):
        return (
            yield from session.reconcile(
                order,
                lambda pod: Bind(order, pod.version),
                done=lambda pod: pod.node == order.node,
                obstacle=lambda pod: unintended(session, batch, order, pod),
                assumed=lambda pod: replace(pod, node=order.node, held_at=None),
            )
        )

    def done(pod: LivePod) -> bool:
        ours = carried is None or (carried.matches(pod.intent) and pod.intent_is_ours)
        return ours and not classifier.gated(pod) and pod.node in {None, order.node}

    def assumed(pod: LivePod) -> LivePod:
        intended = pod if carried is None else replace(pod, intent=carried, intent_is_ours=True)
        return without_gate(session, intended)

    return (
        yield from session.reconcile(
            order,
            lambda pod: Ungate(order, pod, intent=carried, record=session.records),
            done=done,
            obstacle=lambda pod: unintended(session, batch, order, pod, carried),
            assumed=assumed,
        )
    )
