"""Which annotations are kept: those that schedulers, queues and job controllers are told with.

Promises: an allow-list, by key or by the domain before the slash; what users or tools note down for
themselves, kubectl's last-applied-configuration first of all, is dropped.
"""

from __future__ import annotations

from typing import Any

from planner.cluster.keeping import GONE

_DOMAINS = frozenset(
    {
        "gangplan.dev",
        # queues, groups and schedulers
        "kueue.x-k8s.io",
        "kai.scheduler",
        "scheduling.k8s.io",
        "scheduling.x-k8s.io",
        "scheduling.run.ai",
        "volcano.sh",
        "scheduling.volcano.sh",
        "topology.volcano.sh",
        "gang.scheduling.koordinator.sh",
        "scheduling.koordinator.sh",
        "node.koordinator.sh",
        "pod-group.scheduling.sigs.k8s.io",
        "hivedscheduler.microsoft.com",
        # controllers
        "batch.kubernetes.io",
        "jobset.sigs.k8s.io",
        "alpha.jobset.sigs.k8s.io",
        "leaderworkerset.sigs.k8s.io",
        "training.kubeflow.org",
        "trainer.kubeflow.org",
        "grove.io",
        # nodes
        "topograph.run",
        "network.topology.nvidia.com",
    }
)

_KEYS = frozenset(
    {
        "pod-group-name",
        "pod-group.scheduling.sigs.k8s.io",
        "gpu-fraction",
        "gpu-fraction-num-devices",
        "gpu-memory",
        "runai-gpu-group",
        "topology.kubernetes.io/gpu-group",
        "topology.kubernetes.io/gpu-visible",
        "resource.kubernetes.io/pod-claim-name",
        "volume.kubernetes.io/selected-node",
        "nvidia.com/use-gpuuuid",
        "nvidia.com/nouse-gpuuuid",
        "nvidia.com/use-gputype",
        "hami.io/vgpu-node",
        "hami.io/vgpu-devices-allocated",
        "hami.io/vgpu-devices-to-allocate",
        "hami.io/bind-phase",
        "hami.io/node-nvidia-register",
        "run.ai/reserve_for_gpu_index",
        "scheduler.framework.gpushare.allocation",
        "ALIYUN_COM_GPU_MEM_IDX",
        "ray.io/num-hosts",
    }
)


def allowed(key: str) -> bool:
    """Whether an annotation of that key is kept."""
    domain, slash, _ = key.partition("/")
    return key in _KEYS or (bool(slash) and domain in _DOMAINS)


def known_annotations(value: Any) -> Any:  # noqa: ANN401  # trees of JSON have no narrower type
    """The annotations that are kept; GONE if none is."""
    if type(value) is not dict:
        return GONE
    found = {key: text for key, text in value.items() if type(text) is str and allowed(key)}
    return found or GONE
