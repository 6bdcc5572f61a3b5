"""The back end ``hami``: the cards' uuids on the pod, from which HAMi's scheduler takes them.

Promises: a uuid is believed only from the node's own registration, one to an index; what the owner of a
pod wrote about cards is never overwritten. Called through ``backend_of``.
"""

from __future__ import annotations

from models.apply.intents import PLAN
from models.apply.live_state import ClusterView, LivePod
from models.apply.orders import Orders, PodOrder
from planner.cluster.backends.base import (
    CannotEncode,
    Plain,
    annotation,
    fills_node,
    hindered,
    scheduler_of,
)
from planner.cluster.transport import Tree
from planner.read.kube.dialects.hami import registered
from planner.read.kube.lookup import texts

USE = "nvidia.com/use-gpuuuid"
AVOID = "nvidia.com/nouse-gpuuuid"

_NAMED = "hami"
"""HAMi's scheduler is told by its name: ``hami-scheduler`` unless the installation says otherwise."""


class Hami(Plain):
    """``nvidia.com/use-gpuuuid``: HAMi's scheduler gives the pod only cards of this list."""

    name = "hami"
    keys: tuple[str, ...] = (USE,)

    def note(self) -> str:
        return (
            f"{USE} holds HAMi's scheduler to the cards that the plan chose; "
            "pods of other schedulers are not kept off them"
        )

    def check(self, orders: Orders, view: ClusterView) -> list[str]:
        """Gangs of other schedulers that take a part of a node."""

        def words(order: PodOrder, seen: LivePod) -> str | None:
            return None if _is_hami(seen.scheduler) else f"pod {order.name}: {_of(seen.scheduler)}"

        return hindered(orders, view, words)

    def annotations(self, order: PodOrder, node_tree: Tree, pod_tree: Tree) -> dict[str, str]:
        """The uuids in order of their indices; nothing where the plan leaves the choice to the node."""
        if not order.gpus:
            return {}
        scheduler = scheduler_of(pod_tree)
        if not _is_hami(scheduler):
            if fills_node(order, node_tree):
                return {}
            raise CannotEncode(_of(scheduler))
        if annotation(pod_tree, USE) is not None and annotation(pod_tree, PLAN) is None:
            raise CannotEncode(f"its own annotation {USE} chooses cards already")
        uuids = _uuids(order, node_tree)
        avoided = {part.strip() for part in (annotation(pod_tree, AVOID) or "").split(",")}
        if avoided.intersection(uuids):
            raise CannotEncode(f"its annotation {AVOID} forbids a card that the plan gives it")
        return {USE: ",".join(uuids)}


def _is_hami(scheduler: str) -> bool:
    return _NAMED in scheduler.lower()


def _of(scheduler: str) -> str:
    return f"its scheduler is {scheduler}, and only HAMi's can be told of cards"


def _uuids(order: PodOrder, node_tree: Tree) -> list[str]:
    """The uuid of every GPU of the order. Raises CannotCarry where the node does not tell one."""
    cards: dict[int, list[str]] = {}
    for uuid, index in registered(texts(node_tree, "metadata", "annotations")).items():
        cards.setdefault(index, []).append(uuid)
    found = []
    for index in order.gpus or ():
        named = cards.get(index, [])
        if len(named) != 1:
            number = "no card" if not named else "several cards"
            raise CannotEncode(f"node {order.node} registered {number} with HAMi as GPU {index}")
        found.append(named[0])
    return found
