"""Small server models for tests: meshes, bridges, switches, PCIe, NVLink domains.

Promises: one constructor a fabric, rates of round numbers that a test can multiply by hand.
Called by ``building`` and by the generator of tiny instances.
"""

from __future__ import annotations

from models.hardware import Nic, ServerModel

DGX1_V100 = (
    ("X", "NV1", "NV1", "NV2", "NV2", "SYS", "SYS", "SYS"),
    ("NV1", "X", "NV2", "NV1", "SYS", "NV2", "SYS", "SYS"),
    ("NV1", "NV2", "X", "NV2", "SYS", "SYS", "NV1", "SYS"),
    ("NV2", "NV1", "NV2", "X", "SYS", "SYS", "SYS", "NV1"),
    ("NV2", "SYS", "SYS", "SYS", "X", "NV1", "NV1", "NV2"),
    ("SYS", "NV2", "SYS", "SYS", "NV1", "X", "NV2", "NV1"),
    ("SYS", "SYS", "NV1", "SYS", "NV1", "NV2", "X", "NV2"),
    ("SYS", "SYS", "SYS", "NV1", "NV2", "NV1", "NV2", "X"),
)
"""Links of the DGX-1 with V100: two quads, eight double links, six links a GPU."""

FAST_NICS = (Nic("eth0", 400_000),)
"""One port of 400 Gbit/s near every GPU: 50,000 MB/s."""


def links(gpus: int, named: dict[tuple[int, int], str], other: str) -> tuple[tuple[str, ...], ...]:
    """Symmetric link matrix: ``named`` by pair (a < b), ``other`` for every pair not named."""
    return tuple(
        tuple("X" if a == b else named.get((min(a, b), max(a, b)), other) for b in range(gpus))
        for a in range(gpus)
    )


def v100(nics: tuple[Nic, ...] = FAST_NICS, name: str = "mesh v100") -> ServerModel:
    """DGX-1 V100: six links of 20,000 MB/s a GPU, PCIe Gen 3."""
    return ServerModel(
        name=name,
        gpu="V100",
        gpus=8,
        fabric="direct",
        matrix=DGX1_V100,
        link_MBps=20000,
        links_per_gpu=6,
        pcie_MBps=10000,
        nics=nics,
    )


def ring4(nics: tuple[Nic, ...] = FAST_NICS, name: str = "ring of four") -> ServerModel:
    """Four GPUs 0-1-2-3-0, one link of 20,000 MB/s on each side of the square; 0-2 and 1-3 over PCIe.

    inside: all four 2 rings (one each way) = 40,000; a side 20,000; a diagonal 0.9 x 10,000 (PHB).
    """
    sides = {(0, 1): "NV1", (1, 2): "NV1", (2, 3): "NV1", (0, 3): "NV1"}
    return ServerModel(
        name=name,
        gpu="V100",
        gpus=4,
        fabric="direct",
        matrix=links(4, sides, "PHB"),
        link_MBps=20000,
        links_per_gpu=2,
        pcie_MBps=10000,
        nics=nics,
    )


def pairs4(nics: tuple[Nic, ...] = FAST_NICS, name: str = "two bridged pairs") -> ServerModel:
    """Four GPUs, bridges of four links of 20,000 MB/s between 0-1 and 2-3, PCIe Gen 4 between pairs."""
    return ServerModel(
        name=name,
        gpu="A100",
        gpus=4,
        fabric="bridges",
        matrix=links(4, {(0, 1): "NV4", (2, 3): "NV4"}, "SYS"),
        link_MBps=20000,
        links_per_gpu=4,
        pcie_MBps=20000,
        nics=nics,
    )


def switched(
    gpus: int = 8, nics: tuple[Nic, ...] = FAST_NICS, name: str | None = None, gpu: str = "H100"
) -> ServerModel:
    """NVLink switch: any set of two or more GPUs reaches 18 x 20,600 = 370,800 MB/s."""
    return ServerModel(
        name=name or f"switched {gpu} {gpus}",
        gpu=gpu,
        gpus=gpus,
        fabric="nvswitch",
        link_MBps=20600,
        links_per_gpu=18,
        pcie_MBps=40000,
        nics=nics,
    )


def pcie(
    gpus: int = 4, nics: tuple[Nic, ...] = FAST_NICS, name: str | None = None, gpu: str = "T4"
) -> ServerModel:
    """No NVLink: PIX inside a half, SYS between the halves; 10,000 and min(10,000, 8,000) MB/s."""
    half = (gpus + 1) // 2
    near = {
        (a, b): "PIX" for a in range(gpus) for b in range(a + 1, gpus) if (a < half) == (b < half)
    }
    return ServerModel(
        name=name or f"pcie {gpu} {gpus}",
        gpu=gpu,
        gpus=gpus,
        fabric="pcie",
        matrix=links(gpus, near, "SYS"),
        pcie_MBps=10000,
        nics=nics,
    )


def nvl(
    gpus: int = 4, domain_nodes: int = 3, nics: tuple[Nic, ...] = FAST_NICS, name: str | None = None
) -> ServerModel:
    """A tray of a domain that shares one NVLink fabric: 18 x 40,100 = 721,800 MB/s across servers."""
    return ServerModel(
        name=name or f"nvl {gpus} x {domain_nodes}",
        gpu="GB200",
        gpus=gpus,
        fabric="nvswitch",
        link_MBps=40100,
        links_per_gpu=18,
        pcie_MBps=40000,
        nics=nics,
        nvlink_domain_nodes=domain_nodes,
    )
