"""Every captured output is read as what it shows; expectations are written by hand from the text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from models.rates import catalogue
from planner.errors import InputError
from planner.read.model_files import read_topologies
from planner.read.topo.server_model import Recognition, recognise

SAMPLES = Path(__file__).parents[1] / "data" / "nvidia-smi"

HALVES = (0, 0, 0, 0, 1, 1, 1, 1)
ALL = None
"""Near GPUs of a NIC that is near all."""


@dataclass(frozen=True)
class Shown:
    """What a sample shows. ``cells``: ``"0-3 NV2 0-6 SYS"``; ``near``: GPUs by NIC name.

    ``best``: what it is recognised as; ``gpu`` and ``rate``: None where the matrix leaves it open.
    """

    gpus: int
    cells: str
    fabric: str
    near: dict[str, tuple[int, ...] | None]
    numa: tuple[int | None, ...] | None
    best: tuple[str, ...]
    gpu: str | None
    rate: int | None


NO_NICS: dict[str, tuple[int, ...] | None] = {}
VMS = ("V100 8-GPU cloud VM (p3.16xlarge-like)", "V100 8-GPU cloud VM (p3dn.24xlarge-like)")
BRIDGED = ("A100 PCIe 8-GPU with NVLink bridges", "H100 NVL 8-GPU with NVLink bridges")
PAIRS = {"mlx5_0": (0, 1), "mlx5_1": (0, 1), "mlx5_2": (2, 3), "mlx5_3": (2, 3),
         "mlx5_4": (4, 5), "mlx5_5": (4, 5), "mlx5_6": (6, 7), "mlx5_7": (6, 7)}  # fmt: skip
GRACE = (
    "GB200 NVL72 compute tray",
    "GB300 NVL72 compute tray (Azure ND128isr_GB300_v6)",
    "OCI BM.GPU.GB200-v3.4",
)

SHOWN = {
    "01-dgx1-v100-4nic-tabs": [
        Shown(8, "0-3 NV2 0-4 NV2 0-1 NV1 0-6 SYS", "direct",
              {"mlx5_0": (0, 1), "mlx5_2": (4, 5), "mlx5_1": (2, 3), "mlx5_3": (6, 7)},
              None, ("DGX-1 V100",), "V100", 20000),
    ],
    "02-v100x8-onecx-numa-split": [
        Shown(8, "0-3 NV2 0-4 NV2 0-1 NV1 0-6 SYS", "direct", {"mlx5_0": (2, 3)},
              None, ("DGX-1 V100",), "V100", 20000),
    ],
    "03-v100x8-permuted-order-node": [
        Shown(8, "0-1 NV2 0-2 NV2 0-3 NV1 0-4 NV1 0-7 NODE", "direct", {"mlx5_0": ALL},
              None, ("V100 8-GPU, permuted numbering",), "V100", 20000),
    ],
    "04-v100x8-vm-phb-numa-range": [
        Shown(8, "0-3 NV2 0-4 NV2 0-1 NV1 0-6 PHB", "direct", NO_NICS, None, VMS, "V100", 20000),
    ],
    "06-a100x8-8nic-nic-legend": [
        Shown(8, "0-7 NV12 3-4 NV12", "nvswitch", dict(PAIRS), HALVES,
              ("HGX A100 8-GPU, Intel 2-socket",), "A100", 20000),
    ],
    "07-a100x4-direct-4nic": [
        Shown(4, "0-1 NV4 0-3 NV4 1-2 NV4", "direct",
              {"NIC0": (0,), "NIC1": (1,), "NIC2": (2,), "NIC3": (3,)},
              (0, 0, 0, 0), ("HGX A100 4-GPU (direct)",), "A100", 20000),
    ],
    "07b-a100x4-direct-2nic-numa2-6": [
        Shown(4, "0-1 NV4 0-3 NV4", "direct", {"mlx5_0": (0, 1), "mlx5_1": (2, 3)},
              (2, 2, 6, 6), ("HGX A100 4-GPU (direct)",), "A100", 20000),
    ],
    "08-nv18-8gpu-8nic-pix-pairs-gke": [
        Shown(8, "0-7 NV18", "nvswitch", dict(PAIRS), HALVES,
              ("GCP a3-ultragpu-8g", "GCP a4-highgpu-8g"), None, None),
    ],
    "09-nv18-8gpu-10nic-collapsed-columns": [
        Shown(8, "0-7 NV18", "nvswitch",
              {"mlx5_0": (), **{f"mlx5_gdr_{g}": (g,) for g in range(8)},
               "mlx5_stor_0": (0, 1, 2, 3)},
              (None, None, None, None, 1, 1, 1, 1), ("DGX H100", "DGX B200", "HGX H20 8-GPU"), None, None),
    ],
    "10-gb200-4gpu-numa-lists": [
        Shown(4, "0-1 NV18 2-3 NV18", "nvswitch", NO_NICS, (0, 0, 1, 1), GRACE, None, 40100),
    ],
    "11-8gpu-nvlink-bridge-pairs": [
        Shown(8, "0-1 NV12 0-2 NODE 0-4 SYS 6-7 NV12", "bridges", NO_NICS, HALVES,
              BRIDGED, None, None),
    ],
    "11b-azure-nc96ads-a100-4gpu-4numa": [
        Shown(4, "0-1 NV12 0-2 SYS 2-3 NV12", "bridges", NO_NICS, (0, 1, 2, 3),
              ("Azure NC96ads A100 v4",), "A100", 20000),
    ],
    "11c-8gpu-nv12-pairs-2nic-phb": [
        Shown(8, "0-1 NV12 0-2 NODE 0-4 SYS 6-7 NV12", "bridges", {"NIC0": (1,), "NIC1": (1,)},
              HALVES, BRIDGED, None, None),
    ],
    "12-2gpu-nv2-and-phb-desktop": [
        Shown(2, "0-1 NV2", "direct", NO_NICS, None, (), None, None),
        Shown(2, "0-1 PHB", "pcie", NO_NICS, None, (), None, None),
    ],
    "13-k80x4-node-only": [
        Shown(4, "0-1 NODE 2-3 NODE", "pcie", NO_NICS, None, (), None, None),
    ],
    "14-soc-legend-4gpu-2015": [
        Shown(4, "0-1 PHB 0-2 SYS 2-3 PHB", "pcie", NO_NICS, None, (), None, None),
    ],
    "14b-soc-legend-k80-mlx4": [
        Shown(4, "0-1 PIX 0-2 PHB 2-3 PIX", "pcie", {"mlx4_0": ALL}, None, (), None, None),
    ],
    "15-ansi-underline-header-2gpu": [
        Shown(2, "0-1 NV12", "direct", {"NIC0": (0,), "NIC1": (0,)}, (0, 1), (), None, None),
    ],
    "16-a6000-pair-plus-lone-3gpu": [
        Shown(3, "0-1 NV4 0-2 NODE 1-2 NODE", "bridges", NO_NICS, (0, 0, 0), (), None, None),
    ],
    "17-pcie-only-8gpu-6plus2": [
        Shown(8, "0-1 NODE 1-2 PHB 3-4 PHB 5-6 SYS 6-7 PHB", "pcie", NO_NICS,
              (0, 0, 0, 0, 0, 0, 1, 1), (), None, None),
    ],
    "18-v100x4-nv2-all-odd-even-cpus": [
        Shown(4, "0-1 NV2 0-3 NV2 1-2 NV2", "direct", {"mlx5_0": ALL}, (0, 0, 0, 0),
              ("V100 4-GPU full mesh (NV2)",), "V100", 20000),
    ],
    "19-v100x4-slice-of-mesh-sys-nic": [
        Shown(4, "0-3 NV2 0-1 NV1 1-2 NV2 2-3 NV2", "direct", {"mlx5_0": ()}, None,
              (), None, None),
    ],
    "20-rocm-mi300-8gpu-showtopo": [
        Shown(8, "0-1 NV1 0-7 NV1 3-4 NV1", "direct", NO_NICS, HALVES,
              ("AMD MI300X 8-GPU", "AMD MI350X 8-GPU", "AMD MI355X 8-GPU"), None, None),
    ],
    "21-rocm-4gpu-pcie-weight52-hops3": [
        Shown(4, "0-1 SYS 2-3 SYS", "pcie", NO_NICS, None, (), None, None),
    ],
}  # fmt: skip

REFUSED = {
    "05-dgx2-16gpu-TRUNCATED": "the row of GPU4 is missing",
    "22-rocm-mi250x-lumi-showtoponuma": "the table `Link Type between two GPUs` is missing",
    "23-rocm-xgmi-two-islands-of-4-TRUNCATED": "`Weight between two GPUs` is missing",
}


def readings(stem: str, gpu: str | None = None) -> list[Recognition]:
    text = (SAMPLES / f"{stem}.txt").read_text(encoding="utf-8")
    known = catalogue.server_models()
    topologies = read_topologies(f"{stem}.txt", text)
    return [recognise(topology, known, gpu=gpu) for topology in topologies]


def test_every_sample_has_its_expectation_and_its_source() -> None:
    stems = {path.stem for path in SAMPLES.glob("*.txt")}
    assert stems == {*SHOWN, *REFUSED}
    index = (SAMPLES / "INDEX.md").read_text(encoding="utf-8")
    assert all(f"| {stem}.txt |" in index for stem in stems)


@pytest.mark.parametrize("stem", SHOWN)
def test_a_sample_is_read_as_it_shows(stem: str) -> None:
    found = readings(stem)
    assert len(found) == len(SHOWN[stem])
    for reading, shown in zip(found, SHOWN[stem], strict=True):
        model = reading.model
        assert (model.gpus, model.fabric) == (shown.gpus, shown.fabric)
        assert model.matrix is not None
        words = shown.cells.split()
        for pair, cell in zip(words[::2], words[1::2], strict=True):
            a, b = map(int, pair.split("-"))
            assert model.matrix[a][b] == model.matrix[b][a] == cell, pair
        assert {nic.name: nic.gpus for nic in model.nics} == shown.near
        assert model.numa == shown.numa


@pytest.mark.parametrize("stem", SHOWN)
def test_a_sample_is_recognised_by_its_matrix(stem: str) -> None:
    for reading, shown in zip(readings(stem), SHOWN[stem], strict=True):
        best = {like.model.name for like in reading.best}
        assert set(shown.best) <= best
        assert bool(best) == bool(shown.best)
        assert (reading.gpu, reading.model.link_MBps) == (shown.gpu, shown.rate)
        if len(shown.best) == 1:
            assert best == set(shown.best)


@pytest.mark.parametrize("stem", REFUSED)
def test_a_sample_without_the_whole_matrix_is_refused(stem: str) -> None:
    with pytest.raises(InputError) as refused:
        readings(stem)
    (fault,) = refused.value.faults
    assert REFUSED[stem] in fault.what
    assert fault.file == f"{stem}.txt"
    assert fault.line is not None


def test_the_speed_of_nics_is_told_by_the_model_alone() -> None:
    speeds = {
        stem: {nic.megabits for nic in readings(stem)[0].model.nics} for stem in SHOWN
    }  # fmt: skip
    # Four EDR NICs in the places of a DGX-1's; one NIC elsewhere on the same board is not one of them.
    assert speeds["01-dgx1-v100-4nic-tabs"] == {100_000}
    assert speeds["02-v100x8-onecx-numa-split"] == {None}
    # a3-ultragpu and a4-highgpu both have 400 Gb/s in these places.
    assert speeds["08-nv18-8gpu-8nic-pix-pairs-gke"] == {400_000}
    assert speeds["09-nv18-8gpu-10nic-collapsed-columns"] == {None}


@pytest.mark.parametrize(
    ("stem", "gpu", "rate", "domain"),
    [
        ("08-nv18-8gpu-8nic-pix-pairs-gke", "H200", 20600, 1),
        ("08-nv18-8gpu-8nic-pix-pairs-gke", "NVIDIA B200", 40100, 1),
        ("09-nv18-8gpu-10nic-collapsed-columns", "h100", 20600, 1),
        ("10-gb200-4gpu-numa-lists", "GB300", 40100, 18),
        ("11-8gpu-nvlink-bridge-pairs", "H100 NVL", 20600, 1),
        ("11-8gpu-nvlink-bridge-pairs", "A100", 20000, 1),
        # No known server: the rate of its generation.
        ("16-a6000-pair-plus-lone-3gpu", "RTX A6000", 12000, 1),
        ("20-rocm-mi300-8gpu-showtopo", "MI355X", 76500, 1),
        ("20-rocm-mi300-8gpu-showtopo", "MI999", None, 1),
    ],
)
def test_the_user_says_which_gpu_it_has(stem: str, gpu: str, rate: int | None, domain: int) -> None:
    (reading,) = readings(stem, gpu)
    assert (reading.model.link_MBps, reading.model.nvlink_domain_nodes) == (rate, domain)
