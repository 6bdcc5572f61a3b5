"""How the GPUs that a plan chose reach the node: one back end each way, chosen by the Policy.

Annotations depend on trees alone; only ``dra`` and ``kai`` send requests.
"""

from __future__ import annotations

from models.apply.live_state import ClusterView, LivePod
from models.apply.plan_actions import PlanActions, PodStart
from models.apply.requests import Done, Event
from models.documents.policy import GPU_RESOURCES
from planner.cluster.transport import Right, Transport, Tree
from planner.read.kube.lookup import amount, mapping


class Backend:
    """One way to make a node use the planned GPUs; one instance per run.

    ``name``: in the Policy. ``note``: one sentence for users: what it enforces and what not. ``install``:
    what a cluster needs for it. ``asked``: what ``unserved`` lists.
    """

    name = ""
    note = ""
    install = ""
    asked: tuple[Right, ...] = ()

    def unserved(self, wire: Transport) -> str | None:
        """Why nothing can be applied with it to this cluster; None if it can."""
        del wire
        return None

    def absent(self, wire: Transport) -> str | None:
        """Why this cluster cannot do what it enforces, for doctor; None if it can."""
        return self.unserved(wire)

    def rights(self, namespace: str | None) -> list[Right]:
        """What it needs besides to start pods in a namespace (None: in all)."""
        del namespace
        return []

    def check(self, orders: PlanActions, view: ClusterView) -> list[str]:
        """Gangs that could not start after their evictions, sorted."""
        del orders, view
        return []

    def annotations(self, order: PodStart, node_tree: Tree, pod_tree: Tree) -> dict[str, str]:
        """Annotations to write with the patch that starts it; the trees as the server sent them.

        Raises planner.read.kube.dialects.base.CannotEncode.
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


class Advisory(Backend):
    """``gangplan.dev/gpus`` names the GPUs of every pod that is started, so nothing more is written."""

    name = "annotation"
    note = (
        "the node chooses which of its GPUs a pod gets; the annotation gangplan.dev/gpus only "
        "says which ones the plan chose"
    )


class NodeChoice(Backend):
    """The node chooses. The pod still names the GPUs, as any other that is started."""

    name = "none"
    note = "the node chooses the GPUs of each pod; only whole nodes are certain"


def fills_node(order: PodStart, node_tree: Tree) -> bool:
    """Whether the pod takes every GPU of its node, so that there is no choice."""
    capacity = mapping(node_tree, "status", "capacity")
    counts = [amount(capacity.get(name)) or 0 for name in GPU_RESOURCES if name in capacity]
    return order.gpu_count > 0 and bool(counts) and order.gpu_count >= max(counts)
