"""Whether what the plan relied on still holds: its pods, its nodes, the room on them.

Promises: pure, complete and in order; what a plan of ours has done already is progress, and harmless
change is not reported. Called by ``pipelines.apply_steps`` before the first write, and by the machine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from models.apply.live_state import ClusterView, LiveNode, LivePod, PodIndex, lacks
from models.apply.orders import GangOrder, Key, NodeAssumptions, Orders, PodOrder
from models.apply.pod_state import READY, PodClassifier, PodState


@dataclass(frozen=True, slots=True)
class Change:
    """``subject``: what it is about, such as ``pod ns/name``. ``what``: what became of it.

    ``gang``: whose order it touches.
    """

    subject: str
    what: str
    gang: Key

    def __str__(self) -> str:
        return f"{self.subject} {self.what}"


def moved(orders: Orders, view: ClusterView) -> list[Change]:
    """Everything that no longer holds, by gang, then pod, then node; empty if the plan still fits."""
    freed = stopping(orders)
    view = replace(view, pods=PodIndex(view.pods))
    found = [one for gang in orders.gangs for one in gang_moved(orders, gang, view, without=freed)]
    found.extend(_crowded(orders, view, freed, {one.subject for one in found}))
    return found


def begun(orders: Orders, view: ClusterView) -> bool:
    """Whether a pod carries this plan: then it is resumed, and only gangs concerned are left out."""
    return any(
        pod.intent is not None and pod.intent.plan == orders.plan and pod.intent_is_ours
        for pod in view.pods.values()
    )


def stopping(orders: Orders) -> frozenset[str]:
    """Uids of the pods the plan stops: the room they hold is not missing."""
    return frozenset(stop.uid for gang in orders.gangs for stop in gang.stops)


def gang_moved(
    orders: Orders, gang: GangOrder, view: ClusterView, *, without: Collection[str] = ()
) -> list[Change]:
    """What of a gang's pods and nodes moved. ``without``: uids of pods whose room counts as free."""
    classifier = PodClassifier(orders.gate, orders.scheduler)
    found: list[Change] = []
    to_start = []
    leaving = {stop.key for stop in gang.stops}
    for order in gang.starts:
        seen = view.pods.get(order.key)
        if not order.uid or order.key in leaving:
            # A pod yet to be made by its controller: only its node can be judged.
            if not _wanted(orders, seen):
                to_start.append(order)
            continue
        what = pod_moved(orders, order, seen, classifier)
        if what is not None:
            found.append(Change(f"pod {order.namespace}/{order.name}", what, gang.key))
        elif classifier.state(seen, order.uid, order.node) in READY:
            to_start.append(order)
    relied = {node.name: node for node in orders.nodes}
    sound = []
    for name in sorted({order.node for order in to_start}):
        pods = [view.pods.get(order.key) for order in to_start if order.node == name]
        whats = list(node_moved(relied.get(name), view.nodes.get(name), pods))
        found.extend(Change(f"node {name}", what, gang.key) for what in whats)
        if not whats:
            sound.append(name)
    starting = [order for order in to_start if order.node in sound]
    found.extend(
        Change(f"node {name}", what, gang.key)
        for name, what in lacks(view, starting, without=without)
    )
    return found


def _crowded(
    orders: Orders, view: ClusterView, freed: Collection[str], told: Collection[str]
) -> Iterator[Change]:
    """Nodes with room for each gang of the plan alone, but not for all of them."""
    classifier = PodClassifier(orders.gate, orders.scheduler)
    owners: dict[str, Key] = {}
    starting = []
    for gang in orders.gangs:
        for order in gang.starts:
            if classifier.state(view.pods.get(order.key), order.uid, order.node) in READY:
                starting.append(order)
                owners.setdefault(order.node, gang.key)
    for name, what in lacks(view, starting, without=freed):
        if f"node {name}" not in told:
            yield Change(f"node {name}", what, owners[name])


