"""The shipped catalogue: every model readable, found by name and alias, and consistent."""

from __future__ import annotations

import re
from fractions import Fraction
from importlib.resources import files

import yaml

from models.documents.server import ServerModelDocument
from models.hardware import MAX_MESH_GPUS, slug
from models.rates.catalogue import find, server_models
from models.rates.server_bandwidth import link_count

# Every server the catalogue was made from, with its GPU; where one stood for several GPUs or NICs
# it was split.
EXPECTED = {
    "DGX-1 P100": "P100",
    "DGX-1 V100": "V100",
    "V100 8-GPU cloud VM (p3.16xlarge-like)": "V100",
    "p3dn.24xlarge": "V100",
    "V100 8-GPU, permuted numbering": "V100",
    "Azure NDv2 (Standard_ND40rs_v2)": "V100",
    "V100 4-GPU full mesh (NV2)": "V100",
    "Dell C4140": "V100",
    "DGX-2": "V100",
    "DGX A100": "A100",
    "HGX A100 8-GPU": "A100",
    "HGX A100 8-GPU, Intel 2-socket": "A100",
    "HGX A100 4-GPU (direct)": "A100",
    "JUWELS Booster node": "A100",
    "HGX A800 8-GPU": "A800",
    "HGX H800 8-GPU": "H800",
    "A100 PCIe 8-GPU with NVLink bridges": "A100",
    "Azure NC96ads A100 v4": "A100",
    "H100 NVL 8-GPU with NVLink bridges": "H100 NVL",
    "dgx-h100": "H100",
    "DGX H100": "H100",
    "HGX H100 8-GPU": "H100",
    "DGX H200": "H200",
    "HGX H20 8-GPU": "H20",
    "DGX B200": "B200",
    "DGX B300": "B300",
    "GB200 NVL72 compute tray": "GB200",
    "BM.GPU.GB200-v3.4": "GB200",
    "a4x": "GB200",
    "GB300 NVL72 compute tray (Azure ND128isr_GB300_v6)": "GB300",
    "AWS p4d.24xlarge": "A100",
    "p4de.24xlarge": "A100",
    "AWS p5.48xlarge": "H100",
    "p5e.48xlarge": "H200",
    "AWS p5en.48xlarge": "H200",
    "AWS p6-b200.48xlarge": "B200",
    "GCP a3-highgpu-8g": "H100",
    "GCP a3-megagpu-8g": "H100",
    "GCP a3-ultragpu-8g": "H200",
    "GCP a4-highgpu-8g": "B200",
    "Azure ND A100 v4": "A100",
    "Azure ND H100 v5": "H100",
    "L40S 8-GPU": "L40S",
    "A10 8-GPU": "A10",
    "T4 8-GPU": "T4",
    "AWS g5.48xlarge (8x A10G)": "A10G",
    "AMD MI250X 4-module node (8 GCDs)": "MI250X",
    "Frontier node": "MI250X",
    "AMD MI300X 8-GPU": "MI300X",
    "AMD MI350X 8-GPU": "MI350X",
    "AMD MI355X 8-GPU": "MI355X",
    "AMD MI100 8-GPU, two XGMI islands of 4": "MI100",
    "AMD MI210 8-GPU, two XGMI islands of 4": "MI210",
    "Intel Gaudi2 8-card": "Gaudi2",
    "Intel Gaudi3 8-card": "Gaudi3",
    "AWS g4dn.xlarge": "T4",
    "AWS g4dn.2xlarge": "T4",
    "AWS g4dn.4xlarge": "T4",
    "AWS g4dn.8xlarge": "T4",
    "AWS g4dn.12xlarge": "T4",
    "AWS g4dn.metal": "T4",
    "AWS g5.xlarge": "A10G",
    "AWS g5.2xlarge": "A10G",
    "AWS g5.4xlarge": "A10G",
    "AWS g5.8xlarge": "A10G",
    "AWS g5.12xlarge": "A10G",
    "AWS g5.24xlarge": "A10G",
    "AWS g6.xlarge": "L4",
    "AWS g6.2xlarge": "L4",
    "AWS g6.4xlarge": "L4",
    "AWS g6.8xlarge": "L4",
    "AWS g6.12xlarge": "L4",
    "AWS g6.24xlarge": "L4",
    "AWS g6.48xlarge": "L4",
    "AWS g6e.xlarge": "L40S",
    "AWS g6e.2xlarge": "L40S",
    "AWS g6e.4xlarge": "L40S",
    "AWS g6e.8xlarge": "L40S",
    "AWS g6e.16xlarge": "L40S",
    "AWS g6e.12xlarge": "L40S",
    "AWS g6e.24xlarge": "L40S",
    "AWS g6e.48xlarge": "L40S",
    "AWS g7e.2xlarge": "RTX PRO 6000",
    "AWS g7e.8xlarge": "RTX PRO 6000",
    "AWS g7e.12xlarge": "RTX PRO 6000",
    "AWS g7e.24xlarge": "RTX PRO 6000",
    "AWS g7e.48xlarge": "RTX PRO 6000",
    "AWS p3.2xlarge": "V100",
    "AWS p5.4xlarge": "H100",
    "AWS p3.8xlarge": "V100",
    "GCP g2-standard-4": "L4",
    "GCP g2-standard-8": "L4",
    "GCP g2-standard-16": "L4",
    "GCP g2-standard-24": "L4",
    "GCP g2-standard-48": "L4",
    "GCP g2-standard-96": "L4",
    "GCP g4-standard-48": "RTX PRO 6000",
    "GCP g4-standard-96": "RTX PRO 6000",
    "GCP g4-standard-192": "RTX PRO 6000",
    "GCP g4-standard-384": "RTX PRO 6000",
    "GCP a2-highgpu-1g": "A100",
    "GCP a2-highgpu-2g": "A100",
    "GCP a2-highgpu-4g": "A100",
    "GCP a2-highgpu-8g": "A100",
    "GCP a2-megagpu-16g": "A100",
    "GCP a3-highgpu-1g": "H100",
    "GCP a3-highgpu-2g": "H100",
    "GCP a3-highgpu-4g": "H100",
    "Azure NC24ads A100 v4": "A100",
    "Azure NC48ads A100 v4": "A100",
    "Azure NC40ads H100 v5": "H100 NVL",
    "Azure NC80adis H100 v5": "H100 NVL",
    "Azure NV36ads A10 v5": "A10",
    "Azure NV36adms A10 v5": "A10",
    "Azure NV72ads A10 v5": "A10",
    "Azure NC4as T4 v3": "T4",
    "Azure NC64as T4 v3": "T4",
    "OCI VM.GPU.A10.1": "A10",
    "OCI VM.GPU.A10.2": "A10",
    "OCI BM.GPU.A10.4": "A10",
    "OCI BM.GPU.L40S.4": "L40S",
    "L4 8-GPU": "L4",
    "L40 8-GPU": "L40",
    "A30 8-GPU": "A30",
    "A40 8-GPU": "A40",
    "H100 PCIe 8-GPU": "H100 PCIe",
    "RTX PRO 6000 8-GPU": "RTX PRO 6000",
    "A2 4-GPU": "A2",
    "GH200 1-GPU": "GH200",
    "PowerEdge XE9680 H100": "H100",
    "PowerEdge XE9680 H200": "H200",
    "PowerEdge XE9680 B200": "B200",
}

