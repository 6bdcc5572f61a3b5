"""ACK (Alibaba): annotations that name the GPUs a pod sees, or the one its share of memory is on."""

from __future__ import annotations

from collections.abc import Mapping

from planner.read.kube.dialects.base import (
    Dialect,
    HoldingReader,
    annotation,
    gpu_indices,
    json_value,
    listed,
)
from planner.read.kube.lookup import number
from planner.read.kube.records import KubeNode

VISIBLE = "topology.kubernetes.io/gpu-visible"
GPU_GROUP = "topology.kubernetes.io/gpu-group"
SHARE = "scheduler.framework.gpushare.allocation"
OLD_SHARE = "ALIYUN_COM_GPU_MEM_IDX"


def share(annotations: Mapping[str, str], node: KubeNode) -> tuple[int, ...] | None:
    """``{"0": {"1": 4}}``: container to GPU to memory; of old, one index as text."""
    found = annotation(annotations, SHARE)
    if found is None:
        return listed(OLD_SHARE)(annotations, node)
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
        HoldingReader(f"annotation {VISIBLE}", (VISIBLE, GPU_GROUP), listed(VISIBLE, GPU_GROUP)),
        HoldingReader("annotation of the GPU share", (SHARE, OLD_SHARE), share),
    ),
)
