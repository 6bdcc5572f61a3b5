"""What may be carved out of the servers of a region: its flow with all arcs, or with the sets themselves.

Promises: every set of the sizes asked for that the packing offers, each with a variable that counts it.
Called by ``variables``.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.occupancy import Room
from models.placement.cases import CasePacking
from models.placement.flows import Admits, RegionFlow, beginning, mesh_start
from models.placement.packing import MaskPacking, subsets
from models.placement.pieces import arcs_of
from models.placement.program import Program
from models.placement.regions import Region


def flow_of(
    program: Program, region: Region, rooms: Sequence[Room], admits: Admits, sizes: set[int]
) -> RegionFlow:
    """``sizes``: GPUs of the sets that any demand may take there."""
    if _by_sets(region, sizes):
        return _sets(program, region, rooms[region.nodes[0]], admits, sizes)
    return _flow(program, region, rooms, admits, sizes)


def _by_sets(region: Region, sizes: set[int]) -> bool:
    """One mesh server on which anything is decided."""
    if isinstance(region.packing, CasePacking):
        return True
    mesh = isinstance(region.packing, MaskPacking) and len(region.nodes) == 1
    return mesh and bool(sizes or len(region.content) > 1)


def _flow(
    program: Program, region: Region, rooms: Sequence[Room], admits: Admits, sizes: set[int]
) -> RegionFlow:
    flow = beginning(program, region, rooms, admits)
    sizes = sizes | {gpus for _, gpus, _ in flow.held}
    arcs = arcs_of(region, flow.starts, sizes)
    servers = len(region.nodes)
    flow.arcs = [(arc, program.integer(0, servers)) for arc in arcs]
    states = dict.fromkeys([*flow.starts, *(arc.target for arc in arcs)])
    flow.rests = {state: program.integer(0, servers) for state in states}
    return flow


def _sets(
    program: Program, region: Region, room: Room, admits: Admits, sizes: set[int]
) -> RegionFlow:
    packing = region.packing
    assert isinstance(packing, MaskPacking)
    flow = mesh_start(program, region, room, admits)
    indexed = not flow.cases or not all(case.hidden for case, _ in flow.cases)
    flow.sets = [
        (chosen, packing.kind(chosen), program.boolean())
        for size in sorted(sizes)
        for chosen in (subsets(room.mask, size) if indexed else ())
    ]
    # a rest is told by its size alone: any mask of that size stands for it
    most = room.mask.bit_count()
    flow.rests = {(1 << left) - 1: program.boolean() for left in range(most + 1)}
    if isinstance(packing, CasePacking):
        flow.hidden = [
            (position, packing.unknown(case, size), program.integer(0, case.free // size))
            for position, case in enumerate(packing.cases)
            for size in sorted(sizes)
            if case.hidden and size <= case.free
        ]
    return flow
