"""Whether nodes are kept from other schedulers: a binding of ours checks nothing, theirs do not know.

Promises: pure; says of each node who may fill it meanwhile. Called by ``planner.pipelines.apply_steps`` and
``planner.cli.doctor``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from models.apply.live_state import ClusterView, LiveNode, LivePod
from models.apply.orders import GangOrder, Orders
from models.policy import GPU_RESOURCES

UNTAINTED = "no taint keeps other schedulers off it"

_PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Taints that come and go with a node's health keep nobody off a healthy one."""


def open_nodes(orders: Orders, view: ClusterView) -> list[tuple[str, str]]:
    """(node, why) of nodes that this plan binds pods onto and other schedulers may fill; sorted."""
    # A pod that the plan stops was there before: whoever put it there, its room is the plan's to give.
    ours = {pod.uid for gang in orders.gangs for pod in gang.starts}
    ours |= {pod.uid for gang in orders.gangs for pod in gang.stops}
    bound = {node for gang in orders.gangs for node in _bound(gang, orders, view)}
    nodes = [view.nodes[name] for name in sorted(bound) if name in view.nodes]
    return unguarded(nodes, view.pods.values(), scheduler=orders.scheduler, ours=ours)


def works_without(orders: Orders, view: ClusterView, names: Collection[str]) -> bool:
    """Whether some gang of the plan has something to be done and none of its pods bound to those nodes."""
    return any(
        (gang.starts or gang.stops or gang.resizes)
        and not _bound(gang, orders, view).intersection(names)
        for gang in orders.gangs
    )


def _bound(gang: GangOrder, orders: Orders, view: ClusterView) -> set[str]:
    """Nodes that we bind pods of the gang to ourselves."""
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
    """(node, why) of those nodes that other schedulers may fill. ``ours``: uids of pods of the plan."""
    strangers = _strangers(pods, scheduler, ours)
    found = []
    for node in nodes:
        if not any(_guards(key, gpu_resources) for key, _, _ in node.taints):
            found.append((node.name, UNTAINTED))
        elif node.name in strangers:
            pod = strangers[node.name]
            found.append(
                (node.name, f"{pod.namespace}/{pod.name} of {pod.scheduler} holds GPUs on it")
            )
    return found


def _binds(pod: LivePod | None, scheduler: str, mode: str | None) -> bool:
    """Whether we bind the pod ourselves: its scheduler is ours, seen or, where it is gone, planned."""
    return mode == "binding" if pod is None else pod.scheduler == scheduler


def _guards(key: str, gpu_resources: Collection[str]) -> bool:
    """Every GPU pod tolerates its vendor's own taint, so that one keeps no GPU pod off."""
    vendors = {*GPU_RESOURCES, *gpu_resources}
    return not key.startswith(_PASSING) and key not in vendors


def _strangers(
    pods: Iterable[LivePod], scheduler: str, ours: Collection[str]
) -> Mapping[str, LivePod]:
    """By node, a live GPU pod that another scheduler put there."""
    found: dict[str, LivePod] = {}
    for pod in pods:
        theirs = pod.scheduler != scheduler and pod.uid not in ours and not pod.intent_is_ours
        if pod.gpus and pod.place is not None and not pod.terminating and theirs:
            found.setdefault(pod.place, pod)
    return found
