"""The interface of GPU back ends, and what most of them share.

Annotations depend on trees alone; only a back end that ``allocates`` sends requests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from models.apply.live_state import ClusterView, LivePod
from models.apply.plan_actions import PlanActions, PodStart
from models.apply.requests import Done, Event
from models.documents.policy import GPU_RESOURCES
from models.units import InvalidValueError, quantity
from planner.cluster.transport import Transport, Tree
from planner.read.kube.lookup import mapping, text
from planner.read.kube.pods.placement import DEFAULT_SCHEDULER


class Backend(ABC):
    """One way to make a node use the planned GPUs; one instance per run.

    ``name``: in the Policy. ``accept``: regular expressions (without commas) of further URL paths that it
    requests. ``allocates``: whether ``allocate`` and ``release`` do anything.
    """

    name = ""
    accept: tuple[str, ...] = ()
    allocates = False

    @abstractmethod
    def note(self) -> str:
        """One sentence for users: what it enforces and what not."""

    def check(self, orders: PlanActions, view: ClusterView) -> list[str]:
        """Gangs that could not start after their evictions, sorted."""
        del orders, view
        return []

    def annotations(self, order: PodStart, node_tree: Tree, pod_tree: Tree) -> dict[str, str]:
        """Annotations to write with the intent; the trees as the server sent them.

        Raises CannotEncode.
        """
        del order, node_tree, pod_tree
        return {}

    def allocate(self, wire: Transport, order: PodStart, seen: LivePod, pod_tree: Tree) -> Event:
        """Give the pod its devices; the same call completes what a crash left.

        Done; Gone if another pod has the name; Rejected if impossible; Conflict or NoAnswer if a later
        call may succeed.
        """
        del wire, order, seen, pod_tree
        return Done()

    def release(self, wire: Transport, pod_tree: Tree) -> Event:
        """Take back the devices of a pod that never started; idempotent."""
        del wire, pod_tree
        return Done()


def scheduler_of(pod_tree: Tree) -> str:
    """The name of the pod's scheduler."""
    return text(pod_tree, "spec", "schedulerName") or DEFAULT_SCHEDULER


def fills_node(order: PodStart, node_tree: Tree) -> bool:
    """Whether the pod takes every GPU of its node, so that there is no choice."""
    capacity = mapping(node_tree, "status", "capacity")
    counts = [_count(capacity.get(name)) for name in GPU_RESOURCES if name in capacity]
    return order.gpu_count > 0 and bool(counts) and order.gpu_count >= max(counts)


def _count(written: object) -> int:
    if not isinstance(written, str | int):
        return 0
    try:
        return int(quantity(str(written)))
    except InvalidValueError:
        return 0


def objections(
    orders: PlanActions, view: ClusterView, objection: Callable[[PodStart, LivePod], str | None]
) -> list[str]:
    """A message per gang with a pod whose GPUs cannot be encoded, if the plan evicts pods.

    Nothing is evicted for a gang that cannot start. Without evictions such a gang is skipped and must not
    stop the others. ``objection``: why a pod's GPUs cannot be encoded.
    """
    if not any(gang.stops for gang in orders.gangs):
        return []
    found: dict[str, None] = {}
    for gang in orders.gangs:
        for order in gang.starts:
            seen, node = view.pods.get(order.key), view.nodes.get(order.node)
            whole = node is not None and order.gpu_count >= node.gpus
            if seen is None or not order.gpus or whole:
                continue
            if (why := objection(order, seen)) is not None:
                found[f"gang {gang.namespace}/{gang.name}: {why}"] = None
    return sorted(found)
