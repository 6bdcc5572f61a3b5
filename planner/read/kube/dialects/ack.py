"""ACK (Alibaba): annotations that name the GPUs a pod sees, or the one its share of memory is on."""

from __future__ import annotations

from collections.abc import Mapping

from planner.read.kube.dialects import base
from planner.read.kube.lookup import number
from planner.read.kube.records import KubeNode

VISIBLE = "topology.kubernetes.io/gpu-visible"
GPU_GROUP = "topology.kubernetes.io/gpu-group"
SHARE = "scheduler.framework.gpushare.allocation"
OLD_SHARE = "ALIYUN_COM_GPU_MEM_IDX"


def share(annotations: Mapping[str, str], node: KubeNode) -> tuple[int, ...] | None:
    """``{"0": {"1": 4}}``: container to GPU to memory; of old, one index as text."""
    found = base.annotation(annotations, SHARE)
    if found is None:
        return base.listed(OLD_SHARE)(annotations, node)
    containers = base.json_value(found)
    if not isinstance(containers, dict):
        return ()
    indices: dict[int | None, None] = {}
    for gpus in containers.values():
        if not isinstance(gpus, dict):
            return ()
        indices |= {number(index): None for index in gpus}
    return base.gpu_indices(indices)


DIALECT = base.Dialect(
    "ACK",
    precedence=100,
    holdings=(
        base.HoldingReader(
            f"annotation {VISIBLE}", (VISIBLE, GPU_GROUP), base.listed(VISIBLE, GPU_GROUP)
        ),
        base.HoldingReader("annotation of the GPU share", (SHARE, OLD_SHARE), share),
    ),
)
