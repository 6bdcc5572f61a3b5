"""The server model of a node: named, by its machine, by its GPUs, or unknown."""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any

import pytest
from kube import expected, load, node
from kube_nodes import claimed, device, read

from models.documents.policy import ServerModelChoice
from models.hardware import ServerModel
from models.instance.policy import KubernetesPolicy
from models.rates.catalogue import find, server_models
from models.rates.server_bandwidth import inside_MBps
from planner.read.findings import Remarks
from planner.read.kube.nodes.nodes import read_nodes
from planner.read.kube.nodes.products import product
from planner.read.kube.nodes.servers import own_nics, server_model, unknown_model

PRODUCT, COUNT = "nvidia.com/gpu.product", "nvidia.com/gpu.count"
INSTANCE, MACHINE = "node.kubernetes.io/instance-type", "nvidia.com/gpu.machine"
TOLD = "gangplan.dev/server-model"


def model_of(
    *trees: dict[str, Any], mapped: tuple[tuple[tuple[tuple[str, str], ...], str], ...] = ()
) -> tuple[ServerModel | None, str]:
    """The model of the only node of these trees, and the remarks about it."""
    (found,), _ = read(*trees)
    remarks = Remarks()
    policy = KubernetesPolicy(server_models=tuple(ServerModelChoice(dict(a), b) for a, b in mapped))
    return server_model(found, policy, find, remarks), "\n".join(remarks.lines())


def named(*trees: dict[str, Any]) -> str:
    model, _ = model_of(*trees)
    assert model is not None
    return model.name


@pytest.mark.parametrize(
    ("snapshot", "words", "gpu", "gpus"),
    [
        ("h100-gke", "a3-highgpu-8g (H100 80GB HBM3 x8)", "H100", 8),
        ("nvl72", "GB200 compute tray (GB200 x4)", "GB200", 4),
        ("v100-mpi", "V100-SXM2-32GB x8, NVLink hybrid cube mesh", "V100", 8),
    ],
)
def test_recorded_nodes_are_what_the_facts_say(
    snapshot: str, words: str, gpu: str, gpus: int
) -> None:
    remarks = Remarks()
    nodes = read_nodes(load(snapshot), KubernetesPolicy(), remarks)
    models = {server_model(one, KubernetesPolicy(), find, remarks) for one in nodes}
    assert all(words in fact["model"] for fact in expected(snapshot)["nodes"].values())
    (model,) = models
    assert model is not None
    assert (model.gpu, model.gpus) == (gpu, gpus)
    assert own_nics(model) is None
    if snapshot == "h100-gke":
        assert model is find("a3-highgpu-8g")
    elif snapshot == "nvl72":
        assert (model.fabric, model.nvlink_domain_nodes) == ("nvswitch", 18)
    else:
        # the mesh of a DGX-1: GPU 0 has two links to 3 and 4, one to 1 and 2, none to 5, 6, 7
        assert model.matrix is not None
        assert [path if path[:2] == "NV" else "" for path in model.matrix[0]] == [
            "", "NV1", "NV1", "NV2", "NV2", "", "", "",
        ]  # fmt: skip


def test_an_annotation_goes_before_policy_and_labels() -> None:
    tree = node("n1", **{INSTANCE: "p5.48xlarge", PRODUCT: "NVIDIA-H100-80GB-HBM3"})
    tree["metadata"]["annotations"] = {TOLD: "Azure ND H100 v5"}
    model, said = model_of(tree, mapped=(((), "DGX H100"),))
    assert model is find("Azure ND H100 v5")
    assert said == ""


def test_of_the_policy_the_first_selector_that_matches_counts() -> None:
    mapped = (
        ((("pool", "a"),), "DGX H100"),
        ((("pool", "b"),), "DGX A100"),
        ((), "DGX H200"),
    )
    for pool, wanted in (("a", "DGX H100"), ("b", "DGX A100"), ("c", "DGX H200")):
        model, said = model_of(node("n1", pool=pool), mapped=mapped)
        assert model is find(wanted)
        assert said == ""


def test_a_model_nobody_knows_is_told_and_the_next_source_counts() -> None:
    tree = node("n1", **{INSTANCE: "p5.48xlarge"})
    tree["metadata"]["annotations"] = {TOLD: "DGX Z9"}
    model, said = model_of(tree)
    assert model is find("p5.48xlarge")
    assert "Node n1: server model 'DGX Z9' (annotation) is unknown; ignored" in said


