"""Whether the facts a plan relied on still hold: its pods, its nodes and the room on them.

Complete and in order. Progress of the same plan, and changes that cannot matter, are not reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from models.apply.live_state import (
    STARTED,
    ClusterView,
    LiveNode,
    LivePod,
    PodClassifier,
    PodState,
    shortages,
)
from models.apply.plan_actions import GangActions, Key, NodeAssumptions, PlanActions, PodStart
from models.documents.cluster import Taint
from models.instance.eligibility import tolerated


@dataclass(frozen=True, slots=True)
class Change:
    """``subject``: such as ``pod ns/name``. ``what``: how it differs. ``gang``: whose order it affects."""

    subject: str
    what: str
    gang: Key

    def __str__(self) -> str:
        return f"{self.subject} {self.what}"


def changes(orders: PlanActions, view: ClusterView) -> list[Change]:
    """Every fact that no longer holds, by gang, then pod, then node; empty if the plan still fits."""
    freed = stopped_uids(orders)
    view = view.indexed()
    found = [
        one for gang in orders.gangs for one in gang_changes(orders, gang, view, without=freed)
    ]
    found.extend(_crowded_nodes(orders, view, freed, {one.subject for one in found}))
    return found


def has_started(orders: PlanActions, view: ClusterView) -> bool:
    """Whether a start by this plan is recorded, or a request answered, so that applying it resumes."""
    answered = any(one.plan == orders.plan for one in view.requests.values())
    return answered or any(pod.carries(orders.plan) for pod in view.pods.values())


def stopped_uids(orders: PlanActions) -> frozenset[str]:
    """Uids of the pods that the plan stops: their room counts as free."""
    return frozenset(stop.uid for gang in orders.gangs for stop in gang.stops)


def gang_changes(
    orders: PlanActions,
    gang: GangActions,
    view: ClusterView,
    *,
    without: Collection[str] = (),
    beside: Iterable[PodStart] = (),
) -> list[Change]:
    """Changes of a gang's pods and nodes. ``without``: uids of pods whose room counts as free.

    ``beside``: pods of other gangs that are being started, whose room is taken.
    """
    classifier = PodClassifier(orders.gate)
    found: list[Change] = []
    to_start = []
    leaving = {stop.key for stop in gang.stops}
    for order in gang.starts:
        pod = view.pods.get(order.key)
        if not order.uid or order.key in leaving:
            # Its controller has yet to create the pod: only the node can be checked.
            if pod is None or not pod.carries(orders.plan):
                to_start.append(order)
            continue
        what = _pod_change(orders, order, pod, classifier)
        if what is not None:
            found.append(Change(f"pod {order}", what, gang.key))
        elif classifier.state(pod, order.uid, order.node) is PodState.waiting:
            to_start.append(order)
    assumed = {node.name: node for node in orders.nodes}
    sound = []
    for name in sorted({order.node for order in to_start}):
        pods = [view.pods.get(order.key) for order in to_start if order.node == name]
        whats = list(node_changes(assumed.get(name), view.nodes.get(name), pods))
        found.extend(Change(f"node {name}", what, gang.key) for what in whats)
        if not whats:
            sound.append(name)
    starting = [order for order in (*to_start, *beside) if order.node in sound]
    found.extend(
        Change(f"node {name}", what, gang.key)
        for name, what in shortages(view, starting, without=without)
    )
    return found


def _crowded_nodes(
    orders: PlanActions, view: ClusterView, freed: Collection[str], reported: Collection[str]
) -> Iterator[Change]:
    """Nodes with room for each gang of the plan alone, but not for all of them together."""
    classifier = PodClassifier(orders.gate)
    owners: dict[str, Key] = {}
    starting = []
    for gang in orders.gangs:
        for order in gang.starts:
            if (
                classifier.state(view.pods.get(order.key), order.uid, order.node)
                is PodState.waiting
            ):
                starting.append(order)
                owners.setdefault(order.node, gang.key)
    for name, what in shortages(view, starting, without=freed):
        if f"node {name}" not in reported:
            yield Change(f"node {name}", what, owners[name])


def _pod_change(  # noqa: PLR0911  # one return a reason
    orders: PlanActions, order: PodStart, pod: LivePod | None, classifier: PodClassifier
) -> str | None:
    """Why the pod cannot start as planned; None if it can, or if this plan has started it."""
    if pod is None:
        return "is gone"
    if pod.uid != order.uid:
        return "was replaced by another pod"
    if pod.carries(orders.plan) and classifier.state(pod, order.uid, order.node) in STARTED:
        return None
    if (why := classifier.over(pod)) is not None:
        return why
    if pod.start is not None and pod.start.plan != orders.plan:
        return f"is started by plan {pod.start.plan}"
    if pod.gpus != order.gpu_count:
        return f"requests {pod.gpus} GPUs, not {order.gpu_count}"
    return None


def node_changes(
    assumed: NodeAssumptions | None, node: LiveNode | None, pods: Iterable[LivePod | None]
) -> Iterator[str]:
    """Facts about a node that changed and matter to the pods that start there.

    ``assumed`` None: the earlier state is unknown; only plain obstacles count.
    """
    if node is None:
        yield "is gone"
        return
    if not node.ready:
        yield "is not Ready"
    if node.unschedulable:
        yield "is cordoned"
    known = list(pods)
    yield from _new_taints(assumed, node, known)
    if assumed is None:
        return
    labels = dict(node.labels)
    for label, value in assumed.labels:
        found = labels.get(label)
        if found is None and value is not None:
            yield f"lost the label {label}={value}"
        elif found != value:
            new = value is None
            yield f"has the {'new ' * new}label {label}={found}{'' if new else f', not {value}'}"
    if node.gpus < assumed.gpus and any(pod is None or pod.gpus for pod in known):
        yield f"offers {node.gpus} GPUs, not {assumed.gpus}"


_NODE_STATE_TAINTS = (
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
)
"""Taints that repeat what the node's conditions say."""


def _new_taints(
    assumed: NodeAssumptions | None, node: LiveNode, pods: Iterable[LivePod | None]
) -> Iterator[str]:
    known = () if assumed is None else assumed.taints
    tolerations = [None if pod is None else pod.tolerations for pod in pods]
    for taint in node.taints:
        own = Taint(*taint)  # type: ignore[arg-type]  # of any effect
        if taint in known or own.key in _NODE_STATE_TAINTS:
            continue
        # For a pod whose tolerations are unknown, a taint matters only if it is known to be new.
        if any(
            assumed is not None if some is None else not tolerated(some, [own])
            for some in tolerations
        ):
            yield f"is tainted {own.key}{'=' if own.value else ''}{own.value}:{own.effect}"
