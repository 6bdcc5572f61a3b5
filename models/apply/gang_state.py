"""What can be said of a gang by what is seen: started, pending, half-way, or in the way of others.

Promises: reads the desk and writes nothing; a gang that holds GPUs in vain is told with its pods.
Called by the other modules of this package.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from models.apply.live_state import LiveNode, LivePod, lacks, overfull
from models.apply.orders import PodOrder
from models.apply.outcomes import GangVerdict, Outcome
from models.apply.pod_state import LIVE, STARTED, PodState
from models.apply.session import ApplySession, Failure, PodBatch
from models.apply.staleness import node_moved


def verdict_on(
    session: ApplySession, batch: PodBatch, outcome: Outcome, why: str = ""
) -> GangVerdict:
    return GangVerdict(
        gang=batch.gang,
        outcome=outcome,
        plan=batch.plan,
        why=why,
        pods=len(live(session, batch)),
        atomic=atomic(session, batch),
    )


def live(session: ApplySession, batch: PodBatch) -> list[PodOrder]:
    """Pods of the squad that are started and neither finished nor going."""
    return [order for order in batch.pods if session.state(order) in (*LIVE, PodState.astray)]


def told(session: ApplySession, batch: PodBatch) -> GangVerdict:
    """On a squad whose pods are all started, as far as is known now."""
    if all(session.state(order) is not PodState.ungated for order in batch.pods):
        return verdict_on(session, batch, Outcome.started)
    says = [seen.unschedulable for order in batch.pods if (seen := session.pod(order)) is not None]
    return verdict_on(session, batch, Outcome.pending, next((one for one in says if one), ""))


def judged(
    session: ApplySession, batch: PodBatch, full: Collection[str] | None = None
) -> GangVerdict:
    """On a squad whose pods were all started, after everything was read again.

    ``full``: nodes that are ``overfull``, where the caller looked already.
    """
    missing = [order for order in batch.pods if session.state(order) not in STARTED]
    if missing and not live(session, batch):
        return verdict_on(session, batch, Outcome.skipped, "its pods are gone again")
    if missing:
        why = f"pod {missing[0].name} is gone again, or bound to another node"
        return stuck(session, batch, Failure(why))
    wrong = wasted(session, batch, full)
    # A pin that cannot hold is cured by deleting its pod alone, whether or not others are bound.
    return stuck(session, batch, Failure(wrong)) if wrong else told(session, batch)


def wasted(session: ApplySession, batch: PodBatch, full: Collection[str] | None = None) -> str:
    """Why pods that are started will not run where they are; empty if nothing says so.

    What is being deleted makes room soon, and counts as gone.
    """
    for order in batch.pods:
        if session.state(order) is PodState.bound and order.node not in session.view.nodes:
            return f"node {order.node} is gone"
    nodes = {order.node for order in batch.pods if order.gpu_count}
    shared = sorted(nodes.intersection(overfull(session.view, nodes) if full is None else full))
    if shared:
        return f"node {shared[0]} has been given to others, too"
    unbound = [order for order in batch.pods if session.state(order) is PodState.ungated]
    if not unbound:
        return ""
    going = {pod.uid for pod in session.view.pods.values() if pod.terminating}
    return obstacle(session, unbound, without=going)


def obstacle(session: ApplySession, orders: list[PodOrder], *, without: Iterable[str] = ()) -> str:
    """Why pods cannot run on their nodes, by what is seen now; empty if they can."""
    for node in sorted({order.node for order in orders}):
        pods = [session.pod(order) for order in orders if order.node == node]
        for what in node_moved(None, session.view.nodes.get(node), pods):
            return f"node {node} {what}"
        for what in _unlabelled(session.view.nodes[node], pods):
            return f"node {node} {what}"
    for name, what in lacks(session.view, orders, without=frozenset(without)):
        return f"node {name} {what}"
    return ""


def _unlabelled(node: LiveNode, pods: Iterable[LivePod | None]) -> Iterable[str]:
    """Labels that pods select nodes by, a pin of ours among them, and that the node does not have."""
    labels = dict(node.labels)
    for pod in pods:
        for label, value in () if pod is None else pod.selector:
            if labels.get(label) != value:
                yield f"has not the label {label}={value} that its pods select"


def stuck(session: ApplySession, batch: PodBatch, failed: Failure) -> GangVerdict:
    """On a squad that stopped half-way. What may pass by itself is only halted."""
    if failed.transient:
        return verdict_on(session, batch, Outcome.halted, failed.why)
    verdict = verdict_on(session, batch, Outcome.partial, failed.why)
    return replace(verdict, undo=undo_of(live(session, batch)))


def undo_of(orders: Iterable[PodOrder]) -> tuple[tuple[str, str, str], ...]:
    return tuple((order.namespace, order.name, order.uid) for order in orders)


def atomic(session: ApplySession, batch: PodBatch) -> bool:
    """Whether one native PodGroup, with as many pods as minimum, makes kube-scheduler place all or none."""
    seen = [session.pod(order) for order in batch.pods]
    groups = {None if pod is None else pod.group for pod in seen}
    if len(groups) != 1 or any(pod is None or session.classifier.binds(pod) for pod in seen):
        return False
    least = session.view.groups.get((batch.gang[0], groups.pop() or ""), 0)
    return least >= batch.size
