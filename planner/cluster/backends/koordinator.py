"""The back end ``koordinator``: the devices on the pod, as Koordinator's scheduler would write them.

Promises: whole GPUs only; written where we bind the pod ourselves, never beside a scheduler that
chooses by itself. Called through ``backend_of``.
"""

from __future__ import annotations

import json

from models.applying.intents import PLAN
from models.applying.orders import Orders, PodOrder
from models.applying.seen import View
from planner.cluster.backends.base import (
    MODE_BINDING,
    MODE_GATE,
    CannotCarry,
    Plain,
    annotation,
    fills_node,
)
from planner.cluster.wire import Tree
from planner.reading.kubernetes.pods.holdings.koordinator import ALLOCATED

_WHOLE = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
"""What a whole GPU is in Koordinator's percents."""

_CHOOSES = "its scheduler chooses the GPUs; only pods that we bind can be told"


class Koordinator(Plain):
    """``device-allocated``: koordlet shows the containers these GPUs, by minor number."""

    name = "koordinator"
    keys: tuple[str, ...] = (ALLOCATED,)

    def note(self) -> str:
        return (
            f"{ALLOCATED} makes koordlet show a pod the GPUs that the plan chose; "
            "a node without koordlet does not heed it"
        )

    def check(self, orders: Orders, view: View) -> list[str]:
        """Gangs with gated pods that take a part of their node."""
        words = "its pods take a part of a node, and " + _CHOOSES.replace("its", "their", 1)
        return sorted(
            f"gang {gang.namespace}/{gang.name}: {words}"
            for gang in orders.gangs
            if any(pod.mode == MODE_GATE and _part(pod, view) for pod in gang.starts)
        )

    def annotations(self, order: PodOrder, node_tree: Tree, pod_tree: Tree) -> dict[str, str]:
        """The minors; nothing where the plan leaves the choice to the node."""
        if not order.gpus:
            return {}
        if order.mode != MODE_BINDING:
            if fills_node(order, node_tree):
                return {}
            raise CannotCarry(_CHOOSES)
        if annotation(pod_tree, ALLOCATED) is not None and annotation(pod_tree, PLAN) is None:
            raise CannotCarry(f"its own annotation {ALLOCATED} chooses devices already")
        devices = [{"minor": index, "resources": _WHOLE} for index in order.gpus]
        written = json.dumps({"gpu": devices}, sort_keys=True, separators=(",", ":"))
        return {ALLOCATED: written}


def _part(pod: PodOrder, view: View) -> bool:
    """Whether a pod with chosen GPUs leaves some of its node to others."""
    node = view.nodes.get(pod.node)
    return bool(pod.gpus) and node is not None and pod.gpu_count < node.gpus
