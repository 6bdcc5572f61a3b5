"""What one server's tool said of it, whoever made the GPUs: the links, NUMA nodes, CPUs and NICs.

Promises: frozen data only; names of paths as the contract writes them; nothing derived or guessed.
Made by ``nvidia`` and ``rocm``, used by ``recognising``, ``nearness`` and ``modelling``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tool = Literal["nvidia-smi topo -m", "rocm-smi --showtopo", "rocm-smi --showtoponuma"]

MOST_GPUS = 64
"""Most GPUs of one server that a topology may have: no tool has been seen to print more than 16."""

MOST_NICS = 256
"""Most NIC columns: the largest server known has 32."""

MAKERS: dict[Tool, str] = {
    "nvidia-smi topo -m": "NVIDIA",
    "rocm-smi --showtopo": "AMD",
    "rocm-smi --showtoponuma": "AMD",
}
"""Who makes the GPUs that a tool knows."""


@dataclass(frozen=True, slots=True)
class NicPaths:
    """One NIC. ``paths[g]``: name of the path between it and GPU index g (``PIX`` ... ``SYS``)."""

    name: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """One server as it was printed; every tuple has one entry a GPU, in ascending GPU number.

    ``numbers``: the GPU numbers printed, 0 to n-1 but for cut or edited text. ``matrix``: names of
    paths (``X`` on the diagonal, ``NVn`` = n links, ``SOC`` already written ``SYS``); None where
    only NUMA nodes were printed. ``counted``: whether the n of ``NVn`` is printed; rocm-smi tells
    linked from not linked alone, written ``NV1``. ``numa``: the NUMA nodes of its affinity,
    ascending, None where unknown. ``own_numa``: NUMA node of the GPU's own memory (Grace).
    ``cpus``: CPU affinity as printed. ``product``: the GPU's name where the text beside the matrix
    tells it. ``remarks``: what was left out or odd, one sentence each.
    """

    tool: Tool
    file: str
    line: int
    numbers: tuple[int, ...]
    matrix: tuple[tuple[str, ...], ...] | None
    counted: bool = True
    nics: tuple[NicPaths, ...] = ()
    numa: tuple[tuple[int, ...] | None, ...] | None = None
    own_numa: tuple[int | None, ...] | None = None
    cpus: tuple[str | None, ...] | None = None
    product: str | None = None
    remarks: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """How many GPUs it has."""
        return len(self.numbers)

    @property
    def maker(self) -> str:
        """Who made the GPUs, as the catalogue's ``vendor``."""
        return MAKERS[self.tool]


def link_count(path: str) -> int:
    """Links of a path: n of ``NVn``, 0 for every other."""
    return int(path[2:]) if path.startswith("NV") else 0


def runs(numbers: tuple[int, ...]) -> str:
    """``0-3,6`` of ascending numbers."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
