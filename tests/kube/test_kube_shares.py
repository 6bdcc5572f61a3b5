"""GPUs that are not given whole: partitions, time slices, fractions."""

from __future__ import annotations

import pytest
from kube import node
from kube_nodes import gpus_of, one

SHARED = {
    "single MIG": ("MIG", {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
        "nvidia.com/mig.strategy": "single", "nvidia.com/gpu.count": "56",
    }),
    # after gfd-mig-single (NVIDIA/gpu-operator issue 981): no product, no strategy in the excerpt
    "MIG by its layout": ("MIG", {
        "nvidia.com/mig.config": "all-1g.5gb", "nvidia.com/mig.capable": "true",
        "nvidia.com/gpu.sharing-strategy": "none",
    }),
    "GKE partitions": ("MIG", {"cloud.google.com/gke-gpu-partition-size": "1g.5gb"}),
    # after timeslicing-h100-nvl: one GPU told as five
    "time-sliced": ("time-sliced", {
        "nvidia.com/gpu.product": "NVIDIA-H100-NVL-SHARED", "nvidia.com/gpu.replicas": "5",
        "nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.count": "8",
    }),
    "MPS": ("time-sliced", {
        "nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/gpu.replicas": "7",
    }),
    "GKE time-sharing": ("time-sliced", {
        "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
        "cloud.google.com/gke-max-shared-clients-per-gpu": "7",
    }),
    "ACK share": ("fractional", {"ack.node.gpu.schedule": "share", "aliyun.accelerator/nvidia_count": "8"}),
    "ACK cgpu": ("fractional", {"ack.node.gpu.schedule": "cgpu", "aliyun.accelerator/nvidia_count": "8"}),
}  # fmt: skip


@pytest.mark.parametrize(("word", "labels"), SHARED.values(), ids=list(SHARED))
def test_shared_gpus_are_marked_and_counted_as_they_are_built_in(
    word: str, labels: dict[str, str]
) -> None:
    # 8 GPUs: as 7 parts or shares each where nothing counts them, as 5 shares where told
    advertised = "8" if word == "fractional" else "40" if "NVL" in str(labels) else "56"
    found, said = one(gpus_of(node("n1", **labels), advertised, advertised))
    assert found.shared == word
    assert found.installed == 8
    assert "none of them is given" in said


@pytest.mark.parametrize("labels", [
    # after gfd-h100-poweredge-xe9680 and gfd-a100-pcie-mig-mixed
    {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/mig.capable": "true",
     "nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.sharing-strategy": "none"},
    {"nvidia.com/gpu.product": "A100-PCIE-40GB", "nvidia.com/mig.strategy": "mixed",
     "nvidia.com/mig.config": "all-balanced", "nvidia.com/mig-1g.5gb.count": "4"},
    {"nvidia.com/mig.config": "all-disabled", "nvidia.com/mig.strategy": "single"},
    {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/mig.strategy": "single",
     "nvidia.com/mig.config": "half-1g.5gb", "nvidia.com/mig.config.state": "success"},
    {"ack.node.gpu.schedule": "topology"}, {"ack.node.gpu.schedule": "default"},
    {"cloud.google.com/gke-gpu-sharing-strategy": "none"},
])  # fmt: skip
def test_whole_gpus_are_not_marked_as_shared(labels: dict[str, str]) -> None:
    found, said = one(node("n1", **labels))
    assert (found.shared, found.gpus) == (None, 8)
    assert said == ""


@pytest.mark.parametrize("written", [
    "GPU-a,10,32768,100,NVIDIA-Tesla V100,0,true:GPU-b,10,32768,100,NVIDIA-Tesla V100,0,true:",
    '[{"id": "GPU-a", "count": 10}, {"id": "GPU-b", "count": 10}]',
])  # fmt: skip
def test_shares_of_hami_are_not_gpus(written: str) -> None:
    tree = node("n1", gpus=20)
    tree["metadata"]["annotations"] = {"hami.io/node-nvidia-register": written}
    found, _ = one(tree)
    assert (found.shared, found.installed) == ("fractional", 2)


def test_gpus_given_by_memory_are_fractional() -> None:
    tree = node("n1", gpus=0)
    tree["status"]["allocatable"].update({"aliyun.com/gpu-mem": "64", "aliyun.com/gpu-count": "2"})
    tree["metadata"]["labels"]["aliyun.accelerator/nvidia_count"] = "2"
    found, _ = one(tree)
    assert (found.shared, found.installed, found.gpus) == ("fractional", 2, 0)


def test_partitions_of_amd_are_not_gpus() -> None:
    cut = {"amd.com/gpu.compute-memory-partition": "cpx_nps4"}
    assert one(node("n1", gpus=64, resource="amd.com/gpu", **cut))[0].shared == "MIG"
    whole = {"amd.com/gpu.compute-memory-partition": "spx_nps1"}
    assert one(node("n1", gpus=8, resource="amd.com/gpu", **whole))[0].shared is None