# Planning rate of one link, MB/s, by NVLink generation; of others the rate their maker states.
LINK_RATES = {
    **dict.fromkeys(["P100"], 18000),
    **dict.fromkeys(["V100", "A100", "A800"], 20000),
    **dict.fromkeys(["H100", "H100 NVL", "H200", "H20", "H800"], 20600),
    **dict.fromkeys(["B200", "B300", "GB200", "GB300"], 40100),
    "MI250X": 50000,
    "MI300X": 64000,
    "MI350X": 76500,
    "MI355X": 76500,
    "Gaudi2": 12500,
    "Gaudi3": 25000,
    **dict.fromkeys(["MI100", "MI210"], None),
}
"""Of GPUs that are never linked there is none, and no model of one GPU has links."""


# Dense BF16 tensor peak of one GPU in TFLOP/s, as its maker publishes it; FP16 where that is faster.
PEAKS = {
    "P100": "21.2",
    "V100": "125",
    "T4": "65",
    "A10": "125",
    "A10G": "70",
    **dict.fromkeys(["A100", "A800"], "312"),
    "A2": "18",
    "A30": "165",
    "A40": "149.7",
    "L4": "121",  # 242 with sparsity
    "L40": "181.05",
    "L40S": "362.05",
    "RTX PRO 6000": "500",  # FP4 of 4,000 with sparsity: 2,000 dense, FP8 half of it, BF16 half of that
    **dict.fromkeys(["H100", "H800", "H200", "GH200"], "989.5"),  # 1,979 with sparsity
    "H100 PCIe": "756.5",  # 1,513 with sparsity
    "H100 NVL": "835.5",  # 1,671 with sparsity
    "H20": "148",
    **dict.fromkeys(["B200", "B300"], "2250"),  # 36,000 / 8 GPUs / 2
    **dict.fromkeys(["GB200", "GB300"], "2500"),  # 360,000 / 72 GPUs / 2
    "MI100": "184.6",
    "MI210": "181",
    "MI250X": "191.5",  # 383 / 2 GCDs
    "MI300X": "1307.4",  # 304 CUs x 2.1 GHz x 2,048
    "MI350X": "2306.9",  # 256 CUs x 2.2 GHz x 4,096
    "MI355X": "2516.6",  # 256 CUs x 2.4 GHz x 4,096
    "Gaudi2": "432",
    "Gaudi3": "1835",
}


