"""How close an assignment of the admission program is to a plan that is liked.

Promises: GPUs placed in the regions where the plan has them, gangs in the domains, running gangs that
stay as they do there; a maximum, not a rule. Called by ``pooled``.
"""

from __future__ import annotations

from models.placement.admissions import Admissions
from models.placement.options import standing_gpus
from models.placement.program import Linear, Program
from models.placement.variables import PodPool


def likeness(program: Program, record: Admissions) -> Linear:
    """The objective; its helper variables and rows go into the program."""
    region_of = {n: region.number for region in record.pools.regions for n in region.nodes}
    total = Linear()
    for pool in record.pods:
        wanted = _wanted(record, pool, region_of)
        for piece in pool.pieces:
            most = min(wanted.get(piece.region, 0), program.upper[piece.variable])
            if most:
                total.add(_capped(program, piece.variable, most), pool.role.gpus)
    for own in record.pooled:
        for demand in own.demands:
            place = record.liked_place(own, demand)
            if place is not None:
                variable = own.shapes[place[0]][1][place[1]]
                total.add(_capped(program, variable, 1), demand.gpus)
    for stay in record.variables.stays:
        if record.is_liked(stay.demand):
            total.add(stay.admit, 1 + standing_gpus(record.instance, stay.demand.gang))
    return total


def _wanted(record: Admissions, pool: PodPool, region_of: dict[int, int]) -> dict[int, int]:
    """Pieces of the pool that the liked plan has in each region."""
    counts: dict[int, int] = {}
    for own in record.pooled:
        for demand in own.demands:
            for n in record.liked_nodes(own, demand, pool):
                if n in region_of:
                    counts[region_of[n]] = counts.get(region_of[n], 0) + 1
    return counts


def _capped(program: Program, variable: int, most: int) -> int:
    """A variable that is at most ``most`` and at most another variable."""
    capped = program.integer(0, most)
    program.at_most(Linear().add(capped).add(variable, -1))
    return capped
