"""The topology of one server as a tool prints it, and what follows from its paths: no GPU model, no rate."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Literal

Tool = Literal["nvidia-smi topo -m", "rocm-smi --showtopo"]

VENDORS: dict[Tool, str] = {"nvidia-smi topo -m": "NVIDIA", "rocm-smi --showtopo": "AMD"}


@dataclass(frozen=True, slots=True)
class NicPaths:
    """One NIC. ``paths[g]``: name of the path between it and GPU g (``PIX`` ... ``SYS``)."""

    name: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """One server as printed; every tuple has one entry a GPU.

    ``matrix``: names of paths (``X`` on the diagonal, ``NVn`` = n links, old ``SOC`` is ``SYS``).
    ``counted``: False where the tool does not print the number of links, written ``NV1``.
    ``numa``: NUMA nodes of its affinity, ascending. ``own_numa``: NUMA node of the GPU's own memory
    (Grace). ``cpus``: CPU affinity as printed. None where a value is not known.
    """

    tool: Tool
    file: str
    line: int
    matrix: tuple[tuple[str, ...], ...]
    counted: bool = True
    nics: tuple[NicPaths, ...] = ()
    numa: tuple[tuple[int, ...] | None, ...] | None = None
    own_numa: tuple[int | None, ...] | None = None
    cpus: tuple[str | None, ...] | None = None
    remarks: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        return len(self.matrix)

    @property
    def vendor(self) -> str:
        """Vendor of the GPUs, as in the catalogue."""
        return VENDORS[self.tool]


_BEST_FIRST = ("PIX", "PXB", "PHB", "NODE")


def near_gpus(topology: Topology) -> tuple[tuple[int, ...] | None, ...]:
    """Of each NIC, the GPUs it is near; None: all of them.

    A NIC is near the GPUs it shares a PCIe switch with (PIX, PXB), a closer pairing first: PXB does
    not count where both the GPU has a PIX NIC and the NIC a PIX GPU (as on a DGX-2). A NIC behind
    no such switch is near the GPUs it has its best path to, but never over SYS: contract, section
    3.2, counts a NIC of the other socket by half. A GPU with memory of its own NUMA node (Grace)
    is reached over C2C, so SYS says nothing about it.
    """
    own = topology.own_numa
    coherent = own is not None and None not in own
    paired = {
        g for g in range(topology.gpus) if any(nic.paths[g] == "PIX" for nic in topology.nics)
    }
    return tuple(_near(nic, paired, coherent=coherent) for nic in topology.nics)


def _near(nic: NicPaths, paired: set[int], *, coherent: bool) -> tuple[int, ...] | None:
    best = next((path for path in _BEST_FIRST if path in nic.paths), None)
    if best is None:
        return None if coherent else ()
    near = tuple(
        g
        for g, path in enumerate(nic.paths)
        if path == best or (best == "PIX" and path == "PXB" and g not in paired)
    )
    return None if len(near) == len(nic.paths) else near


def switch_groups(topology: Topology) -> tuple[int | None, ...] | None:
    """PCIe switch of each GPU, numbered by first GPU; None for a GPU that shares none.

    GPUs are under one switch if they read PIX to each other or to the same NIC. None if no two do.
    """
    group = list(range(topology.gpus))
    joined = [
        (a, b)
        for a, b in combinations(range(topology.gpus), 2)
        if topology.matrix[a][b] == "PIX"
        or any(nic.paths[a] == nic.paths[b] == "PIX" for nic in topology.nics)
    ]
    if not joined:
        return None
    for a, b in joined:
        old, new = max(group[a], group[b]), min(group[a], group[b])
        group = [new if g == old else g for g in group]
    shared = [g for g in dict.fromkeys(group) if group.count(g) > 1]
    return tuple(shared.index(g) if g in shared else None for g in group)


def numa_ids(topology: Topology) -> tuple[int | None, ...] | None:
    """NUMA node of each GPU; of an affinity to several, the lowest where that distinguishes GPUs.

    ``0,3-9`` and ``1,19-25`` (Grace: a processor and GPU memories) are nodes 0 and 1; ``0-1`` for
    every GPU (a virtual machine) says nothing: None.
    """
    if topology.numa is None:
        return None
    own = topology.own_numa or (None,) * topology.gpus
    sets = {frozenset(nodes) for nodes in topology.numa if nodes is not None}
    apart = len(sets) > 1 and all(not a & b for a, b in combinations(sorted(sets, key=sorted), 2))
    ids = tuple(
        nodes[0] if nodes is not None and (len(nodes) == 1 or apart or own[g] is not None) else None
        for g, nodes in enumerate(topology.numa)
    )
    return ids if any(node is not None for node in ids) else None