def pod_moved(  # noqa: PLR0911  # one return a reason
    orders: Orders, order: PodOrder, seen: LivePod | None, classifier: PodClassifier
) -> str | None:
    """Why the pod cannot be started as planned; None if it can, or was by this plan."""
    if seen is None:
        return "is gone"
    if seen.uid != order.uid:
        return "is another pod now"
    ours = _wanted(orders, seen)
    state = classifier.state(seen, order.uid, order.node)
    if ours and state in (PodState.ungated, PodState.bound, PodState.ended):
        return None
    if seen.terminating:
        return "is being deleted"
    if seen.finished:
        return "has finished"
    if seen.node is not None:
        return f"is bound to node {seen.node}"
    if state is PodState.ungated:
        return "has lost its gate"
    if seen.intent is not None and seen.intent_is_ours and not ours:
        return f"is wanted by plan {seen.intent.plan}"
    if seen.gpus != order.gpu_count:
        return f"asks for {seen.gpus} GPUs, not {order.gpu_count}"
    return None


def _wanted(orders: Orders, seen: LivePod | None) -> bool:
    """Whether the pod carries the intent of this very plan."""
    intent = None if seen is None or not seen.intent_is_ours else seen.intent
    return intent is not None and intent.plan == orders.plan


def node_moved(
    relied: NodeAssumptions | None, node: LiveNode | None, pods: Iterable[LivePod | None]
) -> Iterator[str]:
    """What of a node does not hold any more for the pods that are to start there.

    ``relied`` None: nobody knows what it was like; then only what is plainly in the way counts.
    """
    if node is None:
        yield "is gone"
        return
    if not node.ready:
        yield "is not Ready"
    if node.unschedulable:
        yield "is cordoned"
    known = list(pods)
    yield from _tainted(relied, node, known)
    if relied is None:
        return
    yield from _relabelled(relied, node)
    if node.gpus < relied.gpus and any(pod is None or pod.gpus for pod in known):
        yield f"offers {node.gpus} GPUs, not {relied.gpus}"


def _tainted(
    relied: NodeAssumptions | None, node: LiveNode, pods: Iterable[LivePod | None]
) -> Iterator[str]:
    """Taints that were not there, and that some of the pods do not tolerate."""
    known = () if relied is None else relied.taints
    lists = [None if pod is None else pod.tolerations for pod in pods]
    for taint in node.taints:
        if taint in known or _own(taint):
            continue
        if _repels(taint, lists, known=relied is not None):
            key, value, effect = taint
            yield f"is tainted {key}{'=' if value else ''}{value}:{effect}"


def _relabelled(relied: NodeAssumptions, node: LiveNode) -> Iterator[str]:
    """Labels that are not what they were."""
    labels = dict(node.labels)
    for label, value in (*relied.domains, *relied.labels):
        if labels.get(label) != value:
            now = f"is {labels[label]} now" if label in labels else "is gone"
            yield f"had the label {label}={value}, which {now}"
    for label in relied.absent:
        if label in labels:
            yield f"has got the label {label}={labels[label]}"


def _own(taint: tuple[str, str, str]) -> bool:
    """The taints Kubernetes sets for what is told in words of its own already."""
    return taint[0] in (
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    )


def _repels(
    taint: tuple[str, str, str],
    tolerations: Iterable[tuple[tuple[str, str, str, str], ...] | None],
    *,
    known: bool,
) -> bool:
    """Whether some pod does not tolerate it; of a pod whose tolerations were not read, ``known``."""
    return any(
        known if those is None else not any(_tolerates(one, taint) for one in those)
        for those in tolerations
    )


def _tolerates(toleration: tuple[str, str, str, str], taint: tuple[str, str, str]) -> bool:
    key, operator, value, effect = toleration
    if effect and effect != taint[2]:
        return False
    if operator == "Exists":
        return key in {"", taint[0]}
    return key == taint[0] and value == taint[1]
