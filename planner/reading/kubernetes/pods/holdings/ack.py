"""ACK (Alibaba): which GPUs a pod sees, and on which one its share of memory lies.

Promises: facts of annotations only, nothing checked against the node. Called by the table of
dialects in ``holdings``.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.reading.kubernetes.forms import KubeNode
from planner.reading.kubernetes.looking import number
from planner.reading.kubernetes.pods.holdings.telling import (
    UNREADABLE,
    Told,
    comma_list,
    told,
    tree,
    written,
)

VISIBLE = "topology.kubernetes.io/gpu-visible"
GROUP = "topology.kubernetes.io/gpu-group"
SHARE = "scheduler.framework.gpushare.allocation"
OLD_SHARE = "ALIYUN_COM_GPU_MEM_IDX"


def visible(annotations: Mapping[str, str], node: KubeNode) -> Told | None:
    """``gpu-visible: "0,3"``; ``gpu-group`` in the same form where only that is written."""
    del node
    found = written(annotations, VISIBLE) or written(annotations, GROUP)
    return None if found is None else comma_list(found)


def share(annotations: Mapping[str, str], node: KubeNode) -> Told | None:
    """``{"0": {"1": 4}}``: container to GPU to memory; of old, one index as text."""
    del node
    found = written(annotations, SHARE)
    if found is None:
        found = written(annotations, OLD_SHARE)
        return None if found is None else comma_list(found)
    containers = tree(found)
    if not isinstance(containers, dict):
        return UNREADABLE
    indices: dict[int | None, None] = {}
    for gpus in containers.values():
        if not isinstance(gpus, dict):
            return UNREADABLE
        indices |= {number(index): None for index in gpus}
    return told(indices)
