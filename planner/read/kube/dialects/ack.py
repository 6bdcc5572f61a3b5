"""ACK (Alibaba): GPUs that a pod sees, or that its share of memory is on; nodes with shares, or by topology.

GPUs of topology nodes are for pods with the mark, where gangplan does not bind GPUs itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from models.documents.cluster import Taint
from planner.read.findings import Remarks
from planner.read.kube.dialects import base
from planner.read.kube.dialects.gpus import GpuSystem, Mark
from planner.read.kube.lookup import number
from planner.read.kube.records import KubeNode

VISIBLE = "topology.kubernetes.io/gpu-visible"
GPU_GROUP = "topology.kubernetes.io/gpu-group"
SHARE = "scheduler.framework.gpushare.allocation"
OLD_SHARE = "ALIYUN_COM_GPU_MEM_IDX"

COUNT = "aliyun.com/gpu-count"
MEMORY, CORES = "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"
MODE = "ack.node.gpu.schedule"
"""Label of nodes; in plans also a taint."""

TOPOLOGY = "gpu-topology"
"""Label of pods that ACK schedules by topology; its value is the name of their gang."""


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


def shared(node: KubeNode, remarks: Remarks) -> str | None:
    """Why GPUs of a node are not given whole, by its label or its resources."""
    mode = node.labels.get(MODE, "default")
    if mode in {"share", "cgpu"} or any(map(node.allocatable.get, (MEMORY, CORES))):
        return "fractional"
    if mode == "mps":
        return "time-sliced"
    if mode in {"default", "topology", ""}:
        return None
    remarks.add(node.object.where, f"its label {MODE} has an unknown value")
    return "fractional"


DIALECT = base.Dialect(
    "ACK",
    precedence=100,
    gpus=(
        GpuSystem(
            name=MEMORY,
            parts=(MEMORY, CORES),
            counter=COUNT,
            installed=COUNT,
            alias="aliyun.com/gpu",
            shared=shared,
            mark=Mark(
                Taint(MODE, "topology", "NoSchedule"),
                lambda node: node.labels.get(MODE) == "topology",
                lambda pod: bool(pod.labels.get(TOPOLOGY)),
            ),
        ),
    ),
    holdings=(
        base.HoldingReader(
            f"annotation {VISIBLE}", (VISIBLE, GPU_GROUP), base.listed(VISIBLE, GPU_GROUP)
        ),
        base.HoldingReader("annotation of the GPU share", (SHARE, OLD_SHARE), share),
    ),
)
