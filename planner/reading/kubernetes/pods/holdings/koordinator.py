"""Koordinator: the devices its scheduler allocated to a pod.

Promises: facts of the annotation only, nothing checked against the node. Called by the table of
dialects in ``holdings``.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.reading.kubernetes.forms import KubeNode
from planner.reading.kubernetes.looking import items, whole
from planner.reading.kubernetes.pods.holdings.telling import UNREADABLE, Told, told, tree, written

ALLOCATED = "scheduling.koordinator.sh/device-allocated"


def allocated(annotations: Mapping[str, str], node: KubeNode) -> Told | None:
    """``{"gpu": [{"minor": 0, "resources": {...}}], "rdma": [...]}``: minors are indices."""
    del node
    found = written(annotations, ALLOCATED)
    if found is None:
        return None
    devices = tree(found)
    if not isinstance(devices, dict):
        return UNREADABLE
    if "gpu" not in devices:
        return None
    return told(whole(entry, "minor") for entry in items(devices, "gpu"))
