"""The back end ``hami``: HAMi's scheduler takes the cards of a pod from an annotation, by their uuids."""

from __future__ import annotations

from collections.abc import Sequence

from models.apply.live_state import ClusterView
from models.apply.plan_actions import PlanActions, PodStart
from planner.cluster.backends.base import Backend, fills_node
from planner.cluster.transport import Tree
from planner.read.kube.dialect_registry import gpu_systems
from planner.read.kube.dialects.base import CannotEncode, annotation
from planner.read.kube.lookup import text, texts
from planner.read.kube.pods.placement import DEFAULT_SCHEDULER

USE, AVOID = "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"


class Hami(Backend):
    """The annotation from which HAMi's scheduler takes the cards, by their uuids."""

    name = "hami"
    note = (
        f"{USE} limits HAMi's scheduler to the cards that the plan chose; "
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
        if annotation(existing, USE) is not None:
            raise CannotEncode(f"its own annotation {USE} chooses cards already")
        return {USE: _uuids(gpus, order.node, node_tree, pod_tree)}


def _objection(scheduler: str) -> str | None:
    """HAMi's scheduler is recognised by its name, ``hami-scheduler`` by default."""
    if "hami" in scheduler.lower():
        return None
    return f"its scheduler is {scheduler}, and only HAMi's scheduler reads a list of cards"


def _uuids(gpus: Sequence[int], node: str, node_tree: Tree, pod_tree: Tree) -> str:
    annotations, cards = texts(node_tree, "metadata", "annotations"), dict[int, list[str]]()
    readers = (one.cards for one in gpu_systems() if one.cards is not None)
    known: dict[str, int] = {}
    for reader in readers:
        known |= reader.indices(annotations)
    for uuid, index in known.items():
        cards.setdefault(index, []).append(uuid)
    chosen = []
    for index in gpus:
        uuids = cards.get(index, [])
        if len(uuids) != 1:
            number_ = "no card" if not uuids else "several cards"
            raise CannotEncode(f"node {node} registered {number_} with HAMi as GPU {index}")
        chosen.append(uuids[0])
    avoided = texts(pod_tree, "metadata", "annotations").get(AVOID) or ""
    if not {part.strip() for part in avoided.split(",")}.isdisjoint(chosen):
        raise CannotEncode(f"its annotation {AVOID} forbids a card that the plan gives it")
    return ",".join(chosen)


BACKEND = Hami
