"""What can be said of a gang by what is seen: started, pending, half-way, or in the way of others.

Promises: reads the desk and writes nothing; a gang that holds GPUs in vain is told with its pods.
Called by the other modules of this package.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from models.apply.live_state import NodeSeen, PodSeen, lacks, overfull
from models.apply.orders import PodOrder
from models.apply.outcomes import GangVerdict, Outcome
from models.apply.pod_state import LIVE, STARTED, PodState
from models.apply.session import Desk, Failed, Squad
from models.apply.staleness import node_moved


def verdict_on(desk: Desk, squad: Squad, outcome: Outcome, why: str = "") -> GangVerdict:
    return GangVerdict(
        gang=squad.gang,
        outcome=outcome,
        plan=squad.plan,
        why=why,
        pods=len(live(desk, squad)),
        atomic=atomic(desk, squad),
    )


def live(desk: Desk, squad: Squad) -> list[PodOrder]:
    """Pods of the squad that are started and neither finished nor going."""
    return [order for order in squad.pods if desk.state(order) in (*LIVE, PodState.astray)]


def told(desk: Desk, squad: Squad) -> GangVerdict:
    """On a squad whose pods are all started, as far as is known now."""
    if all(desk.state(order) is not PodState.ungated for order in squad.pods):
        return verdict_on(desk, squad, Outcome.started)
    says = [seen.unschedulable for order in squad.pods if (seen := desk.pod(order)) is not None]
    return verdict_on(desk, squad, Outcome.pending, next((one for one in says if one), ""))


def judged(desk: Desk, squad: Squad, full: Collection[str] | None = None) -> GangVerdict:
    """On a squad whose pods were all started, after everything was read again.

    ``full``: nodes that are ``overfull``, where the caller looked already.
    """
    missing = [order for order in squad.pods if desk.state(order) not in STARTED]
    if missing and not live(desk, squad):
        return verdict_on(desk, squad, Outcome.skipped, "its pods are gone again")
    if missing:
        why = f"pod {missing[0].name} is gone again, or bound to another node"
        return stuck(desk, squad, Failed(why))
    wrong = wasted(desk, squad, full)
    # A pin that cannot hold is cured by deleting its pod alone, whether or not others are bound.
    return stuck(desk, squad, Failed(wrong)) if wrong else told(desk, squad)


def wasted(desk: Desk, squad: Squad, full: Collection[str] | None = None) -> str:
    """Why pods that are started will not run where they are; empty if nothing says so.

    What is being deleted makes room soon, and counts as gone.
    """
    for order in squad.pods:
        if desk.state(order) is PodState.bound and order.node not in desk.view.nodes:
            return f"node {order.node} is gone"
    nodes = {order.node for order in squad.pods if order.gpu_count}
    shared = sorted(nodes.intersection(overfull(desk.view, nodes) if full is None else full))
    if shared:
        return f"node {shared[0]} has been given to others, too"
    unbound = [order for order in squad.pods if desk.state(order) is PodState.ungated]
    if not unbound:
        return ""
    going = {pod.uid for pod in desk.view.pods.values() if pod.terminating}
    return obstacle(desk, unbound, without=going)


def obstacle(desk: Desk, orders: list[PodOrder], *, without: Iterable[str] = ()) -> str:
    """Why pods cannot run on their nodes, by what is seen now; empty if they can."""
    for node in sorted({order.node for order in orders}):
        pods = [desk.pod(order) for order in orders if order.node == node]
        for what in node_moved(None, desk.view.nodes.get(node), pods):
            return f"node {node} {what}"
        for what in _unlabelled(desk.view.nodes[node], pods):
            return f"node {node} {what}"
    for name, what in lacks(desk.view, orders, without=frozenset(without)):
        return f"node {name} {what}"
    return ""


def _unlabelled(node: NodeSeen, pods: Iterable[PodSeen | None]) -> Iterable[str]:
    """Labels that pods select nodes by, a pin of ours among them, and that the node does not have."""
    labels = dict(node.labels)
    for pod in pods:
        for label, value in () if pod is None else pod.selector:
            if labels.get(label) != value:
                yield f"has not the label {label}={value} that its pods select"


def stuck(desk: Desk, squad: Squad, failed: Failed) -> GangVerdict:
    """On a squad that stopped half-way. What may pass by itself is only halted."""
    if failed.passing:
        return verdict_on(desk, squad, Outcome.halted, failed.why)
    verdict = verdict_on(desk, squad, Outcome.partial, failed.why)
    return replace(verdict, undo=undo_of(live(desk, squad)))


def undo_of(orders: Iterable[PodOrder]) -> tuple[tuple[str, str, str], ...]:
    return tuple((order.namespace, order.name, order.uid) for order in orders)


def atomic(desk: Desk, squad: Squad) -> bool:
    """Whether one native PodGroup, with as many pods as minimum, makes kube-scheduler place all or none."""
    seen = [desk.pod(order) for order in squad.pods]
    groups = {None if pod is None else pod.group for pod in seen}
    if len(groups) != 1 or any(pod is None or desk.ways.binds(pod) for pod in seen):
        return False
    least = desk.view.groups.get((squad.gang[0], groups.pop() or ""), 0)
    return least >= squad.size
