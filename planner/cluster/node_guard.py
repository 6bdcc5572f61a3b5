"""Whether taints keep other schedulers off the nodes that gangplan binds pods to.

A binding is not checked for free room, and other schedulers do not know about pods still to be bound.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from models.apply.live_state import ClusterView, LiveNode, LivePod
from models.apply.plan_actions import GangActions, PlanActions
from models.documents.policy import GPU_RESOURCES
from models.instance.eligibility import CONDITIONS

UNTAINTED = "no taint keeps other schedulers off it"


def open_nodes(orders: PlanActions, view: ClusterView) -> list[tuple[str, str]]:
    """(node, reason) of nodes that the plan binds pods to and other schedulers may fill; sorted."""
    # The plan may give away the room of a pod that it stops, whatever scheduler placed it.
    ours = {pod.uid for gang in orders.gangs for pod in gang.starts}
    ours |= {pod.uid for gang in orders.gangs for pod in gang.stops}
    bound = {node for gang in orders.gangs for node in _bound(gang, orders, view)}
    nodes = [view.nodes[name] for name in sorted(bound) if name in view.nodes]
    return unguarded(nodes, view.pods.values(), scheduler=orders.scheduler, ours=ours)


def works_without(orders: PlanActions, view: ClusterView, names: Collection[str]) -> bool:
    """Whether the plan changes a gang without binding pods to any of those nodes."""
    return any(
        (gang.starts or gang.stops or gang.resizes)
        and not _bound(gang, orders, view).intersection(names)
        for gang in orders.gangs
    )


def _bound(gang: GangActions, orders: PlanActions, view: ClusterView) -> set[str]:
    """Nodes that gangplan binds pods of the gang to."""
    return {
        pod.node
        for pod in gang.starts
        if _binds(view.pods.get(pod.key), orders.scheduler, pod.mode)
    }


def unguarded(
    nodes: Iterable[LiveNode],
    pods: Iterable[LivePod],
    *,
    scheduler: str,
    ours: Collection[str] = (),
    gpu_resources: Collection[str] = GPU_RESOURCES,
) -> list[tuple[str, str]]:
    """(node, reason) of the nodes that other schedulers may fill. ``ours``: uids of pods of the plan."""
    foreign = _foreign_pods(pods, scheduler, ours)
    found = []
    for node in nodes:
        if not any(_guards(key, gpu_resources) for key, _, _ in node.taints):
            found.append((node.name, UNTAINTED))
        elif node.name in foreign:
            pod = foreign[node.name]
            found.append(
                (node.name, f"{pod.namespace}/{pod.name} of {pod.scheduler} holds GPUs on it")
            )
    return found


def _binds(pod: LivePod | None, scheduler: str, mode: str | None) -> bool:
    """Whether gangplan is the pod's scheduler: on the live pod, or if it is gone in the plan."""
    return mode == "binding" if pod is None else pod.scheduler == scheduler


def _guards(key: str, gpu_resources: Collection[str]) -> bool:
    """Every GPU pod tolerates its vendor's own taint, so that taint does not count."""
    vendors = {*GPU_RESOURCES, *gpu_resources}
    return not key.startswith(CONDITIONS) and key not in vendors


def _foreign_pods(
    pods: Iterable[LivePod], scheduler: str, ours: Collection[str]
) -> Mapping[str, LivePod]:
    """By node, a live GPU pod of another scheduler."""
    found: dict[str, LivePod] = {}
    for pod in pods:
        theirs = pod.scheduler != scheduler and pod.uid not in ours and not pod.intent_is_ours
        if pod.gpus and pod.place is not None and not pod.terminating and theirs:
            found.setdefault(pod.place, pod)
    return found