# Instance types by which clouds call their machines, with the model whose links and NICs they have.
INSTANCES = {
    "a3-highgpu-8g": "GCP a3-highgpu-8g",
    "a3-megagpu-8g": "GCP a3-megagpu-8g",
    "a3-ultragpu-8g": "GCP a3-ultragpu-8g",
    "a4-highgpu-8g": "GCP a4-highgpu-8g",
    "a4x-highgpu-4g": "GB200 NVL72 compute tray",
    "p3.16xlarge": "V100 8-GPU cloud VM (p3.16xlarge-like)",
    "p3dn.24xlarge": "V100 8-GPU cloud VM (p3dn.24xlarge-like)",
    "p4d.24xlarge": "AWS p4d.24xlarge",
    "p4de.24xlarge": "AWS p4d.24xlarge",
    "p5.48xlarge": "AWS p5.48xlarge",
    "p5e.48xlarge": "AWS p5e.48xlarge",
    "p5en.48xlarge": "AWS p5en.48xlarge",
    "p6-b200.48xlarge": "AWS p6-b200.48xlarge",
    "p6-b300.48xlarge": "DGX B300",
    "p6e-gb200.36xlarge": "GB200 NVL72 compute tray",
    "g5.48xlarge": "AWS g5.48xlarge (8x A10G)",
    "Standard_ND96asr_v4": "Azure ND A100 v4",
    "Standard_ND96amsr_A100_v4": "Azure ND A100 v4",
    "Standard_ND96isr_H100_v5": "Azure ND H100 v5",
    "Standard_ND96isr_H200_v5": "DGX H200",
    "Standard_NC96ads_A100_v4": "Azure NC96ads A100 v4",
    "Standard_ND128isr_GB300_v6": "GB300 NVL72 compute tray (Azure ND128isr_GB300_v6)",
    "Standard_ND96isr_MI300X_v5": "AMD MI300X 8-GPU",
    "BM.GPU.H100.8": "DGX H100",
    "BM.GPU.A100-v2.8": "DGX A100",
    "BM.GPU4.8": "DGX A100",
    "BM.GPU.GB200-v3.4": "OCI BM.GPU.GB200-v3.4",
    "gd-8xh100ib-i128": "DGX H100",
    "gb200-4x": "GB200 NVL72 compute tray",
    "ecs.gn6e-c12g1.24xlarge": "V100 8-GPU cloud VM (p3.16xlarge-like)",
}


def test_an_instance_type_tells_the_model() -> None:
    for instance, wanted in INSTANCES.items():
        known = find(wanted)
        assert known is not None
        for key in (INSTANCE, "beta.kubernetes.io/instance-type"):
            model, said = model_of(node("n1", gpus=known.gpus, **{key: instance}))
            assert model is known, instance
            assert said == "", instance


