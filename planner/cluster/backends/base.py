"""How the GPUs that a plan chose reach the node: one back end each way, chosen by the Policy.

Annotations depend on trees alone; only ``dra`` and ``kai`` send requests.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.apply.live_state import ClusterView, LivePod
from models.apply.plan_actions import PlanActions, PodStart
from models.apply.requests import Done, Event
from models.documents.policy import GPU_RESOURCES
from planner.cluster.transport import Transport, Tree
from planner.read.kube.dialects import hami
from planner.read.kube.dialects.base import CannotEncode, annotation
from planner.read.kube.lookup import amount, mapping, text, texts
from planner.read.kube.pods.placement import DEFAULT_SCHEDULER


class Backend:
    """One way to make a node use the planned GPUs; one instance per run.

    ``name``: in the Policy. ``note``: one sentence for users: what it enforces and what not.
    """

    name = ""
    note = ""

    def unserved(self, wire: Transport) -> str | None:
        """Why nothing can be applied with it to this cluster; None if it can."""
        del wire
        return None

    def check(self, orders: PlanActions, view: ClusterView) -> list[str]:
        """Gangs that could not start after their evictions, sorted."""
        del orders, view
        return []

    def annotations(self, order: PodStart, node_tree: Tree, pod_tree: Tree) -> dict[str, str]:
        """Annotations to write with the patch that starts it; the trees as the server sent them.

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


class Hami(Backend):
    """The annotation from which HAMi's scheduler takes the cards, by their uuids."""

    name = "hami"
    note = (
        f"{hami.USE} limits HAMi's scheduler to the cards that the plan chose; "
        "pods of other schedulers may still use them"
    )

    def check(self, orders: PlanActions, view: ClusterView) -> list[str]:
        """Gangs that take a part of a node and whose scheduler cannot be given chosen GPUs.

        Nothing is evicted for a gang that cannot start. Without evictions such a gang is skipped and must
        not stop the others.
        """
        found = set[str]()
        for gang in orders.gangs if any(gang.stops for gang in orders.gangs) else ():
            for order in gang.starts:
                seen, node = view.pods.get(order.key), view.nodes.get(order.node)
                whole = node is not None and order.gpu_count >= node.gpus
                if seen is None or not order.gpus or whole:
                    continue
                if (why := _objection(seen.scheduler)) is not None:
                    found.add(f"gang {gang}: pod {order.name}: {why}")
        return sorted(found)

    def annotations(self, order: PodStart, node_tree: Tree, pod_tree: Tree) -> dict[str, str]:
        """The annotation; nothing if the plan leaves the choice to the node."""
        gpus = order.gpus
        cards = tuple(gpu for gpu in order.shares if isinstance(gpu, int))
        shares = not gpus and len(cards) == len(order.shares) > 0
        if shares:
            gpus = cards
        if not gpus:
            return {}
        objection = _objection(text(pod_tree, "spec", "schedulerName") or DEFAULT_SCHEDULER)
        if objection is not None:
            if shares or fills_node(order, node_tree):
                return {}
            raise CannotEncode(objection)
        existing = texts(pod_tree, "metadata", "annotations")
        if annotation(existing, hami.USE) is not None:
            raise CannotEncode(f"its own annotation {hami.USE} chooses cards already")
        return {hami.USE: _uuids(gpus, order.node, node_tree, pod_tree)}


def _objection(scheduler: str) -> str | None:
    """HAMi's scheduler is recognised by its name, ``hami-scheduler`` by default."""
    if "hami" in scheduler.lower():
        return None
    return f"its scheduler is {scheduler}, and only HAMi's scheduler reads a list of cards"


def _uuids(gpus: Sequence[int], node: str, node_tree: Tree, pod_tree: Tree) -> str:
    cards: dict[int, list[str]] = {}
    for uuid, index in hami.registered(texts(node_tree, "metadata", "annotations")).items():
        cards.setdefault(index, []).append(uuid)
    chosen = []
    for index in gpus:
        uuids = cards.get(index, [])
        if len(uuids) != 1:
            number_ = "no card" if not uuids else "several cards"
            raise CannotEncode(f"node {node} registered {number_} with HAMi as GPU {index}")
        chosen.append(uuids[0])
    avoided = texts(pod_tree, "metadata", "annotations").get(hami.AVOID) or ""
    if not {part.strip() for part in avoided.split(",")}.isdisjoint(chosen):
        raise CannotEncode(f"its annotation {hami.AVOID} forbids a card that the plan gives it")
    return ",".join(chosen)


def fills_node(order: PodStart, node_tree: Tree) -> bool:
    """Whether the pod takes every GPU of its node, so that there is no choice."""
    capacity = mapping(node_tree, "status", "capacity")
    counts = [amount(capacity.get(name)) or 0 for name in GPU_RESOURCES if name in capacity]
    return order.gpu_count > 0 and bool(counts) and order.gpu_count >= max(counts)
