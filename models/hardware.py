"""Server models: GPUs, the links between them, PCIe and NUMA groups, NICs; and sets of GPUs as bit masks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

Fabric = Literal["nvswitch", "direct", "bridges", "pcie"]

MAX_MESH_GPUS = 16
"""Most GPUs of a server without an NVSwitch."""


def slug(name: str) -> str:
    """Lower case, every run of characters other than a-z and 0-9 becomes one ``-``."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())


@dataclass(frozen=True, slots=True)
class Nic:
    """One network interface.

    ``megabits`` is the line rate in Mbit/s (gbps x 1000), None when the speed is not known.
    ``gpus`` are the indices of the near GPUs, ascending; None means near all of them.
    """

    name: str
    megabits: int | None
    gpus: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ServerModel:
    """One kind of server. All rates are MB/s (10^6 bytes a second), one direction.

    ``matrix[a][b]`` is the nvidia-smi name of the path between GPUs a and b (``X`` on the
    diagonal, ``NVn`` = n links); None is allowed only for ``fabric == "nvswitch"``.
    ``link_MBps`` is the planning rate of one NVLink; None when it is not known.
    ``nvlink_domain_nodes`` > 1: this many such servers share one NVLink fabric (NVL72: 18).
    ``relative_speed``: of one GPU, in any unit that all models share (the catalogue: dense BF16 or
    FP16 tensor peak in TFLOP/s); None when it is not known.
    """

    name: str
    gpu: str
    gpus: int
    fabric: Fabric
    aliases: tuple[str, ...] = ()
    vendor: str = ""
    matrix: tuple[tuple[str, ...], ...] | None = None
    link_MBps: int | None = None
    links_per_gpu: int | None = None
    pcie_MBps: int = 20000
    sys_MBps: int = 10000
    numa: tuple[int | None, ...] | None = None
    pcie_switch: tuple[int | None, ...] | None = None
    nics: tuple[Nic, ...] = ()
    nvlink_domain_nodes: int = 1
    relative_speed: Fraction | None = None
    sources: tuple[str, ...] = ()
    confidence: str = ""

    def __hash__(self) -> int:
        return hash((self.name, self.gpus))

    @property
    def slugs(self) -> tuple[str, ...]:
        """Slugs of the name and of every alias, each once, in order."""
        return tuple(dict.fromkeys(slug(name) for name in (self.name, *self.aliases)))

    @property
    def switched(self) -> bool:
        """Whether any subset of the GPUs reaches the full NVLink rate."""
        return self.fabric == "nvswitch"

    @property
    def linked(self) -> bool:
        """Whether NVLinks join some of its GPUs, or may: its paths are not known."""
        paths = (path for row in self.matrix or (("NV",),) for path in row)
        return self.switched or any(path.startswith("NV") for path in paths)

    @property
    def usable(self) -> bool:
        """Whether its bandwidth can be computed: a matrix or a switch, and a rate if it has links."""
        paths = self.switched or self.matrix is not None
        return paths and (self.link_MBps is not None or not self.linked)

    @property
    def all_gpus(self) -> int:
        """Bit mask of every GPU of the server."""
        return (1 << self.gpus) - 1


FindModel = Callable[[str], ServerModel | None]
"""Finds a server model by name or alias."""


@lru_cache(maxsize=1 << 14)
def bits(mask: int) -> tuple[int, ...]:
    """Indices of the set bits, ascending."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def mask_of(gpus: Iterable[int]) -> int:
    """Bit mask of GPU indices; bit i is GPU i."""
    mask = 0
    for gpu in gpus:
        mask |= 1 << gpu
    return mask