# What clouds publish of their instance types: the label of GPU feature discovery, GPUs, the GPU of the
# catalogue, all network bandwidth in Gb/s (the baseline where it may burst).
PUBLISHED = [
    ("p3.2xlarge", "Tesla-V100-SXM2-16GB", 1, "V100", 2.5),
    ("p3.8xlarge", "Tesla-V100-SXM2-16GB", 4, "V100", 10),
    ("p5.4xlarge", "NVIDIA-H100-80GB-HBM3", 1, "H100", 100),
    ("g4dn.xlarge", "Tesla-T4", 1, "T4", 5),
    ("g4dn.16xlarge", "Tesla-T4", 1, "T4", 50),
    ("g4dn.12xlarge", "Tesla-T4", 4, "T4", 50),
    ("g4dn.metal", "Tesla-T4", 8, "T4", 100),
    ("g5.xlarge", "NVIDIA-A10G", 1, "A10G", 2.5),
    ("g5.16xlarge", "NVIDIA-A10G", 1, "A10G", 25),
    ("g5.12xlarge", "NVIDIA-A10G", 4, "A10G", 40),
    ("g5.24xlarge", "NVIDIA-A10G", 4, "A10G", 50),
    ("g6.2xlarge", "NVIDIA-L4", 1, "L4", 5),
    ("gr6.8xlarge", "NVIDIA-L4", 1, "L4", 25),
    ("g6.24xlarge", "NVIDIA-L4", 4, "L4", 50),
    ("g6.48xlarge", "NVIDIA-L4", 8, "L4", 100),
    ("g6e.16xlarge", "NVIDIA-L40S", 1, "L40S", 35),
    ("g6e.12xlarge", "NVIDIA-L40S", 4, "L40S", 100),
    ("g6e.48xlarge", "NVIDIA-L40S", 8, "L40S", 400),
    ("g7e.4xlarge", "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 1, "RTX PRO 6000", 50),
    ("g7e.12xlarge", "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 2, "RTX PRO 6000", 400),
    ("a2-highgpu-1g", "NVIDIA-A100-SXM4-40GB", 1, "A100", 24),
    ("a2-highgpu-4g", "NVIDIA-A100-SXM4-40GB", 4, "A100", 50),
    ("a2-ultragpu-2g", "NVIDIA-A100-SXM4-80GB", 2, "A100", 32),
    ("a2-ultragpu-8g", "NVIDIA-A100-SXM4-80GB", 8, "A100", 100),
    ("a2-megagpu-16g", "NVIDIA-A100-SXM4-40GB", 16, "A100", 100),
    ("a3-highgpu-1g", "NVIDIA-H100-80GB-HBM3", 1, "H100", 25),
    ("a3-highgpu-4g", "NVIDIA-H100-80GB-HBM3", 4, "H100", 100),
    ("a4x-maxgpu-4g-metal", "NVIDIA-GB300", 4, "GB300", 3200),
    ("g2-standard-4", "NVIDIA-L4", 1, "L4", 10),
    ("g2-standard-32", "NVIDIA-L4", 1, "L4", 32),
    ("g2-standard-24", "NVIDIA-L4", 2, "L4", 32),
    ("g2-standard-96", "NVIDIA-L4", 8, "L4", 100),
    ("g4-standard-384", "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 8, "RTX PRO 6000", 400),
    ("Standard_NC24ads_A100_v4", "NVIDIA-A100-80GB-PCIe", 1, "A100", 20),
    ("Standard_NC48ads_A100_v4", "NVIDIA-A100-80GB-PCIe", 2, "A100", 40),
    ("Standard_NC40ads_H100_v5", "NVIDIA-H100-NVL", 1, "H100 NVL", 40),
    ("Standard_NC80adis_H100_v5", "NVIDIA-H100-NVL", 2, "H100 NVL", 80),
    ("Standard_NV36ads_A10_v5", "NVIDIA-A10-24Q", 1, "A10", 40),
    ("Standard_NV72ads_A10_v5", "NVIDIA-A10-24Q", 2, "A10", 80),
    ("Standard_NC16as_T4_v3", "Tesla-T4", 1, "T4", 8),
    ("Standard_NC64as_T4_v3", "Tesla-T4", 4, "T4", 32),
    ("VM.GPU.A10.2", "NVIDIA-A10", 2, "A10", 48),
    ("BM.GPU.A10.4", "NVIDIA-A10", 4, "A10", 100),
    ("BM.GPU.L40S.4", "NVIDIA-L40S", 4, "L40S", 800),
    ("BM.GPU.B300.8", "NVIDIA-B300-SXM6-AC", 8, "B300", 6400),
]


def test_instance_types_of_every_size_are_known_with_their_gpus_and_network() -> None:
    for instance, name, gpus, gpu, gbps in PUBLISHED:
        labels = {INSTANCE: instance, PRODUCT: name, COUNT: str(gpus)}
        model, said = model_of(node("n1", gpus=gpus, **labels))
        assert model is not None
        assert said == "", instance
        assert (model.gpu, model.gpus) == (gpu, gpus), instance
        assert model.relative_speed is not None
        assert sum(nic.megabits or 0 for nic in model.nics) == 1000 * gbps, instance
        inside_MBps(model, model.all_gpus)  # it can be priced


@pytest.mark.parametrize(
    ("name", "gpu", "speed"),
    [
        ("NVIDIA-H100-80GB-HBM3", "H100", "989.5"),
        ("NVIDIA-H200", "H200", "989.5"),
        ("NVIDIA-B200", "B200", "2250"),
    ],
)
def test_a_machine_that_is_sold_with_several_gpus_is_known_by_both(
    name: str, gpu: str, speed: str
) -> None:
    labels = {PRODUCT: name, COUNT: "8", MACHINE: "PowerEdge-XE9680"}  # as its firmware says
    model, said = model_of(node("n1", **labels))
    assert model is not None
    assert (model.name, said) == (f"PowerEdge XE9680 {gpu}", "")
    assert model.relative_speed == Fraction(speed)
    assert find("PowerEdge XE9680") is find("PowerEdge XE9680 H100")


def test_an_instance_type_against_the_gpus_is_not_believed() -> None:
    model, said = model_of(node("n1", **{INSTANCE: "p5.48xlarge", PRODUCT: "NVIDIA-L4"}))
    assert model is not None
    assert (model.name, model.fabric) == ("L4 8-GPU", "pcie")
    assert "has L4 GPUs, but 'AWS p5.48xlarge' does not" in said


# (product, count, instance type) as GPU feature discovery and others write them, and the model.
PRODUCTS = [
    ("NVIDIA-H100-80GB-HBM3", 8, "", "DGX H100"),  # as gfd-h100-poweredge-xe9680
    ("NVIDIA-H100-80GB-HBM3", 8, "k3s", "DGX H100"),
    ("NVIDIA-H100-80GB-HBM3", 8, "some.cloud-8x", "GCP a3-highgpu-8g"),
    ("NVIDIA-H100-80GB-HBM3", 7, "", "DGX H100"),
    ("NVIDIA-H100-80GB-HBM3", 4, "", "unknown 4x H100"),
    ("NVIDIA-H100-80GB-HBM3", 1, "", "unknown 1x H100"),
    ("NVIDIA-H100-PCIe", 8, "", "H100 PCIe 8-GPU"),
    ("NVIDIA-H100-NVL", 8, "", "H100 NVL 8-GPU with NVLink bridges"),
    ("NVIDIA-H100-NVL", 2, "", "unknown 2x H100 NVL"),
    ("NVIDIA-H200", 8, "", "DGX H200"),
    ("NVIDIA-H200-NVL", 8, "", "unknown 8x H200 NVL"),
    ("NVIDIA-H20", 8, "", "HGX H20 8-GPU"),
    ("NVIDIA-H800", 8, "", "HGX H800 8-GPU"),
    ("NVIDIA-B200", 8, "", "DGX B200"),
    ("NVIDIA-B300-SXM6-AC", 8, "", "DGX B300"),
    ("NVIDIA-GB200", 4, "", "GB200 NVL72 compute tray"),
    ("NVIDIA-GB300", 4, "", "GB300 NVL72 compute tray (Azure ND128isr_GB300_v6)"),
    ("NVIDIA-GH200-480GB", 1, "", "GH200 1-GPU"),
    ("NVIDIA-A100-SXM4-80GB", 8, "", "DGX A100"),
    ("A100-SXM4-40GB", 8, "some.cloud-8x", "AWS p4d.24xlarge"),
    ("A100-SXM4-40GB", 4, "", "HGX A100 4-GPU (direct)"),
    ("A100-SXM4-40GB", 4, "some.cloud-4x", "unknown 4x A100"),
    ("NVIDIA-A100-80GB-PCIe", 8, "", "unknown 8x A100"),
    ("A100-PCIE-40GB", 2, "", "unknown 2x A100"),  # as gfd-a100-pcie-mig-mixed
    ("NVIDIA-A800-SXM4-80GB", 8, "", "HGX A800 8-GPU"),
    ("Tesla-V100-SXM2-32GB", 8, "", "DGX-1 V100"),
    ("Tesla-V100-SXM2-16GB", 8, "ecs.else", "V100 8-GPU cloud VM (p3.16xlarge-like)"),
    ("Tesla-V100-SXM2-16GB", 4, "", "V100 4-GPU full mesh (NV2)"),
    ("Tesla-V100-SXM2-16GB", 4, "some.cloud-4x", "unknown 4x V100"),
    ("Tesla-V100-SXM3-32GB", 16, "", "DGX-2"),
    ("Tesla-V100-PCIE-32GB", 8, "", "unknown 8x V100"),
    ("Tesla-P100-SXM2-16GB", 8, "", "DGX-1 P100"),
    ("Tesla-T4", 8, "", "T4 8-GPU"),
    ("Tesla-T4", 1, "n1-standard-8", "unknown 1x T4"),
    ("NVIDIA-L40S", 8, "gd-8xl40s-i128", "L40S 8-GPU"),
    ("NVIDIA-L40S", 2, "", "unknown 2x L40S"),
    ("NVIDIA-L4", 8, "", "L4 8-GPU"),
    ("NVIDIA-L4", 3, "", "unknown 3x L4"),
    ("NVIDIA-A2", 4, "", "A2 4-GPU"),
    ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 8, "", "RTX PRO 6000 8-GPU"),
    (
        "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition",
        2,
        "",
        "unknown 2x NVIDIA-RTX-PRO-6000-BLACKWELL-MAX-Q-WORKSTATION-EDITION",
    ),
    ("NVIDIA-GeForce-RTX-4090", 2, "", "unknown 2x NVIDIA-GEFORCE-RTX-4090"),
    ("Tesla-K80", 16, "HVM-domU", "unknown 16x K80"),
]


def test_gpus_tell_the_board_they_sit_on() -> None:
    for name, gpus, instance, wanted in PRODUCTS:
        labels = {PRODUCT: name, COUNT: str(gpus), **({INSTANCE: instance} if instance else {})}
        model, said = model_of(node("n1", gpus=gpus, **labels))
        assert model is not None
        assert model.name == wanted
        unknown = f"server with {gpus} x {model.gpu} unknown, treated as PCIe-only without NICs"
        assert (unknown in said) == wanted.startswith("unknown")
        if wanted.startswith("unknown"):
            assert f"annotate the node with {TOLD}" in said
        elif model.nvlink_domain_nodes == 1:
            assert "links and NICs of" in said


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        ({"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, "AMD MI300X 8-GPU"),
        ({"amd.com/gpu.device-id": "74a1"}, "AMD MI300X 8-GPU"),
        ({"beta.amd.com/gpu.device-id": "0x74a1"}, "AMD MI300X 8-GPU"),
        ({"amd.com/gpu.product-name": "AMD_Instinct_MI325X"}, "unknown 8x MI325X"),
        ({"amd.com/gpu.product-name": "AMD_Instinct_MI100"}, "unknown 8x MI100"),
        ({}, "unknown 8x AMD-GPU"),
    ],
)
def test_gpus_of_amd_are_told_by_their_labels(labels: dict[str, str], wanted: str) -> None:
    assert named(node("n1", resource="amd.com/gpu", **labels)) == wanted


def test_devices_tell_more_than_labels() -> None:
    # as the live p4d.24xlarge and GB300 nodes publish them
    p4d = [device(f"gpu-{i}", productName="NVIDIA A100-SXM4-40GB") for i in range(8)]
    tree, slices = claimed(*p4d)
    assert named(tree, slices) == "DGX A100"
    tree["metadata"]["labels"][INSTANCE] = "p4d.24xlarge"
    assert named(tree, slices) == "AWS p4d.24xlarge"
    tree["metadata"]["labels"][PRODUCT] = "Tesla-T4"
    model, said = model_of(tree, slices)
    assert model is find("p4d.24xlarge")
    assert "is labelled with several GPU models; A100 counts" in said
    gb300 = [device(f"gpu-{i}", productName="NVIDIA GB300") for i in range(4)]
    assert named(*claimed(*gb300)) == "GB300 NVL72 compute tray (Azure ND128isr_GB300_v6)"


def test_a_product_of_many_lines_is_cleaned_soon() -> None:
    # Each -MIG- doubles the ways to read the rest, if a line break may stop it.
    started = time.process_time()
    assert product("X9" + "-MIG-" * 100 + "\n!").gpu == "X9"
    assert time.process_time() - started < 1


def test_a_model_whose_links_nobody_knows_is_not_used() -> None:
    for name in ("AMD MI100 8-GPU, two XGMI islands of 4", "Standard_ND40rs_v2"):
        tree = node("n1")
        tree["metadata"]["annotations"] = {TOLD: name.removeprefix("Standard_")}
        model, said = model_of(tree)
        assert model is not None
        assert model.name == "unknown 8x NVIDIA-GPU"
        assert "links of" in said
        assert "serverModels of a Cluster" in said


@pytest.mark.parametrize("gpus", [1, 2, 3, 8, 16, 17, 64, 1024])
def test_an_unknown_server_prices_every_set_at_the_slowest_path(gpus: int) -> None:
    model = unknown_model("NVIDIA-XYZ", gpus)
    assert (model.name, model.gpu, model.gpus) == (
        f"unknown {gpus}x NVIDIA-XYZ",
        "NVIDIA-XYZ",
        gpus,
    )
    # between sockets: min(sysMBps, 0.8 pcieMBps) = min(10000, 16000)
    for mask in ((1 << 2) - 1, (1 << gpus) - 1, 1 | 1 << (gpus - 1)):
        if 1 < mask.bit_count() <= gpus:
            assert inside_MBps(model, mask) == 10_000
    assert model.nics == ()
    assert model.confidence == "assumed"


def test_every_gpu_of_the_catalogue_is_recognised() -> None:
    for model in server_models():
        assert product(model.gpu).gpu == model.gpu
