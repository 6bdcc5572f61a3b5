"""ACK (Alibaba): annotations that name the GPUs a pod sees, or the one its share of memory is on."""

from __future__ import annotations

from collections.abc import Mapping

from planner.read.kube.dialects.base import (
    Dialect,
    HoldingReader,
    annotation,
    comma_list,
    gpu_indices,
    json_value,
)
from planner.read.kube.lookup import number
from planner.read.kube.records import KubeNode

VISIBLE = "topology.kubernetes.io/gpu-visible"
GPU_GROUP = "topology.kubernetes.io/gpu-group"
SHARE = "scheduler.framework.gpushare.allocation"
OLD_SHARE = "ALIYUN_COM_GPU_MEM_IDX"


def visible(annotations: Mapping[str, str], node: KubeNode) -> tuple[int, ...] | None:
    """``gpu-visible: "0,3"``; ``gpu-group`` in the same form where only that is written."""
    del node
    found = annotation(annotations, VISIBLE) or annotation(annotations, GPU_GROUP)
    return None if found is None else comma_list(found)


def share(annotations: Mapping[str, str], node: KubeNode) -> tuple[int, ...] | None:
    """``{"0": {"1": 4}}``: container to GPU to memory; of old, one index as text."""
    del node
    found = annotation(annotations, SHARE)
    if found is None:
        found = annotation(annotations, OLD_SHARE)
        return None if found is None else comma_list(found)
    containers = json_value(found)
    if not isinstance(containers, dict):
        return ()
    indices: dict[int | None, None] = {}
    for gpus in containers.values():
        if not isinstance(gpus, dict):
            return ()
        indices |= {number(index): None for index in gpus}
    return gpu_indices(indices)


DIALECT = Dialect(
    "ACK",
    precedence=100,
    holdings=(
        HoldingReader(f"annotation {VISIBLE}", (VISIBLE, GPU_GROUP), visible),
        HoldingReader("annotation of the GPU share", (SHARE, OLD_SHARE), share),
    ),
    annotations="""
    topology.kubernetes.io/gpu-group topology.kubernetes.io/gpu-visible
    scheduler.framework.gpushare.allocation ALIYUN_COM_GPU_MEM_IDX
    """,
)
