"""Facts of a server model that follow from the paths: near NICs, PCIe switches, NUMA node ids.

Promises: pure functions of a ``Topology``; where the paths do not tell, None. Called by ``modelling``.
"""

from __future__ import annotations

from itertools import combinations

from planner.reading.matrices.topology import NicPaths, Topology

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
