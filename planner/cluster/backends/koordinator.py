"""The back end ``koordinator``: the devices on the pod, as Koordinator's scheduler would write them.

Promises: whole GPUs only; never written beside Koordinator's own scheduler, which chooses by itself.
Called through ``backend_of``.
"""

from __future__ import annotations

import json

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
from planner.read.kube.dialects.koordinator import ALLOCATED

_WHOLE = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
"""What a whole GPU is in Koordinator's percents."""

_NAMED = "koord"
"""Koordinator's own scheduler is told by its name, ``koord-scheduler``: it chooses by itself."""


class Koordinator(Plain):
    """``device-allocated``: koordlet shows the containers these GPUs, by minor number."""

    name = "koordinator"
    keys: tuple[str, ...] = (ALLOCATED,)

    def note(self) -> str:
        return (
            f"{ALLOCATED} makes koordlet show a pod the GPUs that the plan chose; "
            "a node without koordlet does not heed it"
        )

    def check(self, orders: Orders, view: ClusterView) -> list[str]:
        """Gangs of Koordinator's scheduler that take a part of a node."""

        def words(order: PodOrder, seen: LivePod) -> str | None:
            return f"pod {order.name}: {_chooses(seen.scheduler)}" if _own(seen.scheduler) else None

        return hindered(orders, view, words)

    def annotations(self, order: PodOrder, node_tree: Tree, pod_tree: Tree) -> dict[str, str]:
        """The minors; nothing where the plan leaves the choice to the node."""
        if not order.gpus:
            return {}
        scheduler = scheduler_of(pod_tree)
        if _own(scheduler):
            if fills_node(order, node_tree):
                return {}
            raise CannotEncode(_chooses(scheduler))
        if annotation(pod_tree, ALLOCATED) is not None and annotation(pod_tree, PLAN) is None:
            raise CannotEncode(f"its own annotation {ALLOCATED} chooses devices already")
        devices = [{"minor": index, "resources": _WHOLE} for index in order.gpus]
        written = json.dumps({"gpu": devices}, sort_keys=True, separators=(",", ":"))
        return {ALLOCATED: written}


def _own(scheduler: str) -> bool:
    return _NAMED in scheduler.lower()


def _chooses(scheduler: str) -> str:
    return f"its scheduler {scheduler} chooses the GPUs by itself"
