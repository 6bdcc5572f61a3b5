"""What the generation of a GPU tells where no known server does: link rate, links, PCIe.

Promises: planning rates of the contract, section 1; None for a GPU that is not listed.
Called by ``modelling``.

Facts of a server model that follow from the paths: near NICs, PCIe switches, NUMA node ids.

Promises: pure functions of a ``Topology``; where the paths do not tell, None. Called by ``modelling``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from models.hardware import slug
from planner.read.topo.topology import NicPaths, Topology


@dataclass(frozen=True, slots=True)
class Generation:
    """MB/s of one NVLink and links of one GPU, None without NVLink; MB/s below one PCIe switch."""

    link_MBps: int | None
    links: int | None
    pcie_MBps: int


def _each(
    names: str, link_MBps: int | None, links: int | None, pcie_MBps: int
) -> dict[str, Generation]:
    return {name: Generation(link_MBps, links, pcie_MBps) for name in names.split()}


_BY_NAME = {
    **_each("p100", 18000, 4, 10000),
    **_each("v100 v100s", 20000, 6, 10000),
    **_each("2080 8000", 20000, 2, 10000),
    **_each("a100 a100x", 20000, 12, 20000),
    **_each("a800", 20000, 8, 20000),
    **_each("a30", 20000, 4, 20000),
    **_each("a40 a6000 a5500 a5000 a4500 3090", 12000, 4, 20000),
    **_each("h100 h200 h20 gh200", 20600, 18, 40000),
    **_each("h800", 20600, 8, 40000),
    **_each("b100 b200 b300 gb200 gb300", 40100, 18, 40000),
    **_each("k80 p4 p40 t4", None, None, 10000),
    **_each("a2 a10 a10g a16 l4 l20 l40 l40s 4090", None, None, 20000),
    **_each("5090", None, None, 40000),
}


def generation(gpu: str) -> Generation | None:
    """By a word of the name: ``NVIDIA H100 80GB HBM3``, ``RTX A6000``; None if no word is known."""
    return next((_BY_NAME[word] for word in slug(gpu).split("-") if word in _BY_NAME), None)


MOST_LINKS = 18
"""Most NVLinks that any GPU has: pairs that together name more go through a switch."""


_PAIRS: tuple[tuple[int, int, tuple[str, ...]], ...] = (
    (1, 2, ("P100",)),
    (1, 6, ("V100", "RTX 2080 Ti", "Quadro RTX 8000")),
    (4, 12, ("A100", "A800", "A30")),
    (4, 4, ("RTX A6000", "A40", "RTX 3090")),
    (6, 18, ("H100", "H200", "H20")),
    (13, 18, ("B200", "B300")),
)
"""Fewest and most links that join two GPUs on boards, by bridges and through switches: a bridge
has four, a board of four H100 six a pair, Blackwell GPUs meet at a switch alone."""


def linkable(pairs: set[int], links: int) -> tuple[str, ...]:
    """Common GPUs that may be joined like this, by name; the oldest first.

    ``pairs``: every count of links that two of the GPUs share; ``links``: the most of one GPU.
    """
    found = []
    for fewest, most, names in _PAIRS:
        if all(fewest <= count <= most for count in pairs):
            found += [name for name in names if links <= _links(name)]
    return tuple(found)


def _links(gpu: str) -> int:
    told = generation(gpu)
    return (told.links if told is not None else None) or 0


_BEST_FIRST = ("PIX", "PXB", "PHB", "NODE")


def near_gpus(topology: Topology) -> tuple[tuple[int, ...] | None, ...]:
    """Of each NIC, the indices of the GPUs it is near; None: all, as far as paths can tell.

    A NIC is near the GPUs it shares a PCIe switch with (PIX, PXB), a closer pairing first: PXB does
    not count where both the GPU has a PIX NIC and the NIC a PIX GPU (as on a DGX-2). A NIC behind
    no such switch is near the GPUs it has its best path to, but never over SYS: contract, section
    3.2, counts a NIC of the other socket by half. A GPU with memory of its own NUMA node (Grace)
    is reached over C2C, so SYS says nothing of it.
    """
    own = topology.own_numa
    coherent = own is not None and all(node is not None for node in own)
    served = {
        g for g in range(topology.gpus) if any(nic.paths[g] == "PIX" for nic in topology.nics)
    }
    return tuple(_near(nic, served, coherent=coherent) for nic in topology.nics)


def _near(nic: NicPaths, served: set[int], *, coherent: bool) -> tuple[int, ...] | None:
    best = next((path for path in _BEST_FIRST if path in nic.paths), None)
    if best is None:
        return None if coherent else ()
    near = tuple(
        g
        for g, path in enumerate(nic.paths)
        if path == best or (best == "PIX" and path == "PXB" and g not in served)
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
        if (topology.matrix is not None and topology.matrix[a][b] == "PIX")
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
    """NUMA node of each GPU; of an affinity to several, the lowest where that tells GPUs apart.

    ``0,3-9`` beside ``1,19-25`` (Grace: a processor and GPU memories) are nodes 0 and 1; ``0-1``
    for every GPU (a virtual machine) tells nothing: None.
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