def test_every_known_server_is_found() -> None:
    for name, gpu in EXPECTED.items():
        found = find(name)
        assert found is not None, name
        assert found.gpu == gpu, name


def test_every_model_is_found_by_each_of_its_names() -> None:
    for model in server_models():
        for name in (model.name, *model.aliases, *model.slugs):
            assert find(name) is model


def test_every_file_is_named_by_its_model_and_listed() -> None:
    stems = sorted(
        f.name[:-5] for f in files("models.rates.catalogue").iterdir() if f.name.endswith("yaml")
    )
    assert stems == [slug(model.name).strip("-") for model in server_models()]
    assert len(stems) == 124


def test_a_model_is_consistent() -> None:
    for model in server_models():
        assert model.vendor in {"NVIDIA", "AMD", "Intel"}
        assert model.sources
        assert model.confidence
        linked = model.fabric != "pcie" or model.vendor == "AMD"
        assert model.link_MBps == (LINK_RATES[model.gpu] if linked else None)
        assert model.pcie_MBps in {10000, 20000, 40000}
        assert model.sys_MBps == 10000
        for groups in (model.numa, model.pcie_switch):
            assert groups is None or len(groups) == model.gpus
        assert len({nic.name for nic in model.nics}) == len(model.nics)
        for nic in model.nics:
            assert nic.gpus is None or set(nic.gpus) <= set(range(model.gpus))
        assert (model.nvlink_domain_nodes > 1) == ("NVL72" in model.name or "GB200" in model.name)


def test_a_model_has_the_published_speed_of_its_gpu_and_the_source_of_it() -> None:
    for model in server_models():
        peak = PEAKS[model.gpu]
        assert model.relative_speed == Fraction(peak)
        (source,) = (s for s in model.sources if "relativeSpeed" in s)
        assert source.startswith(f"relativeSpeed {peak}, TFLOP/s: {model.vendor} ")


def test_a_matrix_is_symmetric_and_its_links_are_those_of_its_gpus() -> None:
    for model in server_models():
        matrix = model.matrix
        if matrix is None:
            continue
        assert model.gpus <= MAX_MESH_GPUS
        assert [len(row) for row in matrix] == [model.gpus] * model.gpus
        for a, row in enumerate(matrix):
            assert row[a] == "X"
            assert [matrix[b][a] for b in range(model.gpus)] == list(row)
            assert all(re.fullmatch(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS", cell) for cell in row)
            links = sum(map(link_count, row))
            if model.fabric == "pcie":
                assert links == 0
            elif model.links_per_gpu is not None:
                assert links == model.links_per_gpu
        if model.gpu == "MI250X":  # five links between modules, from the two dies together
            for a in range(0, 8, 2):
                between = (
                    sum(map(link_count, matrix[a])) + sum(map(link_count, matrix[a + 1])) - 2 * 4
                )
                assert between == 5


def test_speeds_and_neighbours_of_nics_are_those_of_the_sources() -> None:
    def nics(name: str) -> list[tuple[int | None, tuple[int, ...] | None]]:
        found = find(name)
        assert found is not None
        return [(nic.megabits, nic.gpus) for nic in found.nics]

    assert nics("DGX-1 V100") == [(100_000, (2 * i, 2 * i + 1)) for i in range(4)]
    assert nics("DGX H100") == [(400_000, (i,)) for i in range(8)]
    assert nics("HGX H20 8-GPU") == [(None, (i,)) for i in range(8)]
    assert nics("GB200 NVL72") == [(400_000, None)] * 4
    assert nics("GB300 NVL72") == [(800_000, pair) for pair in ((0, 1), (0, 1), (2, 3), (2, 3))]
    assert nics("p5.48xlarge") == [(100_000, None)] * 32
    assert nics("g5.48xlarge") == [(100_000, (4, 5, 6, 7))]  # on NUMA node 1
    assert nics("Azure NDv2 (Standard_ND40rs_v2)") == [(100_000, (0, 1, 2, 3))]
    assert sum(speed or 0 for speed, _ in nics("Gaudi3 8-card")) == 24 * 200_000


def test_the_files_are_documents_that_a_cluster_may_carry_inline() -> None:
    for file in files("models.rates.catalogue").iterdir():
        if file.name.endswith(".yaml") and "ndv2" not in file.name:
            document = ServerModelDocument.model_validate(
                yaml.load(file.read_text("utf-8"), Loader=yaml.CSafeLoader)
            )
            assert document.field_errors() == ()
